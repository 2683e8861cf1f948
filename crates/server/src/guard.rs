//! Who may ask: only pages that know the token, under an address of the loopback interface.
//!
//! The token keeps other users of the machine and other pages of the browser out. The Host header keeps out pages whose
//! name was made to point at 127.0.0.1 after they were loaded.

use std::{fs::File, io, io::Read};

use axum::http::{HeaderMap, header::HOST};

/// Bytes of randomness of a token.
const TOKEN_BYTES: usize = 16;

/// Returns a random word of hexadecimal digits.
///
/// # Errors
/// The system's error if it has no random numbers.
pub(crate) fn token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns whether the request names a loopback address with this port, exactly once.
pub(crate) fn is_local(headers: &HeaderMap, port: u16) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let names = ["127.0.0.1", "localhost"];
    host.to_str().is_ok_and(|host| names.iter().any(|name| host == format!("{name}:{port}")))
}

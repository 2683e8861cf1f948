//! The framing of the protocol: a header with the length, then JSON.

use std::io::{self, BufRead, Write};

use serde::Deserialize;
use serde_json::Value;

/// Size of a request, at most, in bytes.
const LARGEST: usize = 16 << 20;

/// A request of the client.
#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    pub(crate) seq: i64,
    #[serde(default)]
    pub(crate) command: String,
    #[serde(default)]
    pub(crate) arguments: Value,
}

/// Reads the next request; `None` at the end of the input.
///
/// # Errors
/// The input is not the protocol. A header of HTTP is an error, so that no web page can be a client.
pub(crate) fn read(input: &mut dyn BufRead) -> io::Result<Option<Request>> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut length: Option<usize> = None;
    loop {
        let mut line = String::new();
        if io::Read::take(&mut *input, 1 << 10).read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().ok();
            }
            Some((name, _)) if name.eq_ignore_ascii_case("content-type") => {}
            _ => return Err(wrong(format!("expected Content-Length, got {line}"))),
        }
    }
    let length = length.filter(|&length| length <= LARGEST);
    let length =
        length.ok_or_else(|| wrong("a header has no Content-Length, or too large a one".to_owned()))?;
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes)?;
    serde_json::from_slice(&bytes).map(Some).map_err(|error| wrong(error.to_string()))
}

/// Writes a response or an event.
pub(crate) fn write(output: &mut dyn Write, message: &Value) -> io::Result<()> {
    let text = message.to_string();
    write!(output, "Content-Length: {}\r\n\r\n{text}", text.len())?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_and_a_web_page_is_refused() {
        let text = b"Content-Length: 31\r\n\r\n{\"seq\":1,\"command\":\"threads\"}  ".to_vec();
        let mut input = &text[..];
        let request = read(&mut input).unwrap().unwrap();
        assert_eq!((request.seq, request.command.as_str()), (1, "threads"));
        assert!(read(&mut input).unwrap().is_none());
        let page = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
        assert!(read(&mut &page[..]).is_err());
        assert!(read(&mut &b"Content-Length: 99999999999\r\n\r\n"[..]).is_err());
        assert!(read(&mut &b"Content-Length: 5\r\n\r\n{}"[..]).is_err());
    }
}

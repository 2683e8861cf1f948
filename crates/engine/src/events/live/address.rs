//! The address of a live session: `net://HOST[:PORT][/host/NAME/SESSION]`.

use std::fmt;

use hodo_formats::ctf::lttng_live::PORT;

/// The URL schemes of babeltrace2.
const SCHEMES: [&str; 3] = ["net://", "net4://", "net6://"];

/// The address of a relay daemon, and optionally of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveAddress {
    /// The host of the daemon.
    pub host: String,
    /// The port on which it listens for viewers.
    pub port: u16,
    /// The host name of the traced machine, and the session's name.
    pub session: Option<(String, String)>,
}

impl LiveAddress {
    /// Returns whether a text starts with a known scheme.
    pub fn is_meant(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    }

    /// Parses an address.
    ///
    /// # Errors
    /// Returns a text with the expected syntax.
    pub fn parse(text: &str) -> Result<LiveAddress, String> {
        let wrong = || format!("`{text}`: net://HOST[:PORT]/host/NAME/SESSION expected");
        let rest = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).ok_or_else(wrong)?;
        let (daemon, path) = rest.split_once('/').unwrap_or((rest, ""));
        // An IPv6 address is in brackets.
        let (host, port) = match daemon.strip_prefix('[') {
            Some(inner) => {
                let (host, after) = inner.split_once(']').ok_or_else(wrong)?;
                (host, after.strip_prefix(':'))
            }
            None => daemon.split_once(':').map_or((daemon, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| wrong()))?;
        let session = match path.trim_end_matches('/').split('/').collect::<Vec<_>>().as_slice() {
            [""] => None,
            ["host", name, session] if !name.is_empty() && !session.is_empty() => {
                Some(((*name).to_owned(), (*session).to_owned()))
            }
            _ => return Err(wrong()),
        };
        if host.is_empty() { Err(wrong()) } else { Ok(LiveAddress { host: host.to_owned(), port, session }) }
    }
}

impl fmt::Display for LiveAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "net://{host}:{}", self.port)?;
        self.session.iter().try_for_each(|(host, name)| write!(f, "/host/{host}/{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_daemon_and_maybe_a_session() {
        let parse =
            |text| LiveAddress::parse(text).map(|address| (address.host, address.port, address.session));
        let session = Some(("vm".to_owned(), "s1".to_owned()));
        assert_eq!(parse("net://h"), Ok(("h".to_owned(), 5344, None)));
        assert_eq!(parse("net4://1.2.3.4:7/host/vm/s1"), Ok(("1.2.3.4".to_owned(), 7, session.clone())));
        assert_eq!(parse("net6://[::1]:7/host/vm/s1/"), Ok(("::1".to_owned(), 7, session)));
        for wrong in [
            "net://",
            "net://h:x",
            "net://h/s1",
            "net://h/host/vm",
            "net://h/host//s",
            "http://h",
            "net6://[::1",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            LiveAddress::parse("net://[::1]/host/a/b").unwrap().to_string(),
            "net://[::1]:5344/host/a/b"
        );
    }
}

//! The signals that the recorder handles.

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// Signals that would end the recorder, whose work begins when the program has ended. Those that are ignored stay so.
pub(crate) fn ending() -> Vec<i32> {
    [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(|&signal| !ignored(signal)).collect()
}

/// Whether a signal was ignored when this process began, as under nohup(1): programs that it starts should continue to
/// ignore it.
fn ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    mask(&status).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// The mask of ignored signals in /proc/self/status (proc(5)).
fn mask(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_mask_is_found() {
        assert_eq!(super::mask("Name:\tx\nSigIgn:\t0000000000001006\n"), Some(0x1006));
        assert_eq!(super::mask("Name:\tx\n"), None);
    }
}

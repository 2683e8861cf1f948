//! Lines before the first timestamp of a segment.

/// Lines that a segment writes before its first timestamp. They are already in the text, and are truncated if they lie
/// outside of the window.
#[derive(Default)]
pub(super) struct EarlyLines {
    /// Offset of the lines in the text, until the first timestamp arrives.
    begin: Option<usize>,
    /// Instructions before the first timestamp, written or dropped.
    instructions: u64,
    /// Instructions dropped because of the limit.
    left_out: u64,
}

impl EarlyLines {
    /// Maximum size of these lines, in bytes.
    const MOST: usize = 64 << 20;

    /// Begins a segment; `is_part` if only a window is selected.
    pub(super) fn begin(&mut self, is_part: bool, text: &[u8]) {
        *self = EarlyLines { begin: is_part.then_some(text.len()), ..EarlyLines::default() };
    }

    /// Returns whether the first timestamp is still missing, so that the lines may have to be truncated.
    pub(super) fn is_waiting(&self) -> bool {
        self.begin.is_some()
    }

    /// Counts instructions before the first timestamp, and returns whether to write their lines. Replaces all early lines
    /// by `replacement` once they exceed the limit.
    #[cold]
    pub(super) fn takes(&mut self, instructions: u64, text: &mut Vec<u8>, replacement: &str) -> bool {
        let Some(begin) = self.begin else { return false };
        self.instructions += instructions;
        if self.left_out == 0 && text.len() - begin > EarlyLines::MOST {
            text.truncate(begin);
            text.extend_from_slice(replacement.as_bytes());
            // 0 stands for nothing dropped.
            self.left_out = self.instructions.max(1);
        } else if self.left_out > 0 {
            self.left_out += instructions;
        }
        self.left_out == 0
    }

    /// Handles the first timestamp, which is in the window if `is_wanted`. Returns whether lines were truncated.
    pub(super) fn decide(&mut self, is_wanted: bool, text: &mut Vec<u8>) -> bool {
        let Some(begin) = self.begin.take() else { return false };
        if !is_wanted {
            text.truncate(begin);
            self.left_out = 0;
        }
        !is_wanted
    }

    /// Returns the number of instructions dropped at the end of a segment, because of the limit or because no timestamp
    /// arrived.
    pub(super) fn left_out(&self) -> u64 {
        if self.is_waiting() { self.instructions } else { self.left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_lines_are_kept_only_if_their_first_timestamp_is_wanted() {
        for wanted in [false, true] {
            let mut text = b"before\n".to_vec();
            let mut early = EarlyLines::default();
            let is_part = true;
            early.begin(is_part, &text);
            let no_replacement = "";
            assert!(early.takes(1, &mut text, no_replacement));
            text.extend_from_slice(b"line\n");
            assert_eq!(early.left_out(), 1, "no time came so far");
            assert_eq!(early.decide(wanted, &mut text), !wanted);
            assert_eq!(text, if wanted { &b"before\nline\n"[..] } else { b"before\n" });
            assert!(early.left_out() == 0 && !early.takes(1, &mut text, no_replacement));
            assert!(!early.is_waiting());
        }
    }
}

//! The codes of `prev_state` of `sched_switch`, from its print format.
//!
//! ```text
//! REC->prev_state & (2048-1) ? __print_flags(REC->prev_state & (2048-1), "|", { 1, "S"} , { 2, "D" }, …) : "R",
//! REC->prev_state & 2048 ? "+" : ""
//! ```
//!
//! Sources: `TRACE_EVENT(sched_switch)` of the kernel, and the expression of a format file: the field, its mask, then pairs of
//! a bit and its letter. Masks are constant expressions, such as `(((0x0000 | 0x0001 | …) + 1) << 1)`.

use hodo_model::kernel::StateCodes;

/// The field, as a print format names it.
const FIELD: &str = "REC->prev_state";
/// Deepest nesting of parentheses; the kernel's has four.
const DEEPEST: usize = 32;

/// Returns the codes that the text of a format file describes; `None` if it does not describe the field.
pub(crate) fn state_codes(text: &[u8]) -> Option<StateCodes> {
    let text = std::str::from_utf8(text).ok()?;
    let print = &text[text.find("print fmt:")?..];
    let mut rest = print.split_once("__print_flags(")?.1.trim_start().strip_prefix(FIELD)?;
    let mut bits = Vec::new();
    while rest.contains('{') {
        bits.push(bit_and_letter(&mut rest)?);
    }
    if bits.is_empty() {
        return None;
    }
    let mut ends = print.match_indices(FIELD).map(|(start, _)| start + FIELD.len());
    let preempted = ends.find_map(|end| mask_of_plus(&print[end..]));
    Some(StateCodes::of_format(&bits, preempted.unwrap_or(0)))
}

/// Reads the next `{ 0x0001, "S" }`, and moves after it. In all kernels a bit has one letter.
fn bit_and_letter(rest: &mut &str) -> Option<(u64, char)> {
    let (inside, after) = rest.split_once('{')?.1.split_once('}')?;
    *rest = after;
    let (bit, name) = inside.split_once(',')?;
    let mut letters = name.trim().strip_prefix('"')?.strip_suffix('"')?.chars();
    let letter = letters.next().filter(|_| letters.as_str().is_empty())?;
    Some((Expression::evaluate(bit)?, letter))
}

/// Returns the value of ` & MASK ? "+"`.
fn mask_of_plus(text: &str) -> Option<u64> {
    let (mask, then) = text.trim_start().strip_prefix('&')?.split_once('?')?;
    then.trim_start().strip_prefix("\"+\"")?;
    Expression::evaluate(mask)
}

/// A constant expression in C, of the operators that masks need.
struct Expression<'a> {
    rest: &'a str,
    depth: usize,
}

impl Expression<'_> {
    /// Returns the value of a whole expression.
    fn evaluate(text: &str) -> Option<u64> {
        let mut expression = Expression { rest: text, depth: 0 };
        let value = expression.or()?;
        expression.rest.trim_start().is_empty().then_some(value)
    }

    /// Takes an operator, if it is next. Returns whether it was.
    fn take(&mut self, operator: &str) -> bool {
        let rest = self.rest.trim_start();
        let after = rest.strip_prefix(operator);
        self.rest = after.unwrap_or(rest);
        after.is_some()
    }

    fn or(&mut self) -> Option<u64> {
        let mut value = self.and()?;
        while self.take("|") {
            value |= self.and()?;
        }
        Some(value)
    }

    fn and(&mut self) -> Option<u64> {
        let mut value = self.shift()?;
        while self.take("&") {
            value &= self.shift()?;
        }
        Some(value)
    }

    fn shift(&mut self) -> Option<u64> {
        let mut value = self.sum()?;
        while self.take("<<") {
            value = value.checked_shl(u32::try_from(self.sum()?).ok()?)?;
        }
        Some(value)
    }

    fn sum(&mut self) -> Option<u64> {
        let mut value = self.operand()?;
        loop {
            if self.take("+") {
                value = value.checked_add(self.operand()?)?;
            } else if self.take("-") {
                value = value.checked_sub(self.operand()?)?;
            } else {
                return Some(value);
            }
        }
    }

    /// A number, or an expression in parentheses.
    fn operand(&mut self) -> Option<u64> {
        if self.take("(") {
            self.depth += 1;
            let value = if self.depth > DEEPEST { None } else { self.or() }?;
            self.depth -= 1;
            return self.take(")").then_some(value);
        }
        let length = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(length);
        self.rest = rest;
        let number = number.trim_end_matches(['u', 'U', 'l', 'L']);
        match number.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => number.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use hodo_model::kernel::PrevState::{
        self, Ended, Idle, Interruptible, Runnable, Stopped, Uninterruptible,
    };

    use super::*;

    /// The end of a format file of a kernel, and codes with their meaning.
    type Case = (&'static str, &'static str, &'static [(i64, PrevState)]);

    /// As `events/sched/sched_switch/format` of these kernels has them.
    const CASES: &[Case] = &[
        (
            "2.6.35",
            r#"REC->prev_state ? __print_flags(REC->prev_state, "|", { 1, "S"} , { 2, "D" }, { 4, "T" }, { 8, "t" }, { 16, "Z" }, { 32, "X" }, { 64, "x" }, { 128, "W" }) : "R", REC->next_comm, REC->next_pid, REC->next_prio"#,
            &[(0, Runnable), (1, Interruptible), (64, Ended), (130, Uninterruptible)],
        ),
        (
            "3.10",
            r#"REC->prev_state & (1024-1) ? __print_flags(REC->prev_state & (1024-1), "|", { 1, "S"} , { 2, "D" }, { 4, "T" }, { 8, "t" }, { 16, "Z" }, { 32, "X" }, { 64, "x" }, { 128, "K" }, { 256, "W" }, { 512, "P" }) : "R", REC->prev_state & 1024 ? "+" : "", REC->next_comm, REC->next_pid, REC->next_prio"#,
            &[(1024, Runnable), (64, Ended), (512, Stopped), (132, Stopped), (130, Uninterruptible)],
        ),
        (
            "4.4",
            r#"REC->prev_state & (2048-1) ? __print_flags(REC->prev_state & (2048-1), "|", { 1, "S"} , { 2, "D" }, { 4, "T" }, { 8, "t" }, { 16, "Z" }, { 32, "X" }, { 64, "x" }, { 128, "K" }, { 256, "W" }, { 512, "P" }, { 1024, "N" }) : "R", REC->prev_state & 2048 ? "+" : "", REC->next_comm, REC->next_pid, REC->next_prio"#,
            &[(2048, Runnable), (64, Ended), (1026, Idle), (2, Uninterruptible), (129, Interruptible)],
        ),
        (
            "4.14",
            r#"(REC->prev_state & ((((0x0000 | 0x0001 | 0x0002 | 0x0004 | 0x0008 | 0x0010 | 0x0020 | 0x0040) + 1) << 1) - 1)) ? __print_flags(REC->prev_state & ((((0x0000 | 0x0001 | 0x0002 | 0x0004 | 0x0008 | 0x0010 | 0x0020 | 0x0040) + 1) << 1) - 1), "|", { 0x01, "S" }, { 0x02, "D" }, { 0x04, "T" }, { 0x08, "t" }, { 0x10, "X" }, { 0x20, "Z" }, { 0x40, "P" }, { 0x80, "I" }) : "R", REC->prev_state & (((0x0000 | 0x0001 | 0x0002 | 0x0004 | 0x0008 | 0x0010 | 0x0020 | 0x0040) + 1) << 1) ? "+" : "", REC->next_comm, REC->next_pid, REC->next_prio"#,
            &[(256, Runnable), (16, Ended), (32, Ended), (64, Stopped), (128, Idle), (2, Uninterruptible)],
        ),
        (
            "6.18",
            r#"(REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) - 1)) ? __print_flags(REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) - 1), "|", { 0x00000001, "S" }, { 0x00000002, "D" }, { 0x00000004, "T" }, { 0x00000008, "t" }, { 0x00000010, "X" }, { 0x00000020, "Z" }, { 0x00000040, "P" }, { 0x00000080, "I" }) : "R", REC->prev_state & (((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) ? "+" : "", REC->next_comm, REC->next_pid, REC->next_prio"#,
            &[(256, Runnable), (32, Ended), (128, Idle), (1, Interruptible), (4, Stopped)],
        ),
    ];

    fn codes(print: &str) -> Option<StateCodes> {
        let text = format!(
            "name: sched_switch\nID: 1\nformat:\n\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\n\
             print fmt: \"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s\", REC->prev_comm, \
             REC->prev_pid, REC->prev_prio, {print}\n"
        );
        state_codes(text.as_bytes())
    }

    #[test]
    fn codes_are_those_of_the_print_format() {
        for (kernel, print, expected) in CASES {
            let codes = codes(print).unwrap_or_else(|| panic!("{kernel}"));
            for &(code, state) in *expected {
                assert_eq!(codes.state(code), state, "Linux {kernel}: {code}");
            }
        }
    }

    #[test]
    fn other_formats_describe_no_codes() {
        assert_eq!(codes("REC->prev_state"), None);
        assert_eq!(codes(r#"__print_flags(REC->prev_state, "|", { 1, "sleeps" })"#), None);
        assert_eq!(codes(r#"__print_flags(REC->other, "|", { 1, "S" })"#), None);
        let deep = format!(r#"__print_flags(REC->prev_state, "|", {{ {}1, "S" }})"#, "(".repeat(1 << 16));
        assert_eq!(codes(&deep), None);
        assert_eq!(state_codes(b"name: x\nprint fmt: \xff"), None);
    }

    #[test]
    fn masks_are_constant_expressions() {
        let values = [
            ("1024-1", Some(1023)),
            (" ((0x1 | 0x2) + 1) << 1 ", Some(8)),
            ("7UL & 5", Some(5)),
            ("1 << 64", None),
            ("1 - 2", None),
            ("(1", None),
            ("TASK_STATE_MAX", None),
        ];
        for (text, value) in values {
            assert_eq!(Expression::evaluate(text), value, "{text}");
        }
    }
}

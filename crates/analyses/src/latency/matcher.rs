//! Finds the markers in a run of instructions, once for each run of code.
//!
//! Sequences are matched with the bit-parallel Shift-And algorithm: a bit of the *state* is set if the last
//! instructions match the sequence up to that position. An instruction has a bit for each position of a sequence that
//! it matches.

use hodo_isa::Instruction;
use hodo_model::{Arrival, Code, End, Marker, Pattern, Place, Prefix};
use rustc_hash::FxHashMap;

use super::marker::is_called;

/// The role of a marker, as bits: the begin of an interval, its end, or both.
pub(super) type MarkerRoles = u8;
/// The begin of an interval.
pub(super) const FROM: MarkerRoles = 1;
/// Its end.
pub(super) const TO: MarkerRoles = 2;
/// The last instruction of the marker is a `popf`, which may turn interrupts on or off.
pub(super) const POPF: MarkerRoles = 4;

/// The markers of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct MarkerMatcher {
    /// Markers other than instruction sequences.
    others: Vec<(Marker, MarkerRoles)>,
    /// The instructions of all sequences, concatenated.
    patterns: Vec<Pattern>,
    /// The bits of the first positions of sequences.
    pub(super) first: u64,
    /// The bits of the last positions of sequences, by role.
    last: LastBits,
    /// Length of the longest sequence in instructions.
    pub(super) longest: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct LastBits {
    from: u64,
    to: u64,
    popf: u64,
}

/// The matches of one instruction of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatchedInstruction {
    /// Its index in the run.
    pub(super) index: u32,
    /// Markers before it.
    pub(super) before: MarkerRoles,
    /// Positions of sequences that it matches.
    pub(super) bits: u64,
    /// Markers after it.
    pub(super) after: MarkerRoles,
}

/// A run of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RunKey {
    at: Arrival,
    offset: u64,
    since: u64,
    count: u32,
    end: End,
}

/// Memoized matches of runs of code.
#[derive(Clone, Debug, Default)]
pub struct MatchCache(FxHashMap<RunKey, Box<[MatchedInstruction]>>);

/// Maximum number of cached runs of code; the cache is cleared when it is full.
const MOST_RUNS: usize = 1 << 20;

impl MarkerMatcher {
    pub(super) fn new(from: &[Marker], to: &[Marker]) -> MarkerMatcher {
        let mut matcher = MarkerMatcher::default();
        for (markers, role) in [(from, FROM), (to, TO)] {
            for marker in markers {
                let Marker::Instructions(sequence) = marker else {
                    matcher.others.push((marker.clone(), role));
                    continue;
                };
                let begin = matcher.patterns.len();
                // A request with more instructions is refused earlier, and an empty sequence matches nothing.
                if sequence.is_empty() || begin + sequence.len() > Marker::MOST_INSTRUCTIONS {
                    continue;
                }
                matcher.patterns.extend(sequence.iter().cloned());
                matcher.first |= 1 << begin;
                let last = 1 << (matcher.patterns.len() - 1);
                let of_role = if role == TO { &mut matcher.last.to } else { &mut matcher.last.from };
                *of_role |= last;
                let is_popf = sequence.last().is_some_and(|last| last.mnemonic.starts_with("popf"));
                matcher.last.popf |= if is_popf { last } else { 0 };
                matcher.longest = matcher.longest.max(sequence.len());
            }
        }
        matcher
    }

    /// Returns whether a marker ends in `popf`.
    pub(super) fn has_popf(&self) -> bool {
        self.last.popf != 0
    }

    /// Returns the state after an instruction.
    #[inline]
    pub(super) fn step(&self, state: u64, bits: u64) -> u64 {
        ((state << 1) | self.first) & bits
    }

    /// Returns the state after an instruction, of sequences that began before it.
    pub(super) fn advance(&self, state: u64, bits: u64) -> u64 {
        (state << 1) & !self.first & bits
    }

    /// Returns the roles of the sequences that a state completes.
    #[inline]
    pub(super) fn roles(&self, state: u64) -> MarkerRoles {
        let LastBits { from, to, popf } = self.last;
        let role = |bits: u64, role| if state & bits != 0 { role } else { 0 };
        role(from, FROM) | role(to, TO) | role(popf, POPF)
    }

    /// Returns the matches of a run, in order.
    #[inline]
    pub(super) fn find<'c>(
        &self,
        cache: &'c mut MatchCache,
        at: &Arrival,
        code: &Code<'_>,
    ) -> &'c [MatchedInstruction] {
        let count = code.lengths.len() as u32;
        let key = RunKey { at: *at, offset: code.offset, since: code.since, count, end: code.end };
        if cache.0.len() >= MOST_RUNS && !cache.0.contains_key(&key) {
            cache.0.clear();
        }
        cache.0.entry(key).or_insert_with(|| self.match_run(at, code))
    }

    fn match_run(&self, at: &Arrival, code: &Code<'_>) -> Box<[MatchedInstruction]> {
        let mut found = Vec::new();
        let mut offset = 0u64;
        for (index, &length) in code.lengths.iter().enumerate() {
            let mut bits = 0;
            let left = code.bytes.get(offset as usize..).filter(|_| !self.patterns.is_empty());
            if let Some(Ok(instruction)) = left.map(|bytes| code.isa.instruction(bytes, 0)) {
                for (bit, pattern) in self.patterns.iter().enumerate() {
                    bits |= u64::from(fits(pattern, &instruction)) << bit;
                }
            }
            let is_last = index + 1 == code.lengths.len();
            let (mut before, mut after) = (0, 0);
            for (marker, role) in &self.others {
                before |= if is_before(marker, at, code, offset) { *role } else { 0 };
                after |= if is_last && is_after(marker, at, code) { *role } else { 0 };
            }
            if before != 0 || after != 0 || bits != 0 {
                found.push(MatchedInstruction { index: index as u32, before, bits, after });
            }
            offset += u64::from(length);
        }
        found.into_boxed_slice()
    }
}

/// Returns whether a marker is before the instruction at an offset of a run.
fn is_before(marker: &Marker, at: &Arrival, code: &Code<'_>, offset: u64) -> bool {
    match marker {
        Marker::Instructions(_) | Marker::Exit(_) => false,
        Marker::Entry(function) => offset == 0 && at.place == Place::Entry && *function == at.function,
        Marker::Address(address) => at.address.wrapping_add(offset) == *address,
        Marker::Code { module, offset: wanted } => {
            *module == at.function.module && code.offset.wrapping_add(offset) == *wanted
        }
    }
}

/// Returns whether a marker is after the last instruction of a run.
fn is_after(marker: &Marker, at: &Arrival, code: &Code<'_>) -> bool {
    matches!(marker, Marker::Exit(function) if *function == at.function) && code.end == End::Return
}

/// Returns whether an instruction matches a pattern.
fn fits(pattern: &Pattern, instruction: &Instruction) -> bool {
    let prefix = match pattern.prefix {
        None => true,
        Some(Prefix::Rep) => instruction.has_rep_prefix(),
        Some(Prefix::Repne) => instruction.has_repne_prefix(),
        Some(Prefix::Lock) => instruction.has_lock_prefix(),
    };
    let named = pattern.mnemonic == "*"
        || is_called(&instruction.mnemonic(), &pattern.mnemonic)
        || instruction.written_mnemonic() == pattern.mnemonic;
    prefix && named && (pattern.operands.is_empty() || has_operands(pattern, instruction))
}

fn has_operands(pattern: &Pattern, instruction: &Instruction) -> bool {
    let operands = instruction.operands();
    pattern.operands.len() == operands.len()
        && pattern.operands.iter().zip(&operands).all(|(wanted, operand)| is_like(operand, wanted))
}

/// Returns whether a text matches a pattern in which `*` matches any text; blanks are ignored.
pub fn is_like(text: &str, pattern: &str) -> bool {
    let bare = |text: &str| text.chars().filter(|letter| !letter.is_whitespace()).collect::<String>();
    let (text, pattern) = (bare(text), bare(pattern));
    let Some((first, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(mut left) = text.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').map_or(("", rest), |(middle, last)| (middle, last));
    for piece in middle.split('*').filter(|piece| !piece.is_empty()) {
        let Some(begin) = left.find(piece) else { return false };
        left = &left[begin + piece.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(bytes: &[u8]) -> Instruction {
        hodo_model::Isa::X86_64.instruction(bytes, 0).unwrap()
    }

    #[track_caller]
    fn matches(text: &str, bytes: &[u8]) -> bool {
        match &super::super::marker::parse(text).unwrap()[..] {
            [super::super::marker::Named::Instructions(patterns)] => fits(&patterns[0], &instruction(bytes)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn instructions_are_recognised_by_mnemonic_prefix_and_operands() {
        assert!(matches("pushf", &[0x9c]) && matches("pushfq", &[0x9c]) && !matches("popf", &[0x9c]));
        assert!(
            matches("pause", &[0xf3, 0x90])
                && matches("rep nop", &[0xf3, 0x90])
                && !matches("nop", &[0xf3, 0x90])
        );
        assert!(
            matches("rep movsb", &[0xf3, 0xa4])
                && !matches("rep movsb", &[0xa4])
                && matches("movsb", &[0xf3, 0xa4])
        );
        // mov %rax, %cr3
        let write_cr3 = [0x0f, 0x22, 0xd8];
        assert!(
            matches("mov *, %cr3", &write_cr3)
                && matches("mov %rax,%cr3", &write_cr3)
                && !matches("mov %cr3, *", &write_cr3)
        );
        let increments = [0x48, 0xff, 0x05, 0, 0, 0, 0];
        assert!(
            matches("incq *", &increments) && matches("inc", &increments) && !matches("incl", &increments)
        );
        assert!(matches("mov", &write_cr3) && !matches("mov *", &write_cr3) && matches("*", &write_cr3));
    }

    #[test]
    fn stars_stand_for_any_text() {
        assert!(is_like("8(%rdi)", "*(%rdi)") && is_like("8(%rdi)", "8*") && is_like("abcabd", "a*b*d"));
        assert!(!is_like("8(%rdi)", "*(%rsi)") && !is_like("ab", "ab*b") && is_like("", "*"));
    }
}

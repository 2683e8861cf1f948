//! Our decoder.

use std::borrow::Cow;

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_etm::{
    flow::Decoder,
    frames,
    packet::{A_SYNC, find_sync},
};
use hodo_flow::{Event, Executed, Sink, Switch};

use crate::{
    account::{Code, Ran},
    configurations::Configuration,
};

/// Compares the instructions with an account.
struct Comparison<'a> {
    expected: Ran<'a>,
    at: usize,
    problem: Option<String>,
}

impl Sink for Comparison<'_> {
    fn executed(&mut self, executed: Executed<'_>) {
        for address in executed.addresses() {
            if self.problem.is_some() {
                return;
            }
            let expected = self.expected.get(self.at).map(|instruction| instruction.address);
            if expected != Some(address) {
                let expected = expected.unwrap_or_default();
                self.problem = Some(format!("instruction {}: {address:x}, expected {expected:x}", self.at));
            }
            self.at += 1;
        }
    }

    fn event(&mut self, event: Event) {
        if let Event::Gap(gap) = event {
            let at = self.at;
            self.problem
                .get_or_insert(format!("gap at instruction {at}, byte {}: {}", gap.from, gap.trouble));
        }
    }
}

/// Decodes a trace, and compares each address.
pub(crate) fn compare(
    code: &Code,
    expected: Ran<'_>,
    trace: &[u8],
    configuration: &Configuration,
) -> Result<(), String> {
    let ranges = contiguous(code);
    let mut space = AddressSpace::new();
    for (start, bytes) in &ranges {
        let content = Content { bytes, origin: Origin { module: 0, offset: *start } };
        space.map(*start..start + bytes.len() as u64, content, 0);
    }
    let mut programs = [Program::new(&space, &NoLabels)];
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let bytes = match configuration.frames {
        true => Cow::Owned(
            frames::sources(trace).into_iter().next().map(|source| source.bytes).unwrap_or_default(),
        ),
        false => Cow::Borrowed(trace),
    };
    let mut comparison = Comparison { expected, at: 0, problem: None };
    let mut start = find_sync(&bytes).ok_or("no synchronization")?;
    loop {
        let next = find_sync(&bytes[start + A_SYNC.len()..]).map(|at| start + A_SYNC.len() + at);
        let span = start..next.unwrap_or(bytes.len());
        let decoder = Decoder::new(&bytes, span, &configuration.settings.config(), &schedule);
        decoder.decode(&mut programs, &mut comparison);
        match next {
            Some(next) => start = next,
            None => break,
        }
    }
    match comparison.problem {
        Some(problem) => Err(problem),
        None if comparison.at != expected.len() => {
            Err(format!("{} of {} instructions", comparison.at, expected.len()))
        }
        None => Ok(()),
    }
}

/// Joins instructions that follow each other.
pub(crate) fn contiguous(code: &Code) -> Vec<(u64, Vec<u8>)> {
    let mut ranges: Vec<(u64, Vec<u8>)> = Vec::new();
    for (&address, instruction) in code {
        match ranges.last_mut() {
            Some((start, bytes)) if *start + bytes.len() as u64 == address => bytes.extend(instruction),
            _ => ranges.push((address, instruction.clone())),
        }
    }
    ranges
}

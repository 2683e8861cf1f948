//! Invariants of a damaged recording.

use std::{ops::Range, path::Path};

use hodo_intel_pt::packet::PSB;

use crate::{
    flow::Segment,
    mutation::{Damaged, Kind},
    truth::Subject,
};

/// The emulated processor loses whole blocks; none is longer than this.
const BLOCK: usize = 512;

/// Checks all invariants of the segments read from damaged bytes, whose buffers begin at `buffer_offsets` in the file.
pub(crate) fn check(
    subject: &Subject,
    kind: Kind,
    damaged: &Damaged,
    buffer_offsets: &[u64],
    read: &[Segment],
    scratch: &Path,
) -> Result<(), String> {
    let overlaps = |span: Range<usize>| {
        subject
            .segments
            .iter()
            .any(|segment| span.contains(&segment.bytes.start) && segment.bytes.start + PSB.len() <= span.end)
    };
    let intact = damaged.intact(overlaps);
    let is_intact =
        |span: Range<usize>| intact.iter().any(|whole| whole.start <= span.start && span.end <= whole.end);
    let mut expected = (0..subject.segments.len())
        .filter(|&index| is_intact(subject.segments[index].bytes.start..subject.segments[index].plus_end))
        .peekable();
    let mut last = None;
    for segment in read {
        let Some(at) = segment.psb_offset.and_then(|offset| damaged.original(offset, buffer_offsets)) else {
            if kind.is_marked() && !segment.instructions.is_empty() {
                return Err("instructions without a PSB before them".into());
            }
            continue;
        };
        let Some(index) = subject.segment_at(at) else {
            if kind.is_marked() {
                return Err(format!("a segment begins at byte {at} of the trace, where no PSB is"));
            }
            continue;
        };
        if expected.peek().is_some_and(|&next| next < index) {
            return Err(format!("segment {} is whole but was not read", expected.peek().unwrap_or(&0)));
        }
        if kind.is_marked() && last.is_some_and(|last| index <= last) {
            return Err(format!("segment {index} is read after segment {}", last.unwrap_or(0)));
        }
        last = Some(index);
        expected.next_if_eq(&index);
        let truth = &subject.segments[index];
        if is_intact(truth.bytes.start..truth.until) {
            same(subject, index, segment)?;
        } else if kind.is_marked() {
            begins(subject, index, segment)?;
        } else {
            let end = intact.iter().find(|span| span.contains(&at)).map_or(at, |span| span.end);
            doubtful(subject, index, segment, end, scratch)?;
        }
    }
    match expected.next() {
        Some(index) => Err(format!("segment {index} is whole but was not read")),
        None => Ok(()),
    }
}

/// The instructions between two gaps are a path through the code: a contradiction to the code is never shown without a
/// gap.
pub(crate) fn check_paths(read: &[Segment]) -> Result<(), String> {
    match read.iter().find_map(|segment| segment.jump) {
        Some(address) => Err(format!("nothing leads to {address:x}, and no gap says so")),
        None => Ok(()),
    }
}

/// A segment without damage shows exactly what ran.
fn same(subject: &Subject, index: usize, segment: &Segment) -> Result<(), String> {
    let truth = &subject.ran.instructions[subject.segments[index].instructions.clone()];
    if let Some((at, gap)) = segment.gaps.first() {
        return Err(format!("a gap after instruction {at} of segment {index}, which is whole: {gap:?}"));
    }
    if segment.instructions == truth {
        return Ok(());
    }
    let part = common(&segment.instructions, truth);
    Err(format!(
        "segment {index} is whole but differs at its instruction {part} of {}, {} are shown",
        truth.len(),
        segment.instructions.len()
    ))
}

/// A segment with a missing end shows a prefix of what ran, and nothing else.
fn begins(subject: &Subject, index: usize, segment: &Segment) -> Result<(), String> {
    let truth = &subject.ran.instructions[subject.segments[index].instructions.start..];
    if !truth.starts_with(&segment.instructions) {
        let part = common(&segment.instructions, truth);
        return Err(format!("segment {index} is wrong from its instruction {part} on"));
    }
    match segment.gaps.iter().find(|(at, _)| *at < segment.instructions.len()) {
        Some((at, gap)) => Err(format!("a gap inside segment {index}, after instruction {at}: {gap:?}")),
        None => Ok(()),
    }
}

/// A segment with unmarked damage is correct up to the damage.
fn doubtful(
    subject: &Subject,
    index: usize,
    segment: &Segment,
    damage: usize,
    scratch: &Path,
) -> Result<(), String> {
    let truth = &subject.ran.instructions[subject.segments[index].instructions.start..];
    let part = common(&segment.instructions, truth);
    if part == truth.len() {
        return Ok(());
    }
    let proven = subject.proven(index, damage, scratch)?;
    if part < proven {
        return Err(format!(
            "segment {index} is damaged from byte {damage} on, but wrong from its instruction {part} on; \
             {proven} are proven before the damage"
        ));
    }
    Ok(())
}

/// After an overflow the stream continues with what ran then.
pub(crate) fn check_overflow(
    subject: &Subject,
    lost: Range<usize>,
    counted: u64,
    read: &[Segment],
) -> Result<(), String> {
    let truth = &subject.ran.instructions;
    let mut shown: Vec<u64> = Vec::new();
    let (mut gaps, mut enabled) = (Vec::new(), Vec::new());
    for segment in read {
        gaps.extend(segment.gaps.iter().map(|(at, _)| shown.len() + at));
        enabled.extend(segment.enabled.iter().map(|at| shown.len() + at));
        shown.extend(&segment.instructions);
    }
    // There was nothing to send meanwhile, or the trace ends before the processor could report the loss.
    let unsaid = if lost.end + BLOCK < truth.len() { truth.len() } else { lost.start };
    if gaps.is_empty() && truth.starts_with(&shown) && shown.len() >= unsaid.min(counted as usize) {
        return Ok(());
    }
    let [at] = gaps[..] else { return Err(format!("{} gaps, where one was made", gaps.len())) };
    if shown[..at] != truth[..at.min(truth.len())] {
        return Err(format!("wrong from instruction {} on, before the gap", common(&shown, truth)));
    }
    let after = &shown[at..];
    if !truth.ends_with(after) {
        return Err(format!("what is shown after the gap ({} instructions) did not run last", after.len()));
    }
    if shown.len() as u64 > counted {
        return Err(format!("{} instructions are shown, {counted} ran while tracing was on", shown.len()));
    }
    let resumed = truth.len() - after.len();
    let near = |index: usize, asked: usize| (asked..asked + BLOCK).contains(&index);
    let stopped = resumed.saturating_sub(truth.len() - counted as usize);
    if at > stopped
        || !near(stopped, lost.start) && stopped < truth.len()
        || !near(resumed, lost.end) && !enabled.contains(&at)
    {
        return Err(format!("instructions {lost:?} were lost, but {at}..{resumed} are missing"));
    }
    Ok(())
}

/// The length of the common prefix of two streams.
fn common(one: &[u64], other: &[u64]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

//! The search for synchronization points.

use hodo_intel_pt::packet::{PSB, find_psb};

use crate::Error;

/// Returns the next PSB for a decoder at a position, which may have read into it.
pub(crate) fn forward(trace: &[u8], position: usize, last: Option<usize>) -> Result<usize, Error> {
    let begin = if last == Some(position) { position + PSB.len() } else { position };
    let from = begin.saturating_sub(PSB.len() - 1);
    let rest = trace.get(from..).ok_or(Error::INTERNAL)?;
    find_psb(rest).map(|ahead| from + ahead).ok_or(Error::END)
}

/// Returns the last PSB before a position.
///
/// libipt compares words at multiples of eight in memory with half a PSB, from the position downwards, so a PSB counts as
/// soon as such a word of it lies before the position.
pub(crate) fn backward(trace: &[u8], from: usize) -> Result<usize, Error> {
    const WORD: usize = 8;
    if from > trace.len() {
        return Err(Error::INTERNAL);
    }
    let misaligned = (trace.as_ptr() as usize + from) % WORD;
    let mut end = from.checked_sub(misaligned).ok_or(Error::END)?;
    while let Some(word) = end.checked_sub(WORD) {
        let bytes = &trace[word..end];
        let is_part = bytes == &PSB[..WORD] || bytes == &PSB[1..=WORD];
        if let Some(psb) = last_of_run(trace, word).filter(|_| is_part) {
            return Ok(psb);
        }
        end = word;
    }
    Err(Error::END)
}

/// Returns the PSB that is the end of a run of its two bytes around a position.
fn last_of_run(trace: &[u8], within: usize) -> Option<usize> {
    let mut end = within + usize::from(trace[within] != PSB[0]);
    while trace[end..].starts_with(&PSB[..2]) {
        end += 2;
    }
    let psb = end.checked_sub(PSB.len())?;
    trace[psb..].starts_with(&PSB).then_some(psb)
}

/// Checks that a PSB is at an offset.
pub(crate) fn at(trace: &[u8], offset: u64) -> Result<usize, Error> {
    let position = usize::try_from(offset).map_err(|_| Error::END)?;
    let rest = trace.get(position..).filter(|rest| rest.len() >= 2).ok_or(Error::END)?;
    if rest[..2] != PSB[..2] {
        return Err(Error::NO_SYNC);
    }
    match rest.get(..PSB.len()) {
        None => Err(Error::END),
        Some(bytes) if bytes == PSB => Ok(position),
        Some(_) => Err(Error::BAD_PACKET),
    }
}

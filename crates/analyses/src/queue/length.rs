//! The length of a CPU's run queue over time.

use hodo_clock::Nanos;
use serde::{Deserialize, Serialize};

/// A span in which a queue had one length.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct LengthSpan {
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    pub(super) length: u64,
}

/// Receives the spans that nothing can change any more.
pub(super) type Settled<'f> = dyn FnMut(LengthSpan) + 'f;

/// The length of a queue, in spans that are passed on when nothing can change them any more.
///
/// The first switch on a CPU may show that a thread ran there which was taken for a waiting one. So the spans before it
/// are kept until then.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct QueueLength {
    now: u64,
    since: Nanos,
    /// The spans before the first switch on the CPU; `None` after it.
    early: Option<Vec<LengthSpan>>,
}

impl QueueLength {
    /// An empty queue, before the first switch on its CPU.
    pub(super) fn new(since: Nanos) -> QueueLength {
        QueueLength { now: 0, since, early: Some(Vec::new()) }
    }

    /// The length since the last change, and the time of that.
    pub(super) fn now(&self) -> (Nanos, u64) {
        (self.since, self.now)
    }

    /// The time of the first span that may still change.
    pub(super) fn unsettled(&self) -> Option<Nanos> {
        let early = self.early.as_ref()?;
        Some(early.first().map_or(self.since, |span| span.from))
    }

    /// The number of spans that are kept.
    pub(super) fn kept(&self) -> usize {
        self.early.as_ref().map_or(0, Vec::len)
    }

    /// Ends a span, and adds `by` to the length.
    pub(super) fn change(&mut self, time: Nanos, by: i64, settled: &mut Settled<'_>) {
        if time > self.since {
            let span = LengthSpan { from: self.since, to: time, length: self.now };
            match &mut self.early {
                Some(early) => early.push(span),
                None => settled(span),
            }
            self.since = time;
        }
        self.now = self.now.saturating_add_signed(by);
    }

    /// Removes a thread that was counted as waiting from `since` to `time`. Returns whether that corrected all of its spans:
    /// none was settled before.
    pub(super) fn take_back(&mut self, since: Nanos, time: Nanos, settled: &mut Settled<'_>) -> bool {
        self.change(time, -1, settled);
        let early = self.early.as_mut();
        let is_early = early.is_some();
        for span in early.into_iter().flatten().filter(|span| span.from >= since) {
            span.length = span.length.saturating_sub(1);
        }
        is_early
    }

    /// Passes on what was kept: a CPU had its first switch, or the trace has ended.
    pub(super) fn settle(&mut self, settled: &mut Settled<'_>) {
        self.early.take().into_iter().flatten().for_each(settled);
    }
}

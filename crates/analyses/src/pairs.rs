//! Pairs begin events with end events across chunk borders.

use std::hash::Hash;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A key's alternating begins and ends: an end belongs to the last begin before it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Alternation<B, E> {
    /// Whether the state before the next event is known.
    touched: bool,
    /// The first end event, if the state before it was unknown.
    first: Option<E>,
    /// The open begin.
    open: Option<B>,
}

impl<B, E> Default for Alternation<B, E> {
    fn default() -> Alternation<B, E> {
        Alternation { touched: false, first: None, open: None }
    }
}

/// Events without a counterpart in the whole trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unpaired {
    /// Ends without a begin.
    pub(crate) unmatched: u64,
    /// Begins without an end.
    pub(crate) unfinished: u64,
}

/// Many pairs, by key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(
    serialize = "B: Serialize, E: Serialize, K: Serialize + Hash + Eq",
    deserialize = "B: DeserializeOwned, E: DeserializeOwned, K: DeserializeOwned + Hash + Eq"
))]
pub(crate) struct Pairs<B, E, K = u64> {
    pairs: FxHashMap<K, Alternation<B, E>>,
    /// Whether the trace begins here. If so, only keys with an open begin are kept.
    from_start: bool,
    /// Ends without a begin.
    pub(crate) unmatched: u64,
    /// Begins without an end.
    pub(crate) unfinished: u64,
}

impl<B, E, K> Default for Pairs<B, E, K> {
    fn default() -> Pairs<B, E, K> {
        Pairs { pairs: FxHashMap::default(), from_start: false, unmatched: 0, unfinished: 0 }
    }
}

impl<B, E, K: Hash + Eq + Clone> Pairs<B, E, K> {
    /// Creates the state at the begin of a chunk. `from_start`: whether the trace begins here.
    pub(crate) fn new(from_start: bool) -> Pairs<B, E, K> {
        Pairs { from_start, ..Pairs::default() }
    }

    /// Adds a begin.
    #[inline]
    pub(crate) fn begin(&mut self, key: K, begin: B) {
        let pair = self.pairs.entry(key).or_default();
        pair.touched = true;
        self.unfinished += u64::from(pair.open.replace(begin).is_some());
    }

    /// Adds an end event; returns the pair if the begin is known.
    #[inline]
    pub(crate) fn end(&mut self, key: K, end: E) -> Option<(B, E)> {
        if self.from_start {
            let begin = self.pairs.remove(&key).and_then(|pair| pair.open);
            self.unmatched += u64::from(begin.is_none());
            return Some((begin?, end));
        }
        let pair = self.pairs.entry(key).or_default();
        let was_touched = std::mem::replace(&mut pair.touched, true);
        match pair.open.take() {
            Some(begin) => return Some((begin, end)),
            None if was_touched => self.unmatched += 1,
            None => pair.first = Some(end),
        }
        None
    }

    /// Drops the open begin of a key.
    #[inline]
    pub(crate) fn forget(&mut self, key: K) {
        if self.from_start {
            let open = self.pairs.remove(&key).and_then(|pair| pair.open);
            self.unfinished += u64::from(open.is_some());
            return;
        }
        let pair = self.pairs.entry(key).or_default();
        pair.touched = true;
        self.unfinished += u64::from(pair.open.take().is_some());
    }

    /// Adds the pairs of the next task, and reports the pairs that this completes.
    pub(crate) fn add(&mut self, later: Pairs<B, E, K>, mut complete: impl FnMut(B, E)) {
        self.add_keyed(later, |_, begin, end| complete(begin, end));
    }

    /// Like `add`, but also reports the keys of the pairs.
    pub(crate) fn add_keyed(&mut self, later: Pairs<B, E, K>, mut complete: impl FnMut(&K, B, E)) {
        self.unmatched += later.unmatched;
        self.unfinished += later.unfinished;
        for (key, pair) in later.pairs {
            match pair.first {
                Some(end) => {
                    if let Some((begin, end)) = self.end(key.clone(), end) {
                        complete(&key, begin, end);
                    }
                }
                None if pair.touched => self.forget(key.clone()),
                None => {}
            }
            if pair.open.is_some() || !self.from_start {
                self.pairs.entry(key).or_default().open = pair.open;
            }
        }
    }

    /// Returns the numbers of ends and begins without a counterpart.
    pub(crate) fn left(&self) -> Unpaired {
        let count =
            |is: fn(&Alternation<B, E>) -> bool| self.pairs.values().filter(|pair| is(pair)).count() as u64;
        Unpaired {
            unmatched: self.unmatched + count(|pair| pair.first.is_some()),
            unfinished: self.unfinished + count(|pair| pair.open.is_some()),
        }
    }
}

/// Requests by key, which may be repeated until they are served: the latency counts from the first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "B: DeserializeOwned, E: DeserializeOwned"))]
pub(crate) struct Requests<B, E> {
    pending: FxHashMap<u64, PendingRequest<B, E>>,
    /// Begins without a request.
    unmatched: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct PendingRequest<B, E> {
    /// The first begin, and the first request before it in this chunk.
    first: Option<(Option<B>, E)>,
    /// The first request since.
    open: Option<B>,
}

impl<B, E> Default for Requests<B, E> {
    fn default() -> Requests<B, E> {
        Requests { pending: FxHashMap::default(), unmatched: 0 }
    }
}

impl<B, E> Requests<B, E> {
    /// Adds a request.
    #[inline]
    pub(crate) fn ask(&mut self, key: u64, request: B) {
        let pending = self.pending.entry(key).or_insert(PendingRequest { first: None, open: None });
        pending.open.get_or_insert(request);
    }

    /// Adds a begin of the service; returns it with the first request, if that is known.
    #[inline]
    pub(crate) fn begin(&mut self, key: u64, begin: E) -> Option<(B, E)> {
        let pending = self.pending.entry(key).or_insert(PendingRequest { first: None, open: None });
        let request = pending.open.take();
        if pending.first.is_none() {
            pending.first = Some((request, begin));
            return None;
        }
        self.unmatched += u64::from(request.is_none());
        Some((request?, begin))
    }

    /// Adds the requests of the next task, and reports the pairs that this completes.
    pub(crate) fn add(&mut self, later: Requests<B, E>, mut complete: impl FnMut(B, E)) {
        self.unmatched += later.unmatched;
        for (key, pending) in later.pending {
            if let Some((request, begin)) = pending.first {
                request.into_iter().for_each(|request| self.ask(key, request));
                if let Some((request, begin)) = self.begin(key, begin) {
                    complete(request, begin);
                }
            }
            pending.open.into_iter().for_each(|request| self.ask(key, request));
        }
    }

    /// Returns the number of requests that were not served.
    pub(crate) fn waiting(&self) -> u64 {
        self.pending.values().filter(|pending| pending.open.is_some()).count() as u64
    }

    /// Reports the remaining pairs of the whole trace, and returns the number of begins without a request.
    pub(crate) fn finish(self, mut complete: impl FnMut(B, E)) -> u64 {
        let mut unmatched = self.unmatched;
        for (request, begin) in self.pending.into_values().filter_map(|pending| pending.first) {
            match request {
                Some(request) => complete(request, begin),
                None => unmatched += 1,
            }
        }
        unmatched
    }
}

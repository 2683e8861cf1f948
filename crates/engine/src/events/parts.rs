//! Parts of a trace that processes fold by themselves, and what they come to together.
//!
//! ```text
//! trace ──plan──► slices ──1/N──► fold ──► Part ──bytes──┐
//!                        ──2/N──► fold ──► Part ──bytes──┴──► merge, in the order of parts ──► tables
//! ```
//!
//! A part says what it is a part of: parts of another trace, of other analyses, or made by another version, are
//! refused. What to show of the whole is chosen when parts are merged.

use std::fmt;

use hodo_clock::OriginNanos;
use hodo_formats::ctf::Trace;
use hodo_trace::{
    AnyEventAnalysis, Choice, Loss, Period, Table,
    pass::{Packed, Pass},
};
use serde::{Deserialize, Serialize};

use super::{
    Chunks, EventReading, EventTraces, Wanted,
    count::count_runs,
    counts::Counts,
    fold::{Folded, Totals, fold_all, tables},
    runs::runs,
    slices::plan,
};
use crate::Losses;

/// What a file with a part begins with; its sum and its content follow.
const MAGIC: &[u8] = b"hodo part\n";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What the count of events is called among analyses.
pub const COUNT: &str = "count";
/// More parts than anybody has processes.
const MOST_PARTS: u32 = 1 << 20;

/// Numbers of missing parts that an error tells.
const SHOWN: usize = 10;

/// Which part of how many; the first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Portion {
    number: u32,
    of: u32,
}

impl Portion {
    /// The part that `I/N` names, if there is such a part.
    pub fn parse(text: &str) -> Option<Portion> {
        let (number, of) = text.split_once('/')?;
        let (number, of) = (number.parse().ok()?, of.parse().ok()?);
        ((1..=of).contains(&number) && of <= MOST_PARTS).then_some(Portion { number, of })
    }

    /// Its share of some bytes.
    pub fn share(self, bytes: u64) -> u64 {
        bytes / u64::from(self.of)
    }

    /// Those of slices, or runs, that are in it: in each part about the same number of bytes.
    fn choose<S>(self, mut all: Vec<S>, bytes: impl Fn(&S) -> u64) -> Vec<S> {
        let total: u64 = all.iter().map(&bytes).sum();
        let mut before = 0;
        all.retain(|one| {
            // The part in which its middle lies.
            let middle = u128::from(before) + u128::from(bytes(one) / 2);
            before += bytes(one);
            let number = middle * u128::from(self.of) / u128::from(total.max(1)) + 1;
            number.min(self.of.into()) == u128::from(self.number)
        });
        all
    }
}

/// What all parts have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    traces: Vec<TraceOrigin>,
    analyses: Vec<String>,
    period: Option<Period>,
    window: (Option<OriginNanos>, Option<OriginNanos>),
    chunks: Chunks,
    names: Vec<String>,
    /// What can't be read of the files.
    losses: Vec<Loss>,
}

/// By what a trace is known again, wherever its folder lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TraceOrigin {
    uuid: Option<[u8; 16]>,
    streams: usize,
    packets: usize,
    bytes: u64,
    span: Option<(OriginNanos, OriginNanos)>,
}

impl TraceOrigin {
    fn of(trace: &Trace<'_>) -> TraceOrigin {
        let packets = || trace.streams.iter().flat_map(|stream| &stream.packets);
        TraceOrigin {
            uuid: trace.class.uuid,
            streams: trace.streams.len(),
            packets: packets().count(),
            bytes: packets().map(|packet| packet.size()).sum(),
            span: trace.span(),
        }
    }
}

/// A part of a trace, folded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    portion: Portion,
    origin: Origin,
    totals: Totals,
    losses: Vec<Loss>,
    states: Packed,
    /// Where events are counted, which is a pass of its own.
    counts: Option<(Counts, Vec<Loss>)>,
}

/// Why parts can't be merged.
#[derive(Debug, PartialEq, Eq)]
pub enum PartError {
    /// It is not what [`Part::to_bytes`] wrote.
    Damaged,
    /// It was written by another version: this one.
    Version(String),
    /// The one at this place differs from the first in what this says.
    Differs(usize, &'static str),
    /// The same part comes twice.
    Twice(u32),
    /// These parts are not there.
    Missing(Vec<u32>),
    /// An analysis does not know its state.
    State(String),
}

/// Folds a part of the traces. `analyses` have their names, and `None` stands for the count of events. `progress`
/// is told the bytes that were read, and returns whether to go on.
pub fn fold_part(
    traces: &EventTraces<'_>,
    analyses: &[(&str, Option<&dyn AnyEventAnalysis>)],
    portion: Portion,
    reading: &EventReading,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Part {
    let bare: Vec<&dyn AnyEventAnalysis> = analyses.iter().filter_map(|(_, analysis)| *analysis).collect();
    let slices = if bare.is_empty() { Vec::new() } else { plan(traces, reading) };
    let slices = portion.choose(slices, |slice| slice.bytes);
    let mut losses = Losses::default();
    let pass = Pass::new(&bare);
    let (folded, names) = fold_all(traces, &pass, &slices, reading, &mut losses, &mut progress);
    let done: u64 = slices.iter().map(|slice| slice.bytes).sum();
    let count = || {
        let runs = portion.choose(runs(traces, reading), |run| run.bytes);
        let mut losses = Losses::default();
        let all = Wanted::default();
        let counts = count_runs(traces, &all, runs, reading, &mut losses, |more| progress(done + more));
        (counts, losses.into_list())
    };
    let counts = analyses.iter().any(|(_, analysis)| analysis.is_none()).then(count);
    let origin = Origin {
        traces: traces.traces.iter().map(TraceOrigin::of).collect(),
        losses: traces.loss(),
        analyses: analyses.iter().map(|(name, _)| (*name).to_owned()).collect(),
        period: bare.iter().find_map(|analysis| analysis.period().cloned()),
        window: (reading.from, reading.to),
        chunks: reading.chunks,
        names,
    };
    let states = pass.pack(&folded.states);
    Part { portion, origin, totals: folded.totals, losses: losses.into_list(), states, counts }
}

impl Part {
    /// The part as the content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let content = postcard::to_allocvec(&(VERSION, self)).expect("memory takes what is written to it");
        [MAGIC, &crc32fast::hash(&content).to_le_bytes(), &content].concat()
    }

    /// The part in a file.
    ///
    /// # Errors
    /// Bytes that are none, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Part, PartError> {
        let sum = bytes.strip_prefix(MAGIC).and_then(<[u8]>::split_first_chunk::<4>);
        let (sum, content) = sum.ok_or(PartError::Damaged)?;
        if crc32fast::hash(content) != u32::from_le_bytes(*sum) {
            return Err(PartError::Damaged);
        }
        let (version, content) =
            postcard::take_from_bytes::<&str>(content).map_err(|_| PartError::Damaged)?;
        if version != VERSION {
            return Err(PartError::Version(version.to_owned()));
        }
        postcard::from_bytes(content).map_err(|_| PartError::Damaged)
    }

    /// The names of its analyses.
    pub fn analyses(&self) -> &[String] {
        &self.origin.analyses
    }

    /// In what it differs from a part of the same whole.
    fn differs(&self, first: &Part) -> Option<&'static str> {
        let (one, other) = (&self.origin, &first.origin);
        let differences = [
            (one.traces != other.traces, "the trace"),
            (one.analyses != other.analyses, "--analysis"),
            (one.period != other.period, "what periods are"),
            (one.window != other.window, "--time"),
            (one.chunks != other.chunks, "--chunk-size"),
            (self.portion.of != first.portion.of, "the number of parts"),
            (one != other, "the names of events"),
        ];
        differences.into_iter().find_map(|(differs, what)| differs.then_some(what))
    }
}

/// Merges all parts of a whole, which come in any order, and makes the tables of their analyses, which `analyses`
/// are in the order of [`Part::analyses`]; the count of events comes first.
///
/// # Errors
/// Parts that do not belong together, or not all of them.
pub fn merge_parts(
    mut parts: Vec<Part>,
    analyses: &[&dyn AnyEventAnalysis],
    choice: &Choice,
) -> Result<Vec<Table>, PartError> {
    let Some(first) = parts.first() else { return Ok(Vec::new()) };
    for (index, part) in parts.iter().enumerate() {
        if let Some(what) = part.differs(first) {
            return Err(PartError::Differs(index, what));
        }
    }
    parts.sort_by_key(|part| part.portion);
    if let Some(pair) = parts.windows(2).find(|pair| pair[0].portion == pair[1].portion) {
        return Err(PartError::Twice(pair[0].portion.number));
    }
    let is_there = |number: &u32| parts.binary_search_by_key(number, |part| part.portion.number).is_ok();
    // One more than is shown says that there are more.
    let missing = (1..=parts[0].portion.of).filter(|number| !is_there(number)).take(SHOWN + 1);
    let missing: Vec<u32> = missing.collect();
    if !missing.is_empty() {
        return Err(PartError::Missing(missing));
    }
    let Origin { names, losses: of_files, .. } = parts[0].origin.clone();
    let mut losses = Losses::default();
    of_files.into_iter().for_each(|loss| losses.add(loss));
    let pass = Pass::new(analyses);
    let mut counted: Option<(Counts, Losses)> = None;
    let mut whole: Option<Folded> = None;
    for part in parts {
        if let Some((counts, more)) = part.counts {
            let (sum, of_counts) = counted.get_or_insert_with(|| (counts.without(), losses.clone()));
            sum.add(counts);
            more.into_iter().for_each(|loss| of_counts.add(loss));
        }
        part.losses.into_iter().for_each(|loss| losses.add(loss));
        let analysis = |place: usize| {
            let mut names = part.origin.analyses.iter().filter(|name| *name != COUNT);
            // Beyond them comes what they rest on.
            names.nth(place).or(part.origin.analyses.last()).cloned().unwrap_or_default()
        };
        let states = pass.unpack(part.states).map_err(|place| PartError::State(analysis(place)))?;
        let folded = Folded::new(states, part.totals);
        whole = Some(match whole {
            Some(earlier) => earlier.merge(folded, &pass),
            None => folded,
        });
    }
    let count = counted.map(|(counts, losses)| counts.table(&choice.view, losses));
    let others = whole.map_or_else(Vec::new, |whole| tables(&pass, whole, &names, choice, losses, 1));
    Ok(count.into_iter().chain(others).collect())
}

impl fmt::Display for PartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartError::Damaged => write!(f, "this is no part that `hodo fold` wrote, or it is damaged"),
            PartError::Version(version) => {
                write!(f, "this part is of version {version} of hodo, and this is {VERSION}: fold it again")
            }
            PartError::Differs(place, what) => {
                write!(f, "part number {} on the list is of another whole: {what} differs", place + 1)
            }
            PartError::Twice(number) => write!(f, "part {number} is there twice"),
            PartError::Missing(numbers) => {
                let shown: Vec<String> = numbers.iter().take(SHOWN).map(u32::to_string).collect();
                let more = if numbers.len() > SHOWN { ", …" } else { "" };
                write!(f, "parts are missing: number {}{more}", shown.join(", "))
            }
            PartError::State(analysis) => write!(f, "a part's state of `{analysis}` can't be read"),
        }
    }
}

//! The tables of a path, and the names in them.

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{Column, FinishContext, Shape, Table, Type, Unit, Value, kernel::Thread};

use super::{
    delta::HistoryLabels,
    history::{InterruptSource, TraceKey, WaitIn, Why},
    subject::Subject,
    tree::{self, PathLeaf},
    walk::{PathPiece, PieceCause, WaitEndedBy},
};
use crate::{
    columns::{most_first, share},
    io::device_numbers,
    irq::SOFTIRQS,
};

/// Names of threads, devices and calls.
#[derive(Clone, Copy)]
pub(crate) struct PathNames<'l, 'c> {
    pub(crate) labels: &'l HistoryLabels,
    pub(crate) context: &'l FinishContext<'c>,
}

/// System calls by what a thread waits for in them, separated by spaces; a prefix that ends in `*`.
const CLASSES: [(&str, &str); 4] = [
    ("lock", "futex*"),
    ("child", "wait4 waitid waitpid vfork"),
    ("sleep", "nanosleep clock_nanosleep* pause"),
    (
        "data",
        "read* write* pread* pwrite* send* recv* poll* ppoll* select pselect* epoll* accept* connect splice tee fsync \
         fdatasync sync* msync msg* mq_* io_*",
    ),
];

impl PathNames<'_, '_> {
    /// The name of a thread.
    pub(crate) fn comm(&self, thread: TraceKey) -> Option<&str> {
        if thread.id == 0 && !self.labels.tasks.contains_key(&thread) {
            return self.labels.traces.get(&thread.trace).map(String::as_str);
        }
        let task = self.labels.tasks.get(&thread).map(String::as_str);
        task.or_else(|| self.context.threads.comm(Thread::new(thread.id.into(), 0)))
    }

    /// The name of a thread's trace, if there are several.
    pub(crate) fn host(&self, thread: TraceKey) -> Option<&str> {
        let several = self.labels.traces.len() > 1;
        self.labels.traces.get(&thread.trace).filter(|_| several).map(String::as_str)
    }

    /// Its name for people: `sobel of slave-1`, `bash (1234)`.
    pub(crate) fn name(&self, thread: TraceKey) -> String {
        let comm = self.comm(thread);
        match (comm, self.host(thread)) {
            (Some(comm), Some(host)) if comm == host => comm.to_owned(),
            (Some(comm), Some(host)) => format!("{comm} of {host}"),
            (Some(comm), None) => format!("{comm} ({})", thread.id),
            (None, Some(host)) => format!("{} of {host}", thread.id),
            (None, None) => thread.id.to_string(),
        }
    }

    /// Whether the user chose a thread. Tasks of boards may be named with their trace: `slave-1/sobel`.
    pub(crate) fn is_wanted(&self, thread: TraceKey) -> bool {
        let selection = self.context.selection;
        let named = |wanted: &String| match (self.comm(thread), self.labels.traces.get(&thread.trace)) {
            (Some(comm), _) if comm == wanted => true,
            (Some(comm), Some(host)) => {
                wanted.strip_prefix(host.as_str()).and_then(|rest| rest.strip_prefix('/')) == Some(comm)
            }
            _ => false,
        };
        let pid = || self.context.threads.pid(Thread::new(thread.id.into(), 0));
        (selection.tids.is_empty() || selection.tids.contains(&thread.id))
            && (selection.pids.is_empty() || pid().is_some_and(|pid| selection.pids.contains(&pid)))
            && (selection.comms.is_empty() || selection.comms.iter().any(named))
    }

    /// The system call of a wait.
    pub(crate) fn call(&self, via: WaitIn) -> Option<&str> {
        match via {
            WaitIn::Call(name) => self.context.names.get(name as usize).map(String::as_str),
            _ => None,
        }
    }

    /// What a thread waits for, by where it waits.
    pub(crate) fn wait(&self, via: WaitIn) -> &str {
        match via {
            WaitIn::Fault => "page fault",
            WaitIn::Message => "message",
            WaitIn::Unknown => "other",
            WaitIn::Call(_) => {
                let call = self.call(via).unwrap_or_default();
                let known = CLASSES.iter().find(|(_, patterns)| {
                    patterns.split(' ').any(|pattern| match pattern.strip_suffix('*') {
                        Some(prefix) => call.starts_with(prefix),
                        None => call == pattern,
                    })
                });
                known.map_or("other", |(class, _)| class)
            }
        }
    }

    /// Who ended a wait, or ran instead, for people.
    pub(crate) fn awaited(&self, trace: u32, awaited: WaitEndedBy) -> String {
        match awaited {
            WaitEndedBy::Thread(thread) => self.name(thread),
            WaitEndedBy::Cause(PieceCause::Cpu(thread)) if thread.id != 0 => self.name(thread),
            WaitEndedBy::Cause(cause) => match self.detail(trace, cause) {
                Some(detail) => format!("{}: {detail}", cause.name()),
                None => cause.name().to_owned(),
            },
        }
    }

    /// More about a cause: who ran instead, which device, why it is unknown.
    pub(crate) fn detail(&self, trace: u32, cause: PieceCause) -> Option<String> {
        match cause {
            PieceCause::Cpu(thread) if thread.id == 0 => Some("idle".to_owned()),
            PieceCause::Cpu(thread) => Some(self.name(thread)),
            PieceCause::Block(device) => Some(device_numbers(device)),
            PieceCause::Interrupt(InterruptSource::Irq(number)) => {
                let name = self.labels.interrupts.get(&TraceKey { trace, id: number });
                Some(name.map_or_else(|| format!("irq {number}"), |name| format!("irq {number} {name}")))
            }
            PieceCause::Interrupt(InterruptSource::Softirq(vector)) => {
                let name = SOFTIRQS.get(vector as usize).copied();
                Some(name.map_or_else(|| format!("softirq {vector}"), |name| format!("softirq {name}")))
            }
            PieceCause::Unknown(why) => Some(Why::name(why).to_owned()),
            _ => None,
        }
    }
}

impl PieceCause {
    /// The stable name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PieceCause::Running => "running",
            PieceCause::Cpu(_) => "cpu",
            PieceCause::Block(_) => "block",
            PieceCause::Network => "network",
            PieceCause::Message => "message",
            PieceCause::Timer | PieceCause::Interrupt(InterruptSource::Timer) => "timer",
            PieceCause::Interrupt(_) => "interrupt",
            PieceCause::Unknown(_) => "unknown",
        }
    }
}

impl PathPiece {
    fn length(&self) -> u64 {
        self.end.0.saturating_sub(self.begin.0)
    }

    /// How the subject waits, if the piece is not its own.
    fn via(&self) -> Option<WaitIn> {
        self.waits.first().map(|(_, via)| *via)
    }
}

fn thread_cells(naming: &PathNames<'_, '_>, thread: TraceKey) -> [Value; 3] {
    [naming.comm(thread).into(), u64::from(thread.id).into(), naming.host(thread).into()]
}

fn thread_columns() -> [Column; 3] {
    [Column::name("comm"), Column::integer("tid", Unit::None), Column::name("host").secondary()]
}

/// The table of the chosen view.
pub(super) fn table(naming: &PathNames<'_, '_>, subject: Option<&Subject>, pieces: &[PathPiece]) -> Table {
    let sum = |counts: fn(&PathPiece) -> bool| -> u64 {
        pieces.iter().filter(|piece| counts(piece)).map(PathPiece::length).sum()
    };
    let span = subject.map_or((Nanos(0), Nanos(0)), |subject| (subject.from, subject.to));
    let summary = vec![
        ("thread", subject.map(|subject| naming.name(subject.thread)).into()),
        ("threads_chosen", subject.map_or(0, |subject| subject.chosen).into()),
        ("path_begin_ns", span.0.0.into()),
        ("span_ns", span.1.0.saturating_sub(span.0.0).into()),
        ("total_ns", sum(|_| true).into()),
        ("own_ns", sum(|piece| piece.waits.is_empty() && piece.cause == PieceCause::Running).into()),
        ("unknown_ns", sum(|piece| matches!(piece.cause, PieceCause::Unknown(_))).into()),
        ("pieces", (pieces.len() as u64).into()),
    ];
    match naming.context.selection.view.as_str() {
        view @ ("piece" | "stretch") => {
            // The functions that ran are joined to rows of the tree, which the labels name.
            let with_labels = view == "stretch";
            by_piece(naming, summary, pieces, with_labels)
        }
        "cause" => by_cause(naming, summary, pieces),
        _ => {
            let leaf = |piece: &PathPiece| PathLeaf {
                labels: labels(naming, piece),
                length: piece.length(),
                functions: &[],
            };
            tree::table(summary, pieces.iter().map(leaf), None)
        }
    }
}

/// What a piece is, from the subject's wait to the thread that was waited for in the end.
fn labels(naming: &PathNames<'_, '_>, piece: &PathPiece) -> Vec<String> {
    let named = |thread: TraceKey, is_first: bool, what: String| match is_first {
        true => what,
        false => format!("{} {what}", naming.name(thread)),
    };
    let mut labels = Vec::with_capacity(piece.waits.len() + 1);
    for (index, &(thread, via)) in piece.waits.iter().enumerate() {
        let what = match (naming.wait(via), naming.call(via)) {
            ("other", None) => "waits".to_owned(),
            ("other", Some(call)) => format!("waits in {call}"),
            (wait, None) => format!("waits: {wait}"),
            (wait, Some(call)) => format!("waits: {wait} ({call})"),
        };
        labels.push(named(thread, index == 0, what));
    }
    let what = match (piece.cause, naming.detail(piece.thread.trace, piece.cause)) {
        (PieceCause::Running, _) => "runs".to_owned(),
        (PieceCause::Cpu(thread), _) if thread.id == 0 => "waits for an idle CPU".to_owned(),
        (PieceCause::Cpu(_), Some(other)) => format!("waits for the CPU of {other}"),
        (cause, None) => cause.name().to_owned(),
        (cause, Some(detail)) => format!("{}: {detail}", cause.name()),
    };
    let is_own = piece.waits.last().is_none_or(|(thread, _)| *thread == piece.thread);
    labels.push(named(piece.thread, is_own, what));
    labels
}

/// Lists the pieces in order, `with_labels` with the rows of the tree that lead to each.
fn by_piece(
    naming: &PathNames<'_, '_>,
    summary: hodo_model::Summary,
    pieces: &[PathPiece],
    with_labels: bool,
) -> Table {
    let mut columns = vec![
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::integer("duration_ns", Unit::Nanoseconds),
        Column::integer("depth", Unit::None),
    ];
    columns.extend(thread_columns());
    columns.extend([Column::name("cause"), Column::name("detail"), Column::name("through")]);
    columns.extend(with_labels.then(|| Column::list("what", &Type::Text, Unit::None)));
    let rows = pieces.iter().map(|piece| {
        let depth = piece.waits.len() as u64;
        let mut row = vec![piece.begin.0.into(), piece.length().into(), depth.into()];
        row.extend(thread_cells(naming, piece.thread));
        row.extend([piece.cause.name().into(), naming.detail(piece.thread.trace, piece.cause).into()]);
        let waits = piece.waits.iter().map(|&(thread, via)| {
            let call = naming.call(via).unwrap_or_else(|| naming.wait(via));
            format!("{}: {call}", naming.name(thread))
        });
        let through = waits.collect::<Vec<_>>().join(" < ");
        row.push(Some(through).filter(|text| !text.is_empty()).into());
        row.extend(with_labels.then(|| labels(naming, piece).into()));
        row
    });
    Table::new("critical-path", Shape::Intervals, summary, columns, rows)
}

/// The pieces of a group; times in nanoseconds.
#[derive(Default)]
struct PieceSums {
    count: u64,
    total: u64,
    longest: u64,
}

/// What pieces are summed by: how the subject waits, the cause, the thread.
type PathGroup = (Option<WaitIn>, PieceCause, TraceKey);

fn by_cause(naming: &PathNames<'_, '_>, summary: hodo_model::Summary, pieces: &[PathPiece]) -> Table {
    let all: u64 = pieces.iter().map(PathPiece::length).sum();
    let mut groups: BTreeMap<PathGroup, PieceSums> = BTreeMap::new();
    for piece in pieces {
        let sums = groups.entry((piece.via(), piece.cause, piece.thread)).or_default();
        sums.count += 1;
        sums.total += piece.length();
        sums.longest = sums.longest.max(piece.length());
    }
    let mut columns = vec![Column::name("wait"), Column::name("call"), Column::name("cause")];
    columns.extend(thread_columns());
    columns.extend([
        Column::name("detail"),
        Column::integer("count", Unit::Count),
        Column::integer("total_ns", Unit::Nanoseconds),
        Column::integer("max_ns", Unit::Nanoseconds).secondary(),
        Column::real("share", Unit::Share),
    ]);
    let rows = most_first(groups.into_iter().map(|((via, cause, thread), sums)| {
        let PieceSums { count, total, longest } = sums;
        let wait = via.map(|via| naming.wait(via));
        let call = via.and_then(|via| naming.call(via));
        let mut row = vec![wait.into(), call.into(), cause.name().into()];
        row.extend(thread_cells(naming, thread));
        row.push(naming.detail(thread.trace, cause).into());
        row.extend([count.into(), total.into(), longest.into(), share(total, all)]);
        ((total, (via, cause, thread)), row)
    }));
    Table::new("critical-path", Shape::Counters, summary, columns, rows)
}

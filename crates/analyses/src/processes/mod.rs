//! `processes`: which process started which, when, and how long did each live?
//!
//! A thread lives from its `sched_process_fork` to its `sched_process_exit`; a reused id is another thread. A thread
//! without a fork in the trace existed before it, or the event is missing. A process is represented by the thread whose
//! id is the process id.

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, Made, Report, Selection, Shape,
    Start, Table, Takes, Unit, Value,
    kernel::{KernelEvent, Kind, Threads, field},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Processes;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "processes",
            help: "kernel events: which process started which other process, when, and how long each lived",
            views: &["process", "thread"],
            takes: Takes::THREADS,
            in_all: true,
            ..Description::EMPTY
        },
        make: |_| Made::of_events(Processes),
    }
}

/// The known life of a thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Life {
    born: Option<Nanos>,
    died: Option<Nanos>,
    pid: Option<u32>,
    /// The process that created it, or the creating thread if its process is unknown.
    parent: Option<u32>,
    comm: Option<String>,
    /// The last program that it executed.
    program: Option<String>,
    /// Number of programs that it executed.
    programs: u64,
}

impl Life {
    /// Adds the data of a later partial of this lifetime.
    fn add(&mut self, later: Life) {
        self.died = later.died.or(self.died);
        self.pid = later.pid.or(self.pid);
        self.parent = self.parent.or(later.parent);
        self.comm = later.comm.or(self.comm.take());
        self.program = later.program.or(self.program.take());
        self.programs += later.programs;
    }

    fn set_comm(&mut self, comm: Option<&[u8]>) {
        let Some(comm) = comm else { return };
        if self.comm.as_ref().is_none_or(|known| known.as_bytes() != comm) {
            self.comm = Some(String::from_utf8_lossy(comm).into_owned());
        }
    }
}

/// Consecutive lifetimes by thread id. Only the first one may begin before the events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lifetimes(FxHashMap<u32, Vec<Life>>);

impl Lifetimes {
    /// Returns the current lifetime of a thread; `None` for idle threads.
    fn of(&mut self, tid: Option<i64>) -> Option<&mut Life> {
        let lives = self.0.entry(tid.filter(|&tid| tid != 0)? as u32).or_default();
        if lives.is_empty() {
            lives.push(Life::default());
        }
        lives.last_mut()
    }

    /// Adds an event; `None` if it lacks a field that is needed, which callers ignore.
    fn see(&mut self, event: &KernelEvent<'_>) -> Option<()> {
        let number = |field| event.integer(field).map(|number| number as u32);
        match event.kind {
            Kind::SchedSwitch => {
                use field::switch::{NEXT_COMM, NEXT_TID, PREV_COMM, PREV_TID};
                for (tid, comm) in [(PREV_TID, PREV_COMM), (NEXT_TID, NEXT_COMM)] {
                    let life = self.of(event.integer(tid));
                    life.into_iter().for_each(|life| life.set_comm(event.text(comm)));
                }
            }
            Kind::SchedFork => {
                let tid = number(field::fork::CHILD_TID)?;
                let mut life = Life {
                    born: Some(event.time),
                    pid: number(field::fork::CHILD_PID),
                    parent: number(field::fork::PARENT_PID).or(number(field::fork::PARENT_TID)),
                    ..Life::default()
                };
                life.set_comm(event.text(field::fork::CHILD_COMM));
                self.0.entry(tid).or_default().push(life);
            }
            Kind::SchedExec => {
                let life = self.of(event.integer(field::exec::TID))?;
                life.programs += 1;
                let program = event.text(field::exec::FILENAME)?;
                life.program = Some(String::from_utf8_lossy(program).into_owned());
            }
            Kind::SchedExit => self.of(event.integer(field::thread_exit::TID))?.died = Some(event.time),
            Kind::StateProcess => {
                let life = self.of(event.integer(field::process::TID))?;
                life.pid = number(field::process::PID).or(life.pid);
                life.parent = life.parent.or(number(field::process::PPID).filter(|&pid| pid != 0));
                life.set_comm(event.text(field::process::NAME));
            }
            _ => {}
        }
        Some(())
    }
}

impl Analysis for Processes {
    type Partial = Lifetimes;

    fn interest(&self) -> Interest<'_> {
        use field::{exec, fork, process, switch, thread_exit};
        Interest::events(&[
            (Kind::SchedSwitch, &[switch::PREV_COMM, switch::PREV_TID, switch::NEXT_COMM, switch::NEXT_TID]),
            (
                Kind::SchedFork,
                &[fork::CHILD_COMM, fork::CHILD_TID, fork::CHILD_PID, fork::PARENT_TID, fork::PARENT_PID],
            ),
            (Kind::SchedExec, &[exec::TID, exec::FILENAME]),
            (Kind::SchedExit, &[thread_exit::TID]),
            (Kind::StateProcess, &[process::TID, process::PID, process::NAME, process::PPID]),
        ])
        .without_threads()
    }

    fn begin(&self, _: &Start<'_>) -> Lifetimes {
        Lifetimes::default()
    }

    fn fold(&self, partial: &mut Lifetimes, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        partial.see(event);
    }

    fn merge(&self, mut earlier: Lifetimes, later: Lifetimes, _: &Threads) -> Lifetimes {
        for (tid, lives) in later.0 {
            let own = earlier.0.entry(tid).or_default();
            for life in lives {
                // A life without a fork goes on from the earlier partial, unless its id is new there.
                match own.last_mut().filter(|_| life.born.is_none()) {
                    Some(last) => last.add(life),
                    None => own.push(life),
                }
            }
        }
        earlier
    }

    fn finish(&self, partials: Vec<Lifetimes>, context: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let family = Family::new(whole, context.selection.view == "thread");
        let rows = family.rows(context);
        let count = |is: fn(&LifeNode) -> bool| {
            Value::from(family.members.iter().filter(|member| is(member)).count() as u64)
        };
        let summary = vec![
            ("processes", count(|member| member.is_process)),
            ("begun", count(|member| member.is_process && member.life.born.is_some())),
            ("ended", count(|member| member.is_process && member.life.died.is_some())),
        ];
        let columns = vec![
            Column::name("comm"),
            Column::integer("depth", Unit::Count),
            Column::integer("tid", Unit::None),
            Column::integer("pid", Unit::None).secondary(),
            Column::integer("begin_ns", Unit::Nanoseconds),
            Column::integer("duration_ns", Unit::Nanoseconds),
            Column::integer("threads", Unit::Count),
            Column::name("program").secondary(),
            Column::integer("end_ns", Unit::Nanoseconds).secondary(),
            Column::integer("programs", Unit::Count).secondary(),
        ];
        Table::new("processes", Shape::Tree, summary, columns, rows)
    }
}

/// A life as a node of the tree.
struct LifeNode {
    tid: u32,
    life: Life,
    is_process: bool,
    is_shown: bool,
    /// Number of threads of a process, including the main thread.
    threads: u64,
    children: Vec<usize>,
    parent: Option<usize>,
}

/// The nodes above a thread's.
struct Above {
    /// Its process; `None` for a main thread.
    process: Option<usize>,
    /// Its parent in the tree: its process, or its creator.
    parent: Option<usize>,
}

/// The tree of processes and threads.
struct Family {
    /// By tid, then by time.
    members: Vec<LifeNode>,
}

impl Family {
    fn new(whole: Lifetimes, with_threads: bool) -> Family {
        let mut lives: BTreeMap<u32, Vec<Life>> = whole.0.into_iter().collect();
        // Some threads are only known as the process or parent of another.
        let reported = lives.values().flatten().flat_map(|life| [life.pid, life.parent]);
        for id in reported.flatten().filter(|&id| id != 0).collect::<Vec<_>>() {
            lives.entry(id).or_insert_with(|| vec![Life::default()]);
        }
        let lives = lives.into_iter().flat_map(|(tid, lives)| lives.into_iter().map(move |life| (tid, life)));
        let members = lives.map(|(tid, life)| {
            let is_process = life.pid.is_none_or(|pid| pid == tid);
            LifeNode { tid, life, is_process, is_shown: true, threads: 1, children: Vec::new(), parent: None }
        });
        let mut family = Family { members: members.collect() };
        for index in 0..family.members.len() {
            let Above { process, parent } = family.above(index);
            process.into_iter().for_each(|process| family.members[process].threads += 1);
            let member = &mut family.members[index];
            member.is_shown = member.is_process || with_threads;
            member.parent = parent.filter(|_| member.is_shown);
        }
        for index in 0..family.members.len() {
            if let Some(parent) = family.members[index].parent {
                family.members[parent].children.push(index);
            }
        }
        family
    }

    fn above(&self, index: usize) -> Above {
        let born = self.members[index].life.born.unwrap_or_default();
        let process = |index: usize| {
            let LifeNode { ref life, is_process, .. } = self.members[index];
            life.pid.filter(|_| !is_process).and_then(|pid| self.lifetime_at(pid, born))
        };
        let own = process(index);
        let creator = self.members[index].life.parent.and_then(|parent| self.lifetime_at(parent, born));
        // The creator may be known as a thread.
        let creator = creator.map(|creator| process(creator).unwrap_or(creator));
        let parent = own.or(creator).filter(|&above| self.members[above].tid != self.members[index].tid);
        Above { process: own, parent }
    }

    /// Returns the lifetime of a thread id at a time: the last one that began by then, else the first one.
    fn lifetime_at(&self, tid: u32, time: Nanos) -> Option<usize> {
        let first = self.members.partition_point(|member| member.tid < tid);
        let end = self.members.partition_point(|member| member.tid <= tid);
        let mut begun =
            (first..end).rev().filter(|&index| self.members[index].life.born.unwrap_or_default() <= time);
        begun.next().or((first < end).then_some(first))
    }

    /// Returns the rows in depth-first order; children are sorted by begin.
    fn rows(&self, context: &FinishContext<'_>) -> Vec<Vec<Value>> {
        let wanted = self.wanted(context.selection);
        let sorted = |mut siblings: Vec<usize>| {
            siblings.sort_unstable_by_key(|&index| {
                (self.members[index].life.born, self.members[index].tid, index)
            });
            siblings
        };
        let all = 0..self.members.len();
        let (roots, others): (Vec<usize>, Vec<usize>) =
            all.partition(|&index| self.members[index].parent.is_none());
        let mut rows = Vec::new();
        let mut visited = vec![false; self.members.len()];
        // After the roots, nodes that no root reaches: cycles of parents.
        for root in sorted(roots).into_iter().chain(others) {
            let mut waiting = vec![(root, 0)];
            while let Some((index, depth)) = waiting.pop() {
                if std::mem::replace(&mut visited[index], true) {
                    continue;
                }
                let member = &self.members[index];
                rows.extend((member.is_shown && wanted[index]).then(|| member.cells(depth, context)));
                let children = sorted(member.children.clone()).into_iter().rev();
                waiting.extend(children.map(|child| (child, depth + 1)));
            }
        }
        rows
    }

    /// Returns the selected nodes and their ancestors.
    fn wanted(&self, selection: &Selection) -> Vec<bool> {
        let mut wanted = vec![false; self.members.len()];
        for (index, _) in self.members.iter().enumerate().filter(|(_, member)| member.is_chosen(selection)) {
            let mut next = Some(index);
            while let Some(index) = next.filter(|&index| !wanted[index]) {
                wanted[index] = true;
                next = self.members[index].parent;
            }
        }
        wanted
    }
}

impl LifeNode {
    fn pid(&self) -> u32 {
        self.life.pid.unwrap_or(self.tid)
    }

    fn is_chosen(&self, selection: &Selection) -> bool {
        let listed = |list: &[u32], id| list.is_empty() || list.contains(&id);
        let is_called = self.life.comm.as_ref().is_some_and(|comm| selection.comms.contains(comm));
        listed(&selection.tids, self.tid)
            && listed(&selection.pids, self.pid())
            && (selection.comms.is_empty() || is_called)
    }

    fn cells(&self, depth: u64, context: &FinishContext<'_>) -> Vec<Value> {
        let text = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::from);
        let time = |time: Option<Nanos>| time.map_or(Value::Null, |time| time.0.into());
        let Life { born, died, ref comm, ref program, programs, .. } = self.life;
        // Clipped to the trace.
        let lasted = died.unwrap_or(context.span.1).0.saturating_sub(born.unwrap_or(context.span.0).0);
        vec![
            text(comm),
            depth.into(),
            u64::from(self.tid).into(),
            u64::from(self.pid()).into(),
            time(born),
            lasted.into(),
            self.threads.into(),
            text(program),
            time(died),
            programs.into(),
        ]
    }
}

//! `io --by file` and `--by descriptor`: bytes read and written per file.

use hodo_model::{
    Analysis, Column, FinishContext, Interest, Item, Shape, Start, Table, Unit, Value,
    kernel::{Cpus, KernelEvent, Kind, Thread, Threads, field},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{
    action::{FileCall, FileCallExit, OpenFileCall},
    descriptors::{Descriptors, FileId, FileStep, FileUse, FileUser, UNKNOWN},
};
use crate::{
    columns::{TableRows, most_first},
    deferred_ops::DeferredOps,
    durations::Add,
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Files;

/// The state after some events.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FilesPartial {
    /// Calls by index of their name; only needed while events are folded.
    #[serde(skip)]
    calls: Vec<Option<FileCall>>,
    /// Calls that began or ended on each CPU since its last switch.
    inside: Cpus<InsideCall>,
    steps: DeferredOps<Descriptors, FileStep>,
}

/// The call that a thread is in.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum InsideCall {
    /// A call that concerns files.
    Call(OpenFileCall),
    /// No such call.
    Nothing,
}

impl FilesPartial {
    fn new(names: &[String], is_first: bool) -> FilesPartial {
        FilesPartial {
            calls: names.iter().map(|name| FileCall::of(name)).collect(),
            inside: Cpus::default(),
            steps: DeferredOps::new(is_first),
        }
    }

    fn call(&mut self, event: &KernelEvent<'_>) {
        let call = self.calls.get(event.name as usize).copied().flatten();
        let cpu = event.cpu;
        if event.kind == Kind::SyscallEntry {
            // Other entries end the open call, too: its exit was lost.
            let entered = call.map_or(InsideCall::Nothing, |call| InsideCall::Call(call.entry(event)));
            return *self.inside.get_or(cpu, || InsideCall::Nothing) = entered;
        }
        let mut is_known = true;
        let inside = self.inside.get_or(cpu, || {
            is_known = false;
            InsideCall::Nothing
        });
        let inside = std::mem::replace(inside, InsideCall::Nothing);
        let exit = call.map(|_| FileCallExit::new(event));
        match (inside, exit) {
            (InsideCall::Call(entry), Some(exit)) => self.steps.see(FileStep::Call { cpu, entry, exit }),
            (InsideCall::Nothing, Some(exit)) if !is_known => self.steps.see(FileStep::Exit { cpu, exit }),
            _ => {}
        }
    }

    /// Emits the open call of a CPU as an operation. Returns whether the CPU is known to have no open call.
    fn settle(&mut self, cpu: u32, inside: Option<InsideCall>) -> bool {
        match inside {
            Some(InsideCall::Call(entry)) => {
                self.steps.see(FileStep::Enter { cpu, entry });
                false
            }
            inside => inside.is_some(),
        }
    }

    fn switch(&mut self, event: &KernelEvent<'_>) {
        use field::switch;
        let tids = event.integer(switch::PREV_TID).zip(event.integer(switch::NEXT_TID));
        let Some((prev, next)) = tids else { return };
        let cpu = event.cpu;
        let inside = self.inside.remove(cpu);
        let is_idle = self.settle(cpu, inside);
        self.steps.see(FileStep::Switch { cpu, is_idle, prev, next });
        if let Some(pid) = event.integer(switch::PREV_PID).filter(|&pid| pid > 0 && prev > 0) {
            self.steps.see(FileStep::Belongs { tid: prev, pid: pid as u32, table: None });
        }
    }

    fn fork(&mut self, event: &KernelEvent<'_>) {
        use field::fork;
        let pid = |field| event.integer(field).map(|pid| pid as u32);
        let Some(tid) = event.integer(fork::CHILD_TID) else { return };
        let (parent, child) = (pid(fork::PARENT_PID), pid(fork::CHILD_PID));
        if let Some((tid, pid)) = event.integer(fork::PARENT_TID).zip(parent) {
            self.steps.see(FileStep::Belongs { tid, pid, table: None });
        }
        self.steps.see(match (parent, child) {
            (Some(parent), Some(child)) if parent == child => {
                FileStep::Belongs { tid, pid: child, table: None }
            }
            (Some(parent), Some(child)) => FileStep::Fork { parent, child },
            _ => FileStep::Begins { tid },
        });
    }

    fn state(&mut self, event: &KernelEvent<'_>) {
        use field::{descriptor, process};
        if event.kind == Kind::StateProcess {
            let reported = event.integer(process::TID).zip(event.integer(process::PID));
            if let Some((tid, pid)) = reported.filter(|&(tid, _)| tid != 0) {
                let table = event.integer(process::FILES).map(|address| address as u64);
                self.steps.see(FileStep::Belongs { tid, pid: pid as u32, table });
            }
            return;
        }
        if let Some((fd, name)) = event.integer(descriptor::FD).zip(event.text(descriptor::FILENAME)) {
            self.steps.see(FileStep::Dumped {
                table: event.integer(descriptor::FILES).map(|address| address as u64),
                pid: event.integer(descriptor::PID).map(|pid| pid as u32),
                fd: fd as i32,
                file: String::from_utf8_lossy(name).into(),
                flags: event.integer(descriptor::FLAGS).unwrap_or(0),
            });
        }
    }
}

impl Analysis for Files {
    type Partial = FilesPartial;

    fn interest(&self) -> Interest<'_> {
        use field::{descriptor, entry, exit, fork, process, switch};
        Interest::events(
            const {
                &[
                    (Kind::SchedSwitch, &[switch::PREV_TID, switch::NEXT_TID, switch::PREV_PID]),
                    (
                        Kind::SchedFork,
                        &[fork::CHILD_TID, fork::CHILD_PID, fork::PARENT_TID, fork::PARENT_PID],
                    ),
                    (Kind::StateProcess, &[process::TID, process::PID, process::FILES]),
                    (
                        Kind::StateDescriptor,
                        &[
                            descriptor::FILES,
                            descriptor::FD,
                            descriptor::FILENAME,
                            descriptor::FLAGS,
                            descriptor::PID,
                        ],
                    ),
                    (
                        Kind::SyscallEntry,
                        &[
                            entry::FD,
                            entry::OTHER_FD,
                            entry::FILENAME,
                            entry::FLAGS,
                            entry::COMMAND,
                            entry::VALUE,
                            entry::ARGUMENTS,
                            entry::ARGUMENTS + 1,
                            entry::ARGUMENTS + 2,
                            entry::ARGUMENTS + 3,
                            entry::ARGUMENTS + 4,
                        ],
                    ),
                    (Kind::SyscallExit, &[exit::RET, exit::FD, exit::OTHER_FD]),
                ]
            },
        )
    }

    fn begin(&self, start: &Start<'_>) -> FilesPartial {
        FilesPartial::new(start.names, start.is_first)
    }

    fn fold(&self, partial: &mut FilesPartial, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        match event.kind {
            Kind::SyscallEntry | Kind::SyscallExit => partial.call(event),
            Kind::SchedSwitch => partial.switch(event),
            Kind::SchedFork => partial.fork(event),
            Kind::StateProcess | Kind::StateDescriptor => partial.state(event),
            _ => {}
        }
    }

    fn merge(&self, mut earlier: FilesPartial, later: FilesPartial, _: &Threads) -> FilesPartial {
        // No switch has happened since, so the order among CPUs does not matter.
        for (cpu, inside) in std::mem::take(&mut earlier.inside).into_all() {
            if earlier.settle(cpu, Some(inside)) {
                earlier.steps.see(FileStep::Idle { cpu });
            }
        }
        earlier.steps.add(later.steps);
        earlier.inside = later.inside;
        earlier
    }

    fn finish(&self, partials: Vec<FilesPartial>, context: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let threads = context.threads;
        let descriptors = whole.steps.finish();
        let names = descriptors.names();
        let mut users: FileUses = FxHashMap::default();
        for (&FileUser { thread, cpu, fd, file }, used) in &descriptors.uses {
            let thread = threads.settled(thread);
            if threads.wanted(thread, context.selection) && context.selection.wants_cpu(cpu) {
                users.entry((thread, fd, file)).or_default().add(*used);
            }
        }
        let mut all = FileUse::default();
        users.values().for_each(|used| all.add(*used));
        let nameless = users.iter().filter(|((.., file), _)| *file == UNKNOWN);
        let nameless = nameless.map(|(_, used)| used.read.saturating_add(used.written));
        let mut files: Vec<FileId> =
            users.keys().map(|(.., file)| *file).filter(|file| *file != UNKNOWN).collect();
        files.sort_unstable();
        files.dedup();
        let summary = vec![
            ("read_bytes", all.read.into()),
            ("written_bytes", all.written.into()),
            ("operations", (all.operations - all.shared).into()),
            ("files", (files.len() as u64).into()),
            ("nameless_bytes", nameless.fold(0, u64::saturating_add).into()),
        ];
        let (columns, rows) = match context.selection.view.as_str() {
            "descriptor" => by_descriptor(threads, users, &names),
            _ => by_file(threads, users, &names),
        };
        Table::new("io", Shape::Counters, summary, columns, rows)
    }
}

/// Uses by thread, descriptor and file.
type FileUses = FxHashMap<(Thread, Option<i32>, FileId), FileUse>;

fn columns() -> [Column; 6] {
    [
        Column::integer("read_bytes", Unit::Bytes),
        Column::integer("written_bytes", Unit::Bytes),
        Column::integer("operations", Unit::Count),
        Column::integer("total_ns", Unit::Nanoseconds),
        Column::integer("opens", Unit::Count).secondary(),
        Column::integer("errors", Unit::Count).secondary(),
    ]
}

fn cells(used: &FileUse) -> [Value; 6] {
    [
        used.read.into(),
        used.written.into(),
        used.operations.into(),
        used.time.into(),
        used.opens.into(),
        used.errors.into(),
    ]
}

/// Returns the process of a thread; the thread itself if the process is unknown.
fn process(threads: &Threads, thread: Thread) -> Thread {
    threads.pid(thread).map_or(thread, |pid| Thread::new(pid.into(), 0))
}

fn by_file(threads: &Threads, users: FileUses, names: &[Option<&str>]) -> TableRows {
    let mut files: FxHashMap<FileId, (FileUse, Vec<Thread>)> = FxHashMap::default();
    for ((thread, _, file), used) in users {
        let (sum, processes) = files.entry(file).or_default();
        sum.add(used);
        processes.push(process(threads, thread));
    }
    let rows = files.into_iter().map(|(file, (used, mut processes))| {
        processes.sort_unstable();
        processes.dedup();
        let name = names[file as usize];
        let mut row = vec![name.map_or(Value::Null, Value::from)];
        row.extend(cells(&used));
        row.push((processes.len() as u64).into());
        ((used.read.saturating_add(used.written), (std::cmp::Reverse(used.time), name)), row)
    });
    let rows = most_first(rows);
    let mut all = vec![Column::name("file")];
    all.extend(columns());
    all.push(Column::integer("processes", Unit::Count).secondary());
    (all, rows)
}

fn by_descriptor(threads: &Threads, users: FileUses, names: &[Option<&str>]) -> TableRows {
    let mut sums: FileUses = FxHashMap::default();
    for ((thread, fd, file), used) in users {
        sums.entry((process(threads, thread), fd, file)).or_default().add(used);
    }
    let rows = sums.into_iter().map(|((process, fd, file), used)| {
        let [comm, tid, pid] = threads.cells(process);
        let name = names[file as usize];
        let pid = if pid == Value::Null { tid } else { pid };
        // A call that failed to make a descriptor has none; those below zero are special values.
        let mut row = vec![comm, pid, fd.into(), name.map_or(Value::Null, Value::from)];
        row.extend(cells(&used));
        ((used.read.saturating_add(used.written), (std::cmp::Reverse(used.time), process, fd, name)), row)
    });
    let rows = most_first(rows);
    let mut all = vec![
        Column::name("comm"),
        Column::integer("pid", Unit::None),
        Column::signed("fd", Unit::None),
        Column::name("file"),
    ];
    all.extend(columns());
    (all, rows)
}

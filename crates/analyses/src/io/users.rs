//! The threads and processes that read and write.

use hodo_model::{
    Analysis, Column, EventPartial, FinishContext, Interest, Item, Start, Table, Unit,
    kernel::{Kind, Thread, Threads},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    columns::most_first,
    durations::{Add, add_fields},
    per_thread_sums::{PerThreadSums, SumKey},
    system_calls::{self, CallsPartial, OfCalls, OfName, is_error},
};

use super::{BLOCKS, BlockDevices, Operation, Operations, TableRows, summary, table};

/// The analysis of threads and processes, like [`InputOutput`](super::InputOutput) but without the distribution of call
/// durations, which takes most of its time and memory.
#[derive(Clone, Copy, Debug)]
pub struct FileUsers;

/// The sums of one thread's calls of one name.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CallSums {
    count: u64,
    errors: u64,
    returned: u64,
    time: u64,
}

impl OfCalls for CallSums {
    #[inline]
    fn see(&mut self, length: u64, result: i64) {
        let is_error = is_error(result);
        let returned = if is_error { 0 } else { result as u64 };
        self.add(CallSums { count: 1, errors: is_error.into(), returned, time: length });
    }
}

add_fields!(CallSums { count, errors, time } wrapping { returned });

impl From<&OfName> for CallSums {
    fn from(calls: &OfName) -> CallSums {
        let OfName { durations, errors, returned } = calls;
        CallSums { count: durations.count, errors: *errors, returned: *returned, time: durations.total }
    }
}

impl Analysis for FileUsers {
    type Partial = (BlockDevices, CallsPartial<PerThreadSums<u32, CallSums>>);

    fn interest(&self) -> Interest<'_> {
        Interest::events(
            const {
                let [switch, entry, exit, whole] = system_calls::INTEREST;
                let [issue, complete, device] = BLOCKS;
                &[switch, entry, exit, whole, issue, complete, device]
            },
        )
    }

    fn begin(&self, start: &Start<'_>) -> Self::Partial {
        (BlockDevices::new(start), CallsPartial::default())
    }

    #[inline]
    fn fold(&self, (blocks, calls): &mut Self::Partial, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        match event.kind {
            Kind::BlockIssue | Kind::BlockComplete | Kind::StateBlockDevice => blocks.see(event),
            _ => calls.see(event),
        }
    }

    fn merge(&self, mut earlier: Self::Partial, later: Self::Partial, threads: &Threads) -> Self::Partial {
        earlier.0.add(later.0);
        earlier.1.add(later.1, threads);
        earlier
    }

    fn finish(&self, partials: Vec<Self::Partial>, context: &FinishContext<'_>) -> Table {
        let (blocks, calls) = only(partials);
        let calls = calls.wanted(context).map(|(key, calls)| (key, *calls));
        let users = sums(calls, &Operations::of(context.names));
        table(summary(&users, &blocks), by_user(context.threads, users, context.selection.view == "process"))
    }
}

/// The file operations of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileOperations {
    pub(super) read: u64,
    pub(super) written: u64,
    pub(super) operations: u64,
    errors: u64,
    time: u64,
}

impl FileOperations {
    fn see(&mut self, (operation, has_bytes): (Operation, bool), calls: CallSums) {
        let bytes = if has_bytes { calls.returned } else { 0 };
        self.add(FileOperations {
            read: if matches!(operation, Operation::Read | Operation::Copy) { bytes } else { 0 },
            written: if matches!(operation, Operation::Write | Operation::Copy) { bytes } else { 0 },
            operations: calls.count,
            errors: calls.errors,
            time: calls.time,
        });
    }
}

add_fields!(FileOperations { operations, errors, time } wrapping { read, written });

/// The operations of each thread.
pub(super) fn sums<'k>(
    calls: impl Iterator<Item = (SumKey<&'k u32>, CallSums)>,
    operations: &Operations,
) -> FxHashMap<Thread, FileOperations> {
    let mut users: FxHashMap<Thread, FileOperations> = FxHashMap::default();
    for (key, calls) in calls {
        if let Some(operation) = operations.of_call(*key.key) {
            users.entry(key.thread).or_default().see(operation, calls);
        }
    }
    users
}

pub(super) fn by_user(
    threads: &Threads,
    users: FxHashMap<Thread, FileOperations>,
    processes: bool,
) -> TableRows {
    let mut sums: FxHashMap<Thread, FileOperations> = FxHashMap::default();
    for (thread, user) in users {
        let pid = threads.pid(thread).filter(|_| processes);
        sums.entry(pid.map_or(thread, |pid| Thread::new(pid.into(), 0))).or_default().add(user);
    }
    let mut columns = vec![Column::name("comm")];
    columns.extend((!processes).then_some(Column::integer("tid", Unit::None)));
    columns.extend([
        Column { secondary: !processes, ..Column::integer("pid", Unit::None) },
        Column::integer("read_bytes", Unit::Bytes),
        Column::integer("written_bytes", Unit::Bytes),
        Column::integer("operations", Unit::Count),
        Column::integer("errors", Unit::Count),
        Column::integer("total_ns", Unit::Nanoseconds),
    ]);
    let rows = sums.into_iter().filter(|(_, user)| user.operations > 0).map(|(thread, user)| {
        let [comm, tid, pid] = threads.cells(thread);
        let mut row = vec![comm];
        row.extend((!processes).then_some(tid));
        row.extend([pid, user.read.into(), user.written.into(), user.operations.into()]);
        row.extend([user.errors.into(), user.time.into()]);
        ((user.read.saturating_add(user.written), thread), row)
    });
    (columns, most_first(rows))
}

//! `io`: who read and wrote how much, how long did that take, and how long did the devices?
//!
//! * Bytes are what calls returned that read, write or copy (see [`Operation`]); of those that copy they count
//!   as read and as written. A call that failed moves nothing. Calls that return a number of messages count as
//!   operations without bytes.
//! * A request of the block layer lasts from `block_rq_issue` to the next `block_rq_complete` of its device and
//!   sector. It is a write where its flags say so, else a read; its bytes are its sectors, of 512 bytes each, when
//!   it completes.

mod action;
mod cache;
mod descriptors;
mod files;

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_trace::{
    AnyEventAnalysis, Choice, Column, EventAnalysis, Shape, Start, Table, Unit, Value, Whole,
    kernel::{KernelEvent, Kind, Thread, Threads, field},
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    durations::{Add, Durations},
    figures::{duration_cells, duration_columns, most_time_first},
    pairs::Pairs,
    syscalls::Syscalls,
    system_calls::{Calls, OfName},
};

pub use cache::Cache;
pub use files::Files;

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct InputOutput;

/// What a system call does with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum Operation {
    Read,
    Write,
    Copy,
    Open,
    Close,
    Sync,
}

impl Operation {
    /// What the call with a name does, and whether it returns bytes.
    fn of(call: &str) -> Option<(Operation, bool)> {
        Some(match call {
            "read" | "pread64" | "readv" | "preadv" | "preadv2" | "recv" | "recvfrom" | "recvmsg" => {
                (Operation::Read, true)
            }
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "send" | "sendto" | "sendmsg" => {
                (Operation::Write, true)
            }
            "splice" | "tee" | "vmsplice" | "sendfile" | "sendfile64" | "copy_file_range" => {
                (Operation::Copy, true)
            }
            "recvmmsg" => (Operation::Read, false),
            "sendmmsg" => (Operation::Write, false),
            "open" | "openat" | "openat2" | "creat" => (Operation::Open, false),
            "close" => (Operation::Close, false),
            "sync" | "fsync" | "fdatasync" | "syncfs" | "sync_file_range" | "msync" => {
                (Operation::Sync, false)
            }
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Copy => "copy",
            Operation::Open => "open",
            Operation::Close => "close",
            Operation::Sync => "sync",
        }
    }
}

/// The bit of LTTng's `rwbs` that says that a request writes; other tracers write letters.
const RWBS_WRITE: i64 = 1;
const SECTOR_BYTES: u64 = 512;

/// A request that was done: when, whether it wrote, its sectors, whether it failed.
type Done = (Nanos, bool, u64, bool);

/// Requests of a device.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Requests {
    durations: Durations,
    bytes: u64,
    errors: u64,
}

impl Add for Requests {
    fn add(&mut self, later: Requests) {
        self.durations.add(later.durations);
        self.bytes = self.bytes.wrapping_add(later.bytes);
        self.errors += later.errors;
    }
}

impl Requests {
    fn see(&mut self, begin: Nanos, (end, _, sectors, failed): Done) {
        self.durations.see(end.0.saturating_sub(begin.0));
        self.bytes = self.bytes.wrapping_add(sectors.wrapping_mul(SECTOR_BYTES));
        self.errors += u64::from(failed);
    }
}

/// A device: requests by sector that go on, and what was read and written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Device {
    name: Option<String>,
    going_on: Pairs<Nanos, Done>,
    read: Requests,
    written: Requests,
}

impl Device {
    fn of(&mut self, writes: bool) -> &mut Requests {
        if writes { &mut self.written } else { &mut self.read }
    }
}

/// What is known of devices after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Partial {
    /// Whether nothing came before.
    from_start: bool,
    devices: FxHashMap<u32, Device>,
}

impl EventAnalysis for InputOutput {
    type Partial = Partial;

    fn interest(&self) -> &'static [(Kind, &'static [usize])] {
        const {
            &[
                (Kind::BlockIssue, &[field::block::DEV, field::block::SECTOR]),
                (
                    Kind::BlockComplete,
                    &[
                        field::block::DEV,
                        field::block::SECTOR,
                        field::block::NR_SECTOR,
                        field::block::RWBS,
                        field::block::ERROR,
                    ],
                ),
                (Kind::StateBlockDevice, &[field::device::DEV, field::device::NAME]),
            ]
        }
    }

    fn base(&self) -> Option<&'static dyn AnyEventAnalysis> {
        Some(&Syscalls)
    }

    fn views(&self) -> &'static [&'static str] {
        &["thread", "process", "operation", "device", "file", "descriptor", "cache"]
    }

    fn of_choice(&self, choice: &Choice) -> Option<Box<dyn AnyEventAnalysis>> {
        match choice.view.as_str() {
            "file" | "descriptor" => Some(Box::new(Files)),
            "cache" => Some(Box::new(Cache)),
            _ => None,
        }
    }

    fn unknown(&self) -> Partial {
        Partial::default()
    }

    fn begin(&self, start: &Start<'_>) -> Partial {
        Partial { from_start: start.is_first, ..Partial::default() }
    }

    #[inline]
    fn fold(&self, partial: &mut Partial, event: &KernelEvent<'_>) {
        if matches!(event.kind, Kind::BlockIssue | Kind::BlockComplete | Kind::StateBlockDevice) {
            partial.block(event);
        }
    }

    fn merge(&self, mut earlier: Partial, later: Partial, _: &Threads) -> Partial {
        for (number, device) in later.devices {
            let own = earlier.device(number);
            own.read.add(device.read);
            own.written.add(device.written);
            own.name = device.name.or(own.name.take());
            let Device { going_on, read, written, .. } = own;
            going_on.add(device.going_on, |begin, done| {
                if done.1 { &mut *written } else { &mut *read }.see(begin, done)
            });
        }
        earlier
    }

    fn finish(&self, whole: Partial, of: &Whole<'_>) -> Table {
        let operations: Vec<_> = of.names.iter().map(|name| Operation::of(name)).collect();
        let operation = |name: u32| operations.get(name as usize).copied().flatten();
        let wanted = || of.base::<Calls>().wanted(of);
        let mut users: FxHashMap<Thread, User> = FxHashMap::default();
        for (thread, operation, calls) in
            wanted().filter_map(|(thread, name, calls)| Some((thread, operation(name)?, calls)))
        {
            users.entry(thread).or_default().see(operation, calls);
        }
        let mut all = User::default();
        users.values().for_each(|user| all.add(*user));
        let requests = || whole.devices.values().flat_map(|device| [&device.read, &device.written]);
        let left = |which: fn((u64, u64)) -> u64| {
            whole.devices.values().map(|device| which(device.going_on.left())).sum::<u64>()
        };
        let summary = vec![
            ("read_bytes", all.read.into()),
            ("written_bytes", all.written.into()),
            ("operations", all.operations.into()),
            ("requests", requests().map(|requests| requests.durations.count).sum::<u64>().into()),
            ("request_bytes", requests().map(|requests| requests.bytes).fold(0, u64::wrapping_add).into()),
            ("requests_unmatched", left(|left| left.0).into()),
            ("requests_unfinished", left(|left| left.1).into()),
        ];
        let (columns, rows) = match of.choice.view.as_str() {
            "operation" => {
                by_operation(wanted().filter_map(|(_, name, calls)| Some((operation(name)?, calls))))
            }
            "device" => by_device(whole.devices),
            view => by_thread(of.threads, users, view == "process"),
        };
        Table { name: "io", shape: Shape::Counters, summary, columns, rows, loss: Vec::new() }
    }
}

impl Partial {
    fn device(&mut self, number: u32) -> &mut Device {
        let new = || Device { going_on: Pairs::new(self.from_start), ..Device::default() };
        self.devices.entry(number).or_insert_with(new)
    }

    fn block(&mut self, event: &KernelEvent<'_>) {
        let Some(number) = event.integer(field::block::DEV).map(|number| number as u32) else { return };
        let device = self.device(number);
        if event.kind == Kind::StateBlockDevice {
            device.name =
                event.text(field::device::NAME).map(|name| String::from_utf8_lossy(name).into_owned());
            return;
        }
        let Some(sector) = event.integer(field::block::SECTOR).map(|sector| sector as u64) else { return };
        if event.kind == Kind::BlockIssue {
            return device.going_on.begin(sector, event.time);
        }
        let letters = || event.text(field::block::RWBS).is_some_and(|letters| letters.contains(&b'W'));
        let writes = event.integer(field::block::RWBS).map_or_else(letters, |flags| flags & RWBS_WRITE != 0);
        let sectors = event.integer(field::block::NR_SECTOR).unwrap_or(0) as u64;
        let failed = event.integer(field::block::ERROR).is_some_and(|error| error != 0);
        if let Some((begin, done)) = device.going_on.end(sector, (event.time, writes, sectors, failed)) {
            device.of(writes).see(begin, done);
        }
    }
}

/// What a thread did with files.
#[derive(Clone, Copy, Debug, Default)]
struct User {
    read: u64,
    written: u64,
    operations: u64,
    errors: u64,
    time: u64,
}

impl User {
    fn see(&mut self, (operation, has_bytes): (Operation, bool), calls: &OfName) {
        let bytes = if has_bytes { calls.returned } else { 0 };
        self.add(User {
            read: if matches!(operation, Operation::Read | Operation::Copy) { bytes } else { 0 },
            written: if matches!(operation, Operation::Write | Operation::Copy) { bytes } else { 0 },
            operations: calls.durations.count,
            errors: calls.errors,
            time: calls.durations.total,
        });
    }
}

impl Add for User {
    fn add(&mut self, other: User) {
        self.read = self.read.wrapping_add(other.read);
        self.written = self.written.wrapping_add(other.written);
        self.operations += other.operations;
        self.errors += other.errors;
        self.time = self.time.saturating_add(other.time);
    }
}

fn by_thread(
    threads: &Threads,
    users: FxHashMap<Thread, User>,
    processes: bool,
) -> (Vec<Column>, Vec<Vec<Value>>) {
    let mut sums: FxHashMap<Thread, User> = FxHashMap::default();
    for (thread, user) in users {
        let pid = threads.pid(thread).filter(|_| processes);
        sums.entry(pid.map_or(thread, |pid| Thread::new(pid.into(), 0))).or_default().add(user);
    }
    let mut columns = vec![Column::text("comm")];
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
        (user.read.saturating_add(user.written), thread, row)
    });
    (columns, most_time_first(rows))
}

fn by_operation<'s>(
    calls: impl Iterator<Item = ((Operation, bool), &'s OfName)>,
) -> (Vec<Column>, Vec<Vec<Value>>) {
    let mut columns = vec![
        Column::text("operation"),
        Column::integer("count", Unit::Count),
        Column::integer("errors", Unit::Count),
        Column::integer("bytes", Unit::Bytes),
    ];
    columns.extend(duration_columns());
    let mut operations: BTreeMap<Operation, (OfName, u64)> = BTreeMap::new();
    for ((operation, has_bytes), calls) in calls {
        let (all, bytes) = operations.entry(operation).or_default();
        all.join(calls);
        *bytes = bytes.wrapping_add(if has_bytes { calls.returned } else { 0 });
    }
    let row = |(operation, (of, bytes)): (Operation, (OfName, u64))| {
        let mut row =
            vec![operation.name().into(), of.durations.count.into(), of.errors.into(), bytes.into()];
        row.extend(duration_cells(&of.durations));
        row
    };
    (columns, operations.into_iter().map(row).collect())
}

/// The two numbers of a device, of which the kernel makes one: 12 bits and 20.
fn numbers(device: u32) -> String {
    format!("{}:{}", device >> 20, device & 0xf_ffff)
}

fn by_device(devices: FxHashMap<u32, Device>) -> (Vec<Column>, Vec<Vec<Value>>) {
    let mut columns = vec![
        Column::text("device"),
        Column::text("operation"),
        Column::integer("count", Unit::Count),
        Column::integer("errors", Unit::Count).secondary(),
        Column::integer("bytes", Unit::Bytes),
    ];
    columns.extend(duration_columns());
    let mut devices: Vec<(u32, Device)> = devices.into_iter().collect();
    devices.sort_unstable_by_key(|(number, _)| *number);
    let mut rows = Vec::new();
    for (number, device) in devices {
        let name = device.name.unwrap_or_else(|| numbers(number));
        for (operation, requests) in [("read", device.read), ("write", device.written)] {
            if requests.durations.count == 0 {
                continue;
            }
            let mut row: Vec<Value> = vec![name.as_str().into(), operation.into()];
            row.extend([requests.durations.count.into(), requests.errors.into(), requests.bytes.into()]);
            row.extend(duration_cells(&requests.durations));
            rows.push(row);
        }
    }
    (columns, rows)
}

//! `io`: how much did each thread read and write, how long did that take, and how long did the devices take?
//!
//! * Bytes are the results of calls that read, write or copy (see `Operation`); copied bytes count as read and as
//!   written. A call that failed moves nothing. Calls that return a number of messages count as operations without
//!   bytes.
//! * A request of the block layer lasts from `block_rq_issue` to the next `block_rq_complete` of its device and sector.
//!   It is a write if its flags say so, else a read; its size is its number of sectors at completion, times 512 bytes.

mod action;
mod cache;
mod descriptors;
mod files;
mod users;

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, Made, Report, Shape, Start,
    Summary, Table, Takes, Unit, Value,
    kernel::{KernelEvent, Kind, Thread, Threads, field},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    columns::{TableRows, duration_cells, duration_columns},
    durations::{Add, Durations, add_fields},
    pairs::{Pairs, Unpaired},
    syscalls::Syscalls,
    system_calls::{CallsPartial, OfName},
};

use users::FileOperations;

pub use cache::PageCache;
pub use files::Files;
pub use users::FileUsers;

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct InputOutput;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "io",
            help: "kernel events: bytes read and written by threads, and how long calls and devices took",
            views: &["thread", "process", "operation", "device", "file", "descriptor", "cache"],
            takes: Takes::THREADS_AND_CPUS,
            in_all: true,
            ..Description::EMPTY
        },
        make: |parameters| match parameters.view() {
            "file" | "descriptor" => Made::of_events(Files),
            "cache" => Made::of_events(PageCache),
            // The same table without the durations of calls, which take most of the time.
            "" | "thread" | "process" if parameters.alone => Made::of_events(FileUsers),
            _ => Made::of_events(InputOutput),
        },
    }
}

/// The kind of a file operation.
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
    /// Returns the operation of the call with a name, and whether its result is a number of bytes.
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

/// The bit of LTTng's `rwbs` that marks a write; other tracers write letters.
const RWBS_WRITE: i64 = 1;
const SECTOR_BYTES: u64 = 512;

/// The completion of a request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct CompletedRequest {
    time: Nanos,
    wrote: bool,
    sectors: u64,
    failed: bool,
}

/// Requests of a device.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct DeviceRequests {
    durations: Durations,
    bytes: u64,
    errors: u64,
}

add_fields!(DeviceRequests { durations, errors } wrapping { bytes });

impl DeviceRequests {
    fn see(&mut self, begin: Nanos, completed: CompletedRequest) {
        self.durations.see(completed.time.0.saturating_sub(begin.0));
        self.bytes = self.bytes.wrapping_add(completed.sectors.wrapping_mul(SECTOR_BYTES));
        self.errors += u64::from(completed.failed);
    }
}

/// A device: open requests by sector, and totals of completed ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Device {
    name: Option<String>,
    open: Pairs<Nanos, CompletedRequest>,
    read: DeviceRequests,
    written: DeviceRequests,
}

impl Device {
    fn see(&mut self, begin: Nanos, completed: CompletedRequest) {
        if completed.wrote { &mut self.written } else { &mut self.read }.see(begin, completed);
    }
}

/// The devices after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BlockDevices {
    /// Whether the trace begins here.
    from_start: bool,
    devices: FxHashMap<u32, Device>,
}

/// The events of the block layer.
const BLOCKS: [(Kind, &[usize]); 3] = {
    use field::block::{DEV, ERROR, NR_SECTOR, RWBS, SECTOR};
    [
        (Kind::BlockIssue, &[DEV, SECTOR]),
        (Kind::BlockComplete, &[DEV, SECTOR, NR_SECTOR, RWBS, ERROR]),
        (Kind::StateBlockDevice, &[field::device::DEV, field::device::NAME]),
    ]
};

impl Analysis for InputOutput {
    type Partial = BlockDevices;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&BLOCKS).with_base(&Syscalls)
    }

    fn begin(&self, start: &Start<'_>) -> BlockDevices {
        BlockDevices::new(start)
    }

    #[inline]
    fn fold(&self, partial: &mut BlockDevices, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        if matches!(event.kind, Kind::BlockIssue | Kind::BlockComplete | Kind::StateBlockDevice) {
            partial.see(event);
        }
    }

    fn merge(&self, mut earlier: BlockDevices, later: BlockDevices, _: &Threads) -> BlockDevices {
        earlier.add(later);
        earlier
    }

    fn finish(&self, partials: Vec<BlockDevices>, context: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let operations = Operations::of(context.names);
        let wanted = || context.base::<CallsPartial>().wanted(context);
        let users = users::sums(wanted().map(|(key, calls)| (key, calls.into())), &operations);
        let summary = summary(&users, &whole);
        let (columns, rows) = match context.selection.view.as_str() {
            "operation" => {
                by_operation(wanted().filter_map(|(key, calls)| Some((operations.of_call(*key.key)?, calls))))
            }
            "device" => by_device(whole.devices),
            view => users::by_user(context.threads, users, view == "process"),
        };
        table(summary, (columns, rows))
    }
}

/// The operation of each call, by the index of its name.
struct Operations(Vec<Option<(Operation, bool)>>);

impl Operations {
    fn of(names: &[String]) -> Operations {
        Operations(names.iter().map(|name| Operation::of(name)).collect())
    }

    /// Returns the operation of a call that concerns files, and whether its result is a number of bytes.
    fn of_call(&self, name: u32) -> Option<(Operation, bool)> {
        self.0.get(name as usize).copied().flatten()
    }
}

fn summary(users: &FxHashMap<Thread, FileOperations>, blocks: &BlockDevices) -> Summary {
    let mut all = FileOperations::default();
    users.values().for_each(|user| all.add(*user));
    let requests = || blocks.devices.values().flat_map(|device| [&device.read, &device.written]);
    let unpaired = |count: fn(Unpaired) -> u64| {
        blocks.devices.values().map(|device| count(device.open.left())).sum::<u64>()
    };
    vec![
        ("read_bytes", all.read.into()),
        ("written_bytes", all.written.into()),
        ("operations", all.operations.into()),
        ("requests", requests().map(|requests| requests.durations.count).sum::<u64>().into()),
        ("request_bytes", requests().map(|requests| requests.bytes).fold(0, u64::wrapping_add).into()),
        ("requests_unmatched", unpaired(|unpaired| unpaired.unmatched).into()),
        ("requests_unfinished", unpaired(|unpaired| unpaired.unfinished).into()),
    ]
}

fn table(summary: Summary, (columns, rows): TableRows) -> Table {
    Table::new("io", Shape::Counters, summary, columns, rows)
}

impl Add for BlockDevices {
    fn add(&mut self, later: BlockDevices) {
        for (number, device) in later.devices {
            let own = self.device(number);
            own.read.add(device.read);
            own.written.add(device.written);
            own.name = device.name.or(own.name.take());
            let Device { open, read, written, .. } = own;
            open.add(device.open, |begin, done| {
                if done.wrote { &mut *written } else { &mut *read }.see(begin, done)
            });
        }
    }
}

impl BlockDevices {
    fn new(start: &Start<'_>) -> BlockDevices {
        BlockDevices { from_start: start.is_first, ..BlockDevices::default() }
    }

    fn device(&mut self, number: u32) -> &mut Device {
        let Self { from_start, devices } = self;
        devices.entry(number).or_insert_with(|| Device { open: Pairs::new(*from_start), ..Device::default() })
    }

    /// Folds an event of the block layer.
    fn see(&mut self, event: &KernelEvent<'_>) {
        let Some(number) = event.integer(field::block::DEV).map(|number| number as u32) else { return };
        let device = self.device(number);
        if event.kind == Kind::StateBlockDevice {
            device.name =
                event.text(field::device::NAME).map(|name| String::from_utf8_lossy(name).into_owned());
            return;
        }
        let Some(sector) = event.integer(field::block::SECTOR).map(|sector| sector as u64) else { return };
        if event.kind == Kind::BlockIssue {
            return device.open.begin(sector, event.time);
        }
        let wrote = match event.integer(field::block::RWBS) {
            Some(flags) => flags & RWBS_WRITE != 0,
            None => event.text(field::block::RWBS).is_some_and(|letters| letters.contains(&b'W')),
        };
        let sectors = event.integer(field::block::NR_SECTOR).unwrap_or(0) as u64;
        let failed = event.integer(field::block::ERROR).is_some_and(|error| error != 0);
        let completed = CompletedRequest { time: event.time, wrote, sectors, failed };
        if let Some((begin, completed)) = device.open.end(sector, completed) {
            device.see(begin, completed);
        }
    }
}

fn by_operation<'s>(calls: impl Iterator<Item = ((Operation, bool), &'s OfName)>) -> TableRows {
    let mut columns = vec![
        Column::name("operation"),
        Column::integer("bytes", Unit::Bytes),
        Column::integer("count", Unit::Count),
    ];
    columns.extend(duration_columns());
    columns.push(Column::integer("errors", Unit::Count));
    let mut operations: BTreeMap<Operation, (OfName, u64)> = BTreeMap::new();
    for ((operation, has_bytes), calls) in calls {
        let (all, bytes) = operations.entry(operation).or_default();
        all.join(calls);
        *bytes = bytes.wrapping_add(if has_bytes { calls.returned } else { 0 });
    }
    let rows = operations.into_iter().map(|(operation, (sum, bytes))| {
        let mut row = vec![operation.name().into(), bytes.into(), sum.durations.count.into()];
        row.extend(duration_cells(&sum.durations));
        row.push(sum.errors.into());
        row
    });
    (columns, rows.collect())
}

/// Splits a device number into its major (12 bits) and minor number (20 bits), as the kernel packs them.
pub(crate) fn device_numbers(device: u32) -> String {
    format!("{}:{}", device >> 20, device & 0xf_ffff)
}

fn by_device(devices: FxHashMap<u32, Device>) -> TableRows {
    let mut columns = vec![
        Column::name("device"),
        Column::name("operation"),
        Column::integer("bytes", Unit::Bytes),
        Column::integer("count", Unit::Count),
    ];
    columns.extend(duration_columns());
    columns.push(Column::integer("errors", Unit::Count).secondary());
    let mut devices: Vec<(u32, Device)> = devices.into_iter().collect();
    devices.sort_unstable_by_key(|(number, _)| *number);
    let mut rows = Vec::new();
    for (number, device) in devices {
        let name = device.name.unwrap_or_else(|| device_numbers(number));
        for (operation, requests) in [("read", device.read), ("write", device.written)] {
            if requests.durations.count == 0 {
                continue;
            }
            let mut row: Vec<Value> = vec![name.as_str().into(), operation.into()];
            row.extend([requests.bytes.into(), requests.durations.count.into()]);
            row.extend(duration_cells(&requests.durations));
            row.push(requests.errors.into());
            rows.push(row);
        }
    }
    (columns, rows)
}

//! The traced part of a program: address ranges, and packets that are lost on request.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    block::{Block, Kind},
    lock::Lock,
    spool::{MapNote, Thread},
    thread::{End, Ran},
};

/// A range of a file's code that is traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterRange {
    /// The file's path, without symbolic links; empty if `start` is an address of the program.
    pub file: Vec<u8>,
    /// Offset of the first byte in the file, or its address.
    pub start: u64,
    /// Size in bytes.
    pub size: u64,
}

/// The filter that the threads of this process share.
struct Filter {
    ranges: Vec<FilterRange>,
    /// The ranges in memory, for files that are mapped.
    addresses: Vec<Range<u64>>,
    /// Instructions of each thread, counted from its start, whose packets are lost.
    overflow: Range<u64>,
}

static FILTER: Lock<Filter> = Lock::new(Filter { ranges: Vec::new(), addresses: Vec::new(), overflow: 0..0 });

/// Sets the filter of this process.
pub(crate) fn configure(ranges: &[FilterRange], overflow: Option<Range<u64>>) {
    let mut filter = FILTER.lock();
    let absolute = ranges.iter().filter(|range| range.file.is_empty());
    filter.addresses = absolute.map(|range| range.start..range.start + range.size).collect();
    filter.ranges = ranges.to_vec();
    filter.overflow = overflow.unwrap_or(0..0);
}

/// Whether threads must check each block.
pub(crate) fn is_set() -> bool {
    let filter = FILTER.lock();
    !filter.ranges.is_empty() || !filter.overflow.is_empty()
}

/// A file is mapped from which code will run.
pub(crate) fn mapped(map: &MapNote) {
    let mut filter = FILTER.lock();
    let of_file: Vec<_> = (filter.ranges.iter())
        .filter(|range| !range.file.is_empty() && range.file == map.name)
        .filter_map(|range| {
            let start = map.address + range.start.checked_sub(map.file_offset)?;
            (start < map.address + map.length).then(|| start..start + range.size)
        })
        .collect();
    for range in of_file {
        if !filter.addresses.contains(&range) {
            filter.addresses.push(range);
        }
    }
}

fn is_traced(address: u64) -> bool {
    let filter = FILTER.lock();
    filter.ranges.is_empty() || filter.addresses.iter().any(|range| range.contains(&address))
}

impl Thread {
    /// Traces the end of the previous block, as far as the filter permits.
    pub(crate) fn end_filtered(&mut self, previous: &'static Block, end: End) {
        let count = match end.ran {
            Ran::Part(count) => count,
            Ran::Whole(_) | Ran::Trap => previous.count,
            Ran::Unknown => 0,
        };
        self.walk(previous, count);
        match end.ran {
            Ran::Whole(next) => self.branch_filtered(previous, next),
            Ran::Trap if self.tracing != 0 => {
                self.encoder.disable(None, self.counts.now, &mut self.window);
                self.tracing = 0;
            }
            Ran::Trap | Ran::Part(_) | Ran::Unknown => {}
        }
        let unknown = (end.ran == Ran::Unknown).then_some(previous.pc);
        if let Some(ip) = end.interrupted.or(unknown).filter(|_| self.tracing != 0) {
            self.encoder.interrupt(ip, self.counts.now, &mut self.window);
            self.tracing = 0;
        }
    }

    /// Traces the first instructions of a block, which ran in order, into and out of the traced ranges.
    fn walk(&mut self, block: &'static Block, count: u64) {
        for address in block.addresses().take(count as usize) {
            if self.losing == 0 {
                self.set_tracing(is_traced(address), address);
            }
            self.counts.untraced_instructions += u64::from(self.tracing == 0);
            self.retire(1);
        }
    }

    /// The last instruction of a block branches to `next`. A branch out of the traced ranges has a TIP.PGD with its
    /// target instead of its own packet.
    fn branch_filtered(&mut self, block: &'static Block, next: u64) {
        let is_call = matches!(block.kind, Kind::Call | Kind::CallNext | Kind::CallIndirect);
        if self.tracing != 0 && is_traced(next) {
            return self.branch(block, next);
        }
        self.counts.calls += u64::from(is_call);
        self.counts.untraced_calls += u64::from(is_call && self.tracing == 0);
        if self.losing == 0 {
            self.set_tracing(false, next);
        }
    }

    /// Before the block at `pc`: begins or ends the requested loss of packets, and resumes tracing if the block is
    /// traced.
    pub(crate) fn resume_filtered(&mut self, previous: &Block, pc: u64) {
        let overflow = FILTER.lock().overflow.clone();
        let lost = overflow.contains(&(self.counts.now - self.start - self.counts.skipped));
        // Losses begin after a packet, so that the trace shows exactly what ran before them.
        let reported =
            matches!(previous.kind, Kind::Conditional | Kind::Return | Kind::Jump | Kind::CallIndirect);
        let now = self.counts.now;
        if lost && self.losing == 0 && self.tracing != 0 && reported {
            self.encoder.flush(now, &mut self.window);
            self.losing = 1;
            self.tracing = 0;
        } else if !lost && self.losing != 0 {
            self.losing = 0;
            self.tracing = is_traced(pc).into();
            self.encoder.overflow((self.tracing != 0).then_some(pc), now, &mut self.window);
        } else if self.losing == 0 {
            self.set_tracing(is_traced(pc), pc);
        }
    }

    /// Turns tracing on or off before the instruction at `address`.
    fn set_tracing(&mut self, on: bool, address: u64) {
        let now = self.counts.now;
        match (self.tracing != 0, on) {
            (false, true) => self.encoder.enable(address, now, &mut self.window),
            (true, false) => self.encoder.disable(Some(address), now, &mut self.window),
            _ => {}
        }
        self.tracing = on.into();
    }
}

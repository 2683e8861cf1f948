//! A vCPU whose recording begins.

use std::ops::Range;

use hodo_intel_pt::encoder::Encoder;

use super::{CLOCK_CHECK_BLOCKS, Vcpu};
use crate::machine::{
    buffer::Buffer,
    code::Memory,
    filter::Filter,
    guest::Mode,
    modules::Modules,
    places::Places,
    processor::Registers,
    settings::Privilege,
    spool::{Counters, Progress},
    truth::{Account, Witness},
    watch::{ReadMemory, Watcher},
};

/// The initial state of a vCPU.
pub(crate) struct Start {
    pub(crate) index: u32,
    pub(crate) encoder: Encoder,
    pub(crate) buffer: Buffer,
    pub(crate) ticks: extern "C" fn() -> i64,
    pub(crate) privilege: Privilege,
    pub(crate) filter: Option<Filter>,
    pub(crate) places: Vec<&'static Places>,
    pub(crate) read: ReadMemory,
    pub(crate) read_physical: ReadMemory,
    pub(crate) registers: Registers,
    pub(crate) memory: &'static Memory,
    /// Where the kernel loads modules, if that is known.
    pub(crate) modules: Option<&'static Modules>,
    pub(crate) progress: Progress,
    /// Ends QEMU, as nothing can be written any more.
    pub(crate) give_up: fn(),
    pub(crate) on_request: bool,
    pub(crate) exact: bool,
    pub(crate) time_every: Option<u64>,
    pub(crate) overflow: Option<Range<u64>>,
    pub(crate) begun: *const u64,
    pub(crate) cr3: u64,
    pub(crate) mode: Mode,
}

impl Vcpu {
    pub(crate) fn new(start: Start) -> Vcpu {
        let Start { index, encoder, buffer, ticks, privilege, exact, overflow, begun, cr3, memory, .. } =
            start;
        let overflow = overflow.filter(|lost| !lost.is_empty()).unwrap_or(u64::MAX..u64::MAX);
        let now = ticks() as u64;
        let mut vcpu = Vcpu {
            index,
            encoder,
            buffer,
            ticks,
            privilege,
            filter: start.filter,
            places: start.places,
            read: start.read,
            read_physical: start.read_physical,
            registers: start.registers,
            memory,
            modules: start.modules,
            progress: start.progress,
            give_up: start.give_up,
            watcher: Watcher::default(),
            on_request: start.on_request,
            requests: 0,
            tracing: false,
            divided: false,
            unstamped: false,
            previous: None,
            shift: 0,
            begun,
            // SAFETY: as in `resolve`.
            pauses_before: unsafe { begun.add(1).read() },
            mode: start.mode,
            retiring: start.mode,
            entering: None,
            guest: None,
            cr3,
            kernel: memory.kernel(),
            user: memory.space(cr3),
            exact,
            time_every: start.time_every,
            is_for_other_unit: start.time_every.is_some(),
            boundary: overflow.start,
            overflow,
            losing: false,
            now,
            stamped: now,
            blocks_to_check: if exact { 1 } else { CLOCK_CHECK_BLOCKS },
            next_psb: 0,
            account: Account::default(),
            traced: Account::default(),
            witness: Witness::default(),
            witness_base: 0,
            ended: false,
            counters: Counters { start: now, ..Counters::default() },
        };
        memory.switched(index, now, cr3);
        vcpu.encoder.expect_bits(start.mode.bits().into());
        // The PSB+ contains it.
        vcpu.encoder.set_cr3(cr3, now, &mut Vec::new());
        vcpu.synchronize(None);
        vcpu
    }
}

//! Events, and those that wait for the packet they bind to.

use std::collections::VecDeque;

use crate::{Error, abi, time::Time};

/// `pt_exec_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Mode {
    /// Not told yet, or both bits set.
    #[default]
    Unknown = 0,
    /// 16-bit code.
    Bits16 = 1,
    /// 32-bit code.
    Bits32 = 2,
    /// 64-bit code.
    Bits64 = 3,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Enabled { ip: u64, resumed: bool },
    Disabled { ip: u64 },
    AsyncDisabled { at: u64, ip: u64 },
    AsyncBranch { from: u64, to: u64 },
    Paging { cr3: u64, non_root: bool },
    AsyncPaging { cr3: u64, non_root: bool, ip: u64 },
    Overflow { ip: u64 },
    ExecMode { mode: Mode, ip: u64 },
    Tsx { ip: u64, speculative: bool, aborted: bool },
    Stop,
    Vmcs { base: u64 },
    AsyncVmcs { base: u64, ip: u64 },
    ExStop { ip: u64 },
    Mwait { ip: u64, hints: u32, extensions: u32 },
    Pwre { state: u8, sub_state: u8, hardware: bool },
    Pwrx { last: u8, deepest: u8, interrupt: bool, store: bool, autonomous: bool },
    PtWrite { ip: u64, size: u8, payload: u64 },
    Tick { ip: u64 },
    Cbr { ratio: u8 },
    Mnt { payload: u64 },
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) what: What,
    pub(crate) ip_suppressed: bool,
    pub(crate) status_update: bool,
    pub(crate) has_tsc: bool,
    pub(crate) tsc: u64,
    pub(crate) lost_mtc: u32,
    pub(crate) lost_cyc: u32,
}

impl Event {
    /// Creates an event without a time.
    pub(crate) fn new(what: What) -> Event {
        Event {
            what,
            ip_suppressed: false,
            status_update: false,
            has_tsc: false,
            tsc: 0,
            lost_mtc: 0,
            lost_cyc: 0,
        }
    }

    /// Creates an event at a time.
    pub(crate) fn at(what: What, time: &Time) -> Event {
        let mut event = Event::new(what);
        event.stamp(time);
        event
    }

    /// Creates an event at a time, without an address.
    pub(crate) fn without_ip(what: What, time: &Time) -> Event {
        Event { ip_suppressed: true, ..Event::at(what, time) }
    }

    /// Sets the time.
    pub(crate) fn stamp(&mut self, time: &Time) {
        let reading = time.read();
        self.has_tsc = reading.is_absolute;
        self.tsc = reading.tsc;
        self.lost_mtc = reading.lost_mtc;
        self.lost_cyc = reading.lost_cyc;
    }

    /// Sets an address of `what` from the last IP, or marks it as suppressed.
    pub(crate) fn locate(&mut self, last: Result<u64, Error>) {
        let Ok(last) = last else {
            self.ip_suppressed = true;
            return;
        };
        match &mut self.what {
            What::Enabled { ip, .. }
            | What::Disabled { ip }
            | What::AsyncDisabled { ip, .. }
            | What::AsyncBranch { to: ip, .. }
            | What::AsyncPaging { ip, .. }
            | What::Overflow { ip }
            | What::ExecMode { ip, .. }
            | What::Tsx { ip, .. }
            | What::AsyncVmcs { ip, .. }
            | What::ExStop { ip }
            | What::Mwait { ip, .. }
            | What::PtWrite { ip, .. } => *ip = last,
            _ => {}
        }
    }

    /// Returns the structure of C.
    pub(crate) fn raw(&self) -> abi::Event {
        let (kind, variant) = self.what.raw();
        let bit = |set: bool, index: u32| u32::from(set) << index;
        abi::Event {
            kind,
            flags: bit(self.ip_suppressed, 0) | bit(self.status_update, 1) | bit(self.has_tsc, 2),
            tsc: self.tsc,
            lost_mtc: self.lost_mtc,
            lost_cyc: self.lost_cyc,
            reserved: [0; 2],
            variant,
        }
    }
}

impl What {
    /// Returns the `pt_event_type` and the union, in words of eight bytes.
    fn raw(&self) -> (u32, [u64; 3]) {
        let bit = |set: bool, index: u32| u64::from(set) << index;
        let bytes = |low: u8, high: u8| u64::from(low) | u64::from(high) << 8;
        match *self {
            What::Enabled { ip, resumed } => (0, [ip, bit(resumed, 0), 0]),
            What::Disabled { ip } => (1, [ip, 0, 0]),
            What::AsyncDisabled { at, ip } => (2, [at, ip, 0]),
            What::AsyncBranch { from, to } => (3, [from, to, 0]),
            What::Paging { cr3, non_root } => (4, [cr3, bit(non_root, 0), 0]),
            What::AsyncPaging { cr3, non_root, ip } => (5, [cr3, bit(non_root, 0), ip]),
            What::Overflow { ip } => (6, [ip, 0, 0]),
            What::ExecMode { mode, ip } => (7, [mode as u64, ip, 0]),
            What::Tsx { ip, speculative, aborted } => (8, [ip, bit(speculative, 0) | bit(aborted, 1), 0]),
            What::Stop => (9, [0; 3]),
            What::Vmcs { base } => (10, [base, 0, 0]),
            What::AsyncVmcs { base, ip } => (11, [base, ip, 0]),
            What::ExStop { ip } => (12, [ip, 0, 0]),
            What::Mwait { ip, hints, extensions } => {
                (13, [ip, u64::from(hints) | u64::from(extensions) << 32, 0])
            }
            What::Pwre { state, sub_state, hardware } => {
                (14, [bytes(state, sub_state) | bit(hardware, 16), 0, 0])
            }
            What::Pwrx { last, deepest, interrupt, store, autonomous } => {
                let reasons = bit(interrupt, 16) | bit(store, 17) | bit(autonomous, 18);
                (15, [bytes(last, deepest) | reasons, 0, 0])
            }
            What::PtWrite { ip, size, payload } => (16, [ip, size.into(), payload]),
            What::Tick { ip } => (17, [ip, 0, 0]),
            What::Cbr { ratio } => (18, [ratio.into(), 0, 0]),
            What::Mnt { payload } => (19, [payload, 0, 0]),
        }
    }
}

/// The packet that an event binds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    PsbEnd,
    Tip,
    Fup,
}

/// Events that wait, by the packet they bind to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    queues: [VecDeque<Event>; 3],
}

impl Waiting {
    /// libipt's queues hold this many events; more are an error, which bounds what a damaged trace can hold back.
    const CAPACITY: usize = 6;

    /// Adds an event.
    pub(crate) fn push(&mut self, binding: Binding, event: Event) -> Result<(), Error> {
        let queue = &mut self.queues[binding as usize];
        if queue.len() == Waiting::CAPACITY {
            return Err(Error::NO_MEMORY);
        }
        queue.push_back(event);
        Ok(())
    }

    /// Removes the first event.
    pub(crate) fn pop(&mut self, binding: Binding) -> Option<Event> {
        self.queues[binding as usize].pop_front()
    }

    /// Returns whether an event waits.
    pub(crate) fn any(&self, binding: Binding) -> bool {
        !self.queues[binding as usize].is_empty()
    }

    /// Removes all events of a binding.
    pub(crate) fn clear(&mut self, binding: Binding) {
        self.queues[binding as usize].clear();
    }

    /// Returns the first event of a binding for which `of_kind` holds.
    pub(crate) fn find(&mut self, binding: Binding, of_kind: fn(&What) -> bool) -> Option<&mut Event> {
        self.queues[binding as usize].iter_mut().find(|event| of_kind(&event.what))
    }
}

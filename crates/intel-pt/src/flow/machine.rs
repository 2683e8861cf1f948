//! The processor state that determines the current code and its mode.

use hodo_code::Bits;

use super::{Event, Guest, GuestCode, Sink, Trouble};

/// Execution mode, address space and guest.
#[derive(Clone, Debug)]
pub(super) struct Machine<'t> {
    pub(super) bits: Bits,
    interrupt_flag: Option<bool>,
    non_root: bool,
    vmcs: Option<u64>,
    guests: &'t [Guest],
    /// The current program of the host, which may have a guest of its own.
    host: usize,
    /// The program of the current guest, if it differs from the host's.
    pub(super) guest: Option<usize>,
    /// Whether a guest with unknown code runs.
    guest_is_missing: bool,
    /// Whether changes are pending for the next TIP, or for the FUP bound to them.
    pub(super) changes: bool,
    next_mode: Option<(Bits, bool)>,
    next_paging: Option<(u64, bool)>,
    next_vmcs: Option<u64>,
}

/// Pending changes of page tables and VMCS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unbound {
    vmcs: Option<u64>,
    paging: Option<(u64, bool)>,
}

impl<'t> Machine<'t> {
    pub(super) fn new(guests: &'t [Guest], host: usize) -> Machine<'t> {
        Machine {
            bits: Bits::B64,
            interrupt_flag: None,
            non_root: false,
            vmcs: None,
            guests,
            host,
            guest: None,
            guest_is_missing: false,
            changes: false,
            next_mode: None,
            next_paging: None,
            next_vmcs: None,
        }
    }

    /// Keeps the content of a MODE.Exec for the next TIP, or for the FUP bound to it.
    pub(super) fn mode(&mut self, cs_l: bool, cs_d: bool, interrupt_flag: bool) {
        let bits = match (cs_l, cs_d) {
            (true, _) => Bits::B64,
            (false, true) => Bits::B32,
            (false, false) => Bits::B16,
        };
        self.next_mode = Some((bits, interrupt_flag));
        self.changes = true;
    }

    /// Keeps the content of a PIP likewise. Returns the previous one if no packet bound it.
    pub(super) fn paging(&mut self, cr3: u64, non_root: bool) -> Option<(u64, bool)> {
        self.changes = true;
        self.next_paging.replace((cr3, non_root))
    }

    /// Keeps the content of a VMCS packet likewise. Returns the previous one if no packet bound it.
    pub(super) fn virtual_machine(&mut self, base: u64) -> Option<u64> {
        self.changes = true;
        self.next_vmcs.replace(base)
    }

    /// Takes the pending changes of page tables and VMCS.
    pub(super) fn take_unbound(&mut self) -> Unbound {
        Unbound { vmcs: self.next_vmcs.take(), paging: self.next_paging.take() }
    }

    /// Applies and reports changes.
    pub(super) fn apply(&mut self, unbound: Unbound, sink: &mut impl Sink) {
        if let Some(base) = unbound.vmcs {
            self.vmcs = Some(base);
            sink.event(Event::Vmcs(base));
        }
        if let Some((cr3, non_root)) = unbound.paging {
            self.non_root = non_root;
            sink.event(Event::Paging { cr3, non_root });
        }
    }

    /// Returns whether a MODE.Exec is pending for the TIP or FUP to which it is bound.
    pub(super) fn mode_waits(&self) -> bool {
        self.next_mode.is_some()
    }

    /// Applies and reports the pending changes. A MODE.Exec may be redundant, so only differences are reported.
    pub(super) fn change(&mut self, sink: &mut impl Sink) {
        let unbound = self.take_unbound();
        self.apply(unbound, sink);
        if let Some((bits, interrupt_flag)) = self.next_mode.take() {
            if bits != self.bits {
                self.bits = bits;
                sink.event(Event::Mode(bits));
            }
            if self.interrupt_flag.is_some_and(|before| before != interrupt_flag) {
                sink.event(Event::InterruptFlag(interrupt_flag));
            }
            self.interrupt_flag = Some(interrupt_flag);
        }
        self.settle();
    }

    /// Applies the changes of a PSB+ without reports: it repeats the state.
    pub(super) fn set(&mut self) {
        self.vmcs = self.next_vmcs.take().or(self.vmcs);
        if let Some((_, non_root)) = self.next_paging.take() {
            self.non_root = non_root;
        }
        if let Some((bits, interrupt_flag)) = self.next_mode.take() {
            (self.bits, self.interrupt_flag) = (bits, Some(interrupt_flag));
        }
        self.settle();
    }

    /// Switches to another program of the host.
    pub(super) fn run(&mut self, host: usize) {
        self.host = host;
        self.choose_guest();
    }

    fn settle(&mut self) {
        self.changes = false;
        self.choose_guest();
    }

    /// Selects the current guest, if one runs.
    fn choose_guest(&mut self) {
        let runs = |guest: &&Guest| {
            guest.vmcs.is_none_or(|vmcs| Some(vmcs) == self.vmcs)
                && guest.host.is_none_or(|host| host == self.host)
        };
        let guest = if self.non_root { self.guests.iter().find(runs) } else { None };
        self.guest_is_missing = self.non_root && guest.is_none();
        self.guest = guest.and_then(|guest| match guest.code {
            GuestCode::Program(program) => Some(program),
            GuestCode::OfHost => None,
        });
    }

    /// Returns the trouble if a guest with unknown code runs.
    pub(super) fn missing_guest(&self) -> Option<Trouble> {
        self.guest_is_missing.then_some(Trouble::Guest { vmcs: self.vmcs })
    }
}

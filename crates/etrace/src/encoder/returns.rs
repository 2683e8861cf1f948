//! Implicit returns: which ones are not reported, and when the depth of calls must be.

use hodo_isa::riscv::{Kind, Linkage};

use crate::{Parameters, modes::Calls};

/// The calls since the last synchronization packet.
#[derive(Clone, Debug)]
pub(super) struct Returns {
    is_enabled: bool,
    /// Whether the encoder only counts calls: it does not compare addresses.
    is_counter: bool,
    calls: Calls,
    /// Whether the instruction before is a return that went elsewhere than predicted.
    failed: bool,
    /// Whether it is a return that is not reported.
    after_return: bool,
    returned_since_call: bool,
    branched_since_return: bool,
    /// The depths at which returns were not reported since the last packet.
    depths: Vec<usize>,
}

impl Returns {
    pub(super) fn new(parameters: &Parameters, is_enabled: bool) -> Returns {
        Returns {
            is_enabled,
            is_counter: parameters.return_stack_size == 0,
            calls: Calls::new(parameters),
            failed: false,
            after_return: false,
            returned_since_call: false,
            branched_since_return: false,
            depths: Vec::new(),
        }
    }

    /// After a synchronization packet.
    pub(super) fn reset(&mut self) {
        self.calls.clear();
        (self.failed, self.after_return) = (false, false);
        (self.returned_since_call, self.branched_since_return) = (false, false);
        self.depths.clear();
    }

    /// After a packet that reports branches or an address.
    pub(super) fn reported(&mut self) {
        self.depths.clear();
    }

    /// Returns whether returns since the last packet could make the decoder stop at another execution of an instruction.
    pub(super) fn is_ambiguous(&self) -> bool {
        !self.depths.is_empty()
    }

    /// The depth for a packet, if it must be given (section "Format 2 irreport and irdepth").
    pub(super) fn depth_to_report(
        &self,
        after_uninferable: bool,
        sync_follows: bool,
        notify: bool,
    ) -> Option<u32> {
        let depth = self.calls.depth();
        let is_due = if self.failed {
            true
        } else if !self.is_enabled || after_uninferable {
            false
        } else if notify {
            // The same instruction may have run at another depth.
            !self.depths.is_empty()
        } else if self.after_return {
            sync_follows && depth > 0
        } else {
            sync_follows && depth > 0 && self.returned_since_call && !self.branched_since_return
        };
        is_due.then_some(depth as u32)
    }

    /// Whether a return to `to` goes elsewhere than predicted.
    pub(super) fn fails(&self, kind: Kind, to: u64) -> bool {
        let differs = !self.is_counter && self.calls.top().is_some_and(|top| top != to);
        self.is_enabled && kind.linkage() == Linkage::Return && differs
    }

    /// Whether it does at a depth that another return since the last packet had.
    pub(super) fn fails_ambiguously(&self, kind: Kind, to: u64) -> bool {
        self.fails(kind, to) && self.depths.contains(&self.calls.depth())
    }

    /// Applies an instruction, which is followed by the one at `to`, if an instruction follows. Returns whether it is a
    /// return that need not be reported.
    pub(super) fn advance(&mut self, kind: Kind, is_inferred: bool, after: u64, to: Option<u64>) -> bool {
        (self.failed, self.after_return) = (false, false);
        if !self.is_enabled {
            return false;
        }
        if matches!(kind, Kind::Branch { .. }) {
            self.branched_since_return = true;
        }
        match kind.linkage() {
            Linkage::Call => {
                self.calls.push(after);
                self.returned_since_call = false;
                false
            }
            Linkage::Return if !is_inferred && self.calls.depth() > 0 => {
                if !self.is_counter && self.calls.top() != to {
                    self.failed = true;
                    return false;
                }
                self.depths.push(self.calls.depth());
                self.calls.pop();
                self.after_return = true;
                (self.returned_since_call, self.branched_since_return) = (true, false);
                true
            }
            _ => false,
        }
    }
}

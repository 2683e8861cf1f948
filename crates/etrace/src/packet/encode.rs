//! From packets to payloads.

use super::{
    BranchMap, Context, Options, Packet, Prediction, Qualification, Reported, Support, Trap,
    decode::map_width,
};
use crate::{
    Layout, Parameters,
    bits::{Payload, Writer},
};

impl Packet {
    /// Encodes the packet. `options` are those of the last support packet.
    pub fn encode(&self, parameters: &Parameters, options: Options) -> Payload {
        let mut fields = Fields { parameters, options, bits: Writer::new() };
        match self {
            Packet::Start(start) => {
                fields.format3(0);
                fields.put((!start.taken).into(), 1);
                fields.context(&start.context);
                fields.address(start.address);
            }
            Packet::Trap(trap) => fields.trap(trap),
            Packet::Context(context) => {
                fields.format3(2);
                fields.context(context);
            }
            Packet::Support(support) => fields.support(support),
            Packet::Address(reported) => {
                fields.put(2, 2);
                fields.reported(reported);
            }
            Packet::Branches { map, reported } => {
                fields.put(1, 2);
                match reported {
                    Some(reported) => {
                        fields.map(*map);
                        fields.reported(reported);
                    }
                    None => {
                        fields.put(0, 5);
                        fields.put(map.not_taken.into(), 31);
                    }
                }
            }
            Packet::Predicted { count, end } => {
                fields.put(0, 2);
                fields.put(0, parameters.f0s_width);
                fields.predicted(*count, end);
            }
            Packet::Cached { index, map, depth } => {
                fields.put(0, 2);
                fields.put(1, parameters.f0s_width);
                fields.put((*index).into(), parameters.cache_size);
                fields.map(*map);
                fields.depth(*depth);
            }
        }
        fields.bits.finish()
    }
}

struct Fields<'p> {
    parameters: &'p Parameters,
    options: Options,
    bits: Writer,
}

impl Fields<'_> {
    fn put(&mut self, value: u64, width: u8) {
        self.bits.put(value, width);
    }

    fn format3(&mut self, subformat: u64) {
        self.put(3, 2);
        self.put(subformat, 2);
    }

    fn context(&mut self, context: &Context) {
        self.put(context.privilege.into(), self.parameters.privilege_width);
        self.put(context.time.unwrap_or(0), self.parameters.time_width);
        self.put(context.context.unwrap_or(0), self.parameters.context_width);
    }

    fn address(&mut self, address: u64) {
        self.put(self.parameters.field(address), self.parameters.address_bits());
    }

    fn trap(&mut self, trap: &Trap) {
        self.format3(1);
        self.put((!trap.taken).into(), 1);
        self.context(&trap.context);
        self.put(trap.cause, self.parameters.ecause_width);
        self.put(trap.is_interrupt.into(), 1);
        self.put(trap.is_handler.into(), 1);
        if !(self.options.implicit_exception && trap.is_handler) {
            self.address(trap.address.unwrap_or(0));
        }
        if !trap.is_interrupt {
            self.put(trap.value.unwrap_or(0), self.parameters.iaddress_width);
        }
    }

    fn support(&mut self, support: &Support) {
        self.format3(3);
        self.put(support.enabled.into(), 1);
        self.put(support.mode.into(), self.parameters.encoder_mode_width);
        let qualification = match support.qualification {
            Qualification::Unchanged => 0,
            Qualification::EndedReported => 1,
            Qualification::Lost => 2,
            Qualification::Ended => 3,
        };
        self.put(qualification, 2);
        let options = support.options;
        let (implicit_return, implicit_exception) = (options.implicit_return, options.implicit_exception);
        let (cache, prediction) = (options.jump_target_cache, options.branch_prediction);
        let full = options.full_address;
        let reference = [implicit_return, implicit_exception, full, cache, prediction];
        let pulp = [cache, prediction, implicit_return, options.sijump, implicit_exception, full, !full];
        let bits = match self.parameters.options {
            Layout::Reference => &reference[..],
            Layout::Pulp => &pulp[..],
        };
        for &bit in bits.iter().chain(&support.data) {
            self.put(bit.into(), 1);
        }
        if self.parameters.options == Layout::Reference {
            // The options of the data trace.
            self.put(0, 4);
        }
    }

    fn map(&mut self, map: BranchMap) {
        self.put(map.count.into(), 5);
        self.put(map.not_taken.into(), map_width(map.count));
    }

    fn predicted(&mut self, count: u64, end: &Prediction) {
        self.put(count - 31, 32);
        match end {
            Prediction::Failed => self.put(0, 2),
            Prediction::Address(reported) => {
                self.put(2, 2);
                self.reported(reported);
            }
            Prediction::FailedAt(reported) => {
                self.put(3, 2);
                self.reported(reported);
            }
        }
    }

    /// An address, and the bits that differ from the one before if they are set.
    fn reported(&mut self, reported: &Reported) {
        self.put(reported.address as u64, self.parameters.address_bits());
        for flag in [reported.notify, reported.updiscon] {
            let bit = self.bits.last() != flag;
            self.put(bit.into(), 1);
        }
        self.depth(reported.depth);
    }

    fn depth(&mut self, depth: Option<u32>) {
        let bit = self.bits.last() != depth.is_some();
        self.put(bit.into(), 1);
        let same = if bit { u64::MAX } else { 0 };
        self.put(depth.map_or(same, u64::from), self.parameters.depth_bits());
    }
}

//! From payloads to packets.

use super::{
    BranchMap, Context, ErrorKind, Options, Packet, Prediction, Qualification, Reported, Start, Support, Trap,
};
use crate::{Layout, Parameters, bits::Reader, parameters::mask};

/// A field follows only if the width is not zero.
fn optional(bits: &mut Reader, width: u8) -> Option<u64> {
    (width > 0).then(|| bits.get(width))
}

impl Packet {
    /// Decodes the payload of a packet. `options` are those of the last support packet.
    ///
    /// # Errors
    /// Why it is no packet.
    #[inline]
    pub fn decode(payload: &[u8], parameters: &Parameters, options: Options) -> Result<Packet, ErrorKind> {
        Packet::decode_after(payload, 0, parameters, options)
    }

    /// Decodes a packet that begins after the first `skip` bits, at most 7.
    ///
    /// # Errors
    /// Why it is no packet.
    pub fn decode_after(
        payload: &[u8],
        skip: u8,
        parameters: &Parameters,
        options: Options,
    ) -> Result<Packet, ErrorKind> {
        let mut bits = Reader::new(payload).ok_or(ErrorKind::Length(payload.len()))?;
        bits.get(skip);
        let fields = Fields { parameters, options };
        let packet = match bits.get(2) {
            0 => fields.extension(&mut bits)?,
            1 => fields.branches(&mut bits),
            2 => Packet::Address(fields.reported(&mut bits)),
            _ => fields.synchronization(&mut bits),
        };
        match bits.unread() {
            unread if unread < 8 => Ok(packet),
            unread => Err(ErrorKind::Unread(unread)),
        }
    }
}

/// What decides the fields of packets.
struct Fields<'p> {
    parameters: &'p Parameters,
    options: Options,
}

impl Fields<'_> {
    fn synchronization(&self, bits: &mut Reader) -> Packet {
        match bits.get(2) {
            0 => {
                let taken = !bits.bit();
                let context = self.context(bits);
                let address = self.parameters.address(bits.get(self.parameters.address_bits()));
                Packet::Start(Start { taken, context, address })
            }
            1 => Packet::Trap(self.trap(bits)),
            2 => Packet::Context(self.context(bits)),
            _ => Packet::Support(self.support(bits)),
        }
    }

    fn context(&self, bits: &mut Reader) -> Context {
        Context {
            privilege: bits.get(self.parameters.privilege_width) as u8,
            time: optional(bits, self.parameters.time_width),
            context: optional(bits, self.parameters.context_width),
        }
    }

    fn trap(&self, bits: &mut Reader) -> Trap {
        let taken = !bits.bit();
        let context = self.context(bits);
        let cause = bits.get(self.parameters.ecause_width);
        let (is_interrupt, is_handler) = (bits.bit(), bits.bit());
        let is_implicit = self.options.implicit_exception && is_handler;
        let address =
            (!is_implicit).then(|| self.parameters.address(bits.get(self.parameters.address_bits())));
        let value = (!is_interrupt).then(|| bits.get(self.parameters.iaddress_width));
        Trap { taken, context, cause, is_interrupt, is_handler, address, value }
    }

    fn support(&self, bits: &mut Reader) -> Support {
        let (enabled, mode) = (bits.bit(), bits.get(self.parameters.encoder_mode_width) as u8);
        let qualification = match bits.get(2) {
            0 => Qualification::Unchanged,
            1 => Qualification::EndedReported,
            2 => Qualification::Lost,
            _ => Qualification::Ended,
        };
        let options = match self.parameters.options {
            Layout::Reference => Options {
                implicit_return: bits.bit(),
                implicit_exception: bits.bit(),
                full_address: bits.bit(),
                jump_target_cache: bits.bit(),
                branch_prediction: bits.bit(),
                sijump: self.parameters.sijump,
            },
            Layout::Pulp => {
                let options = Options {
                    jump_target_cache: bits.bit(),
                    branch_prediction: bits.bit(),
                    implicit_return: bits.bit(),
                    sijump: bits.bit(),
                    implicit_exception: bits.bit(),
                    full_address: bits.bit(),
                };
                // Delta addresses, the opposite of full ones.
                bits.bit();
                options
            }
        };
        let data = [bits.bit(), bits.bit()];
        if self.parameters.options == Layout::Reference {
            // The options of the data trace.
            bits.get(4);
        }
        Support { enabled, mode, qualification, options, data }
    }

    /// Format 1.
    #[inline]
    fn branches(&self, bits: &mut Reader) -> Packet {
        let count = bits.get(5) as u8;
        if count == 0 {
            return Packet::Branches {
                map: BranchMap { count: 31, not_taken: bits.get(31) as u32 },
                reported: None,
            };
        }
        let map = branch_map(bits, count);
        Packet::Branches { map, reported: Some(self.reported(bits)) }
    }

    /// Format 0.
    fn extension(&self, bits: &mut Reader) -> Result<Packet, ErrorKind> {
        let subformat = bits.get(self.parameters.f0s_width);
        let Options { branch_prediction, jump_target_cache, .. } = self.options;
        // Without a subformat, the only extension is meant.
        let (is_count, is_index) = match self.parameters.f0s_width {
            0 => (!jump_target_cache, !branch_prediction),
            _ => (subformat == 0, subformat == 1),
        };
        if branch_prediction && is_count {
            return self.predicted(bits);
        }
        if !(jump_target_cache && is_index) {
            return Err(ErrorKind::NoExtension);
        }
        let index = bits.get(self.parameters.cache_size) as u32;
        let count = bits.get(5) as u8;
        let width = map_width(count);
        let field = bits.get(width);
        let before = width > 0 && field >> (width - 1) & 1 == 1;
        let map = BranchMap { count, not_taken: (field & mask(count)) as u32 };
        Ok(Packet::Cached { index, map, depth: self.depth(bits, before) })
    }

    fn predicted(&self, bits: &mut Reader) -> Result<Packet, ErrorKind> {
        let count = bits.get(32) + 31;
        let end = match bits.get(2) {
            0 => Prediction::Failed,
            1 => return Err(ErrorKind::BranchFormat),
            2 => Prediction::Address(self.reported(bits)),
            _ => Prediction::FailedAt(self.reported(bits)),
        };
        Ok(Packet::Predicted { count, end })
    }

    /// An address, and the bits that say that they differ from the bit before.
    #[inline]
    fn reported(&self, bits: &mut Reader) -> Reported {
        let width = u32::from(self.parameters.address_bits());
        let field = bits.get(width as u8);
        let address = (field << (64 - width)) as i64 >> (64 - width);
        let notify = bits.bit();
        let updiscon = bits.bit();
        let depth = self.depth(bits, updiscon);
        Reported { address, notify: notify != (address < 0), updiscon: updiscon != notify, depth }
    }

    /// `irreport` and `irdepth`.
    #[inline]
    fn depth(&self, bits: &mut Reader, before: bool) -> Option<u32> {
        let irreport = bits.bit();
        let depth = bits.get(self.parameters.depth_bits()) as u32;
        (irreport != before).then_some(depth)
    }
}

/// Width in bits of a map with this number of branches.
pub(super) fn map_width(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2..=3 => 3,
        4..=7 => 7,
        8..=15 => 15,
        _ => 31,
    }
}

#[inline]
fn branch_map(bits: &mut Reader, count: u8) -> BranchMap {
    let not_taken = (bits.get(map_width(count)) & mask(count)) as u32;
    BranchMap { count, not_taken }
}

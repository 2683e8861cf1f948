//! Turns packets into elements, and holds those back that the processor may still cancel.

use hodo_code::Labels;
use hodo_flow::{Expected, PacketKind, Sink, Trouble};

use super::{
    super::{
        elements::{Element, Placed},
        exception::TRANSACTION_FAILURE,
    },
    Decoder, Target,
};
use crate::packet::{Atoms, Exception, Packet};

impl Decoder<'_> {
    /// Applies a packet after the segment to the elements that it left. Returns the number of commits.
    pub(super) fn resolve(&mut self, packet: Packet) -> u32 {
        let at = self.packets.position();
        match packet {
            Packet::Atoms(atoms) => self.elements.push_atoms(atoms, at),
            Packet::Exception(exception) => self.elements.push(self.element_of(exception), at),
            Packet::Transaction { begins: true } if self.config.transactions_are_p0 => {
                self.elements.push(Element::TransactionStart, at);
            }
            Packet::Q { count, address } => self.elements.push(Element::Q { count, address }, at),
            Packet::SourceAddress(address) => self.elements.push(Element::SourceAddress(address), at),
            Packet::Commit(count) | Packet::Cycles { commits: count, .. } => return count,
            Packet::Mispredict(atoms) => {
                self.elements.push_atoms(atoms, at);
                self.elements.mispredict();
            }
            Packet::Cancel { atoms, count, mispredict } => {
                self.elements.push_atoms(atoms, at);
                self.elements.cancel(count);
                if mispredict {
                    self.elements.mispredict();
                }
            }
            Packet::Discard | Packet::Overflow => self.elements.clear(),
            _ => {}
        }
        self.elements.uncommitted().saturating_sub(self.config.speculation_depth)
    }

    pub(super) fn follow<L: Labels, S: Sink>(
        &mut self,
        packet: Packet,
        is_first: &mut bool,
        target: &mut Target<'_, '_, L, S>,
    ) {
        match packet {
            Packet::Atoms(atoms) => {
                target.sink.packet(PacketKind::Tnt);
                if self.config.speculation_depth == 0 {
                    self.atoms(atoms, target);
                } else {
                    self.elements.push_atoms(atoms, self.at);
                    self.commit_beyond_depth(target);
                }
            }
            Packet::Address(address) => {
                target.sink.packet(PacketKind::Other);
                self.element(Element::Address(address), target);
            }
            Packet::AddressContext(address, context) => {
                target.sink.packet(PacketKind::Other);
                self.element(Element::Context(context), target);
                self.element(Element::Address(address), target);
            }
            Packet::Timestamp { time, cycles } => {
                target.sink.packet(PacketKind::Clock);
                self.element(Element::Time(time), target);
                if let Some(cycles) = cycles {
                    self.element(Element::Cycles(Some(cycles)), target);
                }
            }
            Packet::Cycles { commits, count } => {
                target.sink.packet(PacketKind::Clock);
                self.commit(commits, target);
                self.element(Element::Cycles(count), target);
            }
            Packet::TraceInfo(info) => {
                if std::mem::take(is_first) {
                    self.elements.begin(info.speculation, self.config.speculation_depth, self.at);
                }
                self.walk.returns.clear();
                self.walk.returns.hidden = None;
                self.walk.remembers_calls = false;
            }
            _ => {
                target.sink.packet(PacketKind::Other);
                self.follow_rare(packet, target);
            }
        }
    }

    #[cold]
    fn follow_rare<L: Labels, S: Sink>(&mut self, packet: Packet, target: &mut Target<'_, '_, L, S>) {
        match packet {
            Packet::TraceOn => self.element(Element::TraceOn, target),
            Packet::Exception(exception) => self.element(self.element_of(exception), target),
            Packet::Transaction { begins: true } if self.config.transactions_are_p0 => {
                self.element(Element::TransactionStart, target);
            }
            Packet::ExceptionReturn => self.element(Element::ExceptionReturn, target),
            Packet::Context(context) => self.element(Element::Context(context), target),
            Packet::SourceAddress(address) => self.element(Element::SourceAddress(address), target),
            Packet::Q { count, address } => self.element(Element::Q { count, address }, target),
            Packet::Commit(count) => self.commit(count, target),
            Packet::Mispredict(atoms) => {
                let (count, mispredict) = (0, true);
                self.cancel(atoms, count, mispredict);
            }
            Packet::Cancel { atoms, count, mispredict } => self.cancel(atoms, count, mispredict),
            Packet::Discard => {
                self.elements.clear();
                self.element(Element::Discard, target);
            }
            Packet::Overflow => {
                self.elements.clear();
                self.element(Element::Overflow, target);
            }
            _ => {}
        }
    }

    /// Returns the element of an exception packet.
    fn element_of(&self, exception: Exception) -> Element {
        match self.config.is_ete && exception.kind == TRANSACTION_FAILURE {
            true => Element::TransactionFailure,
            false => Element::Exception(exception),
        }
    }

    /// Adds an element; without speculation it takes effect at once.
    fn element<L: Labels, S: Sink>(&mut self, element: Element, target: &mut Target<'_, '_, L, S>) {
        if self.config.speculation_depth == 0 {
            return self.apply(Placed { element, at: self.at }, target);
        }
        self.elements.push(element, self.at);
        if self.elements.is_full() {
            return self.lose(Trouble::Uncommitted);
        }
        self.commit_beyond_depth(target);
    }

    fn commit_beyond_depth<L: Labels, S: Sink>(&mut self, target: &mut Target<'_, '_, L, S>) {
        let beyond = self.elements.uncommitted().saturating_sub(self.config.speculation_depth);
        self.commit(beyond, target);
    }

    fn commit<L: Labels, S: Sink>(&mut self, mut count: u32, target: &mut Target<'_, '_, L, S>) {
        while let Some(placed) = self.elements.take(&mut count) {
            self.apply(placed, target);
        }
    }

    /// Cancels the newest `count` elements after adding `atoms`, and inverts the newest of the rest if it was mispredicted.
    fn cancel(&mut self, atoms: Atoms, count: u32, mispredict: bool) {
        self.elements.push_atoms(atoms, self.at);
        let is_sound = self.elements.cancel(count) && (!mispredict || self.elements.mispredict());
        if !is_sound {
            self.lose(Trouble::Contradiction { at: self.walk.ip, expected: Expected::Conditional });
        }
    }
}

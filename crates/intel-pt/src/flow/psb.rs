//! PSB+: the packets from PSB to PSBEND, which give the whole state.

use hodo_code::Labels;

use super::{
    Event, Expected, Sink, Trouble,
    decoder::{Context, Decoder},
    recovery::{State, Waiting},
};
use crate::{
    last_ip::LastIp,
    packet::{PSB, Packet},
};

/// The content of a PSB+.
#[derive(Default)]
struct PsbPlus {
    ip: Option<u64>,
    /// It ended with an OVF instead of PSBEND.
    overflow: bool,
    /// It ended with neither, because packets are missing.
    torn: bool,
}

impl Decoder<'_> {
    /// Walks up to the address in the PSB+ and continues there.
    pub(super) fn psb<L: Labels, S: Sink>(
        &mut self,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let psb_at = self.packets.position() - PSB.len();
        self.announced.end(context.sink);
        self.last_ip = LastIp::ZERO;
        self.walk.returns.clear();
        self.hidden_calls = None;
        self.damaged = false;
        self.calls_before.clear();
        self.left_from = None;
        let first = self.reported.is_none();
        // A PSB+ repeats the state; a change before it that was not bound yet is separate.
        let unbound = self.machine.take_unbound();
        let plus = self.psb_plus();
        if self.is_on()
            && let Ok(plus) = &plus
        {
            self.reach_psb(plus, context);
        }
        self.machine.apply(unbound, context.sink);
        let plus = plus?;
        if self.machine.changes {
            self.machine.set();
            self.walk.forget_block();
        }
        let switched = if first { self.switch_program() } else { None };
        if let Some(switch) = switched {
            context.sink.event(Event::Switch(switch));
        }
        let missing_guest = self.machine.missing_guest();
        match plus.ip {
            Some(ip) if missing_guest.is_none() => {
                self.close_gap(context.sink);
                self.walk.set_ip(ip);
                self.state = State::OnSincePsb;
            }
            // The FUP of an overflow may follow the PSB+ (SDM, "Compound Packet Event Summary").
            None if self.state == State::Overflowed => {}
            None if self.is_lost() && !plus.overflow && !plus.torn => {
                self.find_off(context.sink);
                self.off_since_psb = first;
            }
            _ => {}
        }
        // Also after the end of a gap, which sets it to the current position.
        self.certain_at = psb_at;
        self.emit_time(context);
        match missing_guest {
            Some(trouble) if plus.ip.is_some() => self.lose(trouble),
            _ => {}
        }
        if plus.overflow {
            self.overflow(context);
        }
        Ok(())
    }

    /// Walks up to the address in the PSB+, where execution was.
    fn reach_psb<L: Labels, S: Sink>(&mut self, plus: &PsbPlus, context: &mut Context<'_, '_, L, S>) {
        let (walk, graph, sink) = self.walk_graph_sink(context);
        match plus.ip {
            Some(ip) => {
                if let Err(trouble) = walk.walk_to(graph, sink, ip) {
                    let trouble = self.explain(trouble, context);
                    self.lose(trouble);
                }
            }
            // The overflow may have lost the FUP.
            None if plus.overflow => {}
            None => {
                self.lose(Trouble::Contradiction { at: self.walk.ip, expected: Expected::Off });
            }
        }
    }

    /// Reads the status packets up to PSBEND or OVF.
    fn psb_plus(&mut self) -> Result<PsbPlus, Trouble> {
        let mut plus = PsbPlus::default();
        self.waiting = Waiting::Nothing;
        loop {
            let before = self.packets.clone();
            match self.next_of_segment()? {
                Some(Packet::Fup(ip)) if !self.no_branches => plus.ip = self.last_ip.join(ip),
                Some(Packet::ModeExec { cs_l, cs_d, interrupt_flag }) => {
                    self.machine.mode(cs_l, cs_d, interrupt_flag);
                }
                Some(Packet::Pip { cr3, non_root }) => _ = self.machine.paging(cr3, non_root),
                Some(Packet::Vmcs(base)) => _ = self.machine.virtual_machine(base),
                Some(Packet::PsbEnd) => return Ok(plus),
                Some(Packet::Overflow) => return Ok(PsbPlus { overflow: true, ..plus }),
                Some(Packet::Fup(_) | Packet::ModeTsx { .. } | Packet::Pad | Packet::Mnt(_)) => {}
                Some(packet) if self.timing.follow(&packet) => {}
                // PSBEND is missing; the packet is an ordinary one.
                _ => {
                    self.packets = before;
                    return Ok(PsbPlus { torn: true, ..plus });
                }
            }
        }
    }
}

//! Probes: test whether execution continues at a doubtful address after damage.
//!
//! After damage, the bytes of a TIP may belong to another packet, its address may update one that was lost, and
//! branches of the TNT before it may have run after it. So the decoder first continues there without reports. It
//! accepts the address only if the code confirms it: indirect branches at the next TIP packets, conditional branches
//! and returns at TNT bits, up to the IP of the next PSB+ or for [`CONFIRMED_TIPS`] TIP packets.

use hodo_code::{Labels, ReturnStack, Unreadable};

use super::{
    Event, Executed, Sink, Trouble,
    decoder::{Context, Decoder},
    recovery::State,
};
use crate::packet::{self, Packet, Tnt};

/// Number of confirmed TIP packets that suffice. A wrong path is rarely at an indirect branch when the next TIP
/// comes.
const CONFIRMED_TIPS: u32 = 8;

/// Maximum packets for finding out whether branches are pending for a TIP. The first packet refutes most cases.
const MOST_PROBE_PACKETS: u32 = 256;

/// Number of return stacks from before the damage to try: each lacks one more of the newest calls, which may have
/// returned within the damage. A probe reads at most [`CONFIRMED_TIPS`] TIP packets, so decoding takes at most
/// `MOST_RETURNED` times [`CONFIRMED_TIPS`] as long.
const MOST_RETURNED: usize = 16;

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The code confirms the packets.
    Confirmed,
    /// No contradiction, but the trace ends too early, or code or packets are missing.
    Open,
    /// The code contradicts the packets.
    Contradicted(Trouble),
}

/// Records the first reason why the flow was lost, and nothing else.
#[derive(Default)]
struct FirstLoss(Option<Trouble>);

impl Sink for FirstLoss {
    fn executed(&mut self, _: Executed<'_>) {}

    fn event(&mut self, event: Event) {
        if let Event::Gap(gap) = event {
            self.0.get_or_insert(gap.trouble);
        }
    }
}

impl Decoder<'_> {
    /// Checks that the code at `ip` can be read.
    pub(super) fn read<L: Labels, S: Sink>(
        &mut self,
        ip: u64,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let (walk, graph, _) = self.walk_graph_sink(context);
        graph.at(ip, walk.tick).map(|_| ()).map_err(Trouble::Code)
    }

    /// Decides whether execution continues at `ip`, the address in the last packet, while the flow is lost. `certain`:
    /// whether only damaged bytes can be a reason against it.
    ///
    /// # Errors
    /// Why the flow can't continue there.
    pub(super) fn accept_address<L: Labels, S: Sink>(
        &mut self,
        ip: u64,
        certain: bool,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        self.read(ip, context)?;
        // A probe ends where the flow is lost.
        if self.on_trial || !self.damaged {
            return if certain { Ok(()) } else { Err(Trouble::LostAddress) };
        }
        // Returns may still go back to calls from before the damage, also after further damage; probes find out to which.
        let before = std::iter::successors(Some(self.calls_before.clone()), |calls| {
            let mut older = calls.clone();
            older.pop().map(|_| older)
        });
        let before = before.take(MOST_RETURNED).filter(|calls| !calls.is_empty());
        let mut trouble = Trouble::LostAddress;
        // The confirmed TIP packets limit these probes.
        let mut unlimited = u32::MAX;
        for calls in before.chain([ReturnStack::default()]) {
            match self.run_probe(ip, &calls, None, &mut unlimited, context) {
                Verdict::Confirmed => {}
                Verdict::Open if certain => {}
                Verdict::Open => continue,
                Verdict::Contradicted(by) => {
                    trouble = by;
                    continue;
                }
            }
            self.last_ip.trust();
            self.walk.returns = calls;
            return Ok(());
        }
        Err(trouble)
    }

    /// Returns whether no branch of the last TNT ran after the TIP to `ip`: the code contradicts each possible number
    /// of them. A contradiction counts only without damage or missing code before it.
    pub(super) fn no_branch_pending<L: Labels, S: Sink>(
        &mut self,
        tnt: Tnt,
        ip: u64,
        context: &mut Context<'_, '_, L, S>,
    ) -> bool {
        if self.on_trial || self.damaged || self.read(ip, context).is_err() {
            return false;
        }
        let mut packets_left = MOST_PROBE_PACKETS;
        (1..=tnt.count).all(|count| {
            let waiting = Tnt { count, ..tnt };
            let verdict = self.run_probe(ip, &ReturnStack::default(), Some(waiting), &mut packets_left, context);
            matches!(verdict, Verdict::Contradicted(trouble) if !matches!(trouble, Trouble::EndlessLoop { .. }))
        })
    }

    /// Decodes from `ip` on, with the return stack `calls` and after the `waiting` branches. Reads at most `packets_left`
    /// packets.
    fn run_probe<L: Labels, S: Sink>(
        &self,
        ip: u64,
        calls: &ReturnStack,
        waiting: Option<Tnt>,
        packets_left: &mut u32,
        context: &mut Context<'_, '_, L, S>,
    ) -> Verdict {
        let mut trial = self.clone();
        (trial.on_trial, trial.damaged, trial.gap) = (true, false, None);
        // If `calls` is not empty, a return that matches none of them is a contradiction.
        trial.hidden_calls = trial.hidden_calls.filter(|_| calls.is_empty());
        let mut loss = FirstLoss::default();
        let context = &mut Context { programs: &mut *context.programs, sink: &mut loss };
        (trial.state, trial.left_from) = (State::On, None);
        trial.last_ip.trust();
        trial.walk.returns = calls.clone();
        trial.walk.set_ip(ip);
        let mut confirmed_tips = 0;
        let mut waiting = waiting.map(|tnt| trial.tnt(tnt, context));
        while confirmed_tips < CONFIRMED_TIPS {
            let (followed, is_tip) = match waiting.take() {
                Some(followed) => (followed, false),
                None => {
                    trial.packet_position = trial.packets.position();
                    let Ok(Some(packet)) = trial.packets.next_packet() else { return Verdict::Open };
                    let Some(rest) = packets_left.checked_sub(1) else { return Verdict::Open };
                    *packets_left = rest;
                    let is_tip = matches!(packet, Packet::Tip(_) | Packet::TipPgd(_));
                    (trial.follow(packet, context), is_tip)
                }
            };
            if let Err(trouble) = followed {
                trial.lose(trouble);
            }
            match context.sink.0.or(trial.gap.as_ref().map(|gap| gap.trouble)) {
                // After damage, no valid packet leads to an unmapped address, unless the caller did not provide the
                // code.
                Some(trouble @ Trouble::Code(Unreadable::Unmapped(_))) if self.damaged => {
                    return Verdict::Contradicted(trouble);
                }
                // The code agrees with the packets up to a return to a call from before the damage.
                Some(Trouble::EmptyReturnStack { .. } | Trouble::UnseenCall { .. }) if calls.is_empty() => {
                    break;
                }
                Some(trouble) if trouble.is_doubtful() => return Verdict::Contradicted(trouble),
                Some(_) => return Verdict::Open,
                None => {}
            }
            if trial.packet_position >= trial.span.end {
                break;
            }
            confirmed_tips += u32::from(is_tip);
        }
        Verdict::Confirmed
    }

    /// After invalid bytes, skips to the next packet that may give an address, or to the end of the segment. Returns
    /// `false` at the end of the stream. The packets in between are not followed: their bytes may be no packets.
    pub(super) fn find_packet(&mut self) -> bool {
        loop {
            let before = self.packets.clone();
            let at = before.position();
            match self.packets.next_packet() {
                Ok(None) => return false,
                Err(_) if at >= self.span.end => return false,
                // No packet extends into the PSB.
                Ok(Some(_)) if at < self.span.end && self.packets.position() > self.span.end => {
                    self.packets.skip_to(at + 1);
                }
                Ok(Some(Packet::Tip(_) | Packet::TipPge(_) | Packet::Psb)) => {
                    self.packets = before;
                    return true;
                }
                Ok(Some(Packet::Fup(ip) | Packet::TipPgd(ip))) => _ = self.last_ip.join(ip),
                Ok(Some(_)) => {}
                Err(packet::Error { kind: packet::ErrorKind::CutShort(_), .. }) => {
                    return self.packets.synchronize_after(at);
                }
                Err(_) => self.packets.skip_to(at + 1),
            }
        }
    }
}

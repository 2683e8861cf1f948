//! Trials: whether execution goes on at an address that damaged bytes leave in doubt.
//!
//! Behind damage the bytes of a TIP may be those of another packet, its address may be told as a change of
//! one that was lost, and branches of the TNT before it may have run behind it. So decoding goes on there
//! unseen first, and for good only where the code bears it out: an indirect branch where each of the next
//! TIP packets stands, conditional ones and returns where TNT bits are, up to the IP of the next PSB+ or for
//! as many TIP packets as are [`ENOUGH`].

use hodo_code::{Labels, ReturnStack, Unreadable};

use super::{
    Event, Executed, Sink, Trouble,
    decoder::{Context, Decoder},
    recovery::State,
};
use crate::packet::{self, Packet, Tnt};

/// TIP packets that the code bears out, after which a trial is believed. A wrong path seldom stands at an
/// indirect branch when the next TIP comes.
const ENOUGH: u32 = 8;

/// Packets that are looked at to find out whether branches wait for a TIP. Most ways are contradicted by the first.
const PATIENCE: u32 = 256;

/// How many of the newest calls before the damage may have returned in it. No trial looks farther than
/// [`ENOUGH`] TIP packets, so decoding takes no more than so many times [`ENOUGH`] as long.
const RETURNED: usize = 4;

/// What a trial shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The code bears out what the packets say.
    Confirmed,
    /// Nothing contradicts, but the trace ends, or code or packets are missing, too early to tell.
    Open,
    /// The code contradicts the packets.
    Contradicted(Trouble),
}

/// Takes in why the flow was lost first, and nothing else.
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
    /// Whether the code at `ip` can be read.
    pub(super) fn read<L: Labels, S: Sink>(
        &mut self,
        ip: u64,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let (walk, graph, _) = self.parts(context);
        graph.at(ip, walk.at).map(|_| ()).map_err(Trouble::Code)
    }

    /// Whether execution goes on at `ip`, as the packet before says while the flow is lost. `certain` says
    /// whether it must where no bytes are damaged.
    ///
    /// # Errors
    /// Why it can't be followed from there.
    pub(super) fn believe<L: Labels, S: Sink>(
        &mut self,
        ip: u64,
        certain: bool,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        self.read(ip, context)?;
        // A trial ends where the flow is lost.
        if self.on_trial || !self.damaged {
            return if certain { Ok(()) } else { Err(Trouble::LostAddress) };
        }
        // Returns may still go back to the calls before the damage.
        let before = std::iter::successors(Some(self.calls_before.clone()), |calls| {
            let mut older = calls.clone();
            older.pop().map(|_| older)
        });
        let before = before.take(RETURNED).filter(|calls| !calls.is_empty());
        let mut trouble = Trouble::LostAddress;
        for calls in before.chain([ReturnStack::default()]) {
            match self.try_out(ip, &calls, None, &mut { u32::MAX }, context) {
                Verdict::Confirmed => {}
                Verdict::Open if certain => {}
                Verdict::Open => continue,
                Verdict::Contradicted(by) => {
                    trouble = by;
                    continue;
                }
            }
            self.last_ip.trust();
            // They are remembered once: what returns from them uses them up.
            if !calls.is_empty() {
                self.calls_before.clear();
            }
            self.walk.returns = calls;
            return Ok(());
        }
        Err(trouble)
    }

    /// Whether no branch of the TNT before ran behind the TIP to `ip`: the code contradicts that any did. It proves
    /// that only where neither bytes are damaged nor code that is missing comes before the contradiction.
    pub(super) fn none_waits<L: Labels, S: Sink>(
        &mut self,
        tnt: Tnt,
        ip: u64,
        context: &mut Context<'_, '_, L, S>,
    ) -> bool {
        if self.on_trial || self.damaged || self.read(ip, context).is_err() {
            return false;
        }
        let mut patience = PATIENCE;
        (1..=tnt.count).all(|count| {
            let waiting = Tnt { count, ..tnt };
            let verdict = self.try_out(ip, &ReturnStack::default(), Some(waiting), &mut patience, context);
            matches!(verdict, Verdict::Contradicted(trouble) if !matches!(trouble, Trouble::EndlessLoop { .. }))
        })
    }

    /// Decodes on from `ip`, with these calls to return from, and after branches that wait. Takes no more packets
    /// than there is patience for.
    fn try_out<L: Labels, S: Sink>(
        &self,
        ip: u64,
        calls: &ReturnStack,
        waiting: Option<Tnt>,
        patience: &mut u32,
        context: &mut Context<'_, '_, L, S>,
    ) -> Verdict {
        let mut trial = self.clone();
        (trial.on_trial, trial.damaged, trial.gap) = (true, false, None);
        // A return that goes back to none of the calls contradicts that they are remembered.
        trial.hidden_calls = trial.hidden_calls.filter(|_| calls.is_empty());
        let mut loss = FirstLoss::default();
        let context = &mut Context { programs: &mut *context.programs, sink: &mut loss };
        (trial.state, trial.left_from) = (State::On, None);
        trial.last_ip.trust();
        trial.walk.returns = calls.clone();
        trial.walk.go(ip);
        let mut borne_out = 0;
        let mut waiting = waiting.map(|tnt| trial.tnt(tnt, context));
        while borne_out < ENOUGH {
            let (followed, is_tip) = match waiting.take() {
                Some(followed) => (followed, false),
                None => {
                    trial.at = trial.packets.position();
                    let Ok(Some(packet)) = trial.packets.next_packet() else { return Verdict::Open };
                    let Some(left) = patience.checked_sub(1) else { return Verdict::Open };
                    *patience = left;
                    let is_tip = matches!(packet, Packet::Tip(_) | Packet::TipPgd(_));
                    (trial.follow(packet, context), is_tip)
                }
            };
            if let Err(trouble) = followed {
                trial.lose(trouble);
            }
            match context.sink.0.or(trial.gap.as_ref().map(|gap| gap.trouble)) {
                // Behind damage no packet that is sound leads to where nothing is mapped, unless code was not given.
                Some(trouble @ Trouble::Code(Unreadable::Unmapped(_))) if self.damaged => {
                    return Verdict::Contradicted(trouble);
                }
                Some(trouble) if trouble.is_doubtful() => return Verdict::Contradicted(trouble),
                Some(_) => return Verdict::Open,
                None => {}
            }
            if trial.at >= trial.span.end {
                break;
            }
            borne_out += u32::from(is_tip);
        }
        Verdict::Confirmed
    }

    /// Behind bytes that are no packet: goes to the next packet that may tell where execution is, or to the
    /// end of the segment; `false` at the end of the stream. Packets before it may be none, and say nothing.
    pub(super) fn find_packet(&mut self) -> bool {
        loop {
            let before = self.packets.clone();
            let at = before.position();
            match self.packets.next_packet() {
                Ok(None) => return false,
                Err(_) if at >= self.span.end => return false,
                // No packet reaches into the PSB.
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

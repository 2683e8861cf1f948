//! Property tests: what a random walk over random code executes is what the decoder reports of its trace.

#![allow(missing_docs)]

mod memo;

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, Isa, NoLabels, Origin, Program, Terminator};
use hodo_etm::{
    encoder::{Encoder, Settings},
    flow::Decoder,
    packet::{A_SYNC, Context, find_sync},
};
use hodo_flow::{Event, Executed, Sink, Switch};
use proptest::prelude::*;

/// In the kernel's half, where threads are switched.
const START: u64 = 0xffff_8000_0040_0000;
/// Instructions of the code.
const LENGTH: u64 = 64;
/// Where exceptions lead; the code there returns.
const HANDLER: u64 = START + 4 * (LENGTH - 4);

/// NOP, or an instruction that ends a block, with a displacement in instructions if it has one.
fn instruction() -> impl Strategy<Value = u32> {
    let near = -8i32..8;
    prop_oneof![
        6 => Just(0xd503_201f), // NOP
        3 => near.clone().prop_map(|to| 0x5400_0000 | (to as u32 & 0x7_ffff) << 5), // B.EQ
        1 => near.clone().prop_map(|to| 0xb400_0000 | (to as u32 & 0x7_ffff) << 5), // CBZ
        1 => near.clone().prop_map(|to| 0x3700_0000 | (to as u32 & 0x3fff) << 5), // TBNZ
        1 => near.clone().prop_map(|to| 0x1400_0000 | to as u32 & 0x3ff_ffff), // B
        2 => near.prop_map(|to| 0x9400_0000 | to as u32 & 0x3ff_ffff), // BL
        2 => Just(0xd63f_0020), // BLR
        1 => Just(0xd61f_0020), // BR
        3 => Just(0xd65f_03c0), // RET
        1 => Just(0xd400_0001), // SVC
        1 => Just(0xd503_3fdf), // ISB
        1 => Just(0xd69f_03e0), // ERET
    ]
}

/// Types of exceptions.
const CALL: u16 = 0x2;
const DATA_FAULT: u16 = 0xc;
const IRQ: u16 = 0xe;

/// What happens before an instruction.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Nothing,
    /// An interrupt whose handler is traced.
    Interrupt,
    /// An exception of this type, whose handler is not traced.
    Hidden(u16),
    Time(u64),
    Count,
    Commit(u32),
    Cancelled(u8),
    Mispredicted,
    Overflow,
    /// The unit's filter excludes what runs from here up to this instruction.
    Filtered(u64),
    Context(u32),
}

#[derive(Clone, Copy, Debug)]
struct Decision {
    happens: Happens,
    taken: bool,
    /// The target of an indirect branch, as the number of an instruction; a return goes back if possible.
    target: u64,
    goes_back: bool,
    cycles: u32,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        20 => Just(Happens::Nothing),
        1 => Just(Happens::Interrupt),
        1 => prop_oneof![Just(CALL), Just(IRQ), Just(DATA_FAULT)].prop_map(Happens::Hidden),
        1 => (1..100_000u64).prop_map(Happens::Time),
        2 => Just(Happens::Count),
        1 => (0..8u32).prop_map(Happens::Commit),
        1 => any::<u8>().prop_map(Happens::Cancelled),
        1 => Just(Happens::Mispredicted),
        1 => Just(Happens::Overflow),
        1 => (0..LENGTH).prop_map(Happens::Filtered),
        1 => (0..4u32).prop_map(Happens::Context),
    ]
}

fn decision() -> impl Strategy<Value = Decision> {
    (happens(), any::<bool>(), 0..LENGTH, prop::bool::weighted(0.8), 0..40u32).prop_map(
        |(happens, taken, target, goes_back, cycles)| Decision { happens, taken, target, goes_back, cycles },
    )
}

fn settings() -> impl Strategy<Value = Settings> {
    let cycles = prop::option::of(1..20u32);
    let depth = prop_oneof![3 => Just(0), 1 => Just(1), 3 => 2..20u32];
    (any::<[bool; 4]>(), cycles, 20..300usize, depth).prop_map(
        |([is_ete, return_stack, cycles_commit, context_ids], cycle_threshold, synchronization, depth)| {
            Settings {
                is_ete,
                is_m_profile: false,
                return_stack,
                cycle_threshold,
                cycles_commit: cycles_commit && depth > 0,
                context_ids,
                synchronization,
                speculation_depth: depth,
            }
        },
    )
}

/// What a trace must show.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Ran(u64),
    /// The flow is unknown, or tracing was off.
    Cut,
    Exception(u64, u64),
    Time(u64),
}

struct Recorded {
    code: Vec<u8>,
    trace: Vec<u8>,
    account: Vec<Line>,
    cycles: u64,
}

impl std::fmt::Debug for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut numbers = (0..).step_by(4).zip(self.code.chunks(4));
        numbers.try_for_each(|(at, word)| {
            let word = u32::from_le_bytes(word.try_into().unwrap_or_default());
            if word == 0xd503_201f { Ok(()) } else { write!(f, "{:x}: {word:08x}, ", START + at) }
        })?;
        write!(f, "\ntrace {:02x?}\n{:x?}", self.trace, self.account)
    }
}

struct Walker {
    encoder: Encoder,
    code: Vec<u8>,
    account: Vec<Line>,
    calls: Vec<u64>,
    context: Context,
    ip: u64,
    speculates: bool,
    /// The lines of the account that the trace proves.
    proved: usize,
}

fn user(context_id: u32) -> Context {
    Context {
        is_64: true,
        is_non_secure: true,
        context_id: Some(context_id),
        virtual_context: Some(7),
        ..Context::default()
    }
}

impl Walker {
    fn step(&mut self, decision: &Decision) {
        let ip = self.happen(decision);
        let bytes = &self.code[(ip - START) as usize..];
        let step = Isa::A64.instruction(bytes, ip).unwrap().step();
        let after = ip + 4;
        let mispredicts = self.speculates && matches!(decision.happens, Happens::Mispredicted);
        let next = match step.terminator {
            Terminator::Conditional if decision.taken => step.target,
            Terminator::Jump | Terminator::Call => step.target,
            Terminator::Return if decision.goes_back && !self.calls.is_empty() => self.calls.pop().unwrap(),
            Terminator::Return | Terminator::IndirectCall | Terminator::IndirectJump | Terminator::Far => {
                START + 4 * decision.target
            }
            _ => after,
        };
        if matches!(step.terminator, Terminator::Call | Terminator::IndirectCall) {
            self.calls.push(after);
        }
        self.account.push(Line::Ran(ip));
        self.encoder.pass_cycles(decision.cycles);
        match step.terminator {
            // A branch to the next instruction is taken or not, which makes no difference.
            Terminator::Conditional if mispredicts && step.target != after => {
                self.encoder.mispredicted(next == step.target)
            }
            _ => self.encoder.executed(ip, &step, next),
        }
        self.ip = next;
        if !matches!(step.terminator, Terminator::None | Terminator::Trap) {
            self.proved = self.account.len();
        }
        // The end of the code: tracing goes off.
        if !(START..START + 4 * LENGTH).contains(&self.ip) {
            self.leave(IRQ);
        }
    }

    /// An exception whose handler is not traced, and the return to the start.
    fn leave(&mut self, kind: u16) {
        self.encoder.exception(kind, self.ip);
        self.account.push(Line::Cut);
        self.proved = self.account.len();
        self.ip = START;
        self.encoder.begin(self.ip, self.context);
    }

    /// Nothing proves what ran after the last waypoint, if the trace is cut here.
    fn forget_unproved(&mut self) {
        let unproved = self.account.split_off(self.proved);
        self.account.extend(unproved.into_iter().filter(|line| !matches!(line, Line::Ran(_))));
        self.account.push(Line::Cut);
        self.proved = self.account.len();
    }

    /// Returns the address of the next instruction.
    fn happen(&mut self, decision: &Decision) -> u64 {
        match decision.happens {
            Happens::Nothing | Happens::Mispredicted => {}
            Happens::Interrupt => {
                self.encoder.exception(IRQ, self.ip);
                self.account.push(Line::Exception(self.ip, HANDLER));
                self.proved = self.account.len();
                self.ip = HANDLER;
                self.encoder.handler(HANDLER, Context { level: 1, ..self.context });
            }
            Happens::Hidden(kind) => self.leave(kind),
            Happens::Time(time) => {
                self.encoder.timestamp(time);
                self.account.push(Line::Time(time));
            }
            Happens::Count => self.encoder.count_cycles(),
            Happens::Commit(count) => self.encoder.commit(count),
            Happens::Cancelled(bits) if self.speculates => {
                let atoms: Vec<bool> = (0..bits % 8).map(|bit| bits >> bit & 1 == 1).collect();
                self.encoder.cancelled(&atoms);
            }
            Happens::Cancelled(_) => {}
            Happens::Overflow => {
                self.encoder.commit(u32::MAX);
                self.forget_unproved();
                self.encoder.overflow();
                self.ip = START;
                self.encoder.begin(self.ip, self.context);
            }
            Happens::Filtered(to) => {
                self.forget_unproved();
                self.ip = START + 4 * to;
                self.encoder.begin(self.ip, self.context);
            }
            // A context changes after a waypoint only: it takes a barrier or a return from an exception.
            Happens::Context(_) if self.proved != self.account.len() => {}
            Happens::Context(id) => {
                self.context = user(id);
                self.encoder.context(self.context, self.ip);
            }
        }
        self.ip
    }
}

fn record(settings: Settings, words: &[u32], decisions: &[Decision]) -> Recorded {
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut walker = Walker {
        encoder: Encoder::new(settings),
        code,
        account: Vec::new(),
        calls: Vec::new(),
        context: user(1),
        ip: START,
        proved: 0,
        speculates: settings.speculation_depth > 0,
    };
    walker.encoder.begin(START, walker.context);
    decisions.iter().for_each(|decision| walker.step(decision));
    // What follows the last waypoint is proved by an exception only.
    walker.encoder.exception(IRQ, walker.ip);
    walker.account.push(Line::Cut);
    let cycles = if settings.cycle_threshold.is_some() {
        decisions.iter().map(|decision| u64::from(decision.cycles)).sum()
    } else {
        0
    };
    Recorded { code: walker.code, trace: walker.encoder.finish(), account: walker.account, cycles }
}

fn recorded() -> impl Strategy<Value = (Settings, Recorded)> {
    let words = prop::collection::vec(instruction(), LENGTH as usize);
    let decisions = prop::collection::vec(decision(), 1..400);
    (settings(), words, decisions).prop_map(|(settings, words, decisions)| {
        let recorded = record(settings, &words, &decisions);
        (settings, recorded)
    })
}

#[derive(Default)]
struct Lines {
    lines: Vec<Line>,
    gaps: Vec<String>,
    cycles: u64,
    segment_cycles: u64,
}

impl Sink for Lines {
    fn executed(&mut self, executed: Executed<'_>) {
        self.lines.extend(executed.addresses().map(Line::Ran));
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Gap(gap) => {
                self.gaps.push(gap.trouble.to_string());
                self.lines.push(Line::Cut);
            }
            Event::Disabled { .. } => self.lines.push(Line::Cut),
            Event::Asynchronous { from, to, .. } => self.lines.push(Line::Exception(from, to)),
            Event::Time(Tsc(time)) => self.lines.push(Line::Time(time)),
            Event::Cycles(count) => self.segment_cycles = count,
            _ => {}
        }
    }
}

/// The segments of a trace.
fn segments(trace: &[u8]) -> Vec<Range<usize>> {
    let mut starts = Vec::new();
    let mut next = 0;
    while let Some(at) = find_sync(&trace[next..]) {
        starts.push(next + at);
        next += at + A_SYNC.len();
    }
    let ends = starts.iter().skip(1).copied().chain([trace.len()]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

fn decode(settings: Settings, code: &[u8], trace: &[u8], known: Range<usize>) -> Lines {
    let mut space = AddressSpace::new();
    let content =
        Content { bytes: &code[known.clone()], origin: Origin { module: 0, offset: known.start as u64 } };
    space.map(START + known.start as u64..START + known.end as u64, content, 0);
    let mut programs = [Program::new(&space, &NoLabels)];
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let mut lines = Lines::default();
    for span in segments(trace) {
        Decoder::new(trace, span, &settings.config(), &schedule).decode(&mut programs, &mut lines);
        lines.cycles += std::mem::take(&mut lines.segment_cycles);
    }
    lines
}

fn without_times(lines: &[Line]) -> Vec<Line> {
    let mut kept: Vec<Line> = lines.iter().filter(|line| !matches!(line, Line::Time(_))).cloned().collect();
    kept.dedup_by(|after, before| (&*after, &*before) == (&Line::Cut, &Line::Cut));
    kept
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_ran_is_what_the_trace_shows((settings, recorded) in recorded()) {
        let lines = decode(settings, &recorded.code, &recorded.trace, 0..recorded.code.len());
        prop_assert!(without_times(&lines.lines) == without_times(&recorded.account), "{:x?} {:?}", lines.lines, lines.gaps);
        prop_assert!(lines.cycles <= recorded.cycles);
        if settings.speculation_depth == 0 {
            let times = |lines: &[Line]| lines.iter().filter(|line| matches!(line, Line::Time(_))).count();
            prop_assert!(times(&lines.lines) <= times(&recorded.account));
        }
    }

    /// Each reported piece between two cuts is a part of the account, in order.
    #[test]
    fn missing_code_invents_nothing((settings, recorded) in recorded(), hole in 0..LENGTH as usize, size in 1..8usize) {
        let end = (hole + size).min(LENGTH as usize);
        for known in [0..4 * hole, 4 * end..recorded.code.len()] {
            let lines = decode(settings, &recorded.code, &recorded.trace, known);
            prop_assert!(is_part(&lines.lines, &recorded.account), "{:x?}", lines.lines);
        }
    }

    #[test]
    fn damage_neither_panics_nor_hangs(
        (settings, recorded) in recorded(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut trace = recorded.trace.clone();
        for (index, byte) in damage {
            let at = index.index(trace.len());
            trace[at] ^= byte;
        }
        decode(settings, &recorded.code, &trace, 0..recorded.code.len());
    }
}

#[test]
fn elements_that_are_never_committed_end_the_flow() {
    let settings = Settings {
        is_ete: false,
        is_m_profile: false,
        return_stack: false,
        cycle_threshold: None,
        cycles_commit: false,
        context_ids: false,
        synchronization: usize::MAX,
        speculation_depth: 8,
    };
    // A conditional branch to itself.
    let code = 0x5400_0000u32.to_le_bytes();
    let step = Isa::A64.instruction(&code, START).expect("a branch").step();
    let mut encoder = Encoder::new(settings);
    encoder.begin(START, user(1));
    encoder.executed(START, &step, START);
    (1..5_000).for_each(|time| encoder.timestamp(time));
    let lines = decode(settings, &code, &encoder.finish(), 0..code.len());
    assert_eq!(lines.gaps, ["the trace does not say what was committed"]);
}

/// Returns whether the runs of instructions between cuts are found in the account, one after another.
fn is_part(lines: &[Line], account: &[Line]) -> bool {
    let ran = |lines: &[Line]| -> Vec<u64> {
        lines
            .iter()
            .filter_map(|line| if let Line::Ran(address) = line { Some(*address) } else { None })
            .collect()
    };
    let account = ran(account);
    let mut from = 0;
    for piece in lines.split(|line| *line == Line::Cut) {
        let piece = ran(piece);
        if piece.is_empty() {
            continue;
        }
        let found =
            account[from.min(account.len())..].windows(piece.len()).position(|window| window == piece);
        let Some(at) = found else { return false };
        from += at + piece.len();
    }
    true
}

//! Decodes the trace of any program with a part of its code withheld; event trace, PTWRITE, power events and blocks of values
//! may be on. After a gap, the decoder shows exactly what ran from the packet that ended it up to the next gap, and invents
//! no interrupt and no PTWRITE. Damage changes nothing before it.

#![no_main]

#[allow(dead_code, reason = "what is not needed here is for the crate's own tests")]
#[path = "../../crates/intel-pt/tests/flow/walker.rs"]
mod walker;

use hodo_intel_pt::{
    Config,
    encoder::{Settings, Timing},
};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use walker::{
    Code, Damage, End, Hole, SLOTS, Walker, damage_changes_nothing_before, decode_with_holes, events_took_place,
    gaps_end_where_packets_say, walker,
};

/// Instructions at most.
const STEPS: usize = 2000;

#[derive(Arbitrary, Debug)]
struct Input {
    slots: [Slot; SLOTS as usize],
    /// For each slot whether its code is there, missing, or not even mapped.
    holes: [u8; SLOTS as usize],
    choices: Vec<u32>,
    steps: u16,
    return_compression: bool,
    mtc_period: Option<u8>,
    cyc_threshold: Option<u8>,
    /// On average, one step in this many loses packets.
    loss: u8,
    events: bool,
    damage: Option<FuzzedDamage>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Slot {
    /// What the slot ends with.
    kind: u8,
    /// Where that leads.
    target: u8,
    /// How many instructions come before it.
    instructions: u8,
}

#[derive(Arbitrary, Debug)]
struct FuzzedDamage {
    position: u16,
    /// How many bytes are removed.
    removed: u8,
    bytes: [u8; 3],
    /// How many of `bytes` are inserted.
    inserted: u8,
}

/// What a slot ends with; direct jumps and calls go forward only.
fn end(slot: u64, Slot { kind, target, .. }: Slot) -> End {
    let anywhere = u64::from(target) % SLOTS;
    let forward = slot + 1 + u64::from(target) % (SLOTS - slot - 1).max(1);
    let is_last = slot + 1 == SLOTS;
    match kind % 11 {
        0..=3 if is_last => End::Return,
        0 => End::RunOn,
        1 => End::Conditional(anywhere),
        2 => End::Jump(forward),
        3 => End::Call(forward),
        4 if !is_last => End::CallNext,
        5 => End::IndirectJump,
        6 => End::IndirectCall,
        7 => End::Return,
        8 => End::InterruptReturn,
        9 => End::PtWrite,
        _ => End::SystemCall,
    }
}

fuzz_target!(|input: Input| {
    if input.choices.is_empty() {
        return;
    }
    let ends = (0..).zip(input.slots).map(|(index, slot)| (end(index, slot), u64::from(slot.instructions) % 16));
    let code = Code::new(ends.collect());
    let holes: Vec<Hole> = (0..)
        .zip(input.holes)
        .filter(|(_, hole)| hole % 4 > 1)
        .map(|(slot, hole)| Hole { slot, mapped: hole % 4 == 2 })
        .collect();
    let timing = Timing {
        tsc: true,
        mtc_period: input.mtc_period.map(|period| period % 4),
        cyc_threshold: input.cyc_threshold.map(|threshold| u64::from(threshold % 3)),
    };
    let settings = Settings { return_compression: input.return_compression, timing };
    let loss = if input.loss < 10 { 0 } else { u64::from(input.loss) };
    let walker = Walker { events: input.events, ..walker(&code, &input.choices, settings, loss) };
    let ran = walker.run(usize::from(input.steps) % STEPS);
    let config = Config { no_return_compression: !input.return_compression, ..Config::default() };
    let decoded = decode_with_holes(&code, &holes, &ran.trace, &config);
    assert_eq!(gaps_end_where_packets_say(&decoded, &ran.truth, &ran.written), Ok(()));
    assert_eq!(events_took_place(&decoded, &ran), Ok(()));
    assert!(decoded.gaps.iter().all(|gap| gap.doubtful_since.is_none()), "{:?}", decoded.gaps);
    if let Some(FuzzedDamage { position, removed, bytes, inserted }) = input.damage {
        let damage = Damage {
            position: usize::from(position) % ran.trace.len(),
            removed: usize::from(removed % 4),
            inserted: bytes[..usize::from(inserted % 4)].to_vec(),
        };
        assert_eq!(damage_changes_nothing_before(&code, &holes, &ran.trace, &damage, &config), Ok(()));
    }
});

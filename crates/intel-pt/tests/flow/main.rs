//! Property test of encoder and decoder: the decoder follows, instruction by instruction, what the encoder traces of
//! a random walk over random code.

mod edges;
mod memo;
mod walker;

use std::ops::Range;

use hodo_intel_pt::{
    Config,
    encoder::{Settings, Timing},
    packet::{self, IpPayload, Packet, Tnt},
};
use proptest::prelude::*;
use walker::{
    BASE, Code, Damage, Decoded, End, Hole, SLOTS, START, Walker, damage_changes_nothing_before, decode,
    decode_with_holes, events_took_place, gaps_end_where_packets_say, walker,
};

fn end(slot: u64) -> impl Strategy<Value = End> {
    let indirect = prop_oneof![Just(End::IndirectJump), Just(End::IndirectCall), Just(End::Return)];
    if slot + 1 == SLOTS {
        return prop_oneof![indirect, Just(End::SystemCall)].boxed();
    }
    let forward = slot + 1..SLOTS;
    prop_oneof![
        1 => Just(End::RunOn),
        4 => (0..SLOTS).prop_map(End::Conditional),
        2 => forward.clone().prop_map(End::Jump),
        3 => forward.prop_map(End::Call),
        1 => Just(End::CallNext),
        1 => Just(End::CallOver),
        4 => indirect,
        1 => Just(End::SystemCall),
        1 => Just(End::InterruptReturn),
        1 => Just(End::PtWrite),
    ]
    .boxed()
}

fn code() -> impl Strategy<Value = Code> {
    let slots: Vec<_> = (0..SLOTS).map(|slot| (end(slot), 0..16u64)).collect();
    slots.prop_map(Code::new)
}

fn holes(count: Range<usize>) -> impl Strategy<Value = Vec<Hole>> {
    let hole = (0..SLOTS, any::<bool>()).prop_map(|(slot, mapped)| Hole { slot, mapped });
    prop::collection::vec(hole, count)
}

/// The mode changes without a branch: code decoded in the old mode is invalid.
#[test]
fn the_mode_may_change_anywhere() {
    let code = Code { bytes: [0x74, 0].repeat(16), ends: Vec::new() };
    let mode_with_cs_l = |cs_l| Packet::ModeExec { cs_l, cs_d: true, interrupt_flag: true };
    let psb_plus_with_cs_l =
        |cs_l| [Packet::Psb, mode_with_cs_l(cs_l), Packet::Fup(IpPayload::Full(BASE)), Packet::PsbEnd];
    let branch = Packet::Tnt8(Tnt { bits: 1, count: 1 });
    let off_and_on = [
        Packet::TipPgd(IpPayload::Full(BASE + 4)),
        mode_with_cs_l(false),
        Packet::TipPge(IpPayload::Suppressed),
        Packet::Tsc(5),
    ];
    for packets in [&psb_plus_with_cs_l(false)[..], &off_and_on[..]] {
        let packets = [&psb_plus_with_cs_l(true)[..], &[branch], packets].concat();
        let trace: Vec<u8> = packets.iter().flat_map(|packet| packet.encode().to_vec()).collect();
        let seen = decode(&code, &trace, &Config::default());
        assert_eq!(seen.addresses[0], BASE);
        assert_eq!(seen.gaps.len(), 1);
    }
}

/// Returns whether each part between two gaps is a contiguous part of what ran, in order and from the start to the
/// end.
fn is_part_of(seen: &Decoded, truth: &[u64]) -> bool {
    let ends = seen.gap_after.iter().copied().chain([seen.addresses.len()]);
    let mut start = 0;
    let mut rest = truth;
    for end in ends {
        let shown = &seen.addresses[start..end];
        start = end;
        let Some(found) =
            (0..=rest.len() - shown.len().min(rest.len())).find(|&start| rest[start..].starts_with(shown))
        else {
            return false;
        };
        rest = &rest[found + shown.len()..];
    }
    true
}

/// Defers TIP packets, as a processor may (SDM, "Deferred TIPs"): `TNT TIP TNT` becomes `TNT TIP` with the branches
/// of both, if that fills a TNT or another packet forces both out.
fn defer_tips(trace: &[u8]) -> Vec<u8> {
    let mut decoder = packet::Decoder::new(trace, 0);
    let mut packets: Vec<Packet> = std::iter::from_fn(|| decoder.next_packet().unwrap()).collect();
    let mut index = 0;
    while index + 3 < packets.len() {
        if let [Packet::Tnt8(before), tip @ Packet::Tip(_), Packet::Tnt8(after), next] =
            packets[index..index + 4]
        {
            let joined =
                Tnt { bits: before.bits << after.count | after.bits, count: before.count + after.count };
            let forced = !matches!(next, Packet::Tnt8(_) | Packet::Tnt64(_) | Packet::Tip(_));
            if joined.count == 6 || joined.count < 6 && forced {
                packets.splice(index..index + 3, [Packet::Tnt8(joined), tip]);
            }
        }
        index += 1;
    }
    packets.iter().flat_map(|packet| packet.encode().to_vec()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_decoder_follows_what_the_encoder_traces(
        code in code(),
        choices in prop::collection::vec(any::<u32>(), 101..400),
        steps in 1usize..3000,
        return_compression: bool,
        mtc_period in prop::option::of(0u8..4),
        cyc_threshold in prop::option::of(0u64..3),
        tsc: bool,
        events: bool,
    ) {
        let settings = Settings { return_compression, timing: Timing { tsc, mtc_period, cyc_threshold } };
        let ran = Walker { events, ..walker(&code, &choices, settings, 0) }.run(steps);
        let Walker { trace, truth, interrupts, .. } = &ran;
        let config = Config {
            no_return_compression: !return_compression,
            tsc,
            mtc_frequency: mtc_period,
            tsc_ctc_ratio: Some((40, 1)),
            cyc: cyc_threshold.is_some(),
            cyc_threshold: cyc_threshold.unwrap_or(0),
            max_nonturbo_ratio: Some(10),
            ..Config::default()
        };
        let seen = decode(&code, trace, &config);
        prop_assert_eq!(&seen.gaps, &[]);
        prop_assert_eq!(seen.interrupts, *interrupts);
        prop_assert_eq!(events_took_place(&seen, &ran), Ok(()));
        prop_assert_eq!(seen.transfers.len(), ran.transfers.len());
        prop_assert_eq!(seen.ptwrites.len(), ran.ptwrites.len());
        prop_assert!(seen.addresses == *truth, "{} addresses, expected {}", seen.addresses.len(), truth.len());
        // The walk takes one tick per instruction. No estimated time is later than its end.
        let end = START + truth.len() as u64;
        prop_assert!(seen.times.iter().all(|(time, _)| (START..=end).contains(time)), "{:?} {end}", seen.times);
        // An item began at the reported time or earlier; cycles too few for a CYC packet
        // are tolerated.
        let slack = 1 + cyc_threshold.unwrap_or(0);
        let late = seen.times.iter().find(|(time, before)| START + *before as u64 > time + slack);
        prop_assert_eq!(late, None);
        let back = seen.times.windows(2).find(|pair| pair[1].0 < pair[0].0);
        prop_assert_eq!(back, None, "{:?}", seen.times);
        prop_assert!(seen.cycles <= truth.len() as u64);
        prop_assert!(seen.cycles > 0 || cyc_threshold.is_none() || truth.len() < 300);
        prop_assert_eq!(seen.times.is_empty(), !tsc);
    }

    /// Property: with any loss, the decoded instructions are those that ran, in order, and complete except for the
    /// gaps. The same holds for asynchronous transfers and PTWRITEs: none is invented.
    #[test]
    fn what_is_decoded_is_what_ran(
        code in code(),
        choices in prop::collection::vec(any::<u32>(), 101..400),
        steps in 1usize..3000,
        return_compression: bool,
        cyc_threshold in prop::option::of(0u64..3),
        loss in prop_oneof![Just(0u64), 20u64..200],
        holes in holes(0..12),
        deferred: bool,
        events: bool,
    ) {
        let timing = Timing { tsc: true, mtc_period: Some(1), cyc_threshold };
        let settings = Settings { return_compression, timing };
        let ran = Walker { events, ..walker(&code, &choices, settings, loss) }.run(steps);
        let Walker { trace, truth, written, .. } = &ran;
        // The decoder can't distinguish the deferred TIP of a return from a compressed return.
        let deferred = deferred && !return_compression;
        let trace = if deferred { &defer_tips(trace) } else { trace };
        let config = Config { no_return_compression: !return_compression, ..Config::default() };
        let seen = decode_with_holes(&code, &holes, trace, &config);
        // Deferred packets have other positions.
        if !deferred {
            prop_assert_eq!(gaps_end_where_packets_say(&seen, truth, written), Ok(()));
            prop_assert_eq!(events_took_place(&seen, &ran), Ok(()));
        }
        prop_assert!(is_part_of(&seen, truth), "{:x?}\n{:x?}", seen.addresses, truth);
        prop_assert!(seen.gaps.iter().all(|gap| gap.doubtful_since.is_none()), "{:?}", seen.gaps);
        if loss == 0 && holes.is_empty() {
            prop_assert_eq!(seen.addresses.len(), truth.len());
        }
    }

    /// Property: damage changes nothing that packets before it proved, whatever is traced beside the flow and whatever
    /// code is missing.
    #[test]
    fn damage_changes_nothing_before_it(
        code in code(),
        choices in prop::collection::vec(any::<u32>(), 101..400),
        steps in 1usize..3000,
        return_compression: bool,
        holes in holes(0..12),
        position in any::<prop::sample::Index>(),
        removed in 0usize..4,
        inserted in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let timing = Timing { tsc: true, mtc_period: Some(1), cyc_threshold: None };
        let settings = Settings { return_compression, timing };
        let ran = Walker { events: true, ..walker(&code, &choices, settings, 0) }.run(steps);
        let config = Config { no_return_compression: !return_compression, ..Config::default() };
        let damage = Damage { position: position.index(ran.trace.len()), removed, inserted };
        prop_assert_eq!(damage_changes_nothing_before(&code, &holes, &ran.trace, &damage, &config), Ok(()));
    }
}

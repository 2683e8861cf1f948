//! Packets that a unit may send and our encoder does not.

#![allow(missing_docs)]

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_etm::{
    Config, ThreadIds,
    encoder::Settings,
    flow::{Decoder, ThreadContext},
    packet::A_SYNC,
};
use hodo_flow::{Event, Executed, Sink, Switch};

const START: u64 = 0x1000;
/// Instructions of the code: `b` to themselves.
const LENGTH: usize = 8;

#[derive(Default)]
struct Lines(Vec<String>);

impl Sink for Lines {
    fn executed(&mut self, executed: Executed<'_>) {
        self.0.extend(executed.addresses().map(|address| format!("{address:x}")));
    }

    fn event(&mut self, event: Event) {
        self.0.push(event.to_string());
    }
}

/// Decodes packets after a Trace Info, with code of branches to themselves.
fn decode(settings: Settings, packets: &[u8]) -> Vec<String> {
    decode_in(settings, &[BRANCH; LENGTH], packets)
}

fn decode_in(settings: Settings, code: &[u32], packets: &[u8]) -> Vec<String> {
    decode_before(settings, code, packets, &[])
}

/// Decodes packets of a segment that `next` follow, which are of another one.
fn decode_before(settings: Settings, code: &[u32], packets: &[u8], next: &[u8]) -> Vec<String> {
    let code: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut space = AddressSpace::new();
    space.map(START..START + code.len() as u64, Content { bytes: &code, origin: Origin::default() }, 0);
    let mut trace = [&A_SYNC[..], &[0x01, 0x01, 0x00], packets].concat();
    let segment = 0..trace.len();
    trace.extend(next);
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let mut lines = Lines::default();
    let decoder = Decoder::new(&trace, segment, &settings.config(), &schedule);
    decoder.decode(&mut [Program::new(&space, &NoLabels)], &mut lines);
    lines.0
}

/// The address 1000 + 4 * `index`, in user mode.
fn at(index: u8) -> Vec<u8> {
    vec![0x85, index, 0x08, 0, 0, 0, 0, 0, 0, 0x30]
}

const E: &[u8] = &[0xf7];
const BRANCH: u32 = 0x1400_0000;
const NOP: u32 = 0xd503_201f;
/// `b.eq` to itself.
const CONDITIONAL: u32 = 0x5400_0000;
/// `ret`.
const RETURN: u32 = 0xd65f_03c0;
/// `tstart x0`.
const TSTART: u32 = 0xd523_3060;

#[test]
fn what_runs_before_the_first_address_is_a_gap() {
    let lines = decode(Settings::default(), &[E, &at(2), E].concat());
    assert_eq!(lines, ["gap: the address is compressed against one that was lost", "1008"]);
}

#[test]
fn a_segment_ends_where_the_next_one_begins() {
    let next = |packets: &[&[u8]]| {
        let next = [&A_SYNC[..], &[0x01, 0x01, 0x00], &packets.concat()].concat();
        decode_before(Settings::default(), &[BRANCH; LENGTH], &[&at(0), E].concat(), &next)
    };
    assert_eq!(next(&[&at(0), E, &at(2)]), ["1000"]);
    let gap = "gap: the code at 1000 does not lead to 1008, as the trace requires, doubtful since byte 0";
    assert_eq!(next(&[&at(2), E]), ["1000", gap]);
    // Tracing was off in between.
    assert_eq!(next(&[&[0x04], &at(2), E]), ["1000"]);
    // What runs before the address.
    assert_eq!(next(&[E, E, &at(0)]), ["1000"; 3]);
    assert_eq!(next(&[E, &at(2)]), ["1000", "1000", gap]);
}

#[test]
fn atoms_before_the_address_are_of_the_segment_before() {
    let trace = [&A_SYNC[..], &[0x01, 0x01, 0x00], E, &at(2), E].concat();
    let (space, code) = (&mut AddressSpace::new(), [BRANCH; LENGTH].map(u32::to_le_bytes).concat());
    space.map(START..START + code.len() as u64, Content { bytes: &code, origin: Origin::default() }, 0);
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let mut lines = Lines::default();
    let decoder = Decoder::new(&trace, 0..trace.len(), &Settings::default().config(), &schedule);
    decoder.behind_another().decode(&mut [Program::new(space, &NoLabels)], &mut lines);
    assert_eq!(lines.0, ["1008"]);
}

#[test]
fn a_segment_whose_end_is_cancelled_later_says_nothing_about_the_next() {
    let settings = Settings { speculation_depth: 3, ..Settings::default() };
    // Two atoms at the end, of which the next segment cancels one and commits the other.
    let code = [CONDITIONAL, BRANCH];
    let sync = [&A_SYNC[..], &[0x01, 0x01, 0x00]].concat();
    let not_taken: &[u8] = &[0xf6];
    let next = |packets: &[&[u8]]| {
        let next = [&sync, &packets.concat()[..]].concat();
        decode_before(settings, &code, &[&at(0), not_taken, E].concat(), &next)
    };
    assert_eq!(next(&[&at(1), &[0x2d, 0x02]]), ["1000", "1004"]);
    let gap = "gap: the code at 1004 does not lead to 1000, as the trace requires, doubtful since byte 0";
    assert_eq!(next(&[&at(0), &[0x2d, 0x02]]), ["1000", "1004", gap]);
    assert_eq!(next(&[&at(1), &[0x2e, 0x01], &[0x2d, 0x01], &at(0)]), ["1000"]);
}

#[test]
fn a_reset_of_an_ete_has_no_return_address() {
    let settings = Settings { is_ete: true, ..Settings::default() };
    let lines = decode(settings, &[&at(0), E, &[0x06, 0x01], &at(3), E].concat());
    assert_eq!(lines, ["1000", "gap: the branch after 1000 was not traced", "100c"]);
    // Of an ETMv4 the address that follows is the one to return to.
    let lines = decode(Settings::default(), &[&at(0), E, &[0x06, 0x01], &at(0), &at(3), E].concat());
    assert_eq!(lines, ["1000", "interrupt at 1000, to 100c (reset)", "100c"]);
}

#[test]
fn a_discard_turns_tracing_off() {
    let lines = decode(Settings::default(), &[&at(0), E, &[0x00, 0x03, 0x04], &at(1), E].concat());
    assert_eq!(lines, ["1000", "tracing off", "tracing on at 1004", "1004"]);
}

#[test]
fn instructions_without_atoms_are_a_gap() {
    // Q with a count, and a short address.
    let lines = decode(Settings::default(), &[&at(0), E, &[0xa5, 0x03, 0x05], E].concat());
    assert_eq!(lines, ["1000", "gap: the branch after 1000 was not traced", "100c"]);
}

#[test]
fn counted_instructions_are_known_up_to_a_branch() {
    let code = [NOP, NOP, NOP, RETURN, NOP, BRANCH];
    let decode = |packets: &[&[u8]]| {
        decode_in(Settings::default(), &code, &[&at(0), &packets.concat()[..], E].concat())
    };
    // Two instructions, then 1008; two, then an address packet.
    assert_eq!(decode(&[&[0xa5, 0x02, 0x02]]), ["1000", "1004", "1008", "100c"]);
    assert_eq!(decode(&[&[0xac, 0x02], &at(2)]), ["1000", "1004", "1008", "100c"]);
    // Four up to the return, which leads to 1014.
    assert_eq!(decode(&[&[0xa5, 0x05, 0x04]]), ["1000", "1004", "1008", "100c", "1014"]);
    // Five: what ran after the return is not known.
    let gap = "gap: the branch after 1000 was not traced";
    assert_eq!(decode(&[&[0xa5, 0x05, 0x05]]), [gap, "1014"]);
    // Without a count, and with one that leads out of the code.
    assert_eq!(decode(&[&[0xaf], &at(5)]), [gap, "1014"]);
    let straight = [NOP; 4];
    let most = [0xa5, 0x05, 0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_eq!(decode_in(Settings::default(), &straight, &[&at(0)[..], &most].concat()), [gap]);
    // Two lead to 1008, not to 1014.
    assert_eq!(decode(&[&[0xa5, 0x05, 0x02]]), [gap, "1014"]);
}

/// Units leave branches out; OpenCSD goes on at the address, too.
#[test]
fn the_flow_goes_on_at_an_address_that_the_code_does_not_lead_to() {
    let code = [NOP, NOP, NOP, RETURN, NOP, BRANCH];
    let lines = decode_in(Settings::default(), &code, &[&at(0)[..], &[0x95, 0x05], E].concat());
    let gap = "gap: the code at 1000 does not lead to 1014, as the trace requires, doubtful since byte 0";
    assert_eq!(lines, [gap, "1014"]);
}

#[test]
fn branches_before_the_source_of_one_were_not_taken() {
    let settings = Settings { is_ete: true, ..Settings::default() };
    let code = [NOP, CONDITIONAL, NOP, BRANCH, RETURN, BRANCH];
    let lines = decode_in(settings, &code, &[&at(0)[..], &[0xb4, 0x03]].concat());
    assert_eq!(lines, ["1000", "1004", "1008", "100c"]);
    // After a return without an address only the next branch is known.
    let lines = decode_in(settings, &code, &[&at(4)[..], E, &[0xb4, 0x05], E].concat());
    assert_eq!(lines, ["1010", "gap: the branch after 1010 was not traced", "1014", "1014"]);
}

#[test]
fn a_transaction_of_an_ete_starts_at_a_waypoint() {
    let settings = Settings { is_ete: true, ..Settings::default() };
    let code = [TSTART, NOP, BRANCH];
    // Its start, its failure, and where it goes on.
    let packets = [&at(0)[..], E, &[0x0a], E, &[0x06, 0x31], &at(1), E].concat();
    assert_eq!(
        decode_in(settings, &code, &packets),
        ["1000", "1004", "1008", "gap: the branch after 1008 was not traced", "1004", "1008"]
    );
}

#[test]
fn an_ete_names_the_source_of_a_branch() {
    let settings = Settings { is_ete: true, ..Settings::default() };
    let lines = decode(settings, &[&at(0)[..], &[0xb4, 0x00]].concat());
    assert_eq!(lines, ["1000"]);
    // There is no other instruction before the branch.
    let lines = decode(settings, &[&at(0)[..], &[0xb4, 0x02]].concat());
    assert_eq!(
        lines,
        ["gap: the code at 1000 does not lead to 1008, as the trace requires, doubtful since byte 0"]
    );
}

/// The address of an instruction, in user mode, with a context ID of four bytes.
fn at_in(index: u8, id: u8) -> Vec<u8> {
    vec![0x85, index, 0x08, 0, 0, 0, 0, 0, 0, 0xb0, id, 0, 0, 0]
}

#[test]
fn context_ids_say_which_thread_runs() {
    let code: Vec<u8> = BRANCH.to_le_bytes().repeat(2);
    let mut spaces = [AddressSpace::new(), AddressSpace::new()];
    for (index, space) in spaces.iter_mut().enumerate() {
        let start = START + 8 * index as u64;
        space.map(start..start + 8, Content { bytes: &code, origin: Origin::default() }, 0);
    }
    let switch = |at: u64, program: usize, context: u32| Switch { at: Tsc(at), program, context };
    let thread = |context_id: u32, switch: Switch| ThreadContext { context_id, switch };
    // Thread 7 begins a second program at time 20.
    let threads = [thread(5, switch(0, 1, 50)), thread(7, switch(0, 0, 70)), thread(7, switch(20, 1, 70))];
    let schedule = [switch(0, 0, 99)];
    let config = Config {
        thread_ids: ThreadIds::ContextId,
        ..Settings { context_ids: true, ..Settings::default() }.config()
    };
    let decode = |packets: &[u8]| {
        let trace = [&A_SYNC[..], &[0x01, 0x01, 0x00, 0x04], packets].concat();
        let mut lines = Lines::default();
        let mut programs = spaces.each_ref().map(|space| Program::new(space, &NoLabels));
        let decoder = Decoder::new(&trace, 0..trace.len(), &config, &schedule).with_threads(&threads);
        decoder.decode(&mut programs, &mut lines);
        lines.0.retain(|line| !line.starts_with("tracing"));
        lines.0
    };
    let to = |context: u32| format!("switch {context}");
    assert_eq!(decode(&[&at_in(2, 5)[..], E].concat()), [to(50), "1008".to_owned()]);
    // Without a time, the last program of a thread counts.
    assert_eq!(decode(&[&at_in(3, 7)[..], E].concat()), [to(70), "100c".to_owned()]);
    let early = decode(&[&[0x02, 0x05][..], &at_in(0, 7), E].concat());
    assert_eq!(early[early.len() - 2..], [to(70), "1000".to_owned()]);
    // An unknown one leaves the choice to the schedule.
    assert_eq!(decode(&[&at_in(1, 9)[..], E].concat()), ["1004"]);
}

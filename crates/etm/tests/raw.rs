//! Packets that a unit may send and our encoder does not.

#![allow(missing_docs)]

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_etm::{encoder::Settings, flow::Decoder, packet::A_SYNC};
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

/// Decodes packets after a Trace Info.
fn decode(settings: Settings, packets: &[u8]) -> Vec<String> {
    let code = 0x1400_0000u32.to_le_bytes().repeat(LENGTH);
    let mut space = AddressSpace::new();
    space.map(START..START + code.len() as u64, Content { bytes: &code, origin: Origin::default() }, 0);
    let trace = [&A_SYNC[..], &[0x01, 0x01, 0x00], packets].concat();
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let mut lines = Lines::default();
    let decoder = Decoder::new(&trace, 0..trace.len(), &settings.config(), &schedule);
    decoder.decode(&mut [Program::new(&space, &NoLabels)], &mut lines);
    lines.0
}

/// The address 1000 + 4 * `index`, in user mode.
fn at(index: u8) -> Vec<u8> {
    vec![0x85, index, 0x08, 0, 0, 0, 0, 0, 0, 0x30]
}

const E: &[u8] = &[0xf7];

#[test]
fn what_runs_before_the_first_address_is_a_gap() {
    let lines = decode(Settings::default(), &[E, &at(2), E].concat());
    assert_eq!(lines, ["gap: the address is compressed against one that was lost", "1008"]);
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

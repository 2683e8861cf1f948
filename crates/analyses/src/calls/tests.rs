use hodo_model::{Arrival, Code, End, Place};

use super::*;

fn run(index: u32, place: Place, instructions: u64) -> FlowEvent<'static> {
    let at = Arrival { address: u64::from(index) * 100, function: FunctionId { module: 1, index }, place };
    let code =
        Code { offset: at.address, since: 0, lengths: &[], bytes: &[], bits: 64, end: End::Next, target: 0 };
    FlowEvent::Run { at, instructions, code }
}

fn reported(seen: &[FlowEvent]) -> Vec<String> {
    let mut reported = Vec::new();
    let time = |time: Option<Nanos>| time.map_or("?".to_owned(), |time| time.0.to_string());
    let mut emit = |moment: Moment| {
        reported.push(match moment {
            Moment::Begin { depth, function, time: begin, .. } => {
                format!("{:depth$}f{} at {}", "", function.index, time(begin))
            }
            Moment::End { call } => {
                let (begin, end, depth) = (time(call.begin), time(call.end), call.depth);
                format!(
                    "{:depth$}f{} {begin} to {end}, {} instructions",
                    "", call.function.index, call.instructions
                )
            }
            Moment::Gap => "gap".to_owned(),
        });
    };
    let (mut calls, mut part) = (Calls::default(), Part::unknown(true, Spare::default()));
    seen.iter().for_each(|seen| part.fold(seen));
    calls.follow(part, &mut emit);
    calls.end(&mut emit);
    reported
}

#[test]
fn times_between_two_clocks_are_spread_over_the_instructions() {
    let call = FlowEvent::Call { return_address: 100 };
    let seen = [
        FlowEvent::Begin(Some(Nanos(1000))),
        run(1, Place::Entry, 10),
        call,
        run(2, Place::Entry, 20),
        FlowEvent::Return,
        run(1, Place::Middle, 10),
        FlowEvent::Time(Nanos(1080)),
        run(1, Place::Middle, 5),
    ];
    let expected =
        ["f1 at 1000", " f2 at 1020", " f2 1020 to 1060, 20 instructions", "f1 1000 to ?, 45 instructions"];
    assert_eq!(reported(&seen), expected);
}

#[test]
fn a_gap_ends_what_was_open() {
    let seen = [FlowEvent::Begin(None), run(1, Place::Entry, 3), FlowEvent::Gap, run(2, Place::Middle, 4)];
    let expected = ["f1 at ?", "f1 ? to ?, 3 instructions", "gap", "f2 at ?", "f2 ? to ?, 4 instructions"];
    assert_eq!(reported(&seen), expected);
}

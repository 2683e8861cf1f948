use hodo_model::{Arrival, Code, End, Place};

use super::*;

fn run(index: u32, place: Place, instructions: u64) -> FlowEvent<'static> {
    let at = Arrival { address: u64::from(index) * 100, function: FunctionId { module: 1, index }, place };
    let code =
        Code { offset: at.address, since: 0, lengths: &[], bytes: &[], bits: 64, end: End::Next, target: 0 };
    FlowEvent::Run { at, instructions, code }
}

fn told(seen: &[FlowEvent]) -> Vec<String> {
    let mut told = Vec::new();
    let time = |time: Option<Nanos>| time.map_or("?".to_owned(), |time| time.0.to_string());
    let mut tell = |moment: Moment| {
        told.push(match moment {
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
    calls.follow(part, &mut tell);
    calls.end(&mut tell);
    told
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
    assert_eq!(told(&seen), expected);
}

/// An instruction of a function: the kernel's have numbers from 100 on.
fn at(index: u32, offset: u64, place: Place) -> FlowEvent<'static> {
    let FlowEvent::Run { at, instructions, code } = run(index, place, 1) else { unreachable!() };
    let half = if index >= 100 { 1 << 63 } else { 0 };
    let at = Arrival { address: half + u64::from(index) * 100 + offset, ..at };
    FlowEvent::Run { at, instructions, code }
}

#[test]
fn an_interrupt_returns_to_what_it_interrupted() {
    let call = |return_address| FlowEvent::Call { return_address };
    let leave = |next| FlowEvent::Leave { next };
    let entry = |index| at(index, 0, Place::Entry);
    let seen = [
        FlowEvent::Begin(None),
        entry(1),
        // The first instruction of the called function raises a page fault, whose handler is itself interrupted.
        call(150),
        leave(Some(200)),
        FlowEvent::Enter,
        entry(100),
        leave(Some((1 << 63) + 10_050)),
        FlowEvent::Enter,
        at(101, 8, Place::Middle),
        leave(None),
        FlowEvent::Enter,
        at(100, 50, Place::Middle),
        leave(None),
        FlowEvent::Enter,
        entry(2),
        // A system call.
        leave(None),
        FlowEvent::Enter,
        entry(102),
        leave(None),
        FlowEvent::Enter,
        at(2, 4, Place::Middle),
        FlowEvent::Return,
        at(1, 50, Place::Middle),
        call(160),
        entry(3),
    ];
    let told = told(&seen);
    let begun: Vec<&str> = told.iter().filter_map(|line| line.strip_suffix(" at ?")).collect();
    assert_eq!(begun, ["f1", " f1", "  f100", "   f101", " f2", "  f102", " f3"]);
}

#[test]
fn a_gap_ends_what_was_open() {
    let seen = [FlowEvent::Begin(None), run(1, Place::Entry, 3), FlowEvent::Gap, run(2, Place::Middle, 4)];
    let expected = ["f1 at ?", "f1 ? to ?, 3 instructions", "gap", "f2 at ?", "f2 ? to ?, 4 instructions"];
    assert_eq!(told(&seen), expected);
}

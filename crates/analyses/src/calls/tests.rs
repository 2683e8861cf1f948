use hodo_model::{Code, End, Place, Transfer};

use super::*;

fn run(index: u32, place: Place, instructions: u64) -> FlowEvent<'static> {
    let at = Arrival { address: u64::from(index) * 100, function: FunctionId { module: 1, index }, place };
    let code = Code {
        offset: at.address,
        since: 0,
        lengths: &[],
        bytes: &[],
        isa: hodo_model::Isa::X86_64,
        end: End::Next,
        target: 0,
    };
    FlowEvent::Run { at, instructions, code }
}

fn reported(events: &[FlowEvent]) -> Vec<String> {
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
            Moment::Gap { .. } => "gap".to_owned(),
        });
    };
    let reports_begins = true;
    let mut calls = OpenCalls::default();
    let mut part = ChunkCalls::unknown(reports_begins, Spare::default());
    events.iter().for_each(|event| part.fold(event));
    calls.follow(part, &mut emit);
    calls.end(&mut emit);
    reported
}

#[test]
fn times_between_two_clocks_are_spread_over_the_instructions() {
    let call = FlowEvent::Call { return_address: 100 };
    let events = [
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
    assert_eq!(reported(&events), expected);
}

/// An instruction of a function: the kernel's have numbers from 100 on.
fn run_at(index: u32, offset: u64, place: Place) -> FlowEvent<'static> {
    let FlowEvent::Run { at, instructions, code } = run(index, place, 1) else { unreachable!() };
    let at = Arrival { address: u64::from(index) * 100 + offset, ..at };
    FlowEvent::Run { at, instructions, code }
}

/// The functions that begin, indented by their depth.
fn begun(events: &[FlowEvent]) -> Vec<String> {
    reported(events).iter().filter_map(|line| Some(line.strip_suffix(" at ?")?.to_owned())).collect()
}

/// An interrupt with its `Leave`.
fn interrupt(from: u64) -> [FlowEvent<'static>; 2] {
    [FlowEvent::Leave { next: Some(from) }, FlowEvent::Interrupt { from }]
}

const INTERRUPT_RETURN: [FlowEvent<'static>; 2] =
    [FlowEvent::Leave { next: None }, FlowEvent::InterruptReturn];

#[test]
fn an_interrupt_returns_to_what_it_interrupted() {
    let entry = |index| run_at(index, 0, Place::Entry);
    let mut events = vec![FlowEvent::Begin(None), entry(1)];
    // The first instruction of the called function raises a page fault, whose handler is itself interrupted.
    events.push(FlowEvent::Call { return_address: 150 });
    events.extend(interrupt(200));
    events.push(entry(100));
    events.extend(interrupt(10_050));
    events.push(run_at(101, 8, Place::Middle));
    events.extend(INTERRUPT_RETURN);
    events.push(run_at(100, 50, Place::Middle));
    events.extend(INTERRUPT_RETURN);
    events.push(entry(2));
    // A system call.
    events.extend(interrupt(204));
    events.push(entry(102));
    events.extend(INTERRUPT_RETURN);
    events.extend([run_at(2, 4, Place::Middle), FlowEvent::Return, run_at(1, 50, Place::Middle)]);
    events.extend([FlowEvent::Call { return_address: 160 }, entry(3)]);
    assert_eq!(begun(&events), ["f1", " f100", "  f101", " f2", "  f102", " f3"]);
}

#[test]
fn a_signal_handler_lies_above_the_interrupted_function() {
    let mut events = vec![FlowEvent::Begin(None), run_at(1, 0, Place::Entry)];
    events.extend(interrupt(150));
    events.push(run_at(100, 0, Place::Entry));
    events.extend(INTERRUPT_RETURN);
    events.extend([run_at(2, 0, Place::Entry), FlowEvent::Return, run_at(3, 0, Place::Entry)]);
    // The trampoline calls the kernel, which continues where the signal came.
    events.extend(interrupt(310));
    events.push(run_at(100, 0, Place::Entry));
    events.extend(INTERRUPT_RETURN);
    events.extend([
        run_at(1, 50, Place::Middle),
        FlowEvent::Call { return_address: 160 },
        run_at(4, 0, Place::Entry),
    ]);
    assert_eq!(begun(&events), ["f1", " f100", " f2", "  f3", "   f100", " f4"]);
}

#[test]
fn an_interrupt_may_follow_another_at_once() {
    let mut events = vec![FlowEvent::Begin(None), run_at(1, 0, Place::Entry)];
    events.extend(interrupt(150));
    events.push(run_at(100, 0, Place::Entry));
    events.extend(INTERRUPT_RETURN);
    events.extend(interrupt(150));
    events.push(run_at(101, 0, Place::Entry));
    events.extend(INTERRUPT_RETURN);
    events.extend([
        run_at(1, 50, Place::Middle),
        FlowEvent::Call { return_address: 160 },
        run_at(3, 0, Place::Entry),
    ]);
    assert_eq!(begun(&events), ["f1", " f100", " f101", " f3"]);
}

#[test]
fn a_return_that_faults_ends_the_function() {
    let mut events = vec![FlowEvent::Begin(None), run_at(1, 0, Place::Entry)];
    events.extend([FlowEvent::Call { return_address: 150 }, run_at(2, 0, Place::Entry), FlowEvent::Return]);
    events.extend(interrupt(150));
    events.push(run_at(100, 0, Place::Entry));
    events.extend(INTERRUPT_RETURN);
    events.extend([
        run_at(1, 50, Place::Middle),
        FlowEvent::Call { return_address: 160 },
        run_at(3, 0, Place::Entry),
    ]);
    assert_eq!(begun(&events), ["f1", " f2", "  f100", " f3"]);
}

#[test]
fn a_return_of_a_recursive_function_that_faults_ends_one_frame() {
    let call = |return_address| [FlowEvent::Call { return_address }, run_at(2, 0, Place::Entry)];
    let mut events = vec![FlowEvent::Begin(None), run_at(1, 0, Place::Entry)];
    events.extend(call(150));
    events.extend(call(250));
    events.push(FlowEvent::Return);
    events.extend(interrupt(250));
    events.push(run_at(100, 0, Place::Entry));
    events.extend(INTERRUPT_RETURN);
    events.extend([
        run_at(2, 50, Place::Middle),
        FlowEvent::Call { return_address: 260 },
        run_at(3, 0, Place::Entry),
    ]);
    assert_eq!(begun(&events), ["f1", " f2", "  f2", "   f100", "  f3"]);
}

/// `call 1f; 1: mov %rax, (%rsp); ret` leaves no frame: the function that it enters returns to the caller.
#[test]
fn a_retpoline_is_replaced_by_the_function_that_it_enters() {
    let events = [
        FlowEvent::Begin(None),
        run_at(1, 0, Place::Entry),
        FlowEvent::Call { return_address: 150 },
        run_at(2, 0, Place::Entry),
        FlowEvent::Call { return_address: 205 },
        run_at(2, 10, Place::Middle),
        FlowEvent::Return,
        run_at(3, 0, Place::Entry),
        FlowEvent::Return,
        run_at(1, 50, Place::Middle),
        FlowEvent::Call { return_address: 160 },
        run_at(4, 0, Place::Entry),
    ];
    assert_eq!(begun(&events), ["f1", " f2", "  f2", "  f3", " f4"]);
}

/// Only the kernel is traced: each entry is another system call or interrupt.
#[test]
fn a_return_out_of_what_is_traced_ends_the_interrupt() {
    let mut events = vec![FlowEvent::Begin(None)];
    for _ in 0..2 {
        events.extend([
            FlowEvent::Enter,
            run_at(100, 0, Place::Entry),
            FlowEvent::Call { return_address: 10_050 },
        ]);
        events.extend([run_at(101, 0, Place::Entry), FlowEvent::Return, run_at(100, 50, Place::Middle)]);
        events.extend(INTERRUPT_RETURN);
        events.push(FlowEvent::Leave { next: None });
    }
    assert_eq!(begun(&events), ["f100", " f101", "f100", " f101"]);
}

#[test]
fn a_gap_ends_what_was_open() {
    let events = [FlowEvent::Begin(None), run(1, Place::Entry, 3), FlowEvent::Gap, run(2, Place::Middle, 4)];
    let expected = ["f1 at ?", "f1 ? to ?, 3 instructions", "gap", "f2 at ?", "f2 ? to ?, 4 instructions"];
    assert_eq!(reported(&events), expected);
}

fn function(index: u32) -> FunctionId {
    FunctionId { module: 1, index }
}

/// The moments of a part of a thread.
fn moments(part: ChunkCalls) -> Vec<Moment> {
    let mut moments = Vec::new();
    let mut calls = OpenCalls::default();
    calls.follow(part, &mut |moment| moments.push(moment));
    calls.end(&mut |moment| moments.push(moment));
    moments
}

fn only_of(index: u32) -> WantedCalls {
    WantedCalls::Of(std::sync::Arc::new([function(index)].into_iter().collect()))
}

/// f1 calls f2, which calls f3 on the first path and returns on the second, and then f4.
fn by_two_paths(joins: bool, wanted: WantedCalls) -> Vec<Moment> {
    let step = |index: u32, offset: u64, instructions, transfer| {
        let start = u64::from(index) * 100;
        let place = if offset == 0 { Place::Entry } else { Place::Middle };
        let at = Arrival { address: start + offset, function: function(index), place };
        Run { at, instructions, transfer, end: start + 50 }
    };
    let reports_begins = true;
    let mut part = ChunkCalls::unknown(reports_begins, Spare::default()).only(wanted);
    [FlowEvent::Begin(Some(Nanos(1000))), run(1, Place::Entry, 7)].iter().for_each(|event| part.fold(event));
    let first =
        [step(1, 10, 10, Transfer::Call), step(2, 0, 20, Transfer::Call), step(3, 0, 5, Transfer::Return)];
    let second = [
        step(2, 50, 2, Transfer::Return),
        step(1, 50, 3, Transfer::Call),
        step(4, 0, 1, Transfer::Return),
        step(1, 50, 4, Transfer::None),
    ];
    let state = part.state().unwrap();
    let (first, between) = part.learn(state, first.into_iter()).unwrap();
    let (second, after) = part.learn(between, second.into_iter()).unwrap();
    if joins {
        let path = part.join(first, second);
        part.fold_path(path);
    } else {
        part.fold_path(first);
        part.fold_path(second);
    }
    part.resume(after);
    part.fold(&FlowEvent::Time(Nanos(1480)));
    moments(part)
}

#[test]
fn joined_paths_report_what_each_reports() {
    for (wanted, count) in [(WantedCalls::All, 8), (only_of(3), 6)] {
        let [joined, apart] = [true, false].map(|joins| by_two_paths(joins, wanted.clone()));
        assert_eq!(joined, apart);
        assert_eq!(joined.len(), count, "{joined:?}");
    }
}

#[test]
fn calls_that_are_not_wanted_are_left_out() {
    let events = [
        FlowEvent::Begin(None),
        run_at(1, 0, Place::Entry),
        FlowEvent::Call { return_address: 150 },
        run_at(2, 0, Place::Entry),
        FlowEvent::Call { return_address: 250 },
        run_at(3, 0, Place::Entry),
        FlowEvent::Return,
        run_at(2, 50, Place::Middle),
        FlowEvent::Return,
        run_at(1, 50, Place::Middle),
    ];
    let begun = |wanted| {
        let reports_begins = true;
        let mut part = ChunkCalls::unknown(reports_begins, Spare::default()).only(wanted);
        events.iter().for_each(|event| part.fold(event));
        let begun = |moment| match moment {
            Moment::Begin { function, .. } => Some(function.index),
            _ => None,
        };
        moments(part).into_iter().filter_map(begun).collect::<Vec<_>>()
    };
    assert_eq!(begun(only_of(3)), [1, 2, 3]);
    assert_eq!(begun(only_of(2)), [1, 2]);
    assert_eq!(begun(only_of(4)), [1]);
}

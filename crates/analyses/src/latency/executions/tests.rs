use hodo_model::{Code, End};

use super::*;

fn run(index: u32, place: Place, instructions: u64) -> FlowEvent<'static> {
    let address = u64::from(index) * 100 + u64::from(place == Place::Middle);
    let at = Arrival { address, function: FunctionId { module: 1, index }, place };
    let (lengths, bytes, end) = (&[][..], &[][..], End::Next);
    let code =
        Code { offset: at.address, since: 0, lengths, bytes, isa: hodo_model::Isa::X86_64, end, target: 0 };
    FlowEvent::Run { at, instructions, code }
}

/// Returns the instructions and ends of the executions of function 2.
fn executions(events: &[FlowEvent<'_>]) -> Vec<(u64, IntervalEnd)> {
    let which = &Which::One(FunctionId { module: 1, index: 2 });
    let mut partial = ExecutionsPartial::unknown();
    events.iter().for_each(|event| partial.fold(which, event));
    let done = partial.close(which).done;
    done.iter().map(|done| (done.end.before - done.begin.before, done.ended)).collect()
}

#[test]
fn executions_end_as_the_stack_says() {
    let call = FlowEvent::Call { return_address: 101 };
    let before = [run(1, Place::Entry, 5), call, run(2, Place::Entry, 7)];
    let ends = |behind: &[FlowEvent<'static>]| executions(&[&before, behind].concat());
    let back = run(1, Place::Middle, 3);
    assert_eq!(ends(&[FlowEvent::Return, back]), [(7, IntervalEnd::Returned)]);
    // A tail call is part of the function that jumps.
    assert_eq!(ends(&[run(3, Place::Entry, 4), FlowEvent::Return, back]), [(11, IntervalEnd::Returned)]);
    assert_eq!(ends(&[FlowEvent::IndirectJump, back]), [(7, IntervalEnd::Unwound)]);
    assert_eq!(ends(&[FlowEvent::Gap, back]), [(7, IntervalEnd::Lost)]);
    assert_eq!(ends(&[]), [(7, IntervalEnd::Cut)]);
    let recursion = [FlowEvent::Call { return_address: 201 }, run(2, Place::Entry, 1), FlowEvent::Return];
    let ended = ends(&[&recursion[..], &[run(2, Place::Middle, 2), FlowEvent::Return, back]].concat());
    assert_eq!(ended, [(1, IntervalEnd::Returned), (10, IntervalEnd::Returned)]);
    assert_eq!(executions(&[run(2, Place::Middle, 3), FlowEvent::Return, back]), [(3, IntervalEnd::Begun)]);
}

/// The kernel's entry is function 10, which calls 11, which jumps to 2, and that to 3.
#[test]
fn a_system_call_lasts_until_the_kernel_returns() {
    let calls = |events: &[FlowEvent<'_>], cut: usize| {
        let functions = vec![FunctionId { module: 1, index: 2 }];
        let which = &Which::SystemCalls { name: "two".to_owned(), functions };
        let part = |events: &[FlowEvent<'_>]| {
            let mut partial = ExecutionsPartial::unknown();
            events.iter().for_each(|event| partial.fold(which, event));
            assert!(partial.is_sound(which));
            partial
        };
        let whole = part(&events[..cut]).merge(which, part(&events[cut..]));
        assert!(whole.is_sound(which));
        let done = whole.close(which).done;
        let calls = done.iter().map(|done| (done.end.before - done.begin.before, done.ended));
        calls.collect::<Vec<_>>()
    };
    let entry = [FlowEvent::Leave { next: None }, FlowEvent::Interrupt { from: 150 }];
    let exit = [FlowEvent::Leave { next: None }, FlowEvent::InterruptReturn];
    let within = |function| {
        let call = FlowEvent::Call { return_address: 1001 };
        let page_fault = FlowEvent::Interrupt { from: 301 };
        let handler = [page_fault, run(12, Place::Entry, 5), FlowEvent::InterruptReturn];
        let jumps = [run(11, Place::Entry, 2), run(function, Place::Entry, 1), run(3, Place::Entry, 30)];
        let end = [run(3, Place::Middle, 1), FlowEvent::Return, run(10, Place::Middle, 4)];
        [&[run(10, Place::Entry, 3), call], &jumps[..], &handler, &end, &exit].concat()
    };
    let user = [run(1, Place::Middle, 6)];
    let call = |function| [&entry[..], &within(function), &user].concat();
    // Another system call jumps to the same function, and a signal handler runs before user space goes on.
    let events = [&user[..], &call(2), &call(4), &call(2)].concat();
    for cut in 0..events.len() {
        assert_eq!(calls(&events, cut), [(46, IntervalEnd::Returned); 2], "{cut}");
    }
    // Only the kernel is traced: it returns out of what is traced, and is entered again.
    let out = FlowEvent::Leave { next: None };
    let kernel = [&within(2)[..], &[out, FlowEvent::Enter]].concat();
    let events = [&[FlowEvent::Enter], &kernel[..], &kernel, &kernel, &[run(12, Place::Entry, 1)]].concat();
    for cut in 0..events.len() {
        let ended =
            [IntervalEnd::Begun, IntervalEnd::Returned, IntervalEnd::Returned].map(|ended| (46, ended));
        assert_eq!(calls(&events, cut), ended, "{cut}");
    }
    // Flow is missing before the first, and in the second.
    let gap = [FlowEvent::Gap];
    let events = [&gap[..], &call(2), &entry, &within(2)[..4], &gap, &user].concat();
    for cut in 0..events.len() {
        assert_eq!(calls(&events, cut), [(46, IntervalEnd::Returned), (6, IntervalEnd::Lost)], "{cut}");
    }
}

#[test]
fn a_signal_handler_is_over_where_the_interrupted_code_goes_on() {
    let outside = [FlowEvent::Leave { next: None }, FlowEvent::Enter];
    let begin = [&[run(1, Place::Entry, 5)], &outside[..], &[run(2, Place::Entry, 7)]].concat();
    let trampoline = [FlowEvent::Return, run(3, Place::Middle, 2)];
    let over = [&begin[..], &trampoline, &outside, &[run(1, Place::Middle, 3)]].concat();
    assert_eq!(executions(&over), [(9, IntervalEnd::Returned)]);
    let jumps = [&begin[..], &[FlowEvent::IndirectJump, run(1, Place::Middle, 3)]].concat();
    assert_eq!(executions(&jumps), [(7, IntervalEnd::Unwound)]);
}

#[test]
fn a_return_that_an_interrupt_prevents_ends_a_function_all_the_same() {
    let call = FlowEvent::Call { return_address: 101 };
    let interrupt = [FlowEvent::Interrupt { from: 101 }, run(3, Place::Entry, 2)];
    let begin = [run(1, Place::Entry, 5), call, run(2, Place::Entry, 7), FlowEvent::Return];
    let end = [FlowEvent::InterruptReturn, run(1, Place::Middle, 3)];
    assert_eq!(executions(&[&begin[..], &interrupt, &end].concat()), [(9, IntervalEnd::Returned)]);
}

#[test]
fn a_prevented_return_out_of_an_interrupt_is_the_same_where_the_trace_is_cut() {
    let which = &Which::Each;
    let part = |events: &[FlowEvent<'_>]| {
        let mut partial = ExecutionsPartial::unknown();
        events.iter().chain([&FlowEvent::Time(Nanos(1))]).for_each(|event| partial.fold(which, event));
        partial
    };
    let interrupt = FlowEvent::Interrupt { from: 101 };
    let begin = [run(1, Place::Entry, 1), interrupt];
    let end = [
        run(2, Place::Entry, 1),
        FlowEvent::Return,
        interrupt,
        run(2, Place::Entry, 1),
        FlowEvent::InterruptReturn,
        run(1, Place::Middle, 1),
    ];
    let counts = |partial: ExecutionsPartial| {
        let sums = partial.close(which).sums;
        [1, 2].map(|index| {
            let sum = &sums[&FunctionId { module: 1, index }];
            (sum.instructions.count, sum.incomplete)
        })
    };
    let whole = counts(part(&[&begin[..], &end].concat()));
    assert_eq!(whole, counts(part(&begin).merge(which, part(&end))));
    assert_eq!(whole, [(0, 1), (2, 0)]);
}

/// Function 1 calls 2, which calls itself, and 4, which calls 2; later 1 calls 2 again.
#[test]
fn nested_executions_count_once_wherever_the_trace_is_cut() {
    let call = |function: u64| FlowEvent::Call { return_address: function * 100 + 1 };
    let back = |function, instructions| [FlowEvent::Return, run(function, Place::Middle, instructions)];
    let events = [
        &[run(1, Place::Entry, 5), call(1), run(2, Place::Entry, 7), call(2), run(2, Place::Entry, 1)][..],
        &back(2, 2),
        &[call(2), run(4, Place::Entry, 3), call(4), run(2, Place::Entry, 4)],
        &back(4, 1),
        &back(2, 1),
        &back(1, 3),
        &[call(1), run(2, Place::Entry, 6)],
        &back(1, 1),
    ]
    .concat();
    for which in [Which::Each, Which::EachUntimed] {
        count_wherever_the_trace_is_cut(&which, &events);
    }
}

fn count_wherever_the_trace_is_cut(which: &Which, events: &[FlowEvent<'_>]) {
    let part = |events: &[FlowEvent<'_>]| {
        let mut partial = ExecutionsPartial::unknown();
        events.iter().chain([&FlowEvent::Time(Nanos(1))]).for_each(|event| partial.fold(which, event));
        assert!(partial.is_sound(which));
        partial
    };
    for first in 0..events.len() {
        for second in first..events.len() {
            let [early, middle, late] =
                [&events[..first], &events[first..second], &events[second..]].map(part);
            let (left, right) = match (first + second) % 2 {
                0 => (early.merge(which, middle), late),
                _ => (early, middle.merge(which, late)),
            };
            let closed = left.merge(which, right).close(which);
            let sums = [2, 4].map(|index| {
                let sum = &closed.outermost[&FunctionId { module: 1, index }];
                (sum.instructions.count, sum.instructions.total, sum.first)
            });
            assert_eq!(sums, [(2, 25, 19), (1, 8, 8)], "{first} {second}");
            let all = [1, 2, 4].map(|index| {
                let sum = &closed.sums[&FunctionId { module: 1, index }];
                (sum.instructions.count, sum.instructions.total, sum.incomplete)
            });
            assert_eq!(all, [(0, 0, 1), (4, 30, 0), (1, 8, 0)], "{first} {second}");
        }
    }
}

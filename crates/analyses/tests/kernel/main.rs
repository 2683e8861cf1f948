//! The law for kernel events: any cutting in time, any grouping of merges, gives the result of one chunk.
//!
//! Traces are made up: of a scheduler that keeps its own rules, and of one of which any event may be missing.

use hodo_analyses::{
    cpu::{CpuUse, OverTime},
    io::{Cache, Files, InputOutput, Users},
    irq::{Interrupts, InterruptsOff},
    lost::Lost,
    memory::Memory,
    net::Network,
    periods::Periods,
    processes::Processes,
    queue::Queue,
    sched::Scheduling,
    signals::Signals,
    states::{Intervals, States},
    syscalls::{OfAll, Slowest, Syscalls},
};
use hodo_clock::Nanos;
use hodo_trace::{
    AnyEventAnalysis, Choice, EventAnalysis, Start, Table, Whole,
    kernel::{ALL, KernelEvent, Kind, Records, Threads, VOCABULARY, Words},
    pass::Pass,
};
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

mod law;

const CPUS: u32 = 3;
const THREADS: i64 = 6;

/// A number that decides an event: when after the one before, where, what, and three more for its fields.
type Seed = (u8, u32, usize, i64, i64, i64);

/// Numbers of events, and whether the scheduler keeps its rules.
type Plan = (Vec<Seed>, bool);

fn plan() -> impl Strategy<Value = Plan> {
    let seed = (0u8..4, 0..CPUS, 0..VOCABULARY.len() + 24, 0..THREADS, 0..THREADS, 0i64..4);
    (prop::collection::vec(seed, 0..80), any::<bool>())
}

/// Names of system calls.
const NAMES: [&str; 9] =
    ["read", "write", "openat", "close", "dup2", "execve", "fcntl", "pipe2", "sendfile64"];

/// `O_CLOEXEC`.
const CLOSE_ON_EXEC: i64 = 0o2_000_000;

/// What happens, by a number: switches and system calls are what all else hangs on.
fn words(what: usize) -> &'static Words {
    let often = [Kind::SchedSwitch, Kind::SyscallEntry, Kind::SyscallExit];
    let of = |kind: Kind| VOCABULARY.iter().find(|words| words.kind == kind).unwrap();
    VOCABULARY.get(what).unwrap_or_else(|| of(often[what % often.len()]))
}

/// The events of a plan, each as its own records.
fn events((seeds, rules): &Plan) -> Vec<Records> {
    let mut now = 10;
    let mut running = [0i64; CPUS as usize];
    let mut inside = [0u32; CPUS as usize];
    let event = |&(later, cpu, what, a, b, c): &Seed| {
        now += u64::from(later);
        let words = words(what);
        let mut records = Records::default();
        let call = &mut inside[cpu as usize];
        if !*rules || words.kind == Kind::SyscallEntry {
            *call = (a + 2 * b + 5 * c) as u32 % NAMES.len() as u32;
        }
        let ran = if *rules { running[cpu as usize] } else { b };
        let tid = u32::try_from(ran).ok().filter(|_| later % 2 == 1);
        records.push(Nanos(now), (cpu, tid), words.kind, *call);
        if words.kind == Kind::SchedSwitch {
            let on = &mut running[cpu as usize];
            let prev = if *rules { *on } else { a };
            let next = if *rules && running.contains(&b) { 0 } else { b };
            running[cpu as usize] = next;
            records.text(format!("t{prev}").as_bytes());
            records.integer(prev);
            records.integer([0, 1, 256, 2][c as usize]);
            records.text(format!("t{next}").as_bytes());
            records.integer(next);
            records.integer(20 + c);
            records.integer(prev % 3);
            return records;
        }
        for (place, name) in words.fields.iter().enumerate() {
            match *name {
                "comm" | "name" | "child_comm" | "diskname" | "stream" | "key" | "group" => {
                    records.text(format!("n{a}").as_bytes())
                }
                "result" => records.integer(c % 2),
                "filename" | "filename|pathname|uname" => records.text(format!("/n{b}").as_bytes()),
                "flags" | "flags|type" => records.integer(c % 2 * CLOSE_ON_EXEC),
                "cmd" => records.integer([0, 2, 1030, 1][c as usize]),
                "ret" => records.integer(b - 1),
                ALL => records.text(format!("fd = {a}").as_bytes()),
                _ => records.integer([a, b, c, a % 2, b % 2][place % 5]),
            }
        }
        records
    };
    seeds.iter().map(event).collect()
}

/// A plan, where to cut it, and in which order to merge.
type Case = (Plan, Vec<bool>, Vec<usize>);

fn case() -> impl Strategy<Value = Case> {
    (plan(), prop::collection::vec(prop::bool::weighted(0.3), 80), prop::collection::vec(0usize..80, 1..8))
}

fn holds<A: EventAnalysis>(analysis: &A, (plan, cuts, choices): &Case) -> Result<(), TestCaseError> {
    let mut events = events(plan);
    let names = NAMES.map(str::to_owned).to_vec();
    let (whole, merged) = law::both(analysis, &mut events, &names, |end| cuts[end], choices);
    prop_assert_eq!(whole, merged);
    Ok(())
}

fn holds_always<A: EventAnalysis>(analysis: &A) -> Result<(), String> {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(400));
    runner.run(&case(), |case| holds(analysis, &case)).map_err(|error| error.to_string())
}

/// Whether a broken analysis is found to be one, by the same cases each time: by others, one in many runs found none.
fn is_caught<A: EventAnalysis>(analysis: &A) -> bool {
    let always_the_same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::with_cases(2000), always_the_same);
    runner.run(&case(), |case| holds(analysis, &case)).is_err()
}

#[test]
fn cpu() {
    holds_always(&CpuUse).unwrap();
}

#[test]
fn syscalls() {
    holds_always(&Syscalls).unwrap();
}

#[test]
fn irq() {
    holds_always(&Interrupts).unwrap();
}

#[test]
fn sched() {
    holds_always(&Scheduling).unwrap();
}

#[test]
fn io() {
    holds_always(&InputOutput).unwrap();
}

#[test]
fn processes() {
    holds_always(&Processes).unwrap();
}

#[test]
fn signals() {
    holds_always(&Signals).unwrap();
}

#[test]
fn periods() {
    holds_always(&Periods::default()).unwrap();
}

#[test]
fn lost() {
    holds_always(&Lost).unwrap();
}

#[test]
fn cpu_over_time() {
    holds_always(&OverTime).unwrap();
}

#[test]
fn slowest_system_calls() {
    holds_always(&Slowest).unwrap();
}

#[test]
fn system_calls_of_all() {
    holds_always(&OfAll).unwrap();
}

#[test]
fn io_by_user() {
    holds_always(&Users).unwrap();
}

#[test]
fn io_by_file() {
    holds_always(&Files).unwrap();
}

#[test]
fn page_cache() {
    holds_always(&Cache).unwrap();
}

#[test]
fn states() {
    holds_always(&States).unwrap();
}

#[test]
fn intervals_of_states() {
    holds_always(&Intervals).unwrap();
}

#[test]
fn queue() {
    holds_always(&Queue).unwrap();
}

#[test]
fn irqoff() {
    holds_always(&InterruptsOff).unwrap();
}

#[test]
fn memory() {
    holds_always(&Memory).unwrap();
}

#[test]
fn net() {
    holds_always(&Network).unwrap();
}

/// An analysis whose merge forgets which of its states came first.
struct Swapped<A>(A);

impl<A: EventAnalysis> EventAnalysis for Swapped<A> {
    type Partial = A::Partial;

    fn interest(&self) -> &'static [(Kind, &'static [usize])] {
        EventAnalysis::interest(&self.0)
    }

    fn needs_threads(&self) -> bool {
        EventAnalysis::needs_threads(&self.0)
    }

    fn base(&self) -> Option<&'static dyn AnyEventAnalysis> {
        EventAnalysis::base(&self.0)
    }

    fn views(&self) -> &'static [&'static str] {
        EventAnalysis::views(&self.0)
    }

    fn unknown(&self) -> A::Partial {
        EventAnalysis::unknown(&self.0)
    }

    fn begin(&self, start: &Start<'_>) -> A::Partial {
        EventAnalysis::begin(&self.0, start)
    }

    fn fold(&self, partial: &mut A::Partial, event: &KernelEvent<'_>) {
        EventAnalysis::fold(&self.0, partial, event);
    }

    fn merge(&self, earlier: A::Partial, later: A::Partial, threads: &Threads) -> A::Partial {
        EventAnalysis::merge(&self.0, later, earlier, threads)
    }

    fn finish(&self, whole: A::Partial, of: &Whole<'_>) -> Table {
        EventAnalysis::finish(&self.0, whole, of)
    }
}

#[test]
fn a_broken_merge_is_caught() {
    assert!(is_caught(&Swapped(CpuUse)));
    assert!(is_caught(&Swapped(Syscalls)));
    assert!(is_caught(&Swapped(Interrupts)));
    assert!(is_caught(&Swapped(Scheduling)));
    assert!(is_caught(&Swapped(InputOutput)));
    assert!(is_caught(&Swapped(Processes)));
    assert!(is_caught(&Swapped(Signals)));
    assert!(is_caught(&Swapped(Periods::default())));
    assert!(is_caught(&Swapped(OverTime)));
    assert!(is_caught(&Swapped(Slowest)));
    assert!(is_caught(&Swapped(OfAll)));
    assert!(is_caught(&Swapped(Users)));
    assert!(is_caught(&Swapped(Files)));
    assert!(is_caught(&Swapped(States)));
    assert!(is_caught(&Swapped(Intervals)));
    assert!(is_caught(&Swapped(Queue)));
    assert!(is_caught(&Swapped(InterruptsOff)));
    assert!(is_caught(&Swapped(Memory)));
    assert!(is_caught(&Swapped(Network)));
}

/// Whoever makes a table with less work makes the same table.
#[test]
fn alone_the_table_is_the_same() {
    let one = |tid| Choice { tids: vec![tid], ..Choice::default() };
    let choices = [Choice::default(), one(1), Choice { cpus: vec![1], ..Choice::default() }];
    let mut made = 0;
    for usual in [&Syscalls as &dyn AnyEventAnalysis, &InputOutput] {
        for (choice, view) in choices.iter().flat_map(|choice| usual.views().iter().map(move |v| (choice, v)))
        {
            let choice = Choice { view: (*view).to_owned(), ..choice.clone() };
            let Some(alone) = usual.alone(&choice) else { continue };
            made += 1;
            let mut runner = TestRunner::new(ProptestConfig::with_cases(100));
            let same = runner.run(&plan(), |plan| {
                let names = NAMES.map(str::to_owned).to_vec();
                let table = |analysis| {
                    let (pass, mut events) = (Pass::new(&[analysis]), events(&plan));
                    let whole = law::fold(&pass, &mut events, &names, true);
                    law::table(&pass, &whole, &events, &names, &choice)
                };
                prop_assert_eq!(table(&*alone), table(usual));
                Ok(())
            });
            same.unwrap_or_else(|error| panic!("{choice:?}: {error}"));
        }
    }
    // System calls by name, of all; threads and processes, of all, of a thread, of a CPU.
    assert_eq!(made, 7);
}

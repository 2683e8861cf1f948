//! Synthetic traces of events: some from a scheduler that follows the rules, some in which any event may be missing.

use hodo_clock::Nanos;
use hodo_model::kernel::{ALL, Kind, PrevState, Records, VOCABULARY, Words};
use proptest::prelude::*;

const CPUS: u32 = 3;
pub(crate) const THREADS: i64 = 6;

/// Numbers that determine an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed {
    /// The time since the event before.
    later: u8,
    cpu: u32,
    /// As in [`words`].
    kind: usize,
    /// For its fields.
    numbers: [i64; 3],
}

/// The events of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    seeds: Vec<Seed>,
    /// Whether the scheduler follows the rules; otherwise any event may be missing.
    pub(crate) follows_rules: bool,
}

pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let numbers = (0..THREADS, 0..THREADS, 0i64..4).prop_map(|(a, b, c)| [a, b, c]);
    let seed = (0u8..4, 0..CPUS, 0..VOCABULARY.len() + 24, numbers)
        .prop_map(|(later, cpu, kind, numbers)| Seed { later, cpu, kind, numbers });
    (prop::collection::vec(seed, 0..80), any::<bool>())
        .prop_map(|(seeds, follows_rules)| Plan { seeds, follows_rules })
}

/// Names of system calls.
pub(crate) const NAMES: [&str; 11] =
    ["read", "write", "openat", "close", "dup2", "execve", "fcntl", "pipe2", "sendfile64", "futex", "msync"];

/// States of threads that leave their CPU.
const STATES: [PrevState; 4] =
    [PrevState::Runnable, PrevState::Interruptible, PrevState::Ended, PrevState::Unknown];

/// `O_CLOEXEC`.
const CLOSE_ON_EXEC: i64 = 0o2_000_000;

/// Selects a kind of event; switches and system calls are frequent, as the others depend on them.
fn words(kind: usize) -> &'static Words {
    let often = [Kind::SchedSwitch, Kind::SyscallEntry, Kind::SyscallExit];
    let words_of = |kind: Kind| VOCABULARY.iter().find(|words| words.kind == kind).unwrap();
    VOCABULARY.get(kind).unwrap_or_else(|| words_of(often[kind % often.len()]))
}

/// The events of a plan, each in a separate batch of records.
pub(crate) fn events(Plan { seeds, follows_rules }: &Plan) -> Vec<Records> {
    let mut now = 10;
    let mut running = [0i64; CPUS as usize];
    let mut inside = [0u32; CPUS as usize];
    let event = |&Seed { later, cpu, kind, numbers: [a, b, c] }: &Seed| {
        now += u64::from(later);
        let words = words(kind);
        let mut records = Records::default();
        let call = &mut inside[cpu as usize];
        if !*follows_rules || words.kind == Kind::SyscallEntry {
            *call = (a + 2 * b + 5 * c) as u32 % NAMES.len() as u32;
        }
        let ran = if *follows_rules { running[cpu as usize] } else { b };
        let tid = u32::try_from(ran).ok().filter(|_| later % 2 == 1);
        records.push(Nanos(now), (cpu, tid), words.kind, *call);
        if words.kind == Kind::SchedSwitch {
            let prev = if *follows_rules { running[cpu as usize] } else { a };
            let next = if *follows_rules && running.contains(&b) { 0 } else { b };
            running[cpu as usize] = next;
            records.text(format!("t{prev}").as_bytes());
            records.integer(prev);
            records.integer(STATES[c as usize].number());
            records.text(format!("t{next}").as_bytes());
            records.integer(next);
            records.integer(20 + c);
            records.integer(prev % 3);
            return records;
        }
        for (index, name) in words.fields.iter().enumerate() {
            match *name {
                "comm" | "name" | "child_comm" | "diskname" | "stream" | "key" | "group" => {
                    records.text(format!("n{a}").as_bytes())
                }
                "result" => records.integer(c % 2),
                "filename" | "filename|pathname|uname" => records.text(format!("/n{b}").as_bytes()),
                "flags" | "flags|type" => records.integer(c % 2 * CLOSE_ON_EXEC),
                // F_DUPFD, F_SETFD, F_DUPFD_CLOEXEC and F_GETFD.
                "cmd" => records.integer([0, 2, 1030, 1][c as usize]),
                "ret" => records.integer(b - 1),
                ALL => records.text(format!("fd = {a}").as_bytes()),
                _ => records.integer([a, b, c, a % 2, b % 2][index % 5]),
            }
        }
        records
    };
    seeds.iter().map(event).collect()
}

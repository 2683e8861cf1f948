//! The events of a scheduler from several kernels and tracers: what `prev_state` means, and which events are wake-ups.

use std::fs;

use hodo_engine::{Chunks, Files, Input, Needs, Options, Reading, Traces, events::analyse, report};
use hodo_model::{Parameters, Selection, Table, Value};

/// As lttng-modules describes the events of the scheduler; `STATE` is the class of `prev_state`.
const METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 32; signed = true; } := i32;
typealias integer { size = 64; signed = true; } := i64;
trace { major = 1; minor = 8; byte_order = le; };
env { domain = \"kernel\"; ENTRIES };
clock { name = \"monotonic\"; freq = 1000000000; };
typealias integer { size = 64; map = clock.monotonic.value; } := time;
stream { packet.context := struct { i32 cpu_id; }; event.header := struct { u8 id; time t; }; };
event { id = 1; name = \"sched_switch\"; fields := struct { i32 _prev_tid; STATE _prev_state; i32 _next_tid; }; };
event { id = 2; name = \"sched_waking\"; fields := struct { i32 _tid; i32 _target_cpu; }; };
event { id = 3; name = \"sched_wakeup\"; fields := struct { i32 _tid; i32 _target_cpu; }; };
event { id = 4; name = \"sched_wakeup_new\"; fields := struct { i32 _tid; i32 _target_cpu; }; };
";

/// An event of CPU 0.
enum Event {
    /// Time, previous thread, its state, next thread.
    Switch(u64, i32, i64, i32),
    /// Time and thread.
    Waking(u64, i32),
    Wakeup(u64, i32),
    New(u64, i32),
}

use Event::{New, Switch, Wakeup, Waking};

/// A trace in a folder of its own.
struct Written(tempfile::TempDir);

impl Written {
    fn new(metadata: &str, events: &[Event]) -> Written {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("metadata"), metadata).unwrap();
        let mut bytes = 0i32.to_le_bytes().to_vec();
        for event in events {
            let (id, time) = match *event {
                Switch(time, ..) => (1, time),
                Waking(time, _) => (2, time),
                Wakeup(time, _) => (3, time),
                New(time, _) => (4, time),
            };
            bytes.push(id);
            bytes.extend(time.to_le_bytes());
            match *event {
                Switch(_, prev, state, next) => {
                    bytes.extend(prev.to_le_bytes());
                    bytes.extend(state.to_le_bytes());
                    bytes.extend(next.to_le_bytes());
                }
                Waking(_, tid) | Wakeup(_, tid) | New(_, tid) => {
                    bytes.extend(tid.to_le_bytes());
                    bytes.extend(0i32.to_le_bytes());
                }
            }
        }
        fs::write(folder.path().join("channel0_0"), &bytes).unwrap();
        Written(folder)
    }

    /// The table of a report, in chunks of one packet.
    fn table(&self, name: &str, view: &str) -> Table {
        let files = Files::default();
        let inputs = [Input::File(self.0.path().to_owned())];
        let (traces, _) =
            Traces::open(&files, &inputs, &Options::default(), Needs::ALL, 1, |_, _| ()).unwrap();
        let reading = Reading::new(1, Chunks::Bytes(1 << 20));
        let selection = Selection { view: view.to_owned(), ..Selection::default() };
        let parameters = Parameters { selection: selection.clone(), ..Parameters::default() };
        let run = report(name).unwrap().make(&parameters);
        analyse(&traces, &[run.analysis()], &selection, &reading, |_| true).swap_remove(0)
    }

    fn notes(&self) -> Vec<String> {
        let files = Files::default();
        let inputs = [Input::File(self.0.path().to_owned())];
        let (traces, _) =
            Traces::open(&files, &inputs, &Options::default(), Needs::ALL, 1, |_, _| ()).unwrap();
        traces.event_notes().map(|(_, note)| note.to_owned()).collect()
    }
}

fn metadata(entries: &str, state: &str) -> String {
    METADATA.replace("ENTRIES", entries).replace("STATE", state)
}

/// Environment entries, the code with which thread 5 leaves its CPU, and its state then; none if it has ended.
const STATES: &[(&str, i64, Option<&str>)] = &[
    ("kernel_release = \"3.10.0-1160.el7.x86_64\";", 64, None),
    ("kernel_release = \"3.10.0-1160.el7.x86_64\";", 1024, Some("runnable")),
    ("kernel_release = \"3.10.0-1160.el7.x86_64\";", 130, Some("uninterruptible")),
    ("kernel_release = \"4.4.0-21-generic\";", 64, None),
    ("kernel_release = \"4.4.0-21-generic\";", 2048, Some("runnable")),
    ("kernel_release = \"4.4.0-21-generic\";", 1026, Some("idle")),
    ("kernel_release = \"4.14.336\";", 64, Some("stopped")),
    ("kernel_release = \"4.14.336\";", 128, Some("idle")),
    ("kernel_release = \"4.14.336\";", 32, None),
    ("release = \"5.10.0-26-amd64\";", 256, Some("runnable")),
    ("release = \"5.10.0-26-amd64\";", 16, None),
    ("system = \"Linux host 4.9.0-19-amd64 #1 SMP x86_64\";", 4096, Some("runnable")),
    ("system = \"Linux host 6.18.44 #1 SMP x86_64\";", 2, Some("uninterruptible")),
    ("kernel = \"6.18.44-fc-v669\";", 128, Some("idle")),
    ("", 1, Some("interruptible")),
    ("", 64, Some("unknown")),
    ("", 256, Some("unknown")),
];

#[test]
fn states_are_those_of_the_kernel() {
    for &(entries, code, expected) in STATES {
        let events = [Switch(100, 0, 0, 5), Switch(110, 5, code, 0), Switch(150, 0, 0, 0)];
        let trace = Written::new(&metadata(entries, "i64"), &events);
        let states = trace.table("states", "thread");
        let time = |name| match states.figure(name) {
            Some(Value::Integer(time)) => *time,
            other => panic!("{name}: {other:?}"),
        };
        let found = if time("lifetime_ns") == 10 {
            None
        } else if time("unknown_ns") == 40 {
            Some("unknown".to_owned())
        } else {
            let row = trace.table("states", "interval").rows().pop().unwrap();
            assert_eq!(row[1], 40u64.into(), "{entries} {code}");
            row.into_iter().rev().find_map(|cell| match cell {
                Value::Text(state) => Some(state),
                _ => None,
            })
        };
        assert_eq!(found.as_deref(), expected, "{entries} {code}");
        assert_eq!(
            trace.notes().iter().any(|note| note.contains("prev_state")),
            entries.is_empty(),
            "{entries}"
        );
    }
}

/// If a trace names the codes of states by an enumeration, that decides, and not the kernel's release.
#[test]
fn names_of_states_decide_over_the_release_of_the_kernel() {
    for (dead, code, lifetime) in [(64, 64, 10u64), (128, 64, 50)] {
        let class = format!("enum : i64 {{ \"TASK_RUNNING\" = 0, \"TASK_DEAD\" = {dead} }}");
        let events = [Switch(100, 0, 0, 5), Switch(110, 5, code, 0), Switch(150, 0, 0, 0)];
        let trace = Written::new(&metadata("", &class), &events);
        assert_eq!(trace.table("states", "thread").figure("lifetime_ns"), Some(&lifetime.into()));
        assert_eq!(trace.notes(), [""; 0]);
    }
}

/// Kernels from 4.15 on recorded the next higher bit until that was corrected: there an idle CPU has the code 1.
#[test]
fn codes_that_are_one_bit_too_high_are_recognised() {
    for (release, of_idle, lifetime) in [("4.18.0", 1, 10u64), ("4.19.200", 0, 50), ("5.4.0", 1, 50)] {
        let events = [Switch(100, 0, of_idle, 5), Switch(110, 5, 64, 0), Switch(150, 0, of_idle, 0)];
        let entries = format!("kernel_release = \"{release}\";");
        let trace = Written::new(&metadata(&entries, "i64"), &events);
        assert_eq!(
            trace.table("states", "thread").figure("lifetime_ns"),
            Some(&lifetime.into()),
            "{release}"
        );
    }
}

fn release() -> String {
    metadata("kernel_release = \"6.1.0\";", "i64")
}

#[test]
fn waking_counts_where_wakeup_is_not_recorded() {
    let events = [
        Switch(100, 0, 0, 5),
        Switch(110, 5, 1, 0),
        Waking(120, 5),
        Switch(123, 0, 0, 5),
        New(130, 6),
        Switch(140, 5, 1, 6),
        Switch(150, 6, 1, 0),
    ];
    let trace = Written::new(&release(), &events);
    let sched = trace.table("sched", "thread");
    assert_eq!(sched.figure("wakeups"), Some(&2u64.into()));
    assert_eq!(sched.figure("queued_ns"), Some(&13u64.into()));
    assert_eq!(trace.table("states", "thread").figure("runnable_ns"), Some(&13u64.into()));
    assert_eq!(trace.table("queue", "cpu").figure("waited_ns"), Some(&13u64.into()));
    assert_eq!(trace.table("wakers", "pair").figure("wakeups"), Some(&2u64.into()));
    for name in ["sched", "states", "queue", "wakers", "critical-path", "waits"] {
        let from = trace.table(name, "").figure("wakeups_from").cloned();
        assert_eq!(from, Some("sched_waking".into()), "{name}");
    }
    assert_eq!(trace.table("cpu", "cpu").figure("wakeups_from"), None);
}

#[test]
fn where_both_are_recorded_wakeup_counts() {
    let events = [
        Switch(100, 0, 0, 5),
        Switch(110, 5, 1, 0),
        Waking(120, 5),
        Wakeup(122, 5),
        Switch(123, 0, 0, 5),
        Switch(140, 5, 1, 0),
    ];
    let trace = Written::new(&release(), &events);
    let sched = trace.table("sched", "thread");
    assert_eq!(
        (sched.figure("wakeups"), sched.figure("queued_ns")),
        (Some(&1u64.into()), Some(&1u64.into()))
    );
    assert_eq!(sched.figure("wakeups_from"), None);
    assert_eq!(trace.table("states", "thread").figure("runnable_ns"), Some(&1u64.into()));
}

#[test]
fn where_neither_is_recorded_tables_say_so() {
    let events = [Switch(100, 0, 0, 5), Switch(110, 5, 1, 0), Switch(123, 0, 0, 5), Switch(140, 5, 1, 0)];
    let trace = Written::new(&release(), &events);
    for name in ["sched", "states", "queue", "wakers", "critical-path", "waits"] {
        let from = trace.table(name, "").figure("wakeups_from").cloned();
        let expected = "not recorded: neither sched_wakeup nor sched_waking";
        assert_eq!(from, Some(expected.into()), "{name}");
    }
    assert_eq!(trace.table("sched", "thread").figure("wakeups"), Some(&Value::Null));
    assert_eq!(trace.table("queue", "cpu").figure("waited_ns"), Some(&Value::Null));
    assert_eq!(trace.table("wakers", "pair").figure("wakeups"), Some(&Value::Null));
}

//! Rules about system calls, and about what threads wait for in them.

use hodo_model::{Table, Value};

use super::{SECOND, found, made, rules, waits};

#[test]
fn locks_are_not_what_threads_wait_for_otherwise() {
    let locks = |kind: &str, total: u64| {
        let row: [Value; 9] = [
            "0x7f10".into(),
            kind.into(),
            2u64.into(),
            5u64.into(),
            total.into(),
            total.into(),
            "db".into(),
            8u64.into(),
            (total / 4 * 3).into(),
        ];
        let columns =
            ["lock", "kind", "waiters", "count", "total_ns", "max_ns", "holder", "holder_tid", "holder_ns"];
        made("locks", &[("waits", 5)], &columns, &[&row])
    };
    // Of waits in `futex` alone it is unknown what they are for.
    let [threads, waits] = waits("interruptible", "futex", SECOND, SECOND / 10);
    let found = |locks: &Table| {
        found(&[(("states", "thread"), &threads), (("states", "wait"), &waits), (("locks", "lock"), locks)])
    };
    let [finding] = &found(&locks("lock", SECOND / 2))[..] else { panic!("one finding") };
    assert!((finding.rule, finding.weight) == ("lock-wait", 0.25), "{finding:?}");
    assert!(finding.sentence.contains("2 threads waited for the lock at 0x7f10, 5 times"), "{finding:?}");
    assert!(finding.sentence.contains("In 75 % of it db (8) was the next"), "{finding:?}");
    assert_eq!(found(&locks("lock", SECOND / 5)), []);
    assert_eq!(found(&locks("end", SECOND)), []);
    assert_eq!(found(&locks("work", SECOND)), []);
}

#[test]
fn habits_are_measured_by_number_and_rate() {
    let rules = |call: &str, count: u64, total: u64, errors: u64| {
        let row: [Value; 4] = [call.into(), count.into(), total.into(), errors.into()];
        let calls = made("syscalls", &[("calls", 10_000)], &["call", "count", "total_ns", "errors"], &[&row]);
        rules(&[(("syscalls", "call"), &calls)])
    };
    let nothing: [&str; 0] = [];
    assert_eq!(rules("clock_nanosleep", 200, SECOND / 5, 0), ["polling"]);
    assert_eq!(rules("clock_nanosleep", 99, SECOND / 5, 0), nothing);
    assert_eq!(rules("clock_nanosleep", 100, 21_000_000 * 100, 0), nothing, "long sleeps");
    assert_eq!(rules("sched_yield", 1_000, 1, 0), ["yielding"]);
    assert_eq!(rules("sched_yield", 999, SECOND, 0), nothing);
    assert_eq!(rules("fdatasync", 100, SECOND / 20, 0), ["syncing"]);
    assert_eq!(rules("fdatasync", 100, SECOND / 21, 0), nothing);
    assert_eq!(rules("munmap", 1_000, SECOND / 20, 0), ["mapping"]);
    assert_eq!(rules("connect", 1_000, 1, 0), ["connecting"]);
    let row =
        |call: &str, count: u64, total: u64| -> [Value; 3] { [call.into(), count.into(), total.into()] };
    let rows = [row("connect", 1_000, SECOND / 8), row("close", 2_000, SECOND / 4)];
    let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
    let connected = made("syscalls", &[], &["call", "count", "total_ns"], &rows);
    let [finding] = &found(&[(("syscalls", "call"), &connected)])[..] else { panic!("one finding") };
    assert!((finding.weight - 0.375).abs() < 1e-9, "what follows counts: {finding:?}");
    assert_eq!(rules("openat", 1_500, 1, 1_000), ["failing-calls"]);
    assert_eq!(rules("openat", 2_000, 1, 1_000), nothing, "half of them succeed");
    assert_eq!(rules("read", 1_500, 1, 1_000), nothing, "it looks for nothing");
}

#[test]
fn waits_that_expire_are_counted_by_what_they_return() {
    let rules = |call: &str, count: u64, total: u64, returned: u64| {
        let row: [Value; 5] = [call.into(), count.into(), total.into(), 0u64.into(), returned.into()];
        let columns = ["call", "count", "total_ns", "errors", "returned"];
        let calls = made("syscalls", &[("calls", 10_000)], &columns, &[&row]);
        rules(&[(("syscalls", "call"), &calls)])
    };
    let nothing: [&str; 0] = [];
    assert_eq!(rules("poll", 200, SECOND / 5, 0), ["expired-waits"]);
    assert_eq!(rules("epoll_wait", 200, SECOND / 5, 20), ["expired-waits"]);
    assert_eq!(rules("epoll_wait", 200, SECOND / 5, 21), nothing, "events come");
    assert_eq!(rules("poll", 99, SECOND / 5, 0), nothing);
    assert_eq!(rules("poll", 100, 21_000_000 * 100, 0), nothing, "long waits");
    assert_eq!(rules("poll", 200, SECOND / 10, 0), nothing, "a short time of the trace");
    assert_eq!(rules("read", 200, SECOND / 5, 0), nothing, "it does not wait for a time");
}

#[test]
fn habits_are_found_in_call_trees() {
    let tree = |calls: u64, total: u64| {
        let row = |depth: u64, name: &str, calls: u64, total: u64| -> [Value; 5] {
            let module = if depth < 2 { "program" } else { "libc.so.6" };
            [depth.into(), name.into(), module.into(), calls.into(), total.into()]
        };
        let rows = [
            row(0, "main", 1, SECOND),
            row(1, "wait_for", 1, SECOND),
            row(2, "usleep", calls, total),
            row(3, "__GI___clock_nanosleep", calls, total),
            row(4, "__clock_nanosleep", calls, total),
        ];
        let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
        let columns = ["depth", "function", "module", "entries", "total_time_ns"];
        made("tree", &[("time_ns", SECOND / 4), ("outside_time_ns", SECOND * 3 / 4)], &columns, &rows)
    };
    let of = |tree: &Table| {
        let found = found(&[(("tree", ""), tree)]);
        found.into_iter().find(|finding| finding.rule == "polling").map(|finding| finding.sentence)
    };
    let sentence = of(&tree(100, SECOND / 2)).expect("a finding");
    assert!(sentence.contains("wait_for calls usleep 100 times, 5.00 ms on average"), "{sentence}");
    assert_eq!(of(&tree(99, SECOND / 2)), None, "too few");
    assert_eq!(of(&tree(100, SECOND / 10 - 1)), None, "at most 10 % of the time");
    let syscalls = made("syscalls", &[], &["call", "count", "total_ns"], &[]);
    let (tree, of_kernel) = (tree(100, SECOND / 2), (("syscalls", "call"), &syscalls));
    assert_eq!(
        rules(&[(("tree", ""), &tree), of_kernel]),
        [] as [&str; 0],
        "the kernel's events know better"
    );
}

#[test]
fn a_thread_of_many_that_polls_is_named() {
    let row = |comm: &str, tid: u64, call: &str, count: u64, total: u64| -> [Value; 6] {
        [comm.into(), tid.into(), "sleep".into(), call.into(), count.into(), total.into()]
    };
    let found = |rows: &[[Value; 6]]| {
        let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
        let columns = ["comm", "tid", "wait", "call", "count", "total_ns"];
        let waits = made("states", &[], &columns, &rows);
        let calls: [Value; 3] = ["clock_nanosleep".into(), 400u64.into(), SECOND.into()];
        let syscalls = made("syscalls", &[], &["call", "count", "total_ns"], &[&calls]);
        found(&[(("states", "wait"), &waits), (("syscalls", "call"), &syscalls)])
    };
    let sleeps = |comm, tid, count| row(comm, tid, "clock_nanosleep", count, SECOND / 5);
    let several = found(&[sleeps("db", 7, 200), sleeps("ui", 8, 50), sleeps("io", 9, 150)]);
    let [finding] = &several[..] else { panic!("one finding: {several:?}") };
    assert!(
        finding.sentence.contains("needs: db (7) made clock_nanosleep 200 times, 1.00 ms on"),
        "{finding:?}"
    );
    assert!(
        finding.sentence.ends_with("So does another one.") && finding.command.ends_with("--tid 7"),
        "{finding:?}"
    );
    assert_eq!(found(&[sleeps("db", 7, 99), sleeps("ui", 8, 99)]), [], "no one of them does");
}

#[test]
fn locks_are_found_in_the_time_of_control_flow() {
    let sentence = |name: &str, calls: u64, waited: u64| {
        let row = |depth: u64, name: &str, module: &str, calls: u64, own: u64, total: u64| -> [Value; 6] {
            [depth.into(), name.into(), module.into(), calls.into(), own.into(), total.into()]
        };
        let rows = [
            row(0, "main", "program", 1, SECOND / 10, SECOND / 10 + waited),
            row(1, "take@plt", "program", calls, 0, waited),
            row(2, name, "libc.so.6", calls, 0, waited),
            row(3, "__lll_lock_wait", "libc.so.6", calls, 0, waited),
        ];
        let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
        let columns = ["depth", "function", "module", "entries", "self_time_ns", "total_time_ns"];
        let figures = [("time_ns", SECOND / 2), ("outside_time_ns", SECOND / 2)];
        let found = found(&[(("tree", ""), &made("tree", &figures, &columns, &rows))]);
        found.into_iter().find(|finding| finding.rule == "lock-wait").map(|finding| finding.sentence)
    };
    let expected = "Threads wait for locks: main calls pthread_mutex_lock 100 times, and waits 200 ms in it, 2.00 ms each time. \
                    Waits for locks take 20 % of the time of all threads (threshold 10 %).";
    assert_eq!(sentence("pthread_mutex_lock", 100, SECOND / 5).as_deref(), Some(expected));
    assert_eq!(sentence("pthread_mutex_lock", 99, SECOND / 5), None);
    assert_eq!(sentence("pthread_mutex_lock", 100, SECOND / 10), None);
}

#[test]
fn calls_of_several_programs_together_are_called_that() {
    let calls: [Value; 3] = ["munmap".into(), 2_000u64.into(), (SECOND / 2).into()];
    let syscalls = made("syscalls", &[], &["call", "count", "total_ns"], &[&calls]);
    let sentence = |names: &[&str]| {
        let rows: Vec<[Value; 2]> =
            (0u64..).zip(names).map(|(tid, name)| [tid.into(), (*name).into()]).collect();
        let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
        let cpu = made("cpu", &[], &["tid", "comm"], &rows);
        let found = found(&[(("syscalls", "call"), &syscalls), (("cpu", "thread"), &cpu)]);
        found.into_iter().find(|finding| finding.rule == "mapping").expect("a finding").sentence
    };
    let several = sentence(&["swapper", "db", "ui", "ui"]);
    assert!(several.ends_with("That is of 2 programs together: `--comm` selects one."), "{several}");
    assert!(!sentence(&["swapper", "db"]).contains("together: "), "one program");
}

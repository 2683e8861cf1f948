//! `hodo diff` of known programs.

use std::process::Command;

use serde_json::Value;

use crate::{
    profiles::{record_source, table},
    recorded::{can_record, record},
    run::{Folder, Ran, fixture, hodo, rows},
};

fn diff(arguments: &[&str]) -> Ran {
    hodo(&[&["diff", "-q"], arguments].concat())
}

fn row<'r>(rows: &'r [Value], function: &str) -> &'r Value {
    rows.iter().find(|row| row["function"] == function).unwrap_or_else(|| panic!("{function}: {rows:?}"))
}

/// Compiles a program of the lab, and records it under another name. `slowpath` gets fewer requests.
fn build(folder: &Folder, source: &str, options: &[&str], name: &str, arguments: &[&str]) -> String {
    let program = folder.file(name);
    let path = format!("{}/../../lab/workloads/{source}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap().replace("REQUESTS = 2000", "REQUESTS = 40");
    let source = folder.write(source, text.as_bytes());
    let compiled = Command::new("cc").args(options).args(["-g", "-o", &program, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()), "cc compiles {source}");
    let out = folder.file(&format!("{name}.data"));
    let command = [&["record", "-q", "--engine", "emulate", "-o", &out, "--", &program], arguments].concat();
    hodo(&command);
    out
}

#[test]
fn a_recording_does_not_differ_from_itself() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    for options in [&[][..], &["--by", "path"], &["--per", "fib"], &["--function", "fib", "--nth", "2,2"]] {
        let both = [options, &["--strict", "--fail-over", "0%", "--format", "json", &recording, &recording]];
        let table = diff(&both.concat()).fine().json();
        assert_eq!(table["rows"], serde_json::json!([]), "{options:?}");
        assert_eq!(table["summary"]["delta_instructions"], 0.0);
        assert!(table["summary"]["verdict"].as_str().unwrap().starts_with("no difference"), "{table}");
    }
    let parted = diff(&["--divergence", "--format", "json", &recording, &recording]).fine().json();
    let main = table("paths", &["--function", "main"], &recording).0;
    assert_eq!(parted[1]["summary"]["same"], true);
    assert_eq!(parted[1]["summary"]["common_instructions"], main["instructions"]);
}

/// The difference equals that of the emulator's own counts.
#[test]
fn what_differs_is_what_ran_more() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let few = build(&folder, "fib.c", &["-O0"], "few", &["10"]);
    let many = build(&folder, "fib.c", &["-O0"], "many", &["12"]);
    let truth = |recording: &str| {
        let info = hodo(&["info", "--format", "json", recording]).fine().json();
        info["truth"][0]["instructions"].as_u64().unwrap() as f64
    };
    let json = diff(&["--format", "json", &few, &many]).fine().json();
    assert_eq!(json["summary"]["delta_instructions"], truth(&many) - truth(&few));
    let sum: f64 = rows(&json).iter().map(|row| row["delta_instructions"].as_f64().unwrap()).sum();
    assert_eq!(json["summary"]["delta_instructions"], sum);
    let rows = rows(&json);
    assert_eq!((&rows[0]["function"], &rows[0]["change"]), (&"fib".into(), &"grown".into()));
    assert_eq!(rows[0]["module"], "few → many");

    let failed = diff(&["--per", "main", "--fail-over", "5%", &few, &many]);
    assert_eq!(failed.code, 1);
    assert!(failed.stderr.contains("--fail-over allows 5.00 %; most by fib +"), "{}", failed.stderr);
    diff(&["--per", "main", "--fail-over", "5%", &many, &few]).fine();
    let text = diff(&[&few, &many]).fine().stdout;
    // The dynamic linker may run some instructions less, by chance.
    let grown = text.split("\nshrunk\n").next().expect("a first part");
    assert!(grown.starts_with("grown\n") && grown.contains(" fib "), "{text}");
}

/// `slowpath` answers requests. One in some hundreds must rehash the table first: `insert` branches there.
#[test]
fn the_first_divergence_is_the_planted_branch() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = build(&folder, "slowpath.c", &["-O0"], "slowpath", &[]);
    let source = include_str!("../../../../lab/workloads/slowpath.c");
    let branch = source.lines().position(|line| line.contains("used * 4 >= table->size * 3")).unwrap() + 1;
    let is_at =
        |location: &Value, line: usize| location.as_str().unwrap().ends_with(&format!("slowpath.c:{line}"));
    let mut outputs = Vec::new();
    for options in [&["-j1"][..], &["-j2", "--chunk-size", "2K"]] {
        let command =
            ["--function", "handle_request", "--nth", "3,4", "--divergence", "--format", "json", &recording];
        let json = diff(&[&command, options].concat()).fine().json();
        let parted = rows(&json[1]);
        assert_eq!(parted[0]["function"], "insert");
        assert!(is_at(&parted[0]["line"], branch) && is_at(&parted[2]["line"], branch + 1), "{parted:?}");
        assert!(is_at(&parted[1]["line"], branch + 2), "{parted:?}");
        let rows = rows(&json[0]);
        assert_eq!(row(&rows, "rehash")["change"], "new");
        assert_eq!(row(&rows, "rehash")["delta_calls"], 1.0);
        outputs.push(json);
    }
    assert_eq!(outputs[0], outputs[1]);
    // The difference is that of the instruction counts of the two calls.
    let instructions_of = |nth: &str| {
        let call = format!("handle_request#{nth}");
        table("functions", &["--call", &call], &recording).0["instructions"].as_f64().unwrap()
    };
    assert_eq!(outputs[0][0]["summary"]["delta_instructions"], instructions_of("4") - instructions_of("3"));
}

#[test]
fn two_builds_of_a_program_can_be_read() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let old = build(&folder, "slowpath.c", &["-O1"], "old", &[]);
    let new = build(&folder, "slowpath.c", &["-O2"], "new", &[]);
    let text = diff(&["--per", "handle_request", &old, &new]).fine().stdout;
    assert!(text.contains("instructions an execution of handle_request"), "{text}");
    assert!(text.contains("old of A is matched with new of B"), "{text}");
    let markdown =
        diff(&["--per", "handle_request", "--by", "path", "--format", "markdown", &old, &new]).fine();
    assert!(markdown.stdout.contains("`handle_request;insert"), "{}", markdown.stdout);
    let json = diff(&["--per", "handle_request", "--format", "json", &old, &new]).fine().json();
    assert_eq!(json["summary"]["a_executions"], 40);
    // A function in both builds has one row, and the rows contain all instructions of an execution.
    let all = rows(&json);
    let delta: f64 = all.iter().map(|row| row["delta_instructions"].as_f64().unwrap()).sum();
    let whole = json["summary"]["delta_instructions"].as_f64().unwrap();
    assert!((delta - whole).abs() < 1e-6 && all.iter().all(|row| row["change"] != "new"), "{json}");
    let parted = diff(&["--divergence", &old, &new]);
    assert!(parted.code == 2 && parted.stderr.contains("not the same file"), "{parted:?}");
}

/// Records two builds of a program, in which functions with the attribute INLINED are called and inlined.
fn record_called_and_inlined(folder: &Folder, source: &str) -> [String; 2] {
    let builds =
        [("called", "__attribute__((noinline))"), ("inlined", "inline __attribute__((always_inline))")];
    builds.map(|(name, attribute)| {
        let (program, inlined) = (folder.file(name), format!("-DINLINED={attribute}"));
        let compiled = Command::new("cc").args(["-O1", "-g", &inlined, "-o", &program, source]).status();
        assert!(compiled.is_ok_and(|status| status.success()));
        let out = folder.file(&format!("{name}.data"));
        hodo(&["record", "-q", "--engine", "emulate", "-o", &out, "--", &program]).fine();
        out
    })
}

/// A function that one build calls and the other inlines is reported as inlined there.
#[test]
fn inlined_functions_are_said_to_be_inlined() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let source = folder.write(
        "sum.c",
        b"static INLINED int twice(int x)\n{\n    return x * 2 + (x ^ 5);\n}\n\nint main(int n, char **v)\n{\n    \
        volatile int sum = 0;\n    for (int i = 0; i < 500; i++)\n        sum += twice(i + n);\n    return sum == 1;\n}\n",
    );
    let [called, inlined] = record_called_and_inlined(&folder, &source);
    let json = diff(&["--per", "main", "--format", "json", &called, &inlined]).fine().json();
    let rows = rows(&json);
    assert_eq!(row(&rows, "twice")["change"], "vanished");
    let said = row(&rows, "twice")["matched"].as_str().unwrap();
    assert!(said.starts_with("inlined in B: ") && said.ends_with(" instructions"), "{said}");
    let back = diff(&["--per", "main", "--format", "json", &inlined, &called]).fine().json();
    assert!(
        row(&crate::run::rows(&back), "twice")["matched"].as_str().unwrap().starts_with("inlined in A: ")
    );
}

/// What was inlined into an inlined function belongs to it.
#[test]
fn inlined_functions_have_what_is_inlined_into_them() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let source = folder.write(
        "nested.c",
        b"static inline __attribute__((always_inline)) int inner(int x)\n{\n    int s = 0;\n    \
        for (int i = 0; i < 20; i++)\n        s = (s ^ x) * 3 + i;\n    return s;\n}\n\n\
        static INLINED int outer(int x)\n{\n    return inner(x) + (x ^ 5);\n}\n\n\
        int main(int n, char **v)\n{\n    volatile int sum = 0;\n    for (int i = 0; i < 500; i++)\n        \
        sum += outer(i + n);\n    return sum == 1;\n}\n",
    );
    let [called, inlined] = record_called_and_inlined(&folder, &source);
    let script = hodo(&["script", "--insns", "--fields", "sym", &inlined]).fine().stdout;
    let instructions_of = |function: &str| {
        let is_inlined = |line: &&str| {
            line.rsplit_once(" < ")
                .is_some_and(|(frames, _)| frames.split(" < ").any(|frame| frame == function))
        };
        script.lines().filter(is_inlined).count() as u64
    };
    assert!(
        instructions_of("outer") > instructions_of("inner") && instructions_of("inner") > 500 * 20,
        "{} and {}",
        instructions_of("outer"),
        instructions_of("inner")
    );
    let json = diff(&["--per", "main", "--format", "json", &called, &inlined]).fine().json();
    let said = row(&rows(&json), "outer")["matched"].as_str().unwrap().replace(',', "");
    assert_eq!(said, format!("inlined in B: {} instructions", instructions_of("outer")));
    let listed = table("lines", &["--by", "inlined"], &inlined).1;
    for name in ["inner", "outer"] {
        assert_eq!(row(&listed, name)["total_instructions"], instructions_of(name), "{listed:?}");
    }
    assert_eq!(row(&listed, "inner")["self_instructions"], instructions_of("inner"));
    let own = row(&listed, "outer")["self_instructions"].as_u64().unwrap();
    assert_eq!(own + instructions_of("inner"), instructions_of("outer"));
}

#[test]
fn groups_and_spans_of_time_are_compared() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    build(&folder, "fib.c", &["-O0"], "fib", &["9"]);
    for (name, argument) in
        [("old-1", "9"), ("old-2", "9"), ("new-1", "11"), ("new-2", "11"), ("new-3", "11")]
    {
        let out = folder.file(&format!("{name}.data"));
        hodo(&["record", "-q", "--engine", "emulate", "-o", &out, "--", &folder.file("fib"), argument]);
    }
    let patterns = ["old-*.data", "new-*.data"].map(|pattern| folder.file(pattern));
    let groups = ["--a", &patterns[0], "--b", &patterns[1]];
    let json = diff(&[&groups[..], &["--format", "json"]].concat()).fine().json();
    assert_eq!((&json["summary"]["a_recordings"], &json["summary"]["b_recordings"]), (&2.into(), &3.into()));
    let fib = row(&rows(&json), "fib").clone();
    assert!(
        fib["delta_time_ns"].as_f64().unwrap() > 0.0 && fib["p_adjusted"].as_f64().unwrap() <= 1.0,
        "{fib}"
    );
    // Two and three recordings can't show more than chance, unless each side runs the same every time.
    let failed = diff(&[&groups[..], &["--fail-over", "5%"]].concat());
    assert!(failed.stderr.contains("2 and 3 recordings can't give less than p = 0.20"), "{failed:?}");
    let single =
        diff(&["--format", "json", &folder.file("old-1.data"), &folder.file("new-1.data")]).fine().json();
    assert_eq!(row(&rows(&single), "fib")["delta_instructions"], fib["delta_instructions"]);

    let recording = folder.file("new-1.data");
    let halves =
        diff(&["--a-time", "0%-50%", "--b-time", "50%-100%", "--format", "json", &recording]).fine().json();
    let whole = table("functions", &[], &recording).0["instructions"].as_f64().unwrap();
    let sum = ["a_instructions", "b_instructions"].map(|name| halves["summary"][name].as_f64().unwrap());
    assert_eq!(sum[0] + sum[1], whole);
}

#[test]
fn what_can_not_be_compared_is_said() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let (recording, _) = record(&folder, &[], &["true"]);
    let trace = &*fixture("ctf/lttng2.13-kernel");
    for (arguments, expected) in [
        (&[recording.as_str()][..], "hodo diff needs two sides"),
        (&["--a", "nowhere-*", "--b", &recording], "--a nowhere-*: no file matches"),
        (&["--a", "[", "--b", &recording], "--a [: "),
        (&["--a", &recording, "--b", &recording, &recording], "either A and B, or --a and --b"),
        (&["--per", "no_such_function", &recording, &recording], "no function `no_such_function`"),
        (&["--function", "f", "--nth", "0,1", &recording], "counted from 1"),
        (&["--fail-over", "much", &recording, &recording], "such as 5%"),
        (&[&recording, trace], "one side is a recording of control flow"),
        (&["--divergence", trace, trace], "needs control flow"),
        (&["--per", "main", trace, trace], "about control flow"),
        (&["--call", "main", trace, trace], "--call needs a single recording of control flow"),
    ] {
        let ran = diff(arguments);
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{arguments:?}: {ran:?}");
    }
    assert_eq!(diff(&[&recording, "/nowhere"]).code, 3);
}

#[test]
fn latencies_of_events_are_compared() {
    let trace = &*fixture("ctf/lttng2.13-kernel");
    let names = |json: &Value| -> Vec<String> {
        json.as_array().unwrap().iter().map(|table| table["table"].as_str().unwrap().to_owned()).collect()
    };
    let period = [
        "--begin",
        "irq_handler_entry",
        "--end",
        "irq_handler_exit",
        "--match",
        "irq,cpu",
        "--group",
        "name",
    ];
    let same = [&period[..], &["--format", "json", "--fail-over", "0%", trace, trace]].concat();
    let same = diff(&same).fine().json();
    assert_eq!(names(&same), ["irq", "periods", "sched", "syscalls"]);
    assert!(same.as_array().unwrap().iter().all(|table| table["rows"] == serde_json::json!([])), "{same}");
    let halves = ["--a-time", "0%-50%", "--b-time", "50%-100%"];
    let json = diff(&[&halves[..], &["--format", "json", trace]].concat()).fine().json();
    let calls = json.as_array().unwrap().iter().find(|table| table["table"] == "syscalls").unwrap();
    let (_, first) = table("syscalls", &["--time", "0%-50%"], trace);
    let (_, second) = table("syscalls", &["--time", "50%-100%"], trace);
    let count = |rows: &[Value]| row_of(rows, "write")["count"].as_u64().unwrap() as f64;
    let write = rows(calls).into_iter().find(|row| row["call"] == "write").unwrap();
    assert_eq!(
        (write["a_count"].as_f64(), write["b_count"].as_f64()),
        (Some(count(&first)), Some(count(&second)))
    );
    let of_thread = diff(&[&halves[..], &["--tid", "1", "--format", "json", trace]].concat()).fine().json();
    assert_eq!(names(&of_thread), ["sched", "syscalls"], "interrupts are of no thread");
    let failed = diff(&[&halves[..], &["--fail-over", "1%", trace]].concat());
    assert!(failed.code == 1 && failed.stderr.contains("median of write +"), "{failed:?}");
}

fn row_of<'r>(rows: &'r [Value], call: &str) -> &'r Value {
    rows.iter().find(|row| row["call"] == call).unwrap()
}

/// A side's loss is reported with the side, and is an error with --strict.
#[test]
fn what_a_side_lost_is_said() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let whole = build(&folder, "fib.c", &["-O0"], "fib", &["9"]);
    let lossy = folder.file("lossy.data");
    let program = folder.file("fib");
    hodo(&[
        "record",
        "-q",
        "--engine",
        "emulate",
        "--overflow",
        "2000..3000",
        "-o",
        &lossy,
        "--",
        &program,
        "9",
    ]);
    let ran = diff(&["--strict", "--format", "json", &whole, &lossy]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let table = ran.json();
    let losses = table["loss"].as_array().unwrap();
    assert!(
        !losses.is_empty() && losses.iter().all(|loss| loss["stream"].as_str().unwrap().starts_with("B: "))
    );
    assert!(table["summary"]["delta_instructions"].as_f64().unwrap() < 0.0, "{table}");
    let cut = std::fs::read(&whole).unwrap();
    let cut = folder.write("cut.data", &cut[..cut.len() / 2]);
    let ran = diff(&[&whole, &cut]);
    assert!([0, 3].contains(&ran.code) && !ran.stderr.contains("panicked"), "{ran:?}");
}

/// Executions that diverge late, after several digests.
#[test]
fn a_late_divergence_is_found() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let source = folder.write(
        "late.c",
        b"__attribute__((noinline)) static int work(int n)\n{\n    volatile int sum = 0;\n    \
        for (int i = 0; i < 30000; i++)\n        sum += i;\n    if (n == 2)\n        sum = 7;\n    return sum;\n}\n\n\
        int main(void)\n{\n    volatile int n = 1;\n    work(n);\n    n = 2;\n    work(n);\n    work(n);\n    return 0;\n}\n",
    );
    let program = folder.file("late");
    let compiled = Command::new("cc").args(["-O0", "-g", "-o", &program, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()));
    let (recording, _) = record(&folder, &[], &[&program]);
    let parted = |nth: &str| {
        let command = ["--function", "work", "--nth", nth, "--divergence", "--format", "json", &recording];
        diff(&command).fine().json()[1].clone()
    };
    let late = parted("1,2");
    let branch = rows(&late)[0].clone();
    assert!(branch["line"].as_str().unwrap().ends_with("late.c:6"), "{late}");
    let summary = &late["summary"];
    let common = summary["common_instructions"].as_u64().unwrap();
    assert!(common > 100_000 && common < summary["a_instructions"].as_u64().unwrap(), "{late}");
    assert_eq!(rows(&late)[1]["instruction"], common + 1);
    assert_eq!(parted("2,3")["summary"]["same"], true);
}

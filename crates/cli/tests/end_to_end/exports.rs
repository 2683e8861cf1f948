//! Calls, intervals and call paths exported for other tools, and read by them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    profiles::{record_source, table},
    recorded::{can_record, record},
    run::{Folder, fixture, hodo, reports, word},
};

/// For each name, the number of slices and the sum of their nanoseconds.
type Slices = BTreeMap<String, (u64, u64)>;

pub(crate) fn target() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_hodo")).ancestors().nth(2).expect("a folder that is built into").to_owned()
}

/// Returns what a program prints; it must succeed.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output();
    let output =
        output.unwrap_or_else(|error| panic!("{command:?}: {error}; `cargo xtask setup` installs it"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Exports an input and returns the path of the file.
pub(crate) fn export(folder: &Folder, to: &str, options: &[&str], input: &str) -> String {
    let file = folder.file(to);
    let ran = hodo(&[&["export", "--to", to, "-q", "-o", &file], options, &[input]].concat()).fine();
    assert!(ran.stdout.is_empty());
    file
}

/// Returns the slices of an export, as other programs read them.
fn slices(folder: &Folder, to: &str, options: &[&str], input: &str) -> Slices {
    let file = export(folder, to, options, input);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/exports.py");
    let schema = target().join("npm/node_modules/speedscope/dist/release/file-format-schema.json");
    let mut python = Command::new(target().join("python/bin/python"));
    serde_json::from_str(&output(python.arg(script).args([to, &file]).arg(schema))).expect("JSON")
}

/// Returns the calls of a recording with one thread, each with the times that `hodo script` prints. What has no timestamp
/// after it is at the last one.
fn timed_calls(recording: &str) -> Vec<(Range<u64>, Value)> {
    let script = hodo(&["script", "--calls", "--format", "jsonl", "-q", recording]).fine().stdout;
    let calls: Vec<Value> = script.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = calls.iter().flat_map(|call| [call["time_ns"].as_u64(), call["end_ns"].as_u64()]).max();
    let last = last.flatten().expect("a time");
    let time = |call: &Value, name: &str| call[name].as_u64().unwrap_or(last);
    calls.into_iter().map(|call| (time(&call, "time_ns")..time(&call, "end_ns"), call)).collect()
}

/// Returns the calls that take at least `shortest` nanoseconds.
fn calls(recording: &str, shortest: u64) -> Slices {
    let mut slices = Slices::new();
    for (span, call) in timed_calls(recording) {
        let took = span.end - span.start;
        if took >= shortest {
            let sum = slices.entry(call["function"].as_str().unwrap().to_owned()).or_default();
            *sum = (sum.0 + 1, sum.1 + took);
        }
    }
    slices
}

#[test]
fn other_tools_read_every_call() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    for (options, shortest) in [(&[][..], 0), (&["--min", "500ns"], 500)] {
        let expected = calls(&recording, shortest);
        assert!(expected["fib"].0 > 1, "{expected:?}");
        for to in ["perfetto", "chrome", "speedscope"] {
            let mut found = slices(&folder, to, options, &recording);
            found.remove("[lost]");
            assert_eq!(found, expected, "{to} {options:?}");
        }
    }
}

/// For each function, the nanoseconds in its calls without those in their callees.
fn own_times(recording: &str) -> BTreeMap<String, u64> {
    let mut calls = timed_calls(recording);
    calls.sort_by_key(|(span, call)| (span.start, call["depth"].as_u64()));
    let (mut stack, mut own): (BTreeMap<u64, &str>, BTreeMap<String, u64>) = Default::default();
    for (span, call) in &calls {
        let took = span.end - span.start;
        let (depth, function) = (call["depth"].as_u64().unwrap(), call["function"].as_str().unwrap());
        *own.entry(function.to_owned()).or_default() += took;
        let caller = depth.checked_sub(1).and_then(|depth| stack.get(&depth));
        if let Some(own) = caller.and_then(|caller| own.get_mut(*caller)) {
            *own -= took;
        }
        stack.insert(depth, function);
    }
    own
}

#[test]
fn firefox_shows_the_own_time_of_functions() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    let file = export(&folder, "firefox", &[], &recording);
    let command = |arguments: &[&str]| {
        let mut command = Command::new(target().join("npm/node_modules/.bin/profiler-cli"));
        // Its sessions lie in the home folder.
        command.env("HOME", folder.path()).args(arguments);
        command
    };
    let profiler = |arguments: &[&str]| output(&mut command(arguments));
    // It gives its daemon half a second to start, which is too little on a busy machine.
    let loads = || command(&["load", &file]).output().is_ok_and(|output| output.status.success());
    assert!((0..20).any(|_| loads()), "profiler-cli does not start its daemon");
    let functions = profiler(&["thread", "functions", "--limit", "0", "--json"]);
    profiler(&["stop", "--all"]);
    let functions: Value = serde_json::from_str(&functions).expect("JSON");
    let own = |function: &Value| {
        let nanoseconds = (function["selfSamples"].as_f64().unwrap() * 1e6).round() as u64;
        (function["name"].as_str().unwrap().to_owned(), nanoseconds)
    };
    let mut found: BTreeMap<String, u64> =
        functions["functions"].as_array().unwrap().iter().map(own).collect();
    let mut expected = own_times(&recording);
    [&mut found, &mut expected].into_iter().for_each(|times| times.retain(|_, time| *time > 0));
    assert!(expected["fib"] > 0);
    assert_eq!(found, expected);
}

#[test]
fn other_tools_read_the_profile() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    let (summary, rows) = table("functions", &[], &recording);
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for row in &rows {
        let name = row["function"].as_str().unwrap().to_owned();
        *expected.entry(name).or_default() += row["self_instructions"].as_u64().unwrap();
    }
    expected.retain(|_, instructions| *instructions > 0);

    let file = export(&folder, "folded", &[], &recording);
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for line in std::fs::read_to_string(file).unwrap().lines() {
        let (path, instructions) = line.rsplit_once(' ').expect("a number");
        let function = path.rsplit(';').next().expect("a frame");
        *found.entry(function.to_owned()).or_default() += instructions.parse::<u64>().unwrap();
    }
    assert_eq!(found, expected);

    let file = export(&folder, "callgrind", &[], &recording);
    let mut annotate = Command::new("callgrind_annotate");
    let printed = output(annotate.args(["--threshold=100", "--auto=no", "--show=Ir", &file]));
    let number = |text: &str| text.replace(',', "").parse::<u64>().ok();
    let total = printed.lines().find(|line| line.ends_with("PROGRAM TOTALS")).expect("totals");
    let first = |line: &str| line.split_whitespace().next().and_then(number);
    assert_eq!(first(total), summary["instructions"].as_u64());
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for line in printed.lines() {
        // A cost, its share, file and function, and the module; not of lines of other files.
        let Some((costs, name)) = line.split_once("%) ") else { continue };
        let name = name.rsplit_once(" [").map_or(name, |(name, _)| name);
        let Some((_, name)) = name.rsplit_once(':') else { continue };
        *found.entry(name.to_owned()).or_default() += first(costs).expect("a number");
    }
    found.retain(|_, instructions| *instructions > 0);
    assert_eq!(found, expected);

    let file = export(&folder, "pprof", &[], &recording);
    let mut pprof = Command::new("go");
    let options = ["-top", "-nodefraction=0", "-nodecount=1000000", "-sample_index=instructions"];
    let printed = output(pprof.args(["tool", "pprof"]).args(options).arg(&file));
    let (_, lines) = printed.split_once("cum%\n").expect("a heading");
    let flat = |line: &str| {
        let mut words = line.split_whitespace();
        let own = words.next().and_then(number).expect("a number");
        (words.skip(4).collect::<Vec<_>>().join(" "), own)
    };
    let mut found: BTreeMap<String, u64> = lines.lines().map(flat).collect();
    found.retain(|_, instructions| *instructions > 0);
    assert_eq!(found, expected);
}

/// The content of a callgrind file.
#[derive(Default)]
struct Callgrind {
    /// Instructions by file and line.
    lines: BTreeMap<String, u64>,
    /// Calls by callee: the line of each, and its executions.
    calls: BTreeMap<String, Vec<(String, u64)>>,
}

fn read_callgrind(text: &str) -> Callgrind {
    let mut content = Callgrind::default();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let (mut file, mut callee, mut count) = (String::new(), String::new(), None);
    for line in text.lines() {
        let mut name = |kind: &str, value: &str| {
            let (number, rest) = value.split_once(')').expect("a number");
            let key = format!("{kind}{number}");
            match rest.trim() {
                "" => names[&key].clone(),
                name => names.entry(key).or_insert(name.to_owned()).clone(),
            }
        };
        match line.split_once('=') {
            Some(("fl" | "fi" | "fe", value)) => file = name("file", value),
            Some(("cfi", value)) => drop(name("file", value)),
            Some(("fn", value)) => drop(name("function", value)),
            Some(("cfn", value)) => callee = name("function", value),
            Some(("calls", value)) => {
                count = value.split(' ').next().and_then(|count| count.parse::<u64>().ok())
            }
            Some(_) => {}
            None => {
                let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
                let [number, instructions, _] = numbers[..] else { continue };
                let location = format!("{file}:{number}");
                match count.take() {
                    Some(count) => content.calls.entry(callee.clone()).or_default().push((location, count)),
                    None => *content.lines.entry(location).or_default() += instructions,
                }
            }
        }
    }
    content
}

#[test]
fn callgrind_files_have_sources_and_lines() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let header = folder.write(
        "inlined.h",
        b"static inline __attribute__((always_inline)) int add(int a, int b)\n{\n    return a + b;\n}\n",
    );
    let source = folder.write(
        "lines.c",
        b"#include \"inlined.h\"\n__attribute__((noinline)) int work(int n)\n{\n    volatile int s = 0;\n    \
        for (int i = 0; i < n; i++)\n        s = add(s, i);\n    return s;\n}\n\nint main(void)\n{\n    \
        int t = 0;\n    for (int i = 0; i < 7; i++)\n        t += work(i);\n    return t == 1;\n}\n",
    );
    let program = folder.file("lines");
    let compiled = Command::new("cc").args(["-O1", "-g", "-o", &program, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()));
    let (recording, ran) = record(&folder, &[], &[&program]);
    ran.fine();
    let file = export(&folder, "callgrind", &[], &recording);
    let Callgrind { lines, calls } = read_callgrind(&std::fs::read_to_string(&file).unwrap());
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for row in table("lines", &[], &recording).1 {
        if let Some(line) = row["line"].as_str() {
            *expected.entry(line.to_owned()).or_default() += row["instructions"].as_u64().unwrap();
        }
    }
    let own: BTreeMap<String, u64> = lines.into_iter().filter(|(line, _)| !line.ends_with(":0")).collect();
    assert_eq!(own, expected);
    assert!(own.keys().any(|line| line.starts_with(&header)), "{own:?}");
    assert_eq!(calls["work"], [(format!("{source}:14"), 7)]);
    // callgrind_annotate shows the costs beside the source.
    let mut annotate = Command::new("callgrind_annotate");
    let printed = output(annotate.args(["--threshold=100", "--auto=yes", "--show=Ir", &file]));
    assert!(printed.contains(&format!("-- Auto-annotated source: {source}")), "{printed}");
    let call = printed.lines().find(|line| line.contains("t += work(i);")).expect("the line of the call");
    assert!(call.trim_start().starts_with(|digit: char| digit.is_ascii_digit()), "{call}");
}

/// Lines of modules that were chosen, and only of source files that are there: genhtml stops at others.
#[test]
fn lcov_has_the_sources_that_are_there() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let kept = folder.write("kept.c", b"int kept(void)\n{\n    return 1;\n}\n");
    let gone = folder.write("gone.c", b"int kept(void);\nint main(void)\n{\n    return kept() - 1;\n}\n");
    let (library, program) = (folder.file("libkept.so"), folder.file("gone"));
    let cc = |arguments: &[&str]| {
        let compiled = Command::new("cc").args(["-O0", "-g"]).args(arguments).status();
        assert!(compiled.is_ok_and(|status| status.success()), "{arguments:?}");
    };
    cc(&["-shared", "-fPIC", "-o", &library, &kept]);
    cc(&["-o", &program, &gone, &library, &format!("-Wl,-rpath,{}", folder.path().display())]);
    let (recording, ran) = record(&folder, &[], &[&program]);
    ran.fine();
    let sources = |options: &[&str]| {
        let out = folder.file("lines.info");
        let ran = hodo(&[&["export", "--to", "lcov", "-o", &out], options, &[&recording]].concat()).fine();
        let text = std::fs::read_to_string(&out).unwrap();
        let files: Vec<String> =
            text.lines().filter_map(|line| line.strip_prefix("SF:")).map(str::to_owned).collect();
        (files, ran.stderr)
    };
    let both = sources(&[]).0;
    assert!(both.contains(&kept) && both.contains(&gone), "{both:?}");
    assert_eq!(sources(&["--module", "libkept.so"]).0, [&*kept]);
    std::fs::remove_file(&gone).unwrap();
    let (rest, said) = sources(&[]);
    assert!(rest.contains(&kept) && !rest.contains(&gone), "{rest:?}");
    assert!(said.contains("source files are not here: "), "{said}");
    let (pages, info) = (folder.file("pages"), folder.file("lines.info"));
    output(Command::new("genhtml").args(["--quiet", "--output-directory", &pages, &info]));
    let (none, said) = sources(&["--module", "gone"]);
    assert!(none.is_empty() && said.contains("nothing found: "), "{said}");
    let wrong = hodo(&["export", "--to", "lcov", "--module", "nix", "-o", &info, &recording]);
    assert!(wrong.code == 2 && wrong.stderr.contains("libkept.so"), "{wrong:?}");
}

#[test]
fn an_empty_selection_is_reported() {
    let folder = Folder::new();
    let (kernel, flow, symfs) =
        (&fixture("ctf/lttng2.13-kernel"), &fixture("perf/tiny.data"), &fixture("perf/symfs"));
    let cases: [(&str, &[&str], &str); 4] = [
        ("ctf", &["--where", "prev_tid == 999999"], kernel),
        ("ctf", &["--event", "no_such_*"], kernel),
        ("perfetto", &["--min", "5000s"], kernel),
        ("chrome", &["--time", "0%-0.0001%"], kernel),
    ];
    for (number, (to, options, input)) in cases.into_iter().enumerate() {
        let out = folder.file(&number.to_string());
        let ran = hodo(&[&["export", "--to", to, "-o", &out], options, &[input]].concat());
        assert!(ran.stderr.contains("nothing found"), "{to} {options:?}: {ran:?}");
    }
    for to in ["folded", "callgrind", "pprof", "lcov", "llvm", "speedscope"] {
        let out = folder.file(to);
        // Nothing of it can be decoded without its code.
        let ran = hodo(&["export", "--to", to, "-o", &out, flow]);
        assert!(ran.stderr.contains("nothing found"), "{to}: {ran:?}");
        let ran = hodo(&["export", "--to", to, "-o", &out, "--symfs", symfs, flow]);
        let is_of_lines = to == "lcov";
        assert_eq!(ran.stderr.contains("nothing found"), is_of_lines, "{to}: {ran:?}");
    }
    // One file is of one recording.
    let out = folder.file("both");
    let both = hodo(&["export", "--to", "folded", "-o", &out, flow, flow]);
    assert!(both.code == 2 && both.stderr.contains("one recording"), "{both:?}");
}

#[test]
fn genhtml_shows_the_executions_of_lines() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for row in table("lines", &[], &recording).1 {
        let line = row["line"].as_str().and_then(|line| line.split_once("fib.c:"));
        let executions = row["executions"].as_u64();
        expected.extend(line.map(|(_, line)| line.to_owned()).zip(executions));
    }
    assert!(expected.len() > 3, "{expected:?}");
    let (file, pages) = (export(&folder, "lcov", &[], &recording), folder.file("pages"));
    let mut genhtml = Command::new("genhtml");
    output(genhtml.args(["--quiet", "--output-directory", &pages, &file]));
    let find = |entry: &Path| output(Command::new("find").arg(entry).args(["-name", "fib.c.gcov.html"]));
    let page = std::fs::read_to_string(find(Path::new(&pages)).trim()).expect("a page of the program");
    // A line's anchor, then its number of executions before the source.
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for line in page.lines().filter(|line| line.contains("class=\"lineCov\"")) {
        let number = line.split("class=\"lineNum\">").nth(1).and_then(|text| text.split('<').next());
        let count = line.split("class=\"lineCov\">").nth(1).and_then(|text| text.split(':').next());
        let number = number.expect("a line number").trim().to_owned();
        found.insert(number, count.expect("a count").trim().parse().unwrap());
    }
    assert_eq!(found, expected);
}

#[test]
fn intervals_of_events_are_slices() {
    for input in ["lttng2.13-kernel", "board/slave-1"] {
        let input = &fixture(&format!("ctf/{input}"));
        let mut expected = Slices::new();
        for report in reports() {
            let Some(view) = report["lanes"]["view"].as_str() else { continue };
            let value = report["lanes"]["value"][0].as_str().unwrap();
            let (_, rows) = table(report["name"].as_str().unwrap(), &["--by", view], input);
            // Instants and links are no slices.
            for row in rows.iter().filter(|row| !row["duration_ns"].is_null()) {
                let sum = expected.entry(word(&row[value])).or_default();
                *sum = (sum.0 + 1, sum.1 + row["duration_ns"].as_u64().unwrap());
            }
        }
        assert!(expected.len() > 2, "{expected:?}");
        let folder = Folder::new();
        let wakeups = table("wakers", &["--by", "wakeup"], input).1.len() as u64;
        for to in ["perfetto", "chrome"] {
            let mut found = slices(&folder, to, &[], input);
            // The ends of arrows, which take no time.
            let mut ends =
                found.extract_if(.., |name, _| name.starts_with("wakes ") || name.starts_with("woken by "));
            assert_eq!(ends.by_ref().map(|(_, (count, _))| count).sum::<u64>(), 2 * wakeups, "{input} {to}");
            drop(ends);
            assert_eq!(found, expected, "{input} {to}");
        }
    }
}

/// What Perfetto's trace processor has in its tables.
fn counted(kind: &str, file: &str) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/perfetto_tables.py");
    let mut python = Command::new(target().join("python/bin/python"));
    serde_json::from_str(&output(python.arg(script).args([kind, file]))).expect("JSON")
}

#[test]
fn perfetto_has_scheduling_and_flows() {
    let input = &fixture("ctf/lttng2.13-kernel");
    let folder = Folder::new();
    let found = counted("kernel", &export(&folder, "perfetto", &[], input));
    let switches = table("cpu", &["--by", "switch"], input).1;
    let wakeups = table("wakers", &["--by", "wakeup"], input).1.len();
    assert!(switches.len() > 100 && wakeups > 10);
    // Each switch begins a row; the thread before the first one of a CPU may have one, too.
    let cpus: BTreeSet<u64> = switches.iter().map(|row| row["cpu"].as_u64().unwrap()).collect();
    let (sched, all) = (found["sched"].as_u64().unwrap() as usize, switches.len());
    assert!((all..=all + cpus.len()).contains(&sched), "{found}");
    assert_eq!(found["flows"], wakeups, "{found}");
    assert!(found["woken"].as_u64().unwrap() > 0, "{found}");
    let sleeps = switches.iter().filter(|row| row["previous_state"] == "interruptible").count();
    let sleeping = found["sleeping"].as_u64().unwrap() as usize;
    assert!(sleeping > 0 && sleeping <= sleeps, "{found}");
}

#[test]
fn perfetto_has_the_instructions_of_calls_and_threads() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    let found = counted("calls", &export(&folder, "perfetto", &[], &recording));
    let script = hodo(&["script", "--calls", "--format", "jsonl", "-q", &recording]).fine().stdout;
    let calls = script.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_fib = calls.filter(|call| call["function"] == "fib");
    let expected: u64 = of_fib.map(|call| call["instructions"].as_u64().unwrap()).sum();
    assert_eq!(found["instructions_of_fib"], expected, "{found}");
    let all = table("functions", &[], &recording).0["instructions"].as_u64().unwrap();
    let last = found["last_counter"].as_u64().unwrap();
    assert!(last > 0 && last <= all, "{found}: {all}");
}

/// Go calls methods through interfaces and values, by wrappers that it generates.
const GO_PROGRAM: &str = "package main

//go:noinline
func total(numbers []int) int {
	sum := 0
	for _, number := range numbers {
		sum += number * number
	}
	return sum
}

type shape interface{ area([]int) int }

type square struct{ side int }

func (s square) area(numbers []int) int { return s.side * total(numbers) }

//go:noinline
func (s square) edge(numbers []int) int { return s.side + total(numbers) }

type edged interface{ edge([]int) int }

type tile struct {
	name string
	square
}

//go:noinline
func sum(shapes []shape, numbers []int) int {
	all := 0
	for _, one := range shapes {
		all += one.area(numbers)
	}
	return all
}

//go:noinline
func measure(one edged, numbers []int) int {
	return one.edge(numbers)
}

//go:noinline
func apply(area func([]int) int, numbers []int) int {
	return area(numbers)
}

func main() {
	numbers := []int{1}
	for i := 0; i < 200; i++ {
		numbers = append(numbers, i)
	}
	for i := 0; i < 500; i++ {
		total(numbers)
	}
	sum([]shape{square{2}, &square{3}}, numbers)
	apply(square{5}.area, numbers)
	measure(&tile{\"floor\", square{4}}, numbers)
}
";

/// Go's compiler reads the profile, and finds the hot calls in it: where it is new enough to take profiles.
#[test]
fn go_reads_its_profile() {
    let takes_profiles = Command::new("go").args(["help", "build"]).output();
    let takes_profiles =
        takes_profiles.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("-pgo"));
    if !can_record() || !takes_profiles {
        return;
    }
    let folder = Folder::new();
    folder.write("main.go", GO_PROGRAM.as_bytes());
    folder.write("go.mod", b"module example\n\ngo 1.21\n");
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.args(arguments).env("GOFLAGS", "-mod=mod").env("GOPROXY", "off").current_dir(folder.path());
        let built = go.output().expect("go starts");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        String::from_utf8_lossy(&built.stderr).into_owned()
    };
    let program = folder.file("plain");
    go(&["build", "-pgo=off", "-o", &program, "."]);
    let recording = folder.file("go.data");
    hodo(&["record", "--engine", "native", "-q", "-o", &recording, "--", &program]);
    let profile = folder.file("default.pgo");
    hodo(&["export", "--to", "go", "-q", "-o", &profile, &recording]);
    // As Go's own profiler does, the profile has methods in place of the wrappers that Go generates.
    let mut pprof = Command::new("go");
    let traces = output(pprof.args(["tool", "pprof", "-traces", &profile]));
    let words: Vec<&str> = traces.split_whitespace().collect();
    for edge in [
        ["main.square.area", "main.sum"],
        ["main.square.area", "main.apply"],
        ["main.total", "main.square.area"],
        ["main.square.edge", "main.measure"],
    ] {
        assert!(words.windows(2).any(|pair| pair == edge), "{edge:?}: {traces}");
    }
    for generated in ["-fm", ".abi0", "(*square)", "tile"] {
        assert!(!traces.contains(generated), "{generated}: {traces}");
    }
    let fast = folder.file("fast");
    let said = go(&["build", "-pgo=default.pgo", "-gcflags=-d=pgodebug=1", "-o", &fast, "."]);
    assert!(said.contains("hot-node enabled increased budget=2000 for func=main.main"), "{said}");
}

#[test]
fn what_an_input_lacks_is_reported() {
    let folder = Folder::new();
    let events = &fixture("ctf/lttng2.13-kernel");
    for (to, options, why) in [
        ("speedscope", &[][..], "no control flow"),
        ("pprof", &["--min", "1us"], "sums of the whole run"),
        ("lcov", &[], "but this input has none"),
        ("ctf", &["--min", "1us"], "CTF contains events"),
        ("perfetto", &["--min", "1"], "a time with its unit"),
    ] {
        let file = folder.file(to);
        let ran = hodo(&[&["export", "--to", to, "-o", &file], options, &[events]].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(why), "{ran:?}");
        assert!(!Path::new(&file).exists());
    }
}

//! Steps through recordings: `hodo script --at`, and `hodo serve --dap` asked by the protocol's own client.

use std::{
    cell::Cell,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

use hodo_engine::{Experiment, Input, Needs, Options};
use hodo_stepping::{
    Direction, Execution, Granularity, Motion, Step,
    check::{self, Samples},
};
use serde_json::Value;

use crate::{
    recorded::{compile, report},
    run::{Folder, command, hodo, node_modules, wait},
};

/// The client, in the tested version.
const PACKAGES: &str = r#"{
    "private": true,
    "dependencies": { "@vscode/debugadapter-testsupport": "1.68.0" }
}"#;

fn record(folder: &Folder, options: &[&str], command: &[&str]) -> String {
    let out = folder.file("native.data");
    hodo(&[&["record", "--engine", "native", "-o", &out], options, &["--"], command].concat()).fine();
    out
}

/// Ends a server with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_protocols_client_steps_forwards_and_backwards() {
    let folder = Folder::new();
    let program = compile(&folder, "slowpath.c", &["-g", "-O0"]);
    let recording = record(&folder, &[], &[&program]);
    let table = report(&["--limit", "100000"], &recording);
    let column = |name: &str| {
        let columns = table["columns"].as_array().unwrap();
        columns.iter().position(|column| column["name"] == name).unwrap()
    };
    let rows = table["rows"].as_array().unwrap();
    let rehash = rows.iter().find(|row| row[column("function")] == "rehash").unwrap();
    let calls = rehash[column("calls")].to_string();
    let mut server = Server(command(&["serve", "--dap", "--port", "0", &recording]).spawn().unwrap());
    let mut address = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let (_, port) = address.trim().rsplit_once(':').unwrap();
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = manifest.join("../../lab/workloads/slowpath.c");
    let mut client = Command::new("node");
    client
        .arg(manifest.join("../dap/tests/client.mjs"))
        .arg(port)
        .arg(source)
        .arg(calls)
        .arg(node_modules("dap-client", PACKAGES));
    let ran = wait(client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).expect("it ends");
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
}

/// Writes requests to `hodo serve --dap` on its standard input, and returns its messages.
fn talk(recording: &str, requests: &[Value]) -> Vec<Value> {
    let mut command = command(&["serve", "--dap", recording]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for (seq, request) in requests.iter().enumerate() {
        let mut request = request.clone();
        (request["seq"], request["type"]) = ((seq + 1).into(), "request".into());
        let text = request.to_string();
        write!(input, "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
    }
    drop(input);
    let ran = wait(child).expect("it ends with its input").fine();
    let mut messages = Vec::new();
    let mut rest = ran.stdout.as_str();
    while let Some((header, body)) = rest.split_once("\r\n\r\n") {
        let length: usize = header.trim_start_matches("Content-Length: ").parse().unwrap();
        messages.push(serde_json::from_str(&body[..length]).unwrap());
        rest = &body[length..];
    }
    messages
}

#[test]
fn a_debugger_starts_it_and_gets_refusals() {
    let folder = Folder::new();
    let program = compile(&folder, "fib.c", &["-g", "-O1"]);
    let recording = record(&folder, &[], &[&program]);
    let request =
        |command: &str, arguments: Value| serde_json::json!({ "command": command, "arguments": arguments });
    let no = serde_json::json!({});
    let messages = talk(
        &recording,
        &[
            request("initialize", no.clone()),
            request("launch", serde_json::json!({ "at": "50%" })),
            request("configurationDone", no.clone()),
            request("launch", serde_json::json!({ "at": "noon" })),
            request("launch", serde_json::json!({ "tid": 1 })),
            request("setVariable", no.clone()),
            request("next", serde_json::json!({ "threadId": 4711 })),
            request("next", serde_json::json!({ "threadId": 1, "granularity": "instruction" })),
            request("disconnect", no),
        ],
    );
    let of = |seq: u64| messages.iter().find(|message| message["request_seq"] == seq).unwrap();
    for fine in [1, 2, 3, 8, 9] {
        assert_eq!(of(fine)["success"], true, "{}", of(fine));
    }
    assert!(of(4)["message"].as_str().unwrap().starts_with("at noon: expected a time"), "{}", of(4));
    assert!(of(5)["message"].as_str().unwrap().contains("no such thread"), "{}", of(5));
    assert!(of(6)["message"].as_str().unwrap().contains("no memory and no registers"), "{}", of(6));
    assert_eq!(of(7)["success"], false);
    let stops = messages.iter().filter(|message| message["event"] == "stopped");
    let reasons: Vec<&Value> = stops.map(|stop| &stop["body"]["reason"]).collect();
    assert_eq!(reasons, ["entry", "step"]);
}

#[test]
fn the_stack_at_an_instant() {
    let folder = Folder::new();
    let program = compile(&folder, "slowpath.c", &["-g", "-O0"]);
    let recording = record(&folder, &["--deterministic"], &[&program]);
    let text = hodo(&["script", "--at", "50%", &recording]).fine().stdout;
    assert!(text.contains("slowpath: ") && text.contains("  next: "), "{text}");
    let frames: Vec<&str> = text.lines().filter(|line| line.contains(" (slowpath) slowpath.c:")).collect();
    assert!(frames.last().is_some_and(|main| main.contains("main+")), "{text}");
    assert!(frames[frames.len() - 2].contains("handle_request+"), "{text}");
    let lines = hodo(&["script", "--at", "#1000", "--format", "jsonl", &recording]).fine().stdout;
    let scene: Value = serde_json::from_str(&lines).unwrap();
    assert_eq!(scene["number"], 1000);
    assert_eq!(scene["depth"].as_u64().unwrap() as usize, scene["frames"].as_array().unwrap().len());
    // The place is that of the thousandth line of the script, counted from 0.
    let script = hodo(&["script", "--insns", "--limit", "1001", &recording]).fine().stdout;
    let address = format!("0x{}", script.lines().last().unwrap());
    assert_eq!(scene["frames"][0]["address"], address.as_str());
    let none = hodo(&["script", "--at", "#99999999999", &recording]).fine();
    assert!(none.stdout.is_empty() && none.stderr.contains("no selected thread"), "{none:?}");
    for wrong in [&["--at", "noon"][..], &["--at", "50%", "--format", "csv"], &["--at", "1", "--time", "1,2"]]
    {
        assert_eq!(hodo(&[&["script"], wrong, &[&recording]].concat()).code, 2, "{wrong:?}");
    }
}

/// Numbers that look random, the same in each run.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) % below.max(1)
    }
}

/// Compares random positions of a recording with the flow from its start, and steps from them and back.
fn check(recording: &str, count: u64) {
    let open = |file: &str| {
        Experiment::open(vec![Input::File(file.into())], &Options::default(), Needs::ALL, 2, |_, _| ())
    };
    let experiment = open(recording).unwrap();
    experiment.with(|traces| {
        let trace = &traces.flows[0];
        let mut execution = Execution::open(trace, 2, |_| true).unwrap();
        let threads: Vec<u32> = execution.threads().collect();
        let mut next = random(count);
        let mut samples = Samples::new();
        for _ in 0..count {
            let thread = threads[next(threads.len() as u64) as usize];
            samples.entry(thread).or_default().push(next(execution.instructions(thread)));
        }
        for numbers in samples.values_mut() {
            numbers.sort_unstable();
            numbers.dedup();
        }
        let compared = check::compare(trace, &mut execution, &samples, 2).unwrap();
        assert!(compared > count / 2, "{compared}");
        let mut stepper = execution.stepper(trace, &|| true);
        for (&thread, numbers) in &samples {
            for &number in numbers.iter().step_by(25) {
                let at = stepper.position(thread, number).unwrap();
                for (motion, granularity) in [
                    (Motion::Into, Granularity::Instruction),
                    (Motion::Over, Granularity::Instruction),
                    (Motion::Into, Granularity::Line),
                    (Motion::Over, Granularity::Line),
                ] {
                    let back = Step { motion, granularity, direction: Direction::Backward };
                    let from = if granularity == Granularity::Line {
                        stepper.step(at, back).unwrap().to
                    } else {
                        at
                    };
                    let there = stepper.step(from, Step { direction: Direction::Forward, ..back }).unwrap();
                    let returned = stepper.depth(from) != stepper.depth(there.to);
                    if there.at_limit || motion == Motion::Over && returned {
                        continue;
                    }
                    assert_eq!(stepper.step(there.to, back).unwrap().to, from, "{motion:?} {granularity:?}");
                }
            }
        }
    });
}

#[test]
fn random_instants_are_where_the_flow_from_the_start_has_them() {
    let folder = Folder::new();
    let programs = [
        ("slowpath.c", &["-g", "-O2"][..]),
        ("threads.c", &["-g", "-O1", "-pthread"]),
        ("throws.cpp", &["-g", "-O1", "-Wl,--no-as-needed", "-lstdc++"]),
        ("signals.c", &["-g", "-O1", "-DTICKS=4"]),
        ("changing_code.c", &["-O1"]),
    ];
    for (source, flags) in programs {
        let program = compile(&folder, source, flags);
        check(&record(&folder, &[], &[&program]), 300);
    }
}

/// A function that executes most of the program itself, with branches that no path repeats.
const LOOP: &str = "
__attribute__((noinline)) static unsigned seldom(unsigned seed) { return seed % 7 ? seed : seed / 3; }
int main(void)
{
    unsigned seed = 1, sum = 0;
    for (int round = 0; round < 16000000; round++) {
        seed = seed * 1664525 + 1013904223;
        if (seed >> 31)
            sum += seed;
        if (seed >> 13 & 1)
            sum ^= round;
        if ((seed >> 20 & 63) == 0)
            sum += seldom(seed);
    }
    return sum & 1;
}
";

#[test]
fn a_step_over_a_function_without_lines_skips_what_it_executes_itself() {
    let folder = Folder::new();
    let (source, program) = (folder.write("loop.c", LOOP.as_bytes()), folder.file("loop"));
    let compiled = Command::new("cc").args(["-O1", "-o", &program, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()), "cc compiles it");
    let out = folder.file("native.data");
    hodo(&["record", "--engine", "native", "-o", &out, "--", &program]);
    let experiment =
        Experiment::open(vec![Input::File(out.into())], &Options::default(), Needs::ALL, 2, |_, _| ())
            .unwrap();
    experiment.with(|traces| {
        let trace = &traces.flows[0];
        let mut execution = Execution::open(trace, 2, |_| true).unwrap();
        let thread = execution.threads().next().unwrap();
        let middle = execution.instructions(thread) / 2;
        let checkpoints = execution.checkpoints();
        assert!(checkpoints > 10, "{checkpoints}");
        let decoded = Cell::new(0);
        let count = || {
            decoded.set(decoded.get() + 1);
            true
        };
        let mut stepper = execution.stepper(trace, &count);
        let mut in_main = (middle..).filter_map(|number| {
            let at = stepper.position(thread, number)?;
            (stepper.scene(at).frames[0].function == "main").then_some(at)
        });
        let from = in_main.next().unwrap();
        for direction in [Direction::Forward, Direction::Backward] {
            for motion in [Motion::Over, Motion::Into] {
                let step = Step { motion, granularity: Granularity::Line, direction };
                decoded.set(0);
                let there = stepper.step(from, step).unwrap();
                assert!(!there.at_limit, "{step:?}");
                // Each end of the way is in a slice of some twenty pieces; between them are about ten such slices.
                assert!(decoded.get() < 50, "{step:?} decoded {} pieces", decoded.get());
                let leads_out = motion == Motion::Over && direction == Direction::Forward;
                if leads_out {
                    let out = Step { motion: Motion::Out, granularity: Granularity::Instruction, direction };
                    assert_eq!(there.to, stepper.step(from, out).unwrap().to);
                }
            }
        }
    });
}

//! `cargo run -p lab -- soak [MINUTES]`: a server under load, recorded natively into a ring. The memory of the recorder and of
//! the server must not grow, no answer may be wrong, and the snapshot at the end must read.
//!
//! ```text
//! client ──GET──► python3 -m http.server ◄──hodo record --snapshot
//!                      memory of both, each few seconds ──► docs/native-soak.svg
//! ```

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use bench::plot::{self, Axes, Line};
use rustix::process::{Pid, Signal, kill_process};
use workbench::{
    Outcome, command,
    setup::{self, Need},
};

use super::measure::json;

const DEFAULT_MINUTES: u64 = 30;
const INTERVAL: Duration = Duration::from_secs(5);
/// Between two questions of the client, so that other programs run too.
const PAUSE: Duration = Duration::from_millis(2);
/// The part of the run after which all code is translated and all buffers are full. Hot paths are looked for ever more rarely.
const WARM_UP: f64 = 0.25;
/// By how much the memory at the end may exceed that after the warm-up.
const MOST_GROWTH: f64 = 1.05;
/// Bytes of the file that the client asks for.
const FILE_BYTES: usize = 100_000;

/// One point in time, with memory in bytes.
struct Sample {
    seconds: f64,
    recorder: u64,
    server: u64,
}

/// Runs the soak; the error says what grew or failed.
pub(super) fn run(arguments: &[String]) -> Outcome {
    let minutes = arguments.first().map_or(Ok(DEFAULT_MINUTES), |text| text.parse())?;
    setup::ensure(Need::Release)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/soak");
    fs::create_dir_all(&folder)?;
    let content: Vec<u8> = (0..FILE_BYTES).map(|index| (index * index % 251) as u8).collect();
    fs::write(folder.join("content"), &content)?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let recording = folder.join("soak.data");
    let mut recorder = start(&folder, &recording, port)?;
    let (over, answers, wrong) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let samples = thread::scope(|scope| {
        scope.spawn(|| load(port, &content, &over, &answers, &wrong));
        let samples = sample(&recorder, Duration::from_secs(60 * minutes));
        over.store(true, Relaxed);
        samples
    })?;
    kill_process(Pid::from_child(&recorder), Signal::TERM)?;
    let status = recorder.wait()?;
    let (answers, wrong) = (answers.into_inner(), wrong.into_inner());
    let info = json(&["info"], &recording)?;
    let functions = json(&["report", "functions"], &recording)?;
    let instructions = functions["summary"]["instructions"].as_u64().unwrap_or(0);
    plot(&samples)?;
    let after = |share: f64| &samples[((samples.len() - 1) as f64 * share) as usize];
    let (warm, end) = (after(WARM_UP), after(1.0));
    println!(
        "| minutes | answers | wrong | recorder after a quarter, at the end | server | instructions in the ring |"
    );
    println!("|---|---|---|---|---|---|");
    println!(
        "| {minutes} | {answers} | {wrong} | {}, {} MB | {}, {} MB | {instructions} |",
        warm.recorder >> 20,
        end.recorder >> 20,
        warm.server >> 20,
        end.server >> 20
    );
    let grew = |of: fn(&Sample) -> u64| of(end) as f64 > of(warm) as f64 * MOST_GROWTH;
    let streams = info["streams"].as_array().map_or(0, Vec::len);
    if wrong > 0 || answers == 0 {
        Err(format!("{wrong} of {answers} answers are wrong").into())
    } else if grew(|sample| sample.recorder) || grew(|sample| sample.server) {
        Err("memory grew".into())
    } else if streams == 0 || instructions == 0 {
        Err(format!("the recording is empty ({status})").into())
    } else {
        Ok(())
    }
}

fn start(folder: &Path, recording: &Path, port: u16) -> Outcome<Child> {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["record", "-q", "--engine", "native", "--snapshot=8M", "-o"]).arg(recording);
    hodo.args(["--", "python3", "-m", "http.server", &port.to_string(), "--bind", "127.0.0.1"]);
    hodo.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = hodo.spawn()?;
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if begin.elapsed() > Duration::from_secs(20) {
            return Err("the server does not answer".into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(child)
}

/// Asks for the file again and again, some hundred times a second.
fn load(port: u16, content: &[u8], over: &AtomicBool, answers: &AtomicU64, wrong: &AtomicU64) {
    while !over.load(Relaxed) {
        match get(port) {
            Ok(answer) if answer.ends_with(content) => answers.fetch_add(1, Relaxed),
            _ => wrong.fetch_add(1, Relaxed),
        };
        thread::sleep(PAUSE);
    }
}

fn get(port: u16) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /content HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::with_capacity(FILE_BYTES + 1000);
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// The memory of the recorder and of its child from time to time.
fn sample(recorder: &Child, duration: Duration) -> Outcome<Vec<Sample>> {
    let id = recorder.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    let server: u32 = match children.split_whitespace().next() {
        Some(child) => child.parse()?,
        // The thread that records started it.
        None => {
            let tasks = fs::read_dir(format!("/proc/{id}/task"))?.flatten();
            let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
            let all: String = texts.collect();
            all.split_whitespace().next().ok_or("the recorder has no child")?.parse()?
        }
    };
    let begin = Instant::now();
    let mut samples = Vec::new();
    while begin.elapsed() < duration {
        thread::sleep(INTERVAL);
        let seconds = begin.elapsed().as_secs_f64();
        samples.push(Sample { seconds, recorder: memory(id)?, server: memory(server)? });
    }
    Ok(samples)
}

/// The memory of a process in bytes, without what it shares with others only in part.
fn memory(process: u32) -> Outcome<u64> {
    let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
    Ok(1024 * line.trim().trim_end_matches(" kB").parse::<u64>()?)
}

fn plot(samples: &[Sample]) -> Outcome {
    let line = |name: &str, of: fn(&Sample) -> u64| Line {
        name: name.to_owned(),
        points: samples
            .iter()
            .map(|sample| (sample.seconds / 60.0, of(sample) as f64 / f64::from(1 << 20)))
            .collect(),
    };
    let path = command::root().join("docs/native-soak.svg");
    let lines = [line("recorder", |sample| sample.recorder), line("server", |sample| sample.server)];
    plot::lines(&path, &Axes { across: "minutes", up: "memory in MB" }, &lines)
}

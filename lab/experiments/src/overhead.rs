//! `cargo run -p lab -- overhead`: what tracing costs: bytes of trace by program, and the time that ftrace takes.
//!
//! Sharma and Dagenais, "Hardware-assisted instruction profiling and latency detection", 2016, Tables 1 and 2. The
//! programs are those of `paper.c` and `paper.js`. Bytes and instructions come from the emulated processor; native time
//! is measured without it. Prints Markdown.

use std::{fs, path::Path, process::Command};

use workbench::{
    Outcome, command,
    setup::{self, Need},
    workloads,
};

use super::{
    ftrace,
    measure::{Measured, measure},
};

/// The programs of `paper.c`.
pub(super) const PROGRAMS: [&str; 10] = [
    "TailFact",
    "ParseInt",
    "Fib",
    "RandMatStat",
    "Canny",
    "PiSum",
    "Sort",
    "RandMatMul",
    "Omega",
    "Epsilon",
];
/// What the paper's Table 1 says of a program: MB of trace a second, and the overhead in time in per cent, in C and in
/// JavaScript (V8). Omega's overhead is 8.68 % of Epsilon's time.
const PUBLISHED: [(&str, u32, &str, &str); 11] = [
    ("TailFact", 2200, "22.91", "–"),
    ("ParseInt", 1420, "9.65", "10.36"),
    ("Fib", 1315, "5.86", "5.80"),
    ("RandMatStat", 340, "2.58", "20.00"),
    ("Canny, `-O0`", 303, "2.55", "–"),
    ("PiSum", 339, "2.47", "6.20"),
    ("Canny", 294, "2.34", "–"),
    ("Sort", 497, "1.05", "6.06"),
    ("RandMatMul", 186, "0.83", "11.08"),
    ("Omega", 205, "11.78", "–"),
    ("Epsilon", 217, "3.10", "–"),
];
/// Those that exist in JavaScript.
const IN_JAVASCRIPT: [&str; 7] =
    ["TailFact", "ParseInt", "Fib", "RandMatStat", "PiSum", "Sort", "RandMatMul"];
/// Iterations of a program of `paper.c`.
pub(super) const ITERATIONS: &str = "100";
/// Iterations in JavaScript: enough to outweigh what node runs in addition, which varies.
const ITERATIONS_IN_JAVASCRIPT: &str = "1000";
/// Native runs of each program; the fastest counts.
const RUNS: usize = 15;
/// What a cell says that needs a processor with Intel PT.
pub(super) const HARDWARE: &str = "needs hardware";

/// Prints both tables, or only the named one, and of named programs only their rows.
pub(super) fn run(arguments: &[String]) -> Outcome {
    let (runs_programs, runs_ftrace, names) = match arguments {
        [] => (true, true, arguments),
        [one, names @ ..] if one == "programs" => (true, false, names),
        [one] if one == "ftrace" => (false, true, &arguments[1..]),
        _ => return Err("usage: cargo run -p lab -- overhead [programs [NAME…] | ftrace]".into()),
    };
    setup::ensure(Need::Bench)?;
    if runs_programs {
        command::build_hodo()?;
        programs(names)?;
    }
    if runs_ftrace { ftrace::run() } else { Ok(()) }
}

/// A way to run the programs.
struct Language<'p> {
    name: &'static str,
    /// The command in front of a program's name.
    command: Vec<&'p str>,
    iterations: &'static str,
    programs: &'static [&'static str],
    /// Whether every run executes the same code. A compiler at run time compiles at moments of its own, so bytes of one
    /// run and seconds of another have no ratio.
    is_repeatable: bool,
}

fn programs(named: &[String]) -> Outcome {
    let folder = command::target().join("lab/overhead");
    fs::create_dir_all(&folder)?;
    let optimised = workloads::compile("paper.c", &["-lm"], &folder.join("O2"))?;
    let plain = workloads::compile("paper.c", &["-O0", "-lm"], &folder.join("O0"))?;
    let script = workloads::source("paper.js");
    let text = |path: &'_ Path| path.to_str().map(str::to_owned).ok_or("a path is not in UTF-8");
    let [optimised, plain, script] = [text(&optimised)?, text(&plain)?, text(&script)?];
    let languages = [
        Language {
            name: "C",
            command: vec![&optimised],
            iterations: ITERATIONS,
            programs: &PROGRAMS,
            is_repeatable: true,
        },
        Language {
            name: "C, `-O0`",
            command: vec![&plain],
            iterations: ITERATIONS,
            programs: &["Canny"],
            is_repeatable: true,
        },
        Language {
            name: "JavaScript",
            // One thread runs the same instructions each time.
            command: vec!["node", "--single-threaded", &script],
            iterations: ITERATIONS_IN_JAVASCRIPT,
            programs: &IN_JAVASCRIPT,
            is_repeatable: false,
        },
    ];
    println!(
        "{ITERATIONS} iterations ({ITERATIONS_IN_JAVASCRIPT} in JavaScript) recorded with `intel_pt//u`, less a run without \
         iterations; native time is the least of {RUNS} runs.\n\n| program | language | instructions | branches per 100 instructions | bytes per 1000 instructions \
         | bytes per branch | native time | MB of trace per second of native time | published | time overhead | \
         published, % |\n|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for language in &languages {
        let recording = folder.join("recording.perf.data");
        let record = |name: &str, iterations: &str| {
            measure("intel_pt//u", &[&language.command[..], &[name, iterations]].concat(), &recording)
        };
        let idle = record(language.programs[0], "0")?;
        for name in language
            .programs
            .iter()
            .filter(|name| named.is_empty() || named.iter().any(|asked| asked == *name))
        {
            let ran = record(name, language.iterations)?.without(&idle);
            println!("{}", row(language, name, &ran)?);
        }
    }
    Ok(())
}

fn row(language: &Language<'_>, name: &str, ran: &Measured) -> Outcome<String> {
    let mut seconds = f64::MAX;
    for _ in 0..RUNS {
        seconds = seconds.min(native(language, name)?);
    }
    let rate = match language.is_repeatable {
        true => format!("{:.1}", ran.bytes / seconds / 1e6),
        false => "–".to_owned(),
    };
    let is_plain = language.name.ends_with("`-O0`");
    let own = if is_plain { format!("{name}, `-O0`") } else { (*name).to_owned() };
    let published = PUBLISHED.iter().find(|(name, ..)| *name == own);
    let (published_rate, published_overhead) = match published {
        Some((_, rate, in_c, _)) if !language.command.contains(&"node") => (rate.to_string(), *in_c),
        Some((.., in_javascript)) => ("–".to_owned(), *in_javascript),
        None => ("–".to_owned(), "–"),
    };
    Ok(format!(
        "| {name} | {} | {:.1} M | {:.1} | {:.2} | {:.3} | {:.2} ms | {rate} | {published_rate} | {HARDWARE} | \
         {published_overhead} |",
        language.name,
        ran.instructions / 1e6,
        ran.branches / ran.instructions * 100.0,
        ran.density() * 1000.0,
        ran.bytes / ran.branches,
        seconds * 1e3,
    ))
}

/// The seconds of processor time of the recorded iterations, without recording.
fn native(language: &Language<'_>, name: &str) -> Outcome<f64> {
    let mut command = Command::new(language.command[0]);
    command.args(&language.command[1..]).args([name, language.iterations]);
    let printed = command::capture(&mut command)?;
    let nanoseconds: f64 = printed.split_whitespace().next().ok_or("the program prints nothing")?.parse()?;
    Ok(nanoseconds / 1e9)
}

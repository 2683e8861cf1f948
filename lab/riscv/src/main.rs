//! `cargo judge riscv`: programs of riscv64 run under QEMU's user mode with a plugin that writes what really ran. Our
//! encoder makes E-Trace of it in several configurations; our decoder, as a whole and cut at synchronization points, and
//! the crate `riscv-etrace`, where it knows the configuration, must find every address. With `--reference FOLDER` before the names, the
//! public reference decoders in that folder must, too. `cargo judge riscv --fixture` writes `fixtures/riscv`: a raw dump of a small program, as a sink would hold it.

mod account;
mod codec;
mod ours;
mod peer;
mod reference;
mod trials;

use std::{
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
};

use hodo_code::{NoLabels, Program as Code};
use hodo_etrace::{
    Configuration, Parameters,
    encoder::Encoder,
    flow::Decoder,
    ntrace,
    packet::Options,
    transport::{Kind, Transport, Unit},
};
use hodo_flow::Sink;
use workbench::{Outcome, command};

use self::{
    account::{Account, Interrupts},
    ours::Opinion,
    reference::Reference,
    trials::Totals,
};

/// A program of `lab/workloads`.
struct Program {
    name: &'static str,
    source: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program { name: "seven_calls", source: "seven_calls.c" },
    Program { name: "fib", source: "fib.c" },
    Program { name: "tail_calls", source: "tail_calls.c" },
    Program { name: "slowpath", source: "slowpath.c" },
    Program { name: "signals", source: "signals.c" },
    Program { name: "threads", source: "threads.c" },
    Program { name: "eight_threads", source: "eight_threads.c" },
    Program { name: "throws", source: "throws.cpp" },
    Program { name: "made_code", source: "made_code.c" },
    Program { name: MACHINE, source: "first_process.c" },
];

/// The program that a machine runs as its first process; its kernel is judged, too.
const MACHINE: &str = "machine";

/// How programs are encoded.
struct Mode {
    name: &'static str,
    parameters: fn(&mut Parameters),
    options: Options,
    /// Packets between synchronization packets.
    resync_after: u64,
    /// Whether `riscv-etrace` knows it.
    has_peer: bool,
}

impl Mode {
    fn configuration(&self) -> Configuration {
        let mut parameters = Parameters::default();
        (self.parameters)(&mut parameters);
        Configuration {
            source: None,
            transport: Transport::Messages { source_width: 0 },
            carrier_time: false,
            parameters,
        }
    }
}

const NONE: Options = Options {
    implicit_return: false,
    implicit_exception: false,
    full_address: false,
    jump_target_cache: false,
    branch_prediction: false,
    sijump: false,
};

const NEVER: u64 = u64::MAX;

/// Events of a thread whose trace is spoilt, at most.
const LONGEST: usize = 100_000;

const MODES: &[Mode] = &[
    Mode { name: "plain", parameters: |_| {}, options: NONE, resync_after: NEVER, has_peer: true },
    Mode { name: "resync", parameters: |_| {}, options: NONE, resync_after: 50, has_peer: true },
    Mode {
        name: "full",
        parameters: |_| {},
        options: Options { full_address: true, ..NONE },
        resync_after: 200,
        has_peer: true,
    },
    Mode {
        name: "sijump",
        parameters: |parameters| parameters.sijump = true,
        options: Options { sijump: true, ..NONE },
        resync_after: 200,
        has_peer: true,
    },
    Mode {
        name: "stack",
        parameters: |parameters| parameters.return_stack_size = 5,
        options: Options { implicit_return: true, ..NONE },
        resync_after: 500,
        has_peer: false,
    },
    Mode {
        name: "shallow",
        parameters: |parameters| parameters.return_stack_size = 1,
        options: Options { implicit_return: true, ..NONE },
        resync_after: 100,
        has_peer: false,
    },
    Mode {
        name: "cache",
        parameters: |parameters| parameters.cache_size = 7,
        options: Options { jump_target_cache: true, ..NONE },
        resync_after: 500,
        has_peer: false,
    },
    Mode {
        name: "predictor",
        parameters: |parameters| parameters.bpred_size = 7,
        options: Options { branch_prediction: true, ..NONE },
        resync_after: 500,
        has_peer: false,
    },
    Mode {
        name: "all",
        parameters: |parameters| {
            (parameters.return_stack_size, parameters.cache_size, parameters.bpred_size) = (5, 7, 7);
            (parameters.f0s_width, parameters.sijump) = (1, true);
        },
        options: Options {
            implicit_return: true,
            jump_target_cache: true,
            branch_prediction: true,
            sijump: true,
            ..NONE
        },
        resync_after: 1_000,
        has_peer: false,
    },
];

/// How programs are encoded as N-Trace, which `riscv-etrace` does not know.
struct MessageMode {
    name: &'static str,
    mode: ntrace::Mode,
    sijump: bool,
    return_stack: Option<u16>,
}

impl MessageMode {
    fn configuration(&self) -> ntrace::Configuration {
        ntrace::Configuration {
            sijump: self.sijump,
            return_stack: self.return_stack,
            ..ntrace::Configuration::default()
        }
    }
}

/// A program's E-Trace, which is not whole.
struct Packets<'a>(&'a Account, &'a Mode);

impl trials::Subject for Packets<'_> {
    const LOSES: bool = true;

    fn encode(&self, thread: usize, lost: Range<usize>) -> Vec<u8> {
        encode(self.0, thread, Interrupts::All, lost, self.1, &self.1.configuration())
    }

    fn decode(&self, stream: &[u8], program: &mut Code<'_, NoLabels>, sink: &mut impl Sink) {
        let configuration = self.1.configuration();
        Decoder::new(stream, 0..stream.len(), &configuration, Options::default()).decode(program, sink);
    }
}

/// A program's N-Trace, which is not whole.
struct Messages<'a>(&'a Account, &'a MessageMode);

impl trials::Subject for Messages<'_> {
    const LOSES: bool = false;

    fn encode(&self, thread: usize, _: Range<usize>) -> Vec<u8> {
        encode_messages(self.0, thread, self.1, &self.1.configuration())
    }

    fn decode(&self, stream: &[u8], program: &mut Code<'_, NoLabels>, sink: &mut impl Sink) {
        let configuration = self.1.configuration();
        ntrace::Decoder::new(stream, 0..stream.len(), &configuration).decode(program, sink);
    }
}

const MESSAGE_MODES: &[MessageMode] = &[
    MessageMode { name: "n-branches", mode: ntrace::Mode::Branches, sijump: false, return_stack: None },
    MessageMode { name: "n-history", mode: ntrace::Mode::History, sijump: false, return_stack: None },
    MessageMode { name: "n-all", mode: ntrace::Mode::History, sijump: true, return_stack: Some(32) },
];

fn main() -> Outcome {
    let mut only: Vec<String> = std::env::args().skip(1).collect();
    let checkouts = match &only[..] {
        [option, checkouts, ..] if option == "--reference" => Some(PathBuf::from(checkouts)),
        _ => None,
    };
    if checkouts.is_some() {
        only.drain(..2);
    }
    let folder = command::target().join("judge/riscv");
    std::fs::create_dir_all(&folder)?;
    let plugin = workbench::account::compile_plugin("account", &folder)?;
    if only == ["--fixture"] {
        return write_fixture(&plugin, &folder);
    }
    let reference = checkouts.map(|checkouts| Reference::new(&checkouts, &folder)).transpose()?;
    let mut wrong = 0;
    for program in PROGRAMS {
        if !is_asked(&only, program.name, PROGRAMS.iter().map(|program| program.name)) {
            continue;
        }
        let mut account = record(program, &plugin, &folder)?;
        if let Some(reference) = &reference {
            wrong += reference.judge(program.name, &mut account)?;
            continue;
        }
        let names = || MODES.iter().map(|mode| mode.name).chain(MESSAGE_MODES.iter().map(|mode| mode.name));
        for mode in MODES.iter().filter(|mode| is_asked(&only, mode.name, names())) {
            wrong += judge(program, mode, &account);
        }
        for mode in MESSAGE_MODES.iter().filter(|mode| is_asked(&only, mode.name, names())) {
            wrong += judge_messages(program, mode, &account);
        }
        account.longest = LONGEST;
        let mut totals = Totals::default();
        for mode in MODES.iter().filter(|mode| is_asked(&only, mode.name, names())) {
            totals.add(trials::judge(&account, &Packets(&account, mode), mode.name));
        }
        for mode in MESSAGE_MODES.iter().filter(|mode| is_asked(&only, mode.name, names())) {
            totals.add(trials::judge(&account, &Messages(&account, mode), mode.name));
        }
        let Totals { trials, ran, shown, violations } = totals;
        let share = 100.0 * shown as f64 / ran.max(1) as f64;
        println!(
            "{:14} {trials} trials with missing code, loss or damage: {ran} instructions, {share:.1} % shown, {violations} violations",
            program.name
        );
        wrong += violations;
    }
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} differences").into()) }
}

/// Whether a name is among those on the command line, or none of its kind is.
fn is_asked<'n>(only: &[String], name: &str, mut all: impl Iterator<Item = &'n str>) -> bool {
    only.iter().any(|only| only == name) || !all.any(|name| only.iter().any(|only| only == name))
}

/// Writes the program of the fixture, its trace in encapsulated packets, and the settings.
fn write_fixture(plugin: &Path, folder: &Path) -> Outcome {
    const SETTINGS: &str = include_str!("../../../fixtures/riscv/tiny.toml");
    let to = command::root().join("fixtures/riscv");
    let program = to.join("tiny");
    let mut compile = Command::new("riscv64-linux-gnu-gcc");
    compile.args(["-nostdlib", "-static", "-Wl,--build-id=none", "-o"]).arg(&program);
    command::quietly(compile.arg(command::root().join("lab/workloads/tiny_riscv.S")))?;
    let account = Account::record(&program, plugin, &folder.join("fixture"))?;
    let configuration = Configuration::parse(SETTINGS)?;
    let options = Options { sijump: true, ..NONE };
    let mode = Mode { name: "fixture", parameters: |_| {}, options, resync_after: 50, has_peer: false };
    let stream = encode(&account, 0, Interrupts::All, 0..0, &mode, &configuration);
    std::fs::write(to.join("tiny.trace"), stream)?;
    println!("{} instructions", account.retired(0).len());
    Ok(())
}

/// Compiles a program and runs it under the emulator.
fn record(program: &Program, plugin: &Path, folder: &Path) -> Outcome<Account> {
    let folder = folder.join(program.name);
    std::fs::create_dir_all(&folder)?;
    let executable = folder.join("program");
    let compiler =
        if program.source.ends_with(".cpp") { "riscv64-linux-gnu-g++" } else { "riscv64-linux-gnu-gcc" };
    let mut compile = Command::new(compiler);
    compile.args(["-O2", "-static", "-pthread", "-w", "-o"]).arg(&executable);
    command::quietly(compile.arg(command::root().join("lab/workloads").join(program.source)))?;
    match program.name {
        MACHINE => Account::record_machine(&executable, &folder),
        _ => Account::record(&executable, plugin, &folder.join("account")),
    }
}

/// Judges a program in a mode; returns the number of differences.
fn judge(program: &Program, mode: &Mode, account: &Account) -> u64 {
    let configuration = mode.configuration();
    let space = ours::address_space(account);
    let (mut instructions, mut bytes, mut wrong) = (0, 0, 0);
    let (mut gaps, mut traps) = (0, 0);
    let (mut our_time, mut their_time) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
    for thread in 0..account.threads() {
        let expected = account.retired(thread);
        let stream = encode(account, thread, Interrupts::All, 0..0, mode, &configuration);
        instructions += expected.len() as u64;
        bytes += stream.len();
        let mut complain = |who: &str, opinion: &Opinion| {
            for problem in opinion.difference.iter().chain(opinion.gaps.first()) {
                println!("{} {} thread {thread}, {who}: {problem}", program.name, mode.name);
                wrong += 1;
            }
        };
        let whole = ours::compare(&stream, &configuration, &space, &expected, None);
        complain("whole", &whole);
        traps += whole.traps;
        gaps += whole.ambiguous;
        complain("cut", &ours::compare(&stream, &configuration, &space, &expected, Some(3)));
        our_time += ours::time(&stream, &configuration, &space).1;
        if mode.has_peer {
            let stream = encode(account, thread, Interrupts::NotAfterBranches, 0..0, mode, &configuration);
            let theirs = peer::compare(&stream, &configuration.parameters, account, &expected);
            complain("riscv-etrace", &theirs);
            their_time += theirs.took;
        }
    }
    let per_thousand = 1000.0 * bytes as f64 / instructions as f64;
    let speed = peer::speed(instructions, our_time);
    print!(
        "{:14} {:10} {instructions:>11} instructions, {per_thousand:6.1} bytes per 1,000, {traps} traps, {gaps} ambiguous",
        program.name, mode.name
    );
    print!(", {speed:.0} M/s");
    if mode.has_peer {
        print!(", riscv-etrace {:.0} M/s", peer::speed(instructions, their_time));
    }
    println!();
    wrong
}

/// Judges a program in a mode of N-Trace; returns the number of differences.
fn judge_messages(program: &Program, mode: &MessageMode, account: &Account) -> u64 {
    let configuration = mode.configuration();
    let space = ours::address_space(account);
    let (mut instructions, mut bytes, mut wrong, mut traps) = (0, 0, 0, 0);
    for thread in 0..account.threads() {
        let expected = account.retired(thread);
        let stream = encode_messages(account, thread, mode, &configuration);
        instructions += expected.len();
        bytes += stream.len();
        for cut in [None, Some(3)] {
            let opinion = ours::compare_messages(&stream, &configuration, &space, &expected, cut);
            traps += if cut.is_none() { opinion.traps } else { 0 };
            for problem in opinion.difference.iter().chain(opinion.gaps.first()) {
                println!("{} {} thread {thread}, cut {cut:?}: {problem}", program.name, mode.name);
                wrong += 1;
            }
        }
    }
    let per_thousand = 1000.0 * bytes as f64 / instructions as f64;
    println!(
        "{:14} {:10} {instructions:>11} instructions, {per_thousand:6.1} bytes per 1,000, {traps} traps",
        program.name, mode.name
    );
    wrong
}

fn encode_messages(
    account: &Account,
    thread: usize,
    mode: &MessageMode,
    configuration: &ntrace::Configuration,
) -> Vec<u8> {
    let mut encoder = ntrace::Encoder::new(configuration, mode.mode, 500);
    account.encode_messages(thread, &mut encoder);
    let mut stream = Vec::new();
    for message in encoder.take() {
        message.write(0, 0, None, &mut stream);
    }
    stream
}

/// Encodes a thread as a stream of messages.
fn encode(
    account: &Account,
    thread: usize,
    interrupts: Interrupts,
    lost: Range<usize>,
    mode: &Mode,
    configuration: &Configuration,
) -> Vec<u8> {
    let mut encoder = Encoder::new(&configuration.parameters, mode.options, mode.resync_after);
    let mut stream = Vec::new();
    account.encode(thread, interrupts, lost, &mut encoder, |encoder| {
        let options = encoder.options();
        for packet in encoder.take() {
            let payload = packet.encode(&configuration.parameters, options);
            let unit =
                Unit { at: 0, source: 0, time: None, kind: Kind::Instruction, payload: &payload, skip: 0 };
            configuration.transport.write(&unit, &mut stream);
        }
    });
    stream
}

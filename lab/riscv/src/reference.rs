//! The public reference decoders, in checkouts of `riscv-trace-spec` and `tg-nexus-trace` that others provide: the model of E-Trace's
//! decoder (Python), its codec (C), and NexRv, which encodes and decodes N-Trace.
//!
//! ```text
//! what ran ─┬─ our encoder ──► stream ──► decoder_model.py, te_codec, NexRv -deco ──┐
//!           └─ NexRv -enco ──► stream ──► our decoder ───────────────────────────────┴──► every address equal
//! ```

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hodo_etrace::{ntrace, packet::Options};
use hodo_isa::riscv::{self, Instruction, Kind, Set};
use workbench::{Outcome, command};

use crate::{
    MESSAGE_MODES, MODES, MessageMode, Mode, NONE,
    account::{Account, Event, Interrupts},
    codec::Codec,
    encode, encode_messages, ours,
};

/// Events of a thread that the model decodes, at most: it is slow.
const MODEL_EVENTS: usize = 150_000;
/// Events of a thread for the other decoders.
const EVENTS: usize = 4_000_000;
/// Pieces of a thread that NexRv encodes, at most, and their instructions: it sends counts of any width, and its header has 22
/// bits.
const PIECES: usize = 20;
const PIECE: usize = 1_000_000;

/// Where the checkouts are, and a folder for files.
pub(crate) struct Reference {
    checkouts: PathBuf,
    work: PathBuf,
    nexrv: Option<PathBuf>,
    codec: Option<Codec>,
}

impl Reference {
    /// Compiles what the checkouts have.
    pub(crate) fn new(checkouts: &Path, folder: &Path) -> Outcome<Reference> {
        let work = folder.join("reference");
        fs::create_dir_all(work.join("bin"))?;
        let specification = checkouts.join("riscv-trace-spec");
        let codec = Codec::compile(&specification, &work)?;
        let nexrv = nexrv(&checkouts.join("tg-nexus-trace/refcode/c"), &work)?;
        for (what, is_there) in [
            ("the model of the decoder", model(&specification).is_file()),
            ("the codec", codec.is_some()),
            ("NexRv", nexrv.is_some()),
        ] {
            if !is_there {
                println!("{}: {what} is not there", checkouts.display());
            }
        }
        Ok(Reference { checkouts: checkouts.to_owned(), work, nexrv, codec })
    }

    /// Judges a program with each of them; returns the number of differences.
    pub(crate) fn judge(&self, name: &str, account: &mut Account) -> Outcome<u64> {
        let mut wrong = 0;
        let longest = account.longest;
        account.longest = MODEL_EVENTS;
        let model = model(&self.checkouts.join("riscv-trace-spec"));
        if model.is_file() {
            for mode in MODES.iter().filter(|mode| is_baseline(mode.options)) {
                wrong += self.compare(name, (mode.name, false), "model", account, |thread| {
                    self.model(&model, mode, account, thread)
                });
            }
        }
        account.longest = EVENTS;
        if let Some(codec) = &self.codec {
            for mode in MODES {
                let is_ambiguous = mode.options.implicit_return;
                wrong += self.compare(name, (mode.name, is_ambiguous), "codec", account, |thread| {
                    codec.decode(&self.work, mode, account, thread)
                });
            }
        }
        if let Some(nexrv) = &self.nexrv {
            for mode in MESSAGE_MODES.iter().filter(|mode| !mode.sijump) {
                wrong += self.compare(name, (mode.name, false), "NexRv", account, |thread| {
                    self.decoded_by_nexrv(nexrv, mode, account, thread)
                });
            }
            for (mode, options) in ENCODED {
                wrong += self.encoded_by_nexrv(nexrv, name, mode, options, account)?;
            }
        }
        account.longest = longest;
        Ok(wrong)
    }

    /// Compares the addresses that a decoder found for each thread, and prints a line. In an ambiguous mode, a decoder may end
    /// early: of several returns at the depth of a packet it takes the first, even if branches of the packet are left.
    fn compare(
        &self,
        program: &str,
        (mode, is_ambiguous): (&str, bool),
        who: &str,
        account: &Account,
        decode: impl Fn(usize) -> Outcome<Found>,
    ) -> u64 {
        let (mut instructions, mut wrong, mut ambiguous) = (0, 0, 0);
        for thread in 0..account.threads() {
            let expected = account.retired(thread);
            instructions += expected.len();
            let problem = match decode(thread) {
                Ok(Found { addresses, error: None }) => difference(&addresses, &expected),
                Ok(Found { addresses, error: Some(error) }) => {
                    let before = &addresses[..addresses.len().saturating_sub(1)];
                    let is_known = is_ambiguous && expected.starts_with(before);
                    ambiguous += u64::from(is_known);
                    (!is_known).then(|| format!("after {} instructions: {error}", addresses.len()))
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(problem) = problem {
                println!("{program} {mode} thread {thread}, {who}: {problem}");
                wrong += 1;
            }
        }
        print!("{program:14} {mode:10} {instructions:>11} instructions, {who}: {wrong} threads differ");
        match ambiguous {
            0 => println!(),
            _ => println!(", {ambiguous} are equal up to an ambiguous return"),
        }
        wrong
    }

    /// What the model decodes of our stream. Plain instructions are `c.nop` to it: it knows only few.
    fn model(&self, model: &Path, mode: &Mode, account: &Account, thread: usize) -> Outcome<Found> {
        let configuration = mode.configuration();
        let stream = encode(account, thread, Interrupts::All, 0..0, mode, &configuration);
        let work = &self.work;
        fs::write(work.join("trace.te_inst_raw"), stream)?;
        let mut listing = String::new();
        each(account, |address, bytes, instruction| {
            let text = match instruction.kind {
                Kind::Plain => "c.nop".to_owned(),
                _ => riscv::show(bytes, address, Set::RV64GC).unwrap_or_default().replacen(' ', "\t", 1),
            };
            let code = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
            writeln!(listing, "{address:x}:\t{code}\t{text}").map_err(Into::into)
        })?;
        fs::write(work.join("listing"), listing)?;
        let objdump = work.join("bin/riscv64-unknown-elf-objdump");
        fs::write(&objdump, format!("#!/bin/sh\ncat '{}'\n", work.join("listing").display()))?;
        fs::set_permissions(&objdump, fs::Permissions::from_mode(0o755))?;
        let parameters = &configuration.parameters;
        let settings = format!(
            "[Required Attributes]\nbpred_size_p=0\ncache_size_p=0\ncall_counter_size_p=0\ncontext_width_p=0\n\
             ecause_width_p={}\niaddress_lsb_p={}\niaddress_width_p={}\nnocontext_p=1\nnotime_p=1\n\
             privilege_width_p={}\nreturn_stack_size_p=0\ntime_width_p=1\n",
            parameters.ecause_width,
            parameters.iaddress_lsb,
            parameters.iaddress_width,
            parameters.privilege_width
        );
        fs::write(work.join("static.scf"), settings)?;
        let user = "[required]\nobject-files = program\n[flags]\nuse-rv32-isa = false\n";
        fs::write(work.join("user.ucf"), user)?;
        let mut python = Command::new("python3");
        python.arg(model).args(["-c", "static.scf", "-u", "user.ucf", "-i", "trace.te_inst_raw"]);
        python.env("RISCV_TOOLCHAIN", work).current_dir(work).stdout(Stdio::null());
        addresses(&mut python, &work.join("trace.decoder.trace"))
    }

    fn decoded_by_nexrv(
        &self,
        nexrv: &Path,
        mode: &MessageMode,
        account: &Account,
        thread: usize,
    ) -> Outcome<Found> {
        let work = &self.work;
        fs::write(work.join("trace.nex"), encode_messages(account, thread, mode, &mode.configuration()))?;
        write_information(account, &work.join("information"))?;
        self.decoded(nexrv)
    }

    /// What NexRv decodes of the stream in its folder.
    fn decoded(&self, nexrv: &Path) -> Outcome<Found> {
        let work = &self.work;
        let mut decode = Command::new(nexrv);
        decode.args(["-deco", "trace.nex", "-pcinfo", "information", "-pcout", "decoded", "-none"]);
        decode.current_dir(work).stdout(Stdio::null()).stderr(Stdio::null());
        addresses(&mut decode, &work.join("decoded"))
    }

    /// Decodes what NexRv encodes of the longest pieces of each thread between system calls and signals: it knows no traps.
    fn encoded_by_nexrv(
        &self,
        nexrv: &Path,
        program: &str,
        mode: &str,
        options: &[&str],
        account: &Account,
    ) -> Outcome<u64> {
        let work = &self.work;
        let (mut instructions, mut wrong, mut misread) = (0, 0, 0);
        let space = ours::address_space(account);
        write_information(account, &work.join("information"))?;
        let pieces = (0..account.threads()).flat_map(|thread| longest_pieces(account, thread));
        for sequence in pieces {
            let expected: Vec<u64> = sequence.iter().map(|(address, _)| *address).collect();
            fs::write(work.join("sequence"), listed(&sequence))?;
            let mut encode = Command::new(nexrv);
            encode.args(["-enco", "sequence", "-nex", "trace.nex", "-none"]).args(options);
            command::quietly(encode.current_dir(work).stdout(Stdio::null()))?;
            if self.decoded(nexrv)?.addresses != expected {
                misread += 1;
                continue;
            }
            let configuration = ntrace::Configuration {
                return_stack: options.contains(&"-cs").then_some(RETURNS),
                ..ntrace::Configuration::default()
            };
            let stream = fs::read(work.join("trace.nex"))?;
            let opinion = ours::compare_messages(&stream, &configuration, &space, &expected, None);
            instructions += expected.len();
            for problem in opinion.difference.iter().chain(opinion.gaps.first()) {
                println!("{program} {mode}, encoded by NexRv: {problem}");
                wrong += 1;
            }
        }
        println!(
            "{program:14} {mode:10} {instructions:>11} instructions, encoded by NexRv: {wrong} pieces differ, {misread} it misreads itself"
        );
        Ok(wrong)
    }
}

/// The stack of returns in streams of NexRv. It keeps addresses as 32 bits, so those beyond never match.
const RETURNS: u16 = 8;

/// How NexRv encodes.
const ENCODED: [(&str, &[&str]); 5] = [
    ("n-branches", &["-nobhm"]),
    ("n-history", &["-norbm"]),
    ("n-repeats", &["-rpt", "1"]),
    ("n-patterns", &["-rpt", "3"]),
    ("n-returns", &["-cs", "8", "-rpt", "3"]),
];

fn model(specification: &Path) -> PathBuf {
    specification.join("referenceFlow/scripts/decoder_model.py")
}

/// Whether the model knows the options.
fn is_baseline(options: Options) -> bool {
    Options { full_address: false, ..options } == NONE
}

/// Compiles NexRv, if it is there. Its stack of calls has an entry too few.
fn nexrv(sources: &Path, work: &Path) -> Outcome<Option<PathBuf>> {
    let main = sources.join("NexRv.c");
    if !main.is_file() {
        return Ok(None);
    }
    let mended =
        fs::read_to_string(&main)?.replace("callStack[CALLSTACK_MAX]", "callStack[CALLSTACK_MAX + 1]");
    fs::write(work.join("NexRv.c"), mended)?;
    let program = work.join("nexrv");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-w", "-I"]).arg(sources).arg("-o").arg(&program).arg(work.join("NexRv.c"));
    for entry in fs::read_dir(sources)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") && path != main {
            gcc.arg(path);
        }
    }
    command::quietly(&mut gcc)?;
    Ok(Some(program))
}

/// Calls `take` with each instruction that ran, in the order of addresses.
pub(crate) fn each(account: &Account, mut take: impl FnMut(u64, &[u8], &Instruction) -> Outcome) -> Outcome {
    for (&start, bytes) in &account.ran {
        let mut at = 0;
        while at < bytes.len() {
            let address = start + at as u64;
            let instruction = riscv::decode(&bytes[at..], address, Set::RV64GC)
                .ok_or("an instruction without meaning ran")?;
            let length = usize::from(instruction.length);
            take(address, &bytes[at..at + length], &instruction)?;
            at += length;
        }
    }
    Ok(())
}

/// Writes the types of all instructions, as NexRv reads them.
fn write_information(account: &Account, file: &Path) -> Outcome {
    let mut text = String::new();
    each(account, |address, bytes, instruction| {
        let (name, target) = typed(instruction.kind);
        write!(text, "0x{address:X},{name}{}", bytes.len())?;
        if let Some(target) = target {
            write!(text, ",0x{target:X}")?;
        }
        text.push('\n');
        Ok(())
    })?;
    Ok(fs::write(file, text)?)
}

/// NexRv's type of an instruction, and the target of a direct branch.
fn typed(kind: Kind) -> (&'static str, Option<u64>) {
    let is_link = |register| register == 1 || register == 5;
    match kind {
        Kind::Branch { target } => ("BD", Some(target)),
        Kind::Jump { target, link } if is_link(link) => ("CD", Some(target)),
        Kind::Jump { target, .. } => ("JD", Some(target)),
        Kind::Indirect { link, .. } if is_link(link) => ("CI", None),
        Kind::Indirect { base, link: 0, .. } if is_link(base) => ("R", None),
        Kind::Indirect { .. } | Kind::TrapReturn | Kind::PopReturn | Kind::Table { .. } => ("JI", None),
        Kind::Plain | Kind::Upper { .. } | Kind::EnvironmentCall | Kind::Breakpoint => ("L", None),
    }
}

/// The longest pieces of a thread without a system call or a signal, which end before a branch.
fn longest_pieces(account: &Account, thread: usize) -> Vec<Vec<(u64, Instruction)>> {
    let mut pieces: Vec<Vec<(u64, Instruction)>> = Vec::new();
    let mut is_begun = false;
    account.follow(thread, |event| match event {
        Event::Retired(address, instruction) => {
            match pieces.last_mut().filter(|_| is_begun) {
                Some(piece) => piece.push((address, instruction)),
                None => pieces.push(vec![(address, instruction)]),
            }
            is_begun = true;
        }
        _ => is_begun = false,
    });
    for piece in &mut pieces {
        piece.truncate(PIECE);
        // What follows the last one is unknown.
        while piece.pop_if(|(_, instruction)| typed(instruction.kind).0 != "L").is_some() {}
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.len()));
    pieces.truncate(PIECES);
    pieces
}

/// The sequence as NexRv's encoder reads it: branches that were not taken are marked.
fn listed(sequence: &[(u64, Instruction)]) -> String {
    let mut text = String::new();
    for (index, (address, instruction)) in sequence.iter().enumerate() {
        let next = sequence.get(index + 1).map(|(next, _)| *next);
        let after = address + u64::from(instruction.length);
        let name = match typed(instruction.kind).0 {
            "BD" if next == Some(after) => "BN",
            "BD" => "B",
            "JD" => "J",
            "CD" => "C",
            other => other,
        };
        _ = writeln!(text, "0x{address:X},{name}{}", instruction.length);
    }
    text
}

/// What a decoder found, and how it failed.
pub(crate) struct Found {
    addresses: Vec<u64>,
    error: Option<String>,
}

/// Runs a decoder, and returns the addresses that it wrote, one a line.
pub(crate) fn addresses(decoder: &mut Command, file: &Path) -> Outcome<Found> {
    _ = fs::remove_file(file);
    let output = decoder.stderr(Stdio::piped()).output()?;
    let text = fs::read_to_string(file).unwrap_or_default();
    let address = |line: &str| u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).ok();
    let error = (!output.status.success()).then(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{}: {}", output.status, errors.lines().next().unwrap_or_default())
    });
    Ok(Found { addresses: text.lines().filter_map(address).collect(), error })
}

/// The first difference.
fn difference(found: &[u64], expected: &[u64]) -> Option<String> {
    let same = found.iter().zip(expected).take_while(|(found, expected)| found == expected).count();
    let at = |addresses: &[u64]| addresses.get(same).map_or("the end".to_owned(), |at| format!("{at:x}"));
    (found != expected).then(|| format!("instruction {same}: {}, not {}", at(found), at(expected)))
}

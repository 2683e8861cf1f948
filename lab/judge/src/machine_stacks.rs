//! `cargo judge stacks`: compares call stacks of an emulated machine's kernel with those that the kernel itself finds.
//!
//! ```text
//! workload under `perf record -g` ──perf in the guest, at each timer interrupt──► the kernel's own stack (ORC) ──┐
//!                    └──recorded machine──hodo-stacks──► the decoded stack below that interrupt ─────────────────┴─ equal?
//! ```
//!
//! Of a thread that ran before the recording, only the newer functions are decoded: these are compared. Where the kernel
//! does not find the way out of a function (it has no unwinding data for its retpolines), there is nothing to compare with.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
};

use workbench::{
    Outcome, command, machine,
    setup::{self, Need},
};

/// Calls of the kernel of many kinds: the file system, pipes, processes, page faults, network and exit.
const WORKLOAD: &str = "find /usr/share /usr/lib -name '*.so*' -newer /etc/passwd | wc -l; \
                        tar -cf - /usr/share/perl 2> /dev/null | gzip -1 | wc -c; for i in $(seq 20); do /bin/true; done; \
                        head -c 1000000 /dev/zero | sort -z | wc -c; head -c 5000000 /dev/urandom | wc -c";
/// Nanoseconds of a processor's time between two samples: some 100,000 instructions, as a sample takes many itself.
const PERIOD: u32 = 4_000_000;
/// Stacks that must be compared, and the share of them that must be equal.
const LEAST_STACKS: usize = 10_000;
const LEAST_SHARE: f64 = 0.999;
/// The last name of a decoded stack whose older functions are unknown.
const UNKNOWN: &str = "...";
/// The first address of the kernel.
const KERNEL_BEGIN: u64 = 0xffff_8000_0000_0000;

/// A sample: thread, time in nanoseconds.
type Moment = (u32, u64);

/// Records and compares; the error says that too few are equal.
pub(super) fn run() -> Outcome {
    setup::ensure(Need::Judge)?;
    machine::ensure()?;
    command::build_hodo()?;
    command::run(&mut command::cargo(&["build", "--release", "-p", "judge", "--bin", "hodo-stacks"]))?;
    let folder = command::target().join("judge/stacks");
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let (recording, samples) = (folder.join("stacks.data"), folder.join("samples.perf"));
    record(&recording, &samples)?;
    let kallsyms = super::machine::spool(&folder)?.join("symbols");
    let theirs = sampled(&samples, &kallsyms)?;
    let ours = decoded(&recording, &folder, &theirs)?;
    compare(&theirs, &ours, &Aliases::read(&kallsyms)?)
}

fn record(recording: &Path, samples: &Path) -> Outcome {
    let mut hodo = Command::new(command::hodo());
    hodo.env("HODO_KEEP_SPOOL", "1").args(["record", "--engine", "machine", "-o"]).arg(recording);
    let period = PERIOD.to_string();
    hodo.args([
        "--",
        "perf",
        "record",
        "-q",
        "-g",
        "-a",
        "-e",
        "cpu-clock",
        "-c",
        &period,
        "-m",
        "2048",
        "-o",
        "-",
    ]);
    hodo.args(["--", "sh", "-c", &format!("({WORKLOAD}) > /dev/null")]);
    command::run(hodo.stdin(Stdio::null()).stdout(File::create(samples)?))
}

/// The stacks that the guest's perf found in the kernel, the newest function first. Idle threads are left out: all have
/// the number 0.
fn sampled(samples: &Path, kallsyms: &Path) -> Outcome<BTreeMap<Moment, Vec<String>>> {
    let mut perf = Command::new("perf");
    perf.args(["script", "-F", "tid,time,ip,sym", "--ns", "--kallsyms"]).arg(kallsyms).arg("-i").arg(samples);
    let (mut stacks, mut moment): (BTreeMap<Moment, Vec<String>>, Option<Moment>) = (BTreeMap::new(), None);
    command::each_line(perf, |line| {
        let text = String::from_utf8_lossy(line);
        let words: Vec<&str> = text.split_whitespace().collect();
        if !text.starts_with(['\t', ' ']) || words.last().is_some_and(|word| word.ends_with(':')) {
            moment = moment_of(&words).filter(|&(tid, _)| tid != 0);
        } else if let (Some(moment), [address, name, ..]) = (moment, &words[..])
            && let Ok(address) = u64::from_str_radix(address, 16)
        {
            let names = stacks.entry(moment).or_default();
            names.extend(Some((*name).to_owned()).filter(|_| address >= KERNEL_BEGIN));
        }
    })?;
    Ok(stacks)
}

/// Parses `TID SECONDS.NANOSECONDS:`.
fn moment_of(words: &[&str]) -> Option<Moment> {
    let &[tid, time] = words else { return None };
    let (seconds, nanoseconds) = time.strip_suffix(':')?.split_once('.')?;
    Some((tid.parse().ok()?, seconds.parse::<u64>().ok()? * 1_000_000_000 + nanoseconds.parse::<u64>().ok()?))
}

/// The decoded stacks at the same moments.
fn decoded(
    recording: &Path,
    folder: &Path,
    moments: &BTreeMap<Moment, Vec<String>>,
) -> Outcome<HashMap<Moment, Vec<String>>> {
    let list = folder.join("moments");
    fs::write(&list, moments.keys().map(|(tid, time)| format!("{tid} {time}\n")).collect::<String>())?;
    let mut program = Command::new(command::target().join("release/hodo-stacks"));
    program.arg(recording).stdin(File::open(&list)?);
    let mut stacks = HashMap::new();
    command::each_line(program, |line| {
        let text = String::from_utf8_lossy(line);
        let mut words = text.trim_end().split(' ');
        let moment = (|| Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?)))();
        let names = words.next().unwrap_or_default().split(';').filter(|name| !name.is_empty());
        stacks.extend(moment.map(|moment| (moment, names.map(str::to_owned).collect())));
    })?;
    Ok(stacks)
}

/// The addresses of each symbol: an address may have several names.
struct Aliases(HashMap<String, HashSet<u64>>);

impl Aliases {
    fn read(kallsyms: &Path) -> Outcome<Aliases> {
        let mut symbols: HashMap<String, HashSet<u64>> = HashMap::new();
        for line in fs::read_to_string(kallsyms)?.lines() {
            let mut words = line.split_whitespace();
            if let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next()) {
                symbols.entry(name.to_owned()).or_default().insert(u64::from_str_radix(address, 16)?);
            }
        }
        Ok(Aliases(symbols))
    }

    fn same(&self, one: &str, other: &str) -> bool {
        one == other
            || self.0.get(one).zip(self.0.get(other)).is_some_and(|(one, other)| !one.is_disjoint(other))
    }
}

/// How two stacks compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Same {
    Equal,
    /// In the functions that were entered during the recording.
    Newer,
    /// Up to a retpoline, where the stack that the kernel finds ends.
    KernelEnds,
    No,
}

fn compare(
    theirs: &BTreeMap<Moment, Vec<String>>,
    ours: &HashMap<Moment, Vec<String>>,
    aliases: &Aliases,
) -> Outcome {
    let mut counts: BTreeMap<Same, usize> = BTreeMap::new();
    // How often each occurs, and the first example.
    let mut causes: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (moment, their) in theirs {
        let all = ours.get(moment).map_or(&[][..], Vec::as_slice);
        let our = all.strip_suffix(&[UNKNOWN.to_owned()]).unwrap_or(all);
        let alike = our.iter().zip(their).take_while(|(our, their)| aliases.same(our, their)).count();
        let [their_next, our_next] = [their.get(alike), our.get(alike)];
        let same = match (their_next, our_next) {
            (None, None) => Same::Equal,
            (Some(_), None) if our.len() < all.len() && alike > 0 => Same::Newer,
            (None, Some(_)) if their.last().is_some_and(|last| last.starts_with("__x86_indirect_thunk_")) => {
                Same::KernelEnds
            }
            _ => Same::No,
        };
        *counts.entry(same).or_default() += 1;
        if same == Same::No {
            let name = |name: Option<&String>| name.map_or("the end".to_owned(), String::clone);
            let cause = format!("the kernel finds {}, hodo {}", name(their_next), name(our_next));
            let example = || format!("{moment:?}\n    {}\n    {}", their.join(" "), our.join(" "));
            causes.entry(cause).or_insert_with(|| (0, example())).0 += 1;
        }
    }
    let count = |same| counts.get(&same).copied().unwrap_or_default();
    let [equal, newer, ends] = [Same::Equal, Same::Newer, Same::KernelEnds].map(count);
    let compared = theirs.len() - ends;
    let share = (equal + newer) as f64 / compared.max(1) as f64;
    println!("{} of {compared} are equal: {:.3} %", equal + newer, share * 100.0);
    println!("{newer:7} of them without older functions: the thread ran before the recording");
    println!("{ends:7} more end in a retpoline, out of which the kernel finds no way");
    let mut causes: Vec<_> = causes.into_iter().collect();
    causes.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    for (cause, (count, example)) in causes {
        println!("{count:7} {cause}; the first at {example}");
    }
    if compared < LEAST_STACKS {
        return Err(format!("fewer than {LEAST_STACKS} stacks of the kernel were compared").into());
    }
    if share < LEAST_SHARE {
        return Err(format!("fewer than {} % of the stacks are equal", LEAST_SHARE * 100.0).into());
    }
    Ok(())
}

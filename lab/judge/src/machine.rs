//! `cargo judge machine`: compares recordings of a whole emulated machine with what really ran.
//!
//! ```text
//! workload ──record──► recording ──hodo script --insns──► count and digest of each vCPU ──────┐
//!                 └──► spool: trace, code ──libipt──────► the same ───────────────────────────┼─ equal?
//!                 ├──► recording, code of the kernel ──perf──► the same, of one workload
//!                 └──► the emulator's account, which a count one by one confirms ─────────────┘
//!
//! one more recording, one instruction per block ──► QEMU's own log ──► the same account? (`machine_log`; by name only)
//! ```
//!
//! Then it records programs in machines for Arm and RISC-V (`machine_others`), and at last runs the end-to-end tests that boot
//! machines (`tests`).

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use workbench::{
    Outcome,
    command::{self, each_line},
    machine,
    setup::{self, Need},
    workloads,
};

use crate::{machine_log, machine_others, machine_perf};

/// The factor of a digest (`CpuTruth` of `hodo-formats`).
pub(super) const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Returns are not compressed: libipt 2.0.5 does not pop its call stack at a return with a TIP.
const EVENT: &str = "intel_pt/noretcomp,mtc_period=9/";

/// The workload of the machine.
struct Workload {
    name: &'static str,
    script: &'static str,
}

const WORKLOADS: &[Workload] = &[
    Workload { name: "files", script: "ls -lR /usr/share/doc/[a-b]* | gzip > /dev/null" },
    Workload {
        name: "patched-kernel",
        script: "cd /sys/kernel/tracing; echo 'vfs_*' > set_ftrace_filter; for i in 1 2 3; do echo function > \
                 current_tracer; ls -l /usr/bin > /dev/null; echo nop > current_tracer; done",
    },
    Workload {
        name: "events",
        script: "cd /sys/kernel/tracing; echo 1 > events/sched/enable; echo 1 > events/raw_syscalls/enable; for i in 1 2 \
                 3 4; do /bin/true; done; echo 0 > events/enable; ls /usr/bin > /dev/null",
    },
    Workload {
        name: "signals",
        script: "perl -e '$SIG{ALRM}=sub{$n++}; use Time::HiRes qw(ualarm); ualarm(1000,1000); \
                 for($i=0;$i<200000;$i++){$x{$i%977}.=$i} ualarm(0,0); print \"$n signals\\n\"'",
    },
    Workload {
        name: "page-faults",
        script: "perl -e 'for(1..20){my $x = \"x\" x 4000000; substr($x,$_*4096,1)=\"y\" for 0..900}'; \
                 head -c 1000000 /dev/zero | sort -z | wc -c",
    },
    Workload { name: "forks", script: "for i in $(seq 150); do (date +%s%N > /dev/null); done" },
    Workload {
        name: "two-busy",
        script: "head -c 3000000 /dev/urandom | sha256sum > /dev/null & head -c 3000000 /dev/zero | gzip | wc -c; wait",
    },
    Workload { name: PANIC, script: "ls -l /usr/bin | wc -l; echo c > /proc/sysrq-trigger; sleep 60" },
    Workload {
        name: "interpreter",
        script: "perl -e 'for $i (1..300000) { $h{$i % 1000} .= chr($i % 256) } print length(join(\"\", values %h)), \"\\n\"'",
    },
    // Code of processes that a debugger or the kernel writes.
    Workload { name: "ptrace", script: "$PROGRAMS/debugged" },
    Workload { name: "uprobes", script: "$PROGRAMS/probed" },
    Workload { name: "32-bit", script: "$PROGRAMS/bits32" },
    // A processor that starts runs 16-, 32- and 64-bit code.
    Workload {
        name: "hotplug",
        // The recording does not say which threads run on a processor that has just started, so some commands stay on another.
        script: "for i in 1 2 3; do taskset -c 0 sh -c 'cd /sys/devices/system/cpu/cpu1; echo 0 > online; ls -l /usr/bin > \
                 /dev/null; echo 1 > online; ls -l /usr/bin | wc -l'; ls -l /usr/bin | gzip | wc -c; done",
    },
];

/// The programs that workloads run, in the folder `PROGRAMS`: their sources, and options for the compiler.
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("debugged.c", &[]),
    ("probed.c", &[]),
    ("bits32.c", &["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie", "-fno-stack-protector"]),
];

/// The workload whose guest panics: its recording ends there, and `hodo` as if a signal had ended it.
const PANIC: &str = "panic";

/// The workload that perf decodes too. It calls no code of the kernel in user space (vDSO): perf would take its own
/// kernel's.
const FOR_PERF: Workload =
    Workload { name: "for-perf", script: "gzip -c /usr/bin/perl | sha256sum > /dev/null" };

/// What a vCPU ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) instructions: u64,
    /// The digest of their addresses.
    pub(super) digest: u64,
}

/// Judges the named workloads, or all without QEMU's log; the error contains the number that differ.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    machine::ensure()?;
    command::build_hodo()?;
    let folder = command::target().join("judge/machine");
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let harness = compile(&folder)?;
    for (source, options) in PROGRAMS {
        workloads::compile(source, options, &folder)?;
    }
    let (mut total, mut wrong) = (0, 0);
    let wanted = |workload: &&Workload| names.is_empty() || names.iter().any(|name| name == workload.name);
    for workload in WORKLOADS.iter().chain([&FOR_PERF]).filter(wanted) {
        let recording = record(workload, &folder)?;
        let spool = spool(&folder)?;
        let truth = truth(&recording)?;
        let mut judged = vec![("hodo", ours(&recording)?), ("libipt", libipt(&harness, &spool, &truth)?)];
        if workload.name == FOR_PERF.name {
            judged.push(("perf", machine_perf::read(&recording, &spool, &folder)?));
        }
        let count: u64 = truth.values().map(|account| account.instructions).sum();
        total += count;
        let differ: Vec<&str> =
            judged.iter().filter(|(_, accounts)| *accounts != truth).map(|(who, _)| *who).collect();
        let verdict =
            if differ.is_empty() { "equal".to_owned() } else { format!("DIFFERENT: {}", differ.join(", ")) };
        println!("{:16} {count:>13} instructions on {} processors: {verdict}", workload.name, truth.len());
        for (who, accounts) in judged.iter().filter(|(_, accounts)| *accounts != truth) {
            println!("  {who}: {accounts:?}\n  truth: {truth:?}");
        }
        wrong += differ.len();
        _ = fs::remove_dir_all(spool);
    }
    if names.iter().any(|name| name == ONE_BY_ONE.name) {
        let truth = truth(&record(&ONE_BY_ONE, &folder)?)?;
        let spool = spool(&folder)?;
        let count = machine_log::judge(&spool, &truth)?;
        println!(
            "{:16} {count:>13} instructions on {} processors: QEMU's log is equal",
            ONE_BY_ONE.name,
            truth.len()
        );
        _ = fs::remove_dir_all(spool);
    }
    if names.is_empty() || names.iter().any(|name| name == machine_others::NAME) {
        let (count, differ) = machine_others::judge(&folder)?;
        (total, wrong) = (total + count, wrong + differ);
    }
    if wrong > 0 {
        return Err(format!("{wrong} of the verdicts are different").into());
    }
    println!("judge machine: {total} instructions, all equal");
    if names.is_empty() || names.iter().any(|name| name == TESTS) {
        machine::ensure_lttng()?;
        machine::ensure_for("aarch64")?;
        machine::ensure_for("riscv64")?;
        command::run(&mut command::cargo(&[
            "test",
            "-p",
            "hodo",
            "--test",
            "end_to_end",
            "--",
            "--ignored",
        ]))?;
    }
    Ok(())
}

/// The end-to-end tests that boot machines: minutes, which `cargo test` leaves out.
const TESTS: &str = "tests";

fn compile(folder: &Path) -> Outcome<PathBuf> {
    let program = folder.join("judge-machine");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    command::quietly(gcc.arg(command::root().join("lab/judges/machine.c")).arg("-lipt"))?;
    Ok(program)
}

/// The workload that QEMU runs one instruction per block; its log takes 75 bytes for each. It ends only on
/// machines that log faster than the guest handles its timer: two million instructions a second on each processor.
const ONE_BY_ONE: Workload = Workload {
    name: "one-by-one",
    script: "ls -l /usr/bin | wc -l & perl -e '$x{$_ % 977} .= $_ for 1..30000'; wait",
};

/// An option of prlimit: a log with 80 million instructions, so that one that never ends does not fill the disk.
const LARGEST_FILE: &str = "--fsize=6000000000";

/// Records a workload.
fn record(workload: &Workload, folder: &Path) -> Outcome<PathBuf> {
    let recording = folder.join(workload.name).with_extension("data");
    let mut hodo = Command::new("prlimit");
    hodo.arg(LARGEST_FILE).arg(command::hodo()).env("HODO_KEEP_SPOOL", "1").env("PROGRAMS", folder);
    if workload.name == ONE_BY_ONE.name {
        hodo.env("HODO_QEMU_LOG", "1");
    }
    hodo.args(["record", "--quiet", "--engine", "machine", "--witness", "-e", EVENT, "-o"]).arg(&recording);
    hodo.args(["--", "sh", "-c", workload.script]).stdin(std::process::Stdio::null());
    if workload.name == PANIC {
        let status = hodo.status()?;
        if status.success() || !recording.exists() {
            return Err(format!("the guest did not panic, or that was not recorded ({status})").into());
        }
    } else {
        command::run(&mut hodo)?;
    }
    Ok(recording)
}

/// The spool that the recorder kept.
pub(super) fn spool(folder: &Path) -> Outcome<PathBuf> {
    let mut entries = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let is_spool =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".hodo-"));
    entries.find(is_spool).ok_or_else(|| "the recorder left no spool".into())
}

/// The recorded account of each vCPU.
pub(super) fn truth(recording: &Path) -> Outcome<BTreeMap<u32, Account>> {
    let mut hodo = Command::new(command::hodo());
    let info = command::capture(hodo.args(["info", "--format", "json"]).arg(recording))?;
    let info: Value = serde_json::from_str(&info)?;
    let rows = info["cpu_truth"].as_array().ok_or("`hodo info` shows no count of the emulated machine")?;
    let mut truth = BTreeMap::new();
    for row in rows {
        let number = |name: &str| row[name].as_u64().ok_or(format!("`hodo info` shows no {name}"));
        if row["witnessed"] != Value::Bool(true) {
            return Err(
                format!("processor {}: counted one by one, other instructions ran", row["cpu"]).into()
            );
        }
        let account = Account { instructions: number("instructions")?, digest: number("digest")? };
        truth.insert(number("cpu")? as u32, account);
    }
    Ok(truth)
}

/// The account of each vCPU from `hodo script --insns`.
pub(super) fn ours(recording: &Path) -> Outcome<BTreeMap<u32, Account>> {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["script", "--insns", "--fields", "cpu,ip"]).arg(recording);
    let mut accounts: BTreeMap<u32, Account> = BTreeMap::new();
    // There are billions of lines, so the digits are parsed directly.
    let number = |digits: &[u8], base: u32| {
        let mut digits = digits.iter().map(|&digit| char::from(digit).to_digit(base));
        digits.try_fold(0, |number: u64, digit| Some(number * u64::from(base) + u64::from(digit?)))
    };
    each_line(hodo, |line| {
        let mut words = line.trim_ascii_end().splitn(2, |&byte| byte == b' ');
        let mut next = |base| words.next().and_then(|word| number(word, base));
        // A gap or another notice makes the count differ.
        let Some((cpu, ip)) = next(10).zip(next(16)) else { return };
        let account = accounts.entry(cpu as u32).or_default();
        account.instructions += 1;
        account.digest = account.digest.wrapping_mul(FACTOR).wrapping_add(ip);
    })?;
    Ok(accounts)
}

fn libipt(harness: &Path, spool: &Path, truth: &BTreeMap<u32, Account>) -> Outcome<BTreeMap<u32, Account>> {
    let mut accounts = BTreeMap::new();
    for &cpu in truth.keys() {
        let mut judge = Command::new(harness);
        let output = judge.arg(spool.join("code")).arg(spool.join(format!("cpu-{cpu}.pt"))).output()?;
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [instructions, digest] = numbers[..] else {
            return Err(format!("libipt's harness says `{text}`").into());
        };
        accounts.insert(cpu, Account { instructions, digest });
    }
    Ok(accounts)
}

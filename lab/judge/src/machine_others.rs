//! Machines for Arm and RISC-V: what `hodo script --insns` lists is what the plugin counted, also one by one.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use workbench::{Outcome, command, machine};

use crate::machine::{Account, ours, truth};

/// The name by which it is asked for.
pub(super) const NAME: &str = "others";

const ARCHITECTURES: [&str; 2] = ["aarch64", "riscv64"];

/// Programs of `lab/workloads`, their compiler's options and their arguments.
const PROGRAMS: [(&str, &[&str], &[&str]); 9] = [
    ("fib.c", &["-O1", "-static"], &["25"]),
    ("threads.c", &["-O1", "-pthread"], &[]),
    ("signals.c", &["-O2"], &[]),
    ("tail_calls.c", &["-O2"], &[]),
    ("made_code.c", &["-O1"], &[]),
    ("slowpath.c", &["-O1"], &[]),
    ("eight_threads.c", &["-O1", "-pthread"], &[]),
    ("throws.cpp", &["-O2"], &[]),
    ("offline.c", &["-O1"], &[]),
];

/// Judges all programs; returns the number of instructions, and of recordings that differ.
pub(super) fn judge(folder: &Path) -> Outcome<(u64, usize)> {
    let (mut total, mut wrong) = (0, 0);
    for name in ARCHITECTURES {
        machine::ensure_for(name)?;
        for (source, options, arguments) in PROGRAMS {
            let (program, recording) = (folder.join("other"), folder.join("other.data"));
            let compiler = if source.ends_with("cpp") { "g++" } else { "gcc" };
            let mut compile = Command::new(format!("{name}-linux-gnu-{compiler}"));
            compile.args(options).arg("-o").arg(&program);
            command::quietly(compile.arg(command::root().join("lab/workloads").join(source)))?;
            let mut hodo = Command::new(command::hodo());
            hodo.args(["record", "--quiet", "--engine", "machine", "--witness", "-o"]).arg(&recording);
            let status = hodo.arg("--").arg(&program).args(arguments).output()?.status;
            let (truth, ours): (BTreeMap<u32, Account>, _) = (truth(&recording)?, ours(&recording)?);
            let count: u64 = truth.values().map(|account| account.instructions).sum();
            let verdict = if ours == truth { "equal" } else { "DIFFERENT" };
            println!("{name} {source:16} {count:>13} instructions, {status}: {verdict}");
            if ours != truth {
                println!("  hodo: {ours:?}\n  truth: {truth:?}");
                wrong += 1;
            }
            total += count;
            fs::remove_file(recording)?;
        }
    }
    Ok((total, wrong))
}

//! `cargo bench-peers etm FOLDER…`: the speed of decoding Arm's trace in snapshot folders, as `cargo judge arm` leaves them, compared
//! with OpenCSD: its library, and its program.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use workbench::{
    Outcome, command,
    release::{self, shipped},
    setup,
};

use super::{
    decoders::{ROUNDS, measured},
    in_turn, median, millis,
};

/// The registers of a unit, in the order in which the harness takes them.
const REGISTERS: [&str; 6] = ["TRCCONFIGR", "TRCTRACEIDR", "TRCIDR0", "TRCIDR1", "TRCIDR2", "TRCIDR8"];

/// Measures these folders, each of which has one unit and one buffer without frames.
pub(super) fn run(folders: &[String]) -> Outcome {
    if folders.is_empty() {
        return Err("usage: cargo bench-peers etm FOLDER…; `cargo judge arm fib` leaves folders".into());
    }
    setup::arm()?;
    release::build()?;
    let bench = command::target().join("bench");
    fs::create_dir_all(&bench)?;
    let harness = bench.join("peer-opencsd");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&harness);
    command::quietly(gcc.arg(command::root().join("lab/peers/opencsd.c")).arg("-lopencsd_c_api"))?;
    println!(
        "| trace | MB/s cold, hot | times as fast as OpenCSD's library | `report functions` beside trc_pkt_lister |"
    );
    println!("|---|---|---|---|");
    for folder in folders {
        let folder = Path::new(folder);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(measured(Command::new(shipped("hodo-speed")).arg("functions").arg(folder))?);
            theirs.push(measured(&mut peer(&harness, folder)?)?);
        }
        let [our_cold, our_hot] = [0, 1].map(|pass| median(ours.iter().map(|one| one.times[pass]).collect()));
        let [their_cold, their_hot] =
            [0, 1].map(|pass| median(theirs.iter().map(|one| one.times[pass]).collect()));
        let report = || {
            let mut hodo = Command::new(shipped("hodo"));
            hodo.args(["report", "functions", "-q"]).arg(folder);
            hodo
        };
        let lister = || {
            let mut lister = Command::new("trc_pkt_lister");
            lister.args(["-decode_only", "-logstdout", "-no_time_print", "-ss_dir"]).arg(folder);
            lister.current_dir(&bench);
            lister
        };
        let [whole, listed] = in_turn(ROUNDS, [&report, &lister])?;
        println!(
            "| {} | {:.0}, {:.0} | {:.1}, {:.1} | {:.1} times as fast ({:.0} ms, {:.0} ms) |",
            folder.file_name().unwrap_or_default().display(),
            ours[0].bytes * 1e3 / our_cold,
            ours[0].bytes * 1e3 / our_hot,
            their_cold / our_cold,
            their_hot / our_hot,
            millis(listed) / millis(whole),
            millis(whole),
            millis(listed),
        );
    }
    Ok(())
}

/// The harness with the code and the unit of a folder.
fn peer(harness: &Path, folder: &Path) -> Outcome<Command> {
    let mut command = Command::new(harness);
    let core = sections(&folder.join("cpu.ini"))?;
    for dump in core.iter().filter(|section| section.name.starts_with("dump")) {
        let (file, address) = (folder.join(dump.value("file")?), dump.value("address")?);
        command.arg("--code").arg(format!("{}@{address}", file.display()));
    }
    let unit = sections(&folder.join("etm.ini"))?;
    let registers = unit.iter().find(|section| section.name == "regs").ok_or("a unit without registers")?;
    let values = REGISTERS.iter().map(|name| registers.value(name)).collect::<Outcome<Vec<_>>>()?;
    command.arg("--registers").arg(values.join(","));
    if let Ok(architecture) = registers.value("TRCDEVARCH") {
        command.arg("--ete").arg(architecture);
    }
    command.arg(folder.join("trace.bin"));
    Ok(command)
}

/// A section of an `.ini` file.
struct Section {
    name: String,
    values: BTreeMap<String, String>,
}

impl Section {
    fn value(&self, name: &str) -> Outcome<&str> {
        let value = self.values.get(name).map(String::as_str);
        value.ok_or_else(|| format!("no `{name}` in [{}]", self.name).into())
    }
}

/// Reads the sections of a file; of `TRCIDR0(0x078)=0` the name is `TRCIDR0`.
fn sections(path: &PathBuf) -> Outcome<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    for line in fs::read_to_string(path)?.lines() {
        if let Some(name) = line.strip_prefix('[') {
            sections.push(Section { name: name.trim_end_matches(']').to_owned(), values: BTreeMap::new() });
        } else if let (Some(section), Some((name, value))) = (sections.last_mut(), line.split_once('=')) {
            let name = name.split('(').next().unwrap_or_default();
            section.values.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(sections)
}

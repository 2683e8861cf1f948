//! The recorded programs of the decoder benchmarks: real programs with generated input.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use workbench::{Outcome, command, release::shipped, workloads};

/// A program to record.
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// The command for input of this size; each workload has a separate folder.
    command: fn(&Path, u32) -> Outcome<Vec<String>>,
    /// The size of input that makes about 20 MB of trace or more.
    size: u32,
    /// The size of input whose trace perf decodes within minutes.
    short_size: u32,
}

/// The trace settings of a recording.
pub(super) struct Configuration {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// In perf's syntax.
    event: &'static str,
}

pub(super) const WORKLOADS: [Workload; 5] = [
    Workload { name: "cc1", command: cc1, size: 11, short_size: 0 },
    Workload { name: "sqlite3", command: sqlite3, size: 20_000, short_size: 2_000 },
    Workload { name: "python3", command: python3, size: 700, short_size: 20 },
    Workload { name: "gzip", command: gzip, size: 7_000_000, short_size: 100_000 },
    Workload { name: "node", command: node, size: 1_000, short_size: 0 },
];

/// A workload with a large trace.
pub(super) const GIGABYTE: Workload =
    Workload { name: "sqlite3", command: sqlite3, size: 370_000, short_size: 2_000 };

/// The index of the default configuration.
pub(super) const DEFAULT: usize = 1;

pub(super) const CONFIGURATIONS: [Configuration; 3] = [
    Configuration {
        name: "lean",
        what: "no times, returns not compressed",
        event: "intel_pt/tsc=0,mtc=0,noretcomp/u",
    },
    Configuration {
        name: "default",
        what: "times by MTC each 8 crystal ticks, returns compressed",
        event: "intel_pt//u",
    },
    Configuration {
        name: "cycles",
        what: "the same, and a count of cycles with each packet",
        event: "intel_pt/cyc=1/u",
    },
];

/// How much of a workload runs.
#[derive(Clone, Copy)]
pub(super) enum Size {
    Full,
    /// A short part of it.
    Short,
}

impl Workload {
    /// Records the workload unless its recording exists.
    pub(super) fn record(
        &self,
        configuration: &Configuration,
        size: Size,
        folder: &Path,
    ) -> Outcome<PathBuf> {
        let size = match size {
            Size::Full => self.size,
            Size::Short => self.short_size,
        };
        let recording = folder.join(format!("{}-{}-{size}.data", self.name, configuration.name));
        if fs::exists(&recording)? {
            return Ok(recording);
        }
        let own = folder.join(format!("{}-{size}", self.name));
        fs::create_dir_all(&own)?;
        let words = (self.command)(&own, size)?;
        let mut record = Command::new(shipped("hodo"));
        record.args(["record", "--engine", "emulate", "-q", "-e", configuration.event, "-o"]);
        record.arg(&recording).arg("--").args(words).stdout(Stdio::null());
        command::quietly(&mut record)?;
        Ok(recording)
    }
}

fn cc1(folder: &Path, size: u32) -> Outcome<Vec<String>> {
    let source = workloads::generate("c", size, folder)?;
    let compiler = command::capture(Command::new("gcc").arg("-print-prog-name=cc1"))?;
    let unit = folder.join("unit.i");
    command::quietly(Command::new("gcc").arg("-E").arg(source).arg("-o").arg(&unit))?;
    let words = [compiler.trim(), "-quiet", "-O2", "-fpreprocessed", &text(&unit), "-o", "/dev/null"];
    Ok(words.map(str::to_owned).to_vec())
}

fn sqlite3(folder: &Path, size: u32) -> Outcome<Vec<String>> {
    let database = workloads::database(size, folder)?;
    let query = "SELECT name, count(*), sum(size), avg(size) FROM event GROUP BY name ORDER BY 3 DESC; \
                 SELECT count(*) FROM event a JOIN event b ON a.size = b.size WHERE a.id < b.id;";
    Ok(vec!["sqlite3".to_owned(), text(&database), query.to_owned()])
}

fn python3(_: &Path, size: u32) -> Outcome<Vec<String>> {
    let script = format!(
        "import json; d = {{str(i): [i, i * i, {{'half': i / 2}}] for i in range({size})}}; \
         print(len(json.dumps(json.loads(json.dumps(d)), indent=1, sort_keys=True)))"
    );
    Ok(vec![workloads::python()?, "-I".to_owned(), "-S".to_owned(), "-c".to_owned(), script])
}

fn gzip(folder: &Path, size: u32) -> Outcome<Vec<String>> {
    let input = workloads::generate("text", size, folder)?;
    Ok(["gzip", "-1", "-c", &text(&input)].map(str::to_owned).to_vec())
}

/// Without code that is generated at run time: other decoders do not support changing code. A script, however short,
/// takes perf many minutes.
fn node(_: &Path, size: u32) -> Outcome<Vec<String>> {
    if size == 0 {
        return Ok(["node", "--v8-options"].map(str::to_owned).to_vec());
    }
    let script = format!("let s = 0; for (let i = 0; i < {size}; i++) s += i; console.log(s)");
    Ok(["node", "--jitless", "-e", &script].map(str::to_owned).to_vec())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

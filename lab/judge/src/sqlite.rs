//! `cargo judge sqlite [PROGRAM | TEST]…`: SQLite's own test programs do under the native recorder what they do alone.
//!
//! ```text
//! sources of Debian's sqlite3 ──its own Makefile──► testfixture, fuzzcheck, sessionfuzz, speedtest1, kvtest, threadtest3
//! each program ──alone──────────► output, exit code ─┐
//!              ──hodo record──┬─► output, exit code ─┴─► the same, but for times?
//!                             └─► hodo report functions --strict ──► nothing lost?
//! ```
//!
//! `testfixture` runs one script of SQLite's `test` at a time: the quick ones of many parts of SQLite.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use workbench::source;

use crate::{Outcome, command, setup, setup::Need};

/// The package whose sources have the tests.
const PACKAGE: &str = "sqlite3";
/// The programs that SQLite's Makefile builds for its tests.
const PROGRAMS: [&str; 6] =
    ["testfixture", "fuzzcheck", "sessionfuzz", "speedtest1", "kvtest", "threadtest3"];
/// Runs a script of tests.
const FIXTURE: &str = "testfixture";
/// Runs threads for ten seconds: how often they come around varies, and only the exit code is compared.
const THREADS: &str = "threadtest3";

/// Programs and their arguments, in one shell command each; `$T` is the folder of SQLite's tests.
const COMMANDS: [(&str, &str); 5] = [
    ("fuzzcheck", "fuzzcheck $T/fuzzdata1.db"),
    ("sessionfuzz", "sessionfuzz run $T/sessionfuzz-data1.db"),
    ("speedtest1", "speedtest1 --size 5 --verify speed.db"),
    ("kvtest", "kvtest init x.db --count 500 --size 2000 && kvtest run x.db --random && kvtest stat x.db"),
    (THREADS, "threadtest3 walthread1"),
];

/// Scripts of `testfixture`. Those with faults of memory and disk, crashes and locks start processes and handle signals.
/// Without `fuzz`, of which a recording takes 29 GB.
const SCRIPTS: &str = "alter attach autoinc backup bind blob capi2 cast check collate1 conflict corrupt corrupt2 crash2 cse date \
    default delete distinct e_createtable e_delete e_droptrigger e_expr e_fkey e_insert e_select e_update e_vacuum \
    enc exclusive exists expr fkey1 fkey2 format4 fts3aa fts4aa func func2 fuzz2 hook in incrblob incrvacuum index \
    insert insert2 interrupt intpkey io ioerr ioerr2 join join2 journal1 json101 like limit lock lock2 loadext lookaside main \
    malloc5 memdb memsubsys1 minmax misc1 misc2 misc3 mmap1 multiplex mutex1 nan notify1 notnull null pager1 pageropt pagesize \
    pragma printf progress quote rollback rtree rowid savepoint schema select1 select2 select3 select4 shared shared2 \
    sort subquery substr table tableapi tempdb temptable thread001 thread002 thread003 tkt1443 trace trans \
    trigger1 trigger2 triggerC types unique unixexcl update upsert1 utf16align vacuum view vtab1 vtab_shared wal wal2 \
    walro walslow walthread where where2 window1 with1 without_rowid1 zeroblob";

/// Where everything is.
struct Folders {
    /// The built programs.
    programs: PathBuf,
    /// SQLite's scripts and data.
    tests: PathBuf,
    /// Where the programs run, and their recordings.
    runs: PathBuf,
}

/// What a program did.
#[derive(PartialEq, Eq)]
struct Ran {
    status: ExitStatus,
    /// Its output without times.
    output: String,
}

/// Judges these programs and scripts, or all.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Release)?;
    command::build_hodo()?;
    let folders = build(&command::target().join("judge/sqlite"))?;
    println!("{:16} {:>13}  result", "program", "instructions");
    let scripts = SCRIPTS.split_whitespace().map(|name| (name, format!("{FIXTURE} $T/{name}.test")));
    let commands = COMMANDS.iter().map(|&(name, line)| (name, line.to_owned()));
    let (mut count, mut total, mut different) = (0, 0, Vec::new());
    for (name, line) in commands.chain(scripts) {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        count += 1;
        match judge(name, &line, &folders)? {
            Ok(instructions) => {
                println!("{name:16} {instructions:>13}  the same");
                total += instructions;
            }
            Err(complaint) => {
                println!("{name:16} {:>13}  DIFFERENT: {complaint}", "");
                different.push(name);
            }
        }
    }
    println!("judge sqlite: {count} programs, {total} instructions");
    if count == 0 {
        Err("no program or script has such a name".into())
    } else if different.is_empty() {
        Ok(())
    } else {
        Err(format!("not the same: {}", different.join(", ")).into())
    }
}

/// Fetches SQLite and builds its test programs, unless they are there.
fn build(folder: &Path) -> Outcome<Folders> {
    fs::create_dir_all(folder)?;
    let sources = source::fetch(PACKAGE, folder)?;
    let folders =
        Folders { programs: folder.join("build"), tests: sources.join("test"), runs: folder.join("runs") };
    if PROGRAMS.iter().any(|program| !folders.programs.join(program).exists()) {
        setup::sqlite_tests()?;
        fs::create_dir_all(&folders.programs)?;
        let mut configure = Command::new(sources.join("configure"));
        configure.args(["--with-tcl=/usr/lib/tcl8.6", "--disable-readline"]);
        // Compiling takes minutes, and the tests take seconds.
        configure.env("CFLAGS", "-O1 -w").current_dir(&folders.programs).stdout(Stdio::null());
        command::run(&mut configure)?;
        let mut make = Command::new("make");
        make.arg("--quiet").args(PROGRAMS).current_dir(&folders.programs).stdout(Stdio::null());
        command::run(&mut make)?;
    }
    Ok(folders)
}

/// Runs a command alone and recorded. Returns the number of recorded instructions, or what is not the same.
fn judge(name: &str, line: &str, folders: &Folders) -> Outcome<Result<u64, String>> {
    let recording = folders.runs.with_extension("data");
    let alone = ran(name, line, folders, Command::new("/bin/sh"))?;
    let mut hodo = Command::new(command::hodo());
    hodo.args(["record", "-q", "--engine", "native", "-o"]).arg(&recording).args(["--", "/bin/sh"]);
    let recorded = ran(name, line, folders, hodo)?;
    if recorded.status != alone.status {
        return Ok(Err(format!("{} alone, {} recorded", alone.status, recorded.status)));
    }
    if recorded.output != alone.output {
        let mut lines = alone.output.lines().zip(recorded.output.lines());
        let first = lines.find(|(one, other)| one != other);
        return Ok(Err(format!("the first lines that differ are {first:?}")));
    }
    let mut report = Command::new(command::hodo());
    report.args(["report", "functions", "--strict", "-q", "--format", "json", "--top", "1"]).arg(&recording);
    let report = report.output()?;
    fs::remove_file(&recording)?;
    if !report.status.success() {
        return Ok(Err(String::from_utf8_lossy(&report.stderr).trim().to_owned()));
    }
    let report: serde_json::Value = serde_json::from_slice(&report.stdout)?;
    Ok(report["summary"]["instructions"].as_u64().ok_or_else(|| "the report has no instructions".to_owned()))
}

/// Runs a command by a shell in an empty folder.
fn ran(name: &str, line: &str, folders: &Folders, mut shell: Command) -> Outcome<Ran> {
    _ = fs::remove_dir_all(&folders.runs);
    fs::create_dir_all(&folders.runs)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = [folders.programs.clone()].into_iter().chain(std::env::split_paths(&path));
    shell.args(["-c", line]).current_dir(&folders.runs).env("T", &folders.tests).stdin(Stdio::null());
    let output = shell.env("PATH", std::env::join_paths(paths)?).stderr(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<String> =
        if name == THREADS { Vec::new() } else { text.lines().map(without_times).collect() };
    Ok(Ran { status: output.status, output: lines.join("\n") })
}

/// A line of output without numbers that are times, or of memory, which depends on times.
fn without_times(line: &str) -> String {
    const MEASURED: [&str; 12] = [
        "Time:",
        "Memory used:",
        "Maximum memory",
        "Allocation count",
        "Page-cache",
        "Current memory",
        "Number of malloc",
        "Total elapsed time",
        "Microseconds per BLOB",
        "Content read rate",
        // How often threads came around.
        "Results:",
        "Final db contains",
    ];
    // A dot for each time that a thread had to wait.
    let line = line.trim_start_matches(['.', ' ']);
    if MEASURED.iter().any(|measured| line.starts_with(measured)) {
        return String::new();
    }
    const UNITS: [&str; 4] = ["second", "microsecond", "millisecond", "ms"];
    let words: Vec<&str> = line.split_whitespace().collect();
    let kept = words.iter().enumerate().map(|(index, word)| {
        let has_unit =
            words.get(index + 1).is_some_and(|next| UNITS.iter().any(|unit| next.starts_with(unit)));
        // speedtest1 writes "0.123s", kvtest "12.3 microseconds per call", like.test "(9 ms - want less than 1000.0)".
        let is_number = word.trim_start_matches('(').trim_end_matches(['s', ',']).parse::<f64>().is_ok();
        let is_time = is_number && (has_unit || word.ends_with('s'));
        if is_time { "TIME" } else { *word }
    });
    kept.collect::<Vec<_>>().join(" ")
}

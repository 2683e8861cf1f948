//! Records boards, puts their clocks on one timeline, and compares it with the true time that each event contains.
//! `cargo judge sync` runs it.
//!
//! ```text
//! board ──record──► traces ──events──► matcher ──► hull, regression, bounded ──► error, interval, order ─┐
//!                       └──────────────true time of each event ──────────────────────────────────────────┴─► table
//! ```
//!
//! Simulated clocks that are slewed are compared with the truth beside them.
//!
//! usage: hodo-clocks [--seconds N] [--only PROTOCOL | --only slews]… [--board SETTINGS] [--keep FOLDER | --read FOLDER]
//!                    [--seed N]

mod events;
#[path = "../../../../../crates/sync/tests/simulator/mod.rs"]
mod simulator;
mod slews;
mod verdict;

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use hodo_recorder::{BoardSettings, Engine, Protocol, Request};
use hodo_sync::Method;

use events::{Recorded, WanderBound};
use verdict::{Row, Verdict};

/// Default duration of a recording, in seconds.
const SECONDS: u32 = 60;

const PROTOCOLS: [(&str, Protocol); 3] = [
    ("interrupt + burst", Protocol::Burst),
    ("polling", Protocol::Polling),
    ("interrupt", Protocol::Interrupt),
];
/// Amplitudes of the slave's frequency in parts per million; its period is 20 s.
const WANDERS: [u32; 3] = [0, 1, 5];
/// Parts per million by which the slaves' clocks are slewed for a third of each recording, after the fact.
const SLEWS: [u64; 4] = [1, 5, 50, 500];

struct Options {
    seconds: u32,
    only: Vec<String>,
    /// Further settings of the boards, such as the period.
    board: BoardSettings,
    /// Folder in which recordings are kept or found.
    folder: PathBuf,
    records: bool,
    /// Chooses the delays of simulated messages.
    seed: u64,
}

impl Options {
    fn judges(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(broken) if broken.is_empty() => ExitCode::SUCCESS,
        Ok(broken) => {
            broken.iter().for_each(|what| eprintln!("hodo-clocks: {what}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("hodo-clocks: {error}");
            ExitCode::from(2)
        }
    }
}

fn parse() -> Result<Options, Box<dyn Error>> {
    const USAGE: &str = "usage: hodo-clocks [--seconds N] [--only PROTOCOL | --only slews]… [--board SETTINGS] [--keep FOLDER \
                         | --read FOLDER] [--seed N]";
    let mut options = Options {
        seconds: SECONDS,
        only: Vec::new(),
        board: BoardSettings::default(),
        folder: std::env::temp_dir().join(format!("hodo-clocks-{}", std::process::id())),
        records: true,
        seed: 0,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?;
        match argument.as_str() {
            "--seconds" => options.seconds = value.parse().map_err(|_| USAGE)?,
            "--only" if value == slews::NAME || PROTOCOLS.iter().any(|(name, _)| *name == value) => {
                options.only.push(value);
            }
            "--board" => options.board = value.parse()?,
            "--keep" => options.folder = value.into(),
            "--seed" => options.seed = value.parse().map_err(|_| USAGE)?,
            "--read" => (options.folder, options.records) = (value.into(), false),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

/// Returns the violated promises.
fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let options = parse()?;
    let mut broken = Vec::new();
    if PROTOCOLS.iter().any(|(name, _)| options.judges(name)) {
        broken.extend(boards(&options)?);
    }
    if options.judges(slews::NAME) {
        broken.extend(slews::judge(options.seed));
    }
    Ok(broken)
}

/// Judges boards; returns the violated promises.
fn boards(options: &Options) -> Result<Vec<String>, Box<dyn Error>> {
    let keeps = std::env::args().any(|argument| argument == "--keep");
    let (mut broken, mut slews) = (Vec::new(), Vec::new());
    Row::head();
    for (name, protocol) in PROTOCOLS.into_iter().filter(|(name, _)| options.judges(name)) {
        for wander in WANDERS {
            let folder = options.folder.join(format!("{}-{wander}", name.replace(" + ", "-")));
            if options.records {
                record(&folder, protocol, wander, options)?;
            }
            let recorded = Recorded::read(&folder)?;
            let rows = judge(&recorded, name, wander)?;
            for ppm in SLEWS {
                slews.push((name, wander, ppm, slewed(&recorded, ppm)?));
            }
            rows.iter().for_each(Row::show);
            broken.extend(verdict::broken(&rows));
            if options.records && !keeps {
                fs::remove_dir_all(&folder)?;
            }
        }
    }
    println!();
    let violated =
        slews.iter().filter_map(|(name, wander, ppm, verdict)| verdict.of_slew(name, *wander, *ppm));
    broken.extend(violated);
    Ok(broken)
}

/// Compares a recording whose slaves' clocks are slewed with the truth.
fn slewed(recorded: &Recorded, ppm: u64) -> Result<Verdict, Box<dyn Error>> {
    let slewed = recorded.slewed(ppm);
    let (graph, pairs) = slewed.graph(WanderBound::Assumed)?;
    Ok(Verdict::of(&slewed, &pairs, &graph.solve(Method::Bounded)))
}

fn record(folder: &Path, protocol: Protocol, wander: u32, options: &Options) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder.parent().unwrap_or(folder))?;
    let board = BoardSettings {
        protocol,
        wander_ppb: wander * 1_000,
        time: Some(Duration::from_secs(options.seconds.into())),
        ..options.board.clone()
    };
    let command = vec![folder.as_os_str().to_owned()];
    let request = Request { engine: Engine::Board, board, command, ..Request::default() };
    let outcome = hodo_recorder::record(&request, &|line| eprintln!("{line}"))?;
    outcome.warnings.iter().for_each(|warning| eprintln!("{}: {warning}", folder.display()));
    Ok(())
}

fn judge(recorded: &Recorded, protocol: &'static str, wander: u32) -> Result<Vec<Row>, Box<dyn Error>> {
    let (graph, pairs) = recorded.graph(WanderBound::Known)?;
    let methods = [Method::Bounded, Method::Hull, Method::Regression];
    let rows = methods.map(|method| {
        let verdict = Verdict::of(recorded, &pairs, &graph.solve(method));
        Row { protocol, wander, method, verdict, round_trips: recorded.round_trips(&pairs) }
    });
    Ok(rows.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the test recording without its Cortex-M3, whose true times come from another clock.
    fn fixture() -> Recorded {
        let board = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ctf/board");
        let mut recorded = Recorded::read(&board).unwrap();
        assert_eq!(recorded.clocks.len(), 4);
        recorded.clocks.truncate(3);
        recorded
    }

    #[test]
    fn the_truth_lies_in_the_interval_of_each_event() {
        let recorded = fixture();
        let (graph, pairs) = recorded.graph(WanderBound::Known).unwrap();
        assert_eq!(pairs.len(), 600);
        assert!(recorded.round_trips(&pairs)[0] > 100);
        let verdict = Verdict::of(&recorded, &pairs, &graph.solve(Method::Bounded));
        let row = Row {
            protocol: "interrupt + burst",
            wander: 5,
            method: Method::Bounded,
            verdict,
            round_trips: vec![],
        };
        let broken = verdict::broken(&[row]);
        assert!(
            broken.iter().all(|what| !what.contains("hold the truth") && !what.contains("inversions")),
            "{broken:?}"
        );
    }

    #[test]
    fn a_slewed_slave_keeps_the_truth_in_its_intervals() {
        for ppm in SLEWS {
            assert_eq!(slewed(&fixture(), ppm).unwrap().of_slew("interrupt + burst", 5, ppm), None);
        }
    }

    #[test]
    fn a_truth_that_is_elsewhere_is_noticed() {
        let mut recorded = fixture();
        let (graph, pairs) = recorded.graph(WanderBound::Known).unwrap();
        let events = recorded.clocks[1].events.iter_mut();
        events.for_each(|event| event.truth = event.truth.map(|truth| truth + 10_000));
        let verdict = Verdict::of(&recorded, &pairs, &graph.solve(Method::Bounded));
        let row = Row {
            protocol: "interrupt + burst",
            wander: 5,
            method: Method::Bounded,
            verdict,
            round_trips: vec![],
        };
        assert!(verdict::broken(&[row]).iter().any(|what| what.contains("hold the truth")));
    }
}

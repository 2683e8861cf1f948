//! Laws of traces that are not whole: code is withheld, the unit loses packets, bytes are damaged.
//!
//! ```text
//! what ran ──encoder──► trace, a time after each waypoint ──withhold, lose, damage──► our decoder ──► pieces between gaps
//!     └──────────────────────────────────────────────────────────────────────────────────────────────────► laws
//! ```
//!
//! A time is the number of instructions that ran before it, so it says where in the account a piece must be.

use std::{collections::BTreeMap, ops::Range};

use fastrand::Rng;

use crate::{
    Outcome,
    account::{Account, Code, Ran, Thread},
    configurations::{CONFIGURATIONS, Configuration},
    damage::{self, Damaged},
    pieces::{Piece, Shown, decode},
    traced,
};

/// Instructions of a thread that are tried, at most.
const LONGEST: usize = 100_000;

/// A way to spoil a trace or its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// All is there.
    Nothing,
    /// One page of code in this many is withheld.
    Pages(u64),
    /// One span of 64 bytes of code in this many is withheld.
    Spans(u64),
    /// The unit loses the packets of a part of the instructions.
    Overflow,
    /// The bytes are damaged.
    Damage(damage::Kind),
}

impl Way {
    fn name(self) -> String {
        match self {
            Way::Nothing => "whole".to_owned(),
            Way::Pages(part) => format!("1 page of {part} withheld"),
            Way::Spans(part) => format!("1 span of {part} withheld"),
            Way::Overflow => "overflow".to_owned(),
            Way::Damage(kind) => kind.name().to_owned(),
        }
    }

    fn all() -> impl Iterator<Item = Way> {
        let withheld = [Way::Nothing, Way::Pages(2), Way::Pages(10), Way::Spans(4), Way::Spans(100)];
        withheld.into_iter().chain([Way::Overflow]).chain(damage::KINDS.map(Way::Damage))
    }
}

/// What trials of one way showed.
#[derive(Default)]
pub(crate) struct Totals {
    trials: u64,
    ran: u64,
    shown: u64,
    gaps: u64,
    violations: u64,
}

/// The totals by name of the way.
pub(crate) type Table = BTreeMap<String, Totals>;

/// Tries the begin of each thread of a program, in each way `count` times. Violations are printed; returns their number.
pub(crate) fn judge(account: &Account, count: u64, table: &mut Table) -> Outcome<u64> {
    let mut violations = 0;
    for (number, thread) in account.threads.iter().enumerate() {
        let thread = thread.first(LONGEST);
        for way in Way::all() {
            for trial in 0..count {
                let seed = trial.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64) << 32;
                let mut random = Rng::with_seed(seed);
                let configuration = choose(way, &mut random);
                let result = one(account, &thread, way, &configuration, &mut random)?;
                let totals = table.entry(way.name()).or_default();
                totals.trials += 1;
                totals.ran += account.ran(&thread).len() as u64;
                totals.shown += result.shown;
                totals.gaps += result.gaps;
                if let Err(violation) = result.law {
                    let (way, settings) = (way.name(), configuration.name);
                    println!("  thread {number}, {settings}, {way}, trial {trial}: {violation}");
                    totals.violations += 1;
                    violations += 1;
                }
            }
        }
    }
    Ok(violations)
}

/// Prints the totals of all programs.
pub(crate) fn print(table: &Table) {
    for (name, totals) in table {
        let Totals { trials, ran, shown, gaps, violations } = totals;
        let share = 100.0 * *shown as f64 / (*ran).max(1) as f64;
        println!(
            "{name:24} {trials:5} trials, {ran:10} instructions, {share:5.1} % shown, {gaps:7} gaps, {violations} violations"
        );
    }
}

/// What a trial showed.
struct Tried {
    shown: u64,
    gaps: u64,
    law: Result<(), String>,
}

/// One of the configurations, with a time after each waypoint. With speculation, elements wait for their commit, so that
/// times and bytes do not say what is certain: only withheld code is tried.
fn choose(way: Way, random: &mut Rng) -> Configuration {
    let may_speculate = matches!(way, Way::Nothing | Way::Pages(_) | Way::Spans(_));
    let fit: Vec<_> = CONFIGURATIONS
        .iter()
        .filter(|configuration| may_speculate || configuration.settings.speculation_depth == 0)
        .collect();
    let &Configuration { name, settings, .. } = fit[random.usize(..fit.len())];
    Configuration { name, settings, timestamps: Some(1), frames: false, perf_reads: false }
}

fn one(
    account: &Account,
    thread: &Thread,
    way: Way,
    configuration: &Configuration,
    random: &mut Rng,
) -> Outcome<Tried> {
    let ran = account.ran(thread);
    let lost = match way {
        Way::Overflow => {
            let from = random.usize(1..ran.len().max(2));
            from..from + 1 + random.usize(..ran.len() / 4 + 1)
        }
        _ => 0..0,
    };
    let trace = traced::encode_losing(ran, &thread.stops, configuration, lost.clone())?;
    let code = withhold(&account.code, way, random);
    let config = configuration.settings.config();
    let exact = configuration.settings.speculation_depth == 0;
    let (shown, law) = match way {
        Way::Damage(kind) => {
            let damaged = Damaged::random(kind, &trace, random);
            let shown = decode(&code, &damaged.bytes, &config);
            let law = damage::check(&trace, &damaged, &config, &code);
            (shown, law)
        }
        _ => {
            let shown = decode(&code, &trace, &config);
            let law = check(ran, &shown, way, lost, exact);
            (shown, law)
        }
    };
    let law =
        law.and_then(|()| shown.continuity.jump.map_or(Ok(()), |at| Err(format!("nothing leads to {at:x}"))));
    let instructions = shown.pieces.iter().map(|piece| piece.addresses.len() as u64).sum();
    Ok(Tried { shown: instructions, gaps: shown.gaps, law })
}

/// The code that is left.
fn withhold(code: &Code, way: Way, random: &mut Rng) -> Code {
    let (size, part) = match way {
        Way::Pages(part) => (4096, part),
        Way::Spans(part) => (64, part),
        Way::Nothing | Way::Overflow | Way::Damage(_) => return code.clone(),
    };
    let salt = random.u64(..);
    let is_left = |address: u64| Rng::with_seed(salt ^ (address / size)).u64(0..part) != 0;
    code.iter().filter(|&(&address, _)| is_left(address)).map(|(at, bytes)| (*at, bytes.clone())).collect()
}

/// Between two gaps, the decoder shows what ran there.
fn check(ran: Ran<'_>, shown: &Shown, way: Way, lost: Range<usize>, exact: bool) -> Result<(), String> {
    if shown.is_doubtful {
        return Err("what is shown is called doubtful".to_owned());
    }
    let mut next = 0;
    for piece in &shown.pieces {
        let at = place(ran, piece, next, exact)?;
        let end = at + piece.addresses.len();
        if way == Way::Overflow && !piece.addresses.is_empty() && at < lost.end && end > lost.start {
            return Err(format!("instructions {at}..{end} are shown, {lost:?} were lost"));
        }
        next = end.max(if exact { piece.since } else { 0 });
    }
    match way {
        Way::Nothing if next != ran.len() || shown.gaps > 0 => {
            Err(format!("{next} of {} instructions, {} gaps", ran.len(), shown.gaps))
        }
        _ => Ok(()),
    }
}

/// Finds where a piece ran, from instruction `from` on.
fn place(ran: Ran<'_>, piece: &Piece, from: usize, exact: bool) -> Result<usize, String> {
    let fits = |at: usize| {
        piece.addresses.iter().enumerate().all(|(index, address)| {
            ran.get(at + index).is_some_and(|instruction| instruction.address == *address)
        })
    };
    let begin = || piece.addresses.first().copied().unwrap_or_default();
    if let (true, Some(&(position, time))) = (exact, piece.times.first()) {
        let at = time.checked_sub(position).filter(|&at| at >= from.max(piece.since));
        return match at {
            Some(at) if fits(at) => Ok(at),
            _ => {
                let count = piece.addresses.len();
                let differs = (0..count).find(|&index| {
                    let expected = (time + index).checked_sub(position).and_then(|at| ran.get(at));
                    expected.is_none_or(|instruction| instruction.address != piece.addresses[index])
                });
                let Piece { since, .. } = piece;
                Err(format!(
                    "{:x} and what follows, {count} instructions, with time {time} after {position}, did not run there, from \
                     number {differs:?} on; before it were time {since} and instruction {from}",
                    begin()
                ))
            }
        };
    }
    let from = if exact { from.max(piece.since) } else { from };
    (from..=ran.len()).find(|&at| fits(at)).ok_or_else(|| {
        let count = piece.addresses.len();
        format!("{:x} and what follows, {count} instructions, did not run after instruction {from}", begin())
    })
}

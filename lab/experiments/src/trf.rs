//! `cargo run -p lab -- trf`: the resolution of times against the size of the trace, by the threshold of CYC packets and
//! the periods of MTC and PSB packets; and what the size depends on.
//!
//! Sharma and Dagenais, "Hardware-assisted instruction profiling and latency detection", 2016, Figures 7 to 9, with their
//! workload PiSum (`paper.c`), and with one that calls and returns (`equidistant.c`). Prints Markdown, and writes plots to
//! `docs/reproduction`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bench::plot::{self, Axes, Line, Series};
use workbench::{
    Outcome, command,
    setup::{self, Need},
    workloads,
};

use super::{
    measure::{Measured, measure},
    overhead::{ITERATIONS, PROGRAMS},
};

/// Instructions of a pass of the swept workload.
const DISTANCE: u32 = 10;
/// Passes of each recording.
const PASSES: &str = "1000000";

/// A figure: the swept term of the event, the other terms, its values, and its name in plots.
struct Sweep {
    figure: u32,
    term: &'static str,
    others: &'static str,
    values: &'static [u32],
    name: &'static str,
}

/// The values are those of processors of the paper's generation.
const SWEEPS: [Sweep; 3] = [
    Sweep {
        figure: 7,
        term: "cyc_thresh",
        others: "cyc,",
        values: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        name: "CYC threshold: 2^(n-1) cycles",
    },
    Sweep {
        figure: 8,
        term: "mtc_period",
        others: "",
        values: &[0, 3, 6, 9],
        name: "MTC period: 2^n ticks of a crystal of 25 MHz",
    },
    Sweep {
        figure: 9,
        term: "psb_period",
        others: "mtc=0,",
        values: &[0, 1, 2, 3, 4, 5],
        name: "PSB period: 2^(n+11) bytes",
    },
];

/// All packets, as densely and as sparsely as these processors write them.
const ALL_PACKETS: [&str; 2] =
    ["cyc,cyc_thresh=0,mtc_period=0,psb_period=0", "cyc,cyc_thresh=12,mtc_period=9,psb_period=5"];

/// Distances of the branches of the workloads that the fit is over.
const DISTANCES: [u32; 5] = [5, 10, 20, 40, 80];

/// Prints a table for each figure, and the fit. An argument chooses one of the two.
pub(super) fn run(arguments: &[String]) -> Outcome {
    let (sweeps, fits) = match arguments {
        [] => (true, true),
        [one] if one == "sweeps" => (true, false),
        [one] if one == "fit" => (false, true),
        _ => return Err("usage: cargo run -p lab -- trf [sweeps | fit]".into()),
    };
    setup::ensure(Need::Test)?;
    command::build_hodo()?;
    let folder = command::target().join("lab/trf");
    fs::create_dir_all(&folder)?;
    if sweeps {
        figures(&folder)?;
        println!("\n### With calls and returns");
        let calls = true;
        let swept = equidistant(DISTANCE, calls, &folder)?;
        SWEEPS.iter().try_for_each(|sweep| self::sweep(sweep, &swept, &folder))?;
    }
    if fits { fit(&folder) } else { Ok(()) }
}

/// Compiles the workload.
fn equidistant(distance: u32, calls: bool, folder: &Path) -> Outcome<PathBuf> {
    let kind = if calls { "calls" } else { "branches" };
    let distance = format!("-DDISTANCE={distance}");
    let flags: &[&str] = if calls { &[&distance, "-DCALLS"] } else { &[&distance] };
    workloads::compile("equidistant.c", flags, &folder.join(format!("{kind}{distance}")))
}

/// Measures the paper's workload with each setting, prints a table for each figure and one for all packets, and plots.
fn figures(folder: &Path) -> Outcome {
    let paper = workloads::compile("paper.c", &["-lm"], folder)?;
    let measure = |terms: &str| {
        let event = format!("intel_pt/{terms}/u");
        let [ran, idle] =
            [ITERATIONS, "0"].map(|iterations| measured(&event, &paper, &["PiSum", iterations], folder));
        Outcome::Ok(ran?.without(&idle?))
    };
    let settings = |sweep: &Sweep| {
        let terms = |value: &u32| format!("{}{}={value}", sweep.others, sweep.term);
        sweep.values.iter().map(terms).map(|terms| measure(&terms)).collect::<Outcome<Vec<_>>>()
    };
    let found = SWEEPS.iter().map(settings).collect::<Outcome<Vec<_>>>()?;
    let bounds = ALL_PACKETS.iter().map(|terms| measure(terms)).collect::<Outcome<Vec<_>>>()?;
    let factor = Factor::over(found.iter().flatten().chain(&bounds));
    for (sweep, found) in SWEEPS.iter().zip(&found) {
        println!(
            "\n### Figure {}: {}\n\n{}",
            sweep.figure,
            sweep.name,
            heading(&[sweep.others, sweep.term].concat())
        );
        for (value, one) in sweep.values.iter().zip(found) {
            println!("{}", factor.row(&value.to_string(), one));
        }
        plot_sweep(sweep, found, &factor)?;
    }
    println!("\n### All packets\n\n{}", heading("packets"));
    for (terms, one) in ALL_PACKETS.iter().zip(&bounds) {
        println!("{}", factor.row(&format!("`{terms}`"), one));
    }
    Ok(())
}

fn heading(setting: &str) -> String {
    format!(
        "| `{setting}` | KB of trace | bytes per 1000 instructions | median interval | median instructions | TRF |\n\
         |---|---|---|---|---|---|"
    )
}

/// The paper's temporal resolution factor. It maps the product of two medians, the interval between clock readings and the
/// instructions in it, to 0 for the least product of all recordings and to 100 for the greatest.
struct Factor {
    least: f64,
    greatest: f64,
}

impl Factor {
    const WORST: f64 = 100.0;

    fn product(one: &Measured) -> f64 {
        one.medians[0] * one.medians[1]
    }

    fn over<'m>(all: impl Iterator<Item = &'m Measured>) -> Factor {
        let (least, greatest) = all
            .map(Factor::product)
            .fold((f64::MAX, f64::MIN), |(least, greatest), one| (least.min(one), greatest.max(one)));
        Factor { least, greatest }
    }

    fn of(&self, one: &Measured) -> f64 {
        Factor::WORST / (self.greatest - self.least) * (Factor::product(one) - self.least)
    }

    fn row(&self, setting: &str, one: &Measured) -> String {
        format!(
            "| {setting} | {:.0} | {:.2} | {:.0} ns | {:.0} | {:.3e} |",
            one.bytes / 1e3,
            one.density() * 1000.0,
            one.medians[0],
            one.medians[1],
            self.of(one)
        )
    }
}

/// Plots size and factor. The factor 0 has no place on its logarithmic axis.
fn plot_sweep(sweep: &Sweep, found: &[Measured], factor: &Factor) -> Outcome {
    let points = |height: &dyn Fn(&Measured) -> f64| {
        let points = sweep.values.iter().zip(found).map(|(&value, one)| (f64::from(value), height(one)));
        let points = points.filter(|(_, height)| *height > 0.0).collect();
        vec![Line { name: "PiSum".to_owned(), points }]
    };
    let path = command::root().join(format!("docs/reproduction/pt-figure-{}.svg", sweep.figure));
    let left = Series { name: "KB of trace", lines: points(&|one| one.bytes / 1e3) };
    let right = Series { name: "temporal resolution factor", lines: points(&|one| factor.of(one)) };
    plot::two_scales(&path, sweep.name, &left, &right)
}

/// Prints a table of a workload that calls and returns, with and without compression of returns.
fn sweep(sweep: &Sweep, program: &Path, folder: &Path) -> Outcome {
    let Sweep { term, others, values, .. } = sweep;
    println!(
        "\n| `{others}{term}` | bytes per 1000 instructions | mean interval | bytes, `noretcomp` | mean interval, \
         `noretcomp` |\n|---|---|---|---|---|"
    );
    for &value in *values {
        let mut cells = Vec::new();
        for compression in ["", "noretcomp,"] {
            let event = format!("intel_pt/{compression}{others}{term}={value}/u");
            let found = measured(&event, program, &[PASSES], folder)?;
            cells.push(format!("{:.2} | {:.1} ns", found.density() * 1000.0, found.interval));
        }
        println!("| {value} | {} |", cells.join(" | "));
    }
    Ok(())
}

/// Records a program with this event, and measures the recording.
fn measured(event: &str, program: &Path, arguments: &[&str], folder: &Path) -> Outcome<Measured> {
    let program = program.to_str().ok_or("the build folder has no name in UTF-8")?;
    measure(event, &[&[program], arguments].concat(), &folder.join("recording.perf.data"))
}

/// Measures how the trace bytes per instruction depend on the shares of conditional branches, indirect jumps and returns.
fn fit(folder: &Path) -> Outcome {
    const EVENT: &str = "intel_pt//u";
    let mut found = Vec::new();
    for (distance, calls) in DISTANCES.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let program = equidistant(distance, calls, folder)?;
        let [ran, idle] = [PASSES, "0"].map(|passes| measured(EVENT, &program, &[passes], folder));
        let measured = ran?.without(&idle?);
        found.push((format!("every {distance}{}", if calls { ", calls" } else { "" }), measured));
    }
    let paper = workloads::compile("paper.c", &["-lm"], folder)?;
    // Omega and Epsilon are loops like the first ones; the last two are extremes that the paper's programs lack.
    for program in PROGRAMS[..8].iter().copied().chain(["Switch", "Straight"]) {
        let [measured, idle] =
            [ITERATIONS, "0"].map(|iterations| measured(EVENT, &paper, &[program, iterations], folder));
        found.push((program.to_owned(), measured?.without(&idle?)));
    }
    let shares = |one: &Measured| {
        [
            1.0,
            one.conditional / one.instructions,
            one.indirect / one.instructions,
            one.returns / one.instructions,
        ]
    };
    let equations: Vec<_> = found.iter().map(|(_, one)| (shares(one), one.density())).collect();
    let factors = least_squares(&equations).ok_or("the shares do not differ")?;
    let predicted =
        |one: &Measured| shares(one).iter().zip(factors).map(|(share, factor)| share * factor).sum::<f64>();
    println!(
        "\n### Bytes per instruction\n\nLeast squares over {} programs: {:.5} + {:.3} · conditional + {:.3} · indirect + \
         {:.3} · returns, each per instruction.\n\n| program | conditional | indirect | returns | bytes per 1000 \
         instructions | fit |\n|---|---|---|---|---|---|",
        found.len(),
        factors[0],
        factors[1],
        factors[2],
        factors[3]
    );
    for (name, one) in &found {
        let [_, conditional, indirect, returns] = shares(one).map(|share| (share * 100.0).max(0.0));
        println!(
            "| {name} | {conditional:.2} % | {indirect:.2} % | {returns:.2} % | {:.2} | {:.2} |",
            one.density() * 1000.0,
            predicted(one) * 1000.0
        );
    }
    let points = |kind: &str, which: fn(&str) -> bool| Line {
        name: kind.to_owned(),
        points: found
            .iter()
            .filter(|(name, _)| which(name))
            .map(|(_, one)| (predicted(one) * 1000.0, one.density() * 1000.0))
            .collect(),
    };
    let path = command::root().join("docs/reproduction/pt-bytes.svg");
    let kinds = [
        points("equidistant branches", |name| name.starts_with("every")),
        points("programs of the paper", |name| !name.starts_with("every")),
    ];
    let axes = Axes { across: "bytes per 1000 instructions by the fit", up: "measured" };
    plot::against_fit(&path, &axes, &kinds)
}

/// The factors with the smallest sum of squared relative errors; `None` if the equations do not determine them.
fn least_squares<const N: usize>(equations: &[([f64; N], f64)]) -> Option<[f64; N]> {
    // Normal equations, each equation divided by its right side, and then Gauss and Jordan.
    let mut rows = [[0.0; N]; N];
    let mut right = [0.0; N];
    for (factors, value) in equations {
        for i in 0..N {
            for j in 0..N {
                rows[i][j] += factors[i] * factors[j] / (value * value);
            }
            right[i] += factors[i] / value;
        }
    }
    for pivot in 0..N {
        let best = (pivot..N).max_by(|&a, &b| rows[a][pivot].abs().total_cmp(&rows[b][pivot].abs()))?;
        rows.swap(pivot, best);
        right.swap(pivot, best);
        if rows[pivot][pivot].abs() < 1e-12 {
            return None;
        }
        for other in (0..N).filter(|&other| other != pivot) {
            let times = rows[other][pivot] / rows[pivot][pivot];
            let row = rows[pivot];
            rows[other].iter_mut().zip(row).for_each(|(cell, own)| *cell -= times * own);
            right[other] -= times * right[pivot];
        }
    }
    Some(std::array::from_fn(|index| right[index] / rows[index][index]))
}

#[cfg(test)]
mod tests {
    use super::{Factor, Measured, least_squares};

    #[test]
    fn the_factor_is_0_at_best_and_100_at_worst() {
        let all = [[14.0, 78.0], [910_500.0, 2_500_000.0], [100.0, 100.0]]
            .map(|medians| Measured { medians, ..Measured::default() });
        let factor = Factor::over(all.iter());
        assert_eq!([factor.of(&all[0]), factor.of(&all[1])], [0.0, 100.0]);
        // The paper's formula, for the third.
        let [best, worst] = [14.0 * 78.0, 910_500.0 * 2_500_000.0];
        assert!((factor.of(&all[2]) - 100.0 / (worst - best) * (10_000.0 - best)).abs() < 1e-12);
    }

    #[test]
    fn exact_equations_are_solved_and_others_refused() {
        let equation = |x: f64, y: f64| ([1.0, x, y], 2.0 + 3.0 * x + 0.5 * y);
        let found =
            least_squares(&[equation(0.0, 1.0), equation(1.0, 0.0), equation(2.0, 3.0), equation(5.0, 1.0)])
                .unwrap();
        for (found, expected) in found.into_iter().zip([2.0, 3.0, 0.5]) {
            assert!((found - expected).abs() < 1e-9, "{found}");
        }
        assert_eq!(least_squares(&[equation(1.0, 2.0), equation(2.0, 4.0)]), None);
    }
}

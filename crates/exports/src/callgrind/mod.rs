//! Callgrind's profile format: the cost of each function, and of the calls between each two.
//!
//! Costs of calls that recurse count once for each open call, as Callgrind's do. Source: "Callgrind Format
//! Specification" of Valgrind's manual.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use hodo_model::Loss;

use crate::{
    Content, Export, Output, PathRow, Paths, loss_line,
    paths::{Functions, printable},
};

pub(crate) const EXPORT: Export = Export {
    name: "callgrind",
    help: "functions and the calls between them for kcachegrind and callgrind_annotate",
    content: Content::Paths(begin),
};

/// The calls from one function to another: their number and cost.
#[derive(Default)]
struct Calls {
    count: u64,
    cost: [u64; 2],
}

struct Callgrind<'o> {
    out: Output<'o>,
    functions: Functions,
    own: Vec<[u64; 2]>,
    calls: BTreeMap<(usize, usize), Calls>,
}

fn begin<'o>(out: Output<'o>) -> io::Result<Box<dyn Paths + 'o>> {
    Ok(Box::new(Callgrind { out, functions: Functions::default(), own: Vec::new(), calls: BTreeMap::new() }))
}

fn add(sum: &mut [u64; 2], cost: [u64; 2]) {
    sum.iter_mut().zip(cost).for_each(|(sum, cost)| *sum = sum.saturating_add(cost));
}

impl Paths for Callgrind<'_> {
    fn row(&mut self, row: &PathRow<'_>) -> io::Result<()> {
        let function = self.functions.add(row);
        self.own.resize(self.functions.list.len(), [0; 2]);
        add(&mut self.own[function], row.own);
        if let [.., caller, _] = self.functions.path[..] {
            let calls = self.calls.entry((caller, function)).or_default();
            calls.count = calls.count.saturating_add(row.entries);
            add(&mut calls.cost, row.total);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, losses: &[Loss]) -> io::Result<()> {
        let Callgrind { out, functions, own, calls } = *self;
        out.write_all(b"# callgrind format\nversion: 1\ncreator: hodo\n")?;
        for loss in losses {
            writeln!(out, "desc: Note: {}", printable(&loss_line(loss)))?;
        }
        out.write_all(
            b"positions: line\nevent: Ir : Instructions\nevent: ns : Nanoseconds\nevents: Ir ns\n",
        )?;
        let mut sum = [0; 2];
        own.iter().for_each(|cost| add(&mut sum, *cost));
        writeln!(out, "summary: {} {}", sum[0], sum[1])?;
        // A number is followed by its name where it is first used.
        let mut known = BTreeSet::new();
        let mut name = |function: usize| match known.insert(function) {
            true => format!("({}) {}", function + 1, printable(&functions.list[function].1)),
            false => format!("({})", function + 1),
        };
        for (function, [instructions, time]) in own.iter().enumerate() {
            let module = printable(&functions.list[function].0);
            writeln!(out, "\nob={module}\nfl=???\nfn={}\n0 {instructions} {time}", name(function))?;
            for ((_, callee), Calls { count, cost }) in calls.range((function, 0)..=(function, usize::MAX)) {
                let module = printable(&functions.list[*callee].0);
                writeln!(out, "cob={module}\ncfi=???\ncfn={}", name(*callee))?;
                writeln!(out, "calls={count} 0\n0 {} {}", cost[0], cost[1])?;
            }
        }
        writeln!(out, "\ntotals: {} {}", sum[0], sum[1])?;
        out.flush()
    }
}

//! A profile for Go's compiler (`default.pgo`): pprof's format with the lines of calls, which the compiler inlines and
//! devirtualizes by.
//!
//! Go's compiler reads samples of two frames or more, and adds the value of each to the call between its frames. Here each
//! line of a caller has one sample for each callee: the instructions that ran in the callee and below it. Source:
//! `cmd/internal/pgo` and `cmd/preprofile` of Go.
//!
//! Functions have the names that Go's own profiler gives them: see [`names`](mod@names).

mod names;

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use flate2::{Compression, write::GzEncoder};
use hodo_model::Loss;
use prost::Message;

use self::names::GoFunctions;
use crate::{
    Content, Export, Output, SourceProfile, loss_line,
    pprof::{
        Texts,
        messages::{Function, Line, Location, Profile, Sample, ValueType},
    },
};

pub(crate) const EXPORT: Export = Export {
    name: "go",
    help: "calls by line for Go's compiler, as default.pgo",
    content: Content::Sources(write),
};

/// The kind of value that Go's compiler looks for.
const KIND: (&str, &str) = ("samples", "count");

/// Numbers lines of functions from 1.
#[derive(Default)]
struct Locations {
    numbers: BTreeMap<(usize, u64), u64>,
}

impl Locations {
    fn number(&mut self, function: usize, line: u64) -> u64 {
        let next = self.numbers.len() as u64 + 1;
        *self.numbers.entry((function, line)).or_insert(next)
    }
}

fn write(profile: &SourceProfile, losses: &[Loss], out: Output<'_>) -> io::Result<()> {
    let mut texts = Texts::default();
    let sample_type = vec![ValueType { kind: texts.number(KIND.0), unit: texts.number(KIND.1) }];
    let mut written = Profile { sample_type, ..Profile::default() };
    let functions = GoFunctions::of(profile);
    let mut locations = Locations::default();
    for (&(caller, callee), calls) in &profile.calls {
        // A function without lines is not Go's, or has no debugging information.
        let [Some(from), Some(to)] = [caller, callee].map(|function| functions.of_profile(function)) else {
            continue;
        };
        // A wrapper calls its method: the call to the wrapper stands for both.
        if from == to && caller != callee {
            continue;
        }
        let sites = profile.call_sites(caller, callee);
        let sites: Vec<_> = sites.into_iter().filter(|(site, _)| !names::is_generated(&site.file)).collect();
        let all: u128 = sites.iter().map(|(_, count)| u128::from(*count)).sum();
        for (site, count) in sites {
            let cost = u128::from(calls.cost[0]) * u128::from(count) / all.max(1);
            let frames = [(to.number, to.first.line), (from.number, site.line)];
            let location_id = frames.map(|(function, line)| locations.number(function, line)).to_vec();
            written.sample.push(Sample { location_id, value: vec![i64::try_from(cost).unwrap_or(i64::MAX)] });
        }
    }
    let mut named: BTreeMap<usize, u64> = BTreeMap::new();
    for (&(function, line), &id) in &locations.numbers {
        let line = vec![Line { function_id: function as u64 + 1, line: line as i64 }];
        written.location.push(Location { id, mapping_id: 0, line });
        named.entry(function).or_insert(id);
    }
    for &number in named.keys() {
        let function = functions.numbered(number);
        let name = texts.number(&function.name);
        let filename = texts.number(&function.first.file);
        let start_line = i64::try_from(function.first.line).unwrap_or(0);
        let id = number as u64 + 1;
        written.function.push(Function { id, name, system_name: name, filename, start_line });
    }
    written.comment = losses.iter().map(|loss| texts.number(&loss_line(loss))).collect();
    written.string_table = texts.into_list();
    let mut packed = GzEncoder::new(out, Compression::default());
    packed.write_all(&written.encode_to_vec())?;
    packed.finish()?.flush()
}

//! A profile for Go's compiler (`default.pgo`): pprof's format with the lines of calls, which the compiler inlines and
//! devirtualizes by.
//!
//! Go's compiler reads samples of two frames or more, and adds the value of each to the call between its frames. Here each
//! line of a caller has one sample for each callee: the instructions that ran in the callee and below it. Source:
//! `cmd/internal/pgo` and `cmd/preprofile` of Go.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use flate2::{Compression, write::GzEncoder};
use hodo_model::Loss;
use prost::Message;

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
    let first_line = |function: usize| {
        let first = profile.sources[function].first.as_ref().map(|(_, first)| first);
        first.filter(|first| first.line > 0)
    };
    let mut locations = Locations::default();
    for (&(caller, callee), calls) in &profile.calls {
        // A function without lines is not Go's, or has no debugging information.
        let (Some(_), Some(first)) = (first_line(caller), first_line(callee)) else { continue };
        let sites = profile.call_sites(caller, callee);
        let all: u128 = sites.iter().map(|(_, count)| u128::from(*count)).sum();
        for (site, count) in sites {
            let cost = u128::from(calls.cost[0]) * u128::from(count) / all.max(1);
            let frames = [(callee, first.line), (caller, site.line)];
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
    for &function in named.keys() {
        let name = texts.number(&profile.functions.list[function].name);
        let (filename, start_line) = first_line(function)
            .map_or((0, 0), |first| (texts.number(&first.file), i64::try_from(first.line).unwrap_or(0)));
        let id = function as u64 + 1;
        written.function.push(Function { id, name, system_name: name, filename, start_line });
    }
    written.comment = losses.iter().map(|loss| texts.number(&loss_line(loss))).collect();
    written.string_table = texts.into_list();
    let mut packed = GzEncoder::new(out, Compression::default());
    packed.write_all(&written.encode_to_vec())?;
    packed.finish()?.flush()
}

//! pprof's format: a sample for each call path, with its instructions and time, in compressed protobuf.
//!
//! Source: `proto/profile.proto` of pprof.

pub(crate) mod messages;

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Write},
};

use flate2::{Compression, write::GzEncoder};
use hodo_model::Loss;
use prost::Message;

use self::messages::{Function, Line, Location, Mapping, Profile, Sample, ValueType};
use crate::{Content, Export, Output, PathRow, Paths, loss_line, paths::Functions, paths::PathFunction};

pub(crate) const EXPORT: Export = Export {
    name: "pprof",
    help: "call paths with instructions and time for pprof (compressed protobuf)",
    content: Content::Paths(begin),
};

/// The texts of a profile, by number; 0 is the empty one.
pub(crate) struct Texts {
    list: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl Default for Texts {
    fn default() -> Texts {
        Texts { list: vec![String::new()], numbers: HashMap::from([(String::new(), 0)]) }
    }
}

impl Texts {
    /// Returns all texts in order.
    pub(crate) fn into_list(self) -> Vec<String> {
        self.list
    }

    /// Returns the number of a text.
    pub(crate) fn number(&mut self, text: &str) -> i64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.list.len() as i64;
        self.list.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

struct Pprof<'o> {
    out: Output<'o>,
    functions: Functions,
    samples: Vec<Sample>,
}

fn begin<'o>(out: Output<'o>) -> io::Result<Box<dyn Paths + 'o>> {
    Ok(Box::new(Pprof { out, functions: Functions::default(), samples: Vec::new() }))
}

impl Paths for Pprof<'_> {
    fn row(&mut self, row: &PathRow<'_>) -> io::Result<()> {
        self.functions.add(row);
        if row.own != [0; 2] {
            // The location of a function has its number, from 1; the last frame comes first.
            let location_id = self.functions.path.iter().rev().map(|&function| function as u64 + 1).collect();
            let value = row.own.map(|value| i64::try_from(value).unwrap_or(i64::MAX)).to_vec();
            self.samples.push(Sample { location_id, value });
        }
        Ok(())
    }

    fn finish(self: Box<Self>, losses: &[Loss]) -> io::Result<()> {
        let Pprof { out, functions, samples } = *self;
        let mut texts = Texts::default();
        let mut kind =
            |name: &str, unit: &str| ValueType { kind: texts.number(name), unit: texts.number(unit) };
        let sample_type = vec![kind("instructions", "count"), kind("time", "nanoseconds")];
        let mut profile = Profile { sample_type, sample: samples, ..Profile::default() };
        let mut modules: BTreeMap<&str, u64> = BTreeMap::new();
        for (id, PathFunction { module, name }) in (1..).zip(&functions.list) {
            let next = modules.len() as u64 + 1;
            let mapping_id = *modules.entry(module).or_insert_with(|| {
                let filename = texts.number(module);
                profile.mapping.push(Mapping { id: next, filename, has_functions: true });
                next
            });
            let name = texts.number(name);
            profile.function.push(Function { id, name, system_name: name, ..Function::default() });
            profile.location.push(Location { id, mapping_id, line: vec![Line { function_id: id, line: 0 }] });
        }
        profile.comment = losses.iter().map(|loss| texts.number(&loss_line(loss))).collect();
        profile.string_table = texts.into_list();
        let mut packed = GzEncoder::new(out, Compression::default());
        packed.write_all(&profile.encode_to_vec())?;
        packed.finish()?.flush()
    }
}

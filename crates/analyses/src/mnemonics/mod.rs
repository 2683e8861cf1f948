//! `mnemonics`: how often was each kind of instruction executed?
//!
//! The partial counts instruction runs by their bytes; each distinct run is disassembled once, at the end.

use std::collections::BTreeMap;

use hodo_model::{
    Analysis, Column, Description, FastFlow, FinishContext, FlowEvent, FlowInterest, FlowLoop, Interest,
    Item, Made, Report, Role, Shape, Start, Table, Takes, Unit, kernel::Threads,
};
use iced_x86::{Decoder, DecoderOptions};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::columns::{most_first, share};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Mnemonics;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "mnemonics",
            roles: &[Role::Mnemonics],
            help: "exact counts of executed instructions by mnemonic",
            takes: Takes::THREADS,
            ..Description::EMPTY
        },
        make: |_| Made::of_flow(Mnemonics),
    }
}

/// Executions of each instruction run, by its bytes and the width of the execution mode in bits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExecutionCounts(FxHashMap<u8, FxHashMap<Box<[u8]>, u64>>);

impl ExecutionCounts {
    fn add(&mut self, bits: u8, bytes: &[u8], executions: u64) {
        let runs = self.0.entry(bits).or_default();
        match runs.get_mut(bytes) {
            Some(count) => *count = count.saturating_add(executions),
            None => {
                runs.insert(bytes.into(), executions);
            }
        }
    }

    /// Returns the executions of each run, by the width of the execution mode in bits and its bytes.
    fn runs(&self) -> impl Iterator<Item = ((u8, &[u8]), u64)> {
        let all = self.0.iter();
        all.flat_map(|(&bits, runs)| runs.iter().map(move |(bytes, &count)| ((bits, &**bytes), count)))
    }

    fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for ((bits, bytes), executions) in self.runs() {
            for instruction in Decoder::new(bits.into(), bytes, DecoderOptions::NONE) {
                let count = counts.entry(format!("{:?}", instruction.mnemonic()).to_lowercase()).or_default();
                *count = count.saturating_add(executions);
            }
        }
        counts
    }
}

impl Analysis for Mnemonics {
    type Partial = ExecutionCounts;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, _: &Start<'_>) -> ExecutionCounts {
        ExecutionCounts::default()
    }

    fn fold(&self, partial: &mut ExecutionCounts, item: Item<'_>) {
        if let Item::Flow(FlowEvent::Run { code, .. }) = item {
            partial.add(code.bits, code.bytes, 1);
        }
    }

    fn merge(&self, mut earlier: ExecutionCounts, later: ExecutionCounts, _: &Threads) -> ExecutionCounts {
        later.runs().for_each(|((bits, bytes), executions)| earlier.add(bits, bytes, executions));
        earlier
    }

    fn is_commutative(&self) -> bool {
        true
    }

    fn is_sound(&self, partial: &ExecutionCounts) -> bool {
        partial.0.keys().all(|bits| [16, 32, 64].contains(bits))
    }

    fn finish(&self, threads: Vec<ExecutionCounts>, _: &FinishContext<'_>) -> Table {
        let count = threads.len() as u64;
        let whole = threads.into_iter().reduce(|all, next| self.merge(all, next, &Threads::default()));
        let counts = whole.unwrap_or_default().counts();
        let sum = counts.values().fold(0, |sum: u64, &count| sum.saturating_add(count));
        let summary = vec![("instructions", sum.into()), ("threads", count.into())];
        let columns = vec![
            Column::real("share", Unit::Share),
            Column::integer("instructions", Unit::Count),
            Column::name("mnemonic"),
        ];
        let rows = counts.into_iter().map(|(mnemonic, count)| {
            let cells = vec![share(count, sum), count.into(), mnemonic.as_str().into()];
            ((count, mnemonic), cells)
        });
        Table::new("mnemonics", Shape::Counters, summary, columns, most_first(rows))
    }
}

impl FastFlow for Mnemonics {
    type Memory = ();
}

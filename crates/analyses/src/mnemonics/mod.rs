//! `mnemonics`: how often was each kind of instruction executed?
//!
//! The partial counts instruction runs by their bytes; each distinct run is disassembled once, at the end.

use std::collections::BTreeMap;

use hodo_model::{
    Analysis, Column, Description, FastFlow, FinishContext, FlowEvent, FlowInterest, FlowLoop, Interest, Isa,
    Item, Made, Report, Role, Shape, Start, Table, Takes, Unit, kernel::Threads,
};
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

/// Executions of each instruction run, by the number of its instruction set and its bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExecutionCounts(FxHashMap<u8, FxHashMap<Box<[u8]>, u64>>);

impl ExecutionCounts {
    fn add(&mut self, isa: u8, bytes: &[u8], executions: u64) {
        let runs = self.0.entry(isa).or_default();
        match runs.get_mut(bytes) {
            Some(count) => *count = count.saturating_add(executions),
            None => {
                runs.insert(bytes.into(), executions);
            }
        }
    }

    /// Returns the executions of each run, by the number of its instruction set and its bytes.
    fn runs(&self) -> impl Iterator<Item = ((u8, &[u8]), u64)> {
        let all = self.0.iter();
        all.flat_map(|(&isa, runs)| runs.iter().map(move |(bytes, &count)| ((isa, &**bytes), count)))
    }

    fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for ((number, mut bytes), executions) in self.runs() {
            let Some(isa) = Isa::from_number(number) else { continue };
            while let Ok(instruction) = isa.instruction(bytes, 0) {
                let count = counts.entry(instruction.mnemonic()).or_default();
                *count = count.saturating_add(executions);
                bytes = &bytes[instruction.step().length.into()..];
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
            partial.add(code.isa.number(), code.bytes, 1);
        }
    }

    fn merge(&self, mut earlier: ExecutionCounts, later: ExecutionCounts, _: &Threads) -> ExecutionCounts {
        later.runs().for_each(|((isa, bytes), executions)| earlier.add(isa, bytes, executions));
        earlier
    }

    fn is_commutative(&self) -> bool {
        true
    }

    fn is_sound(&self, partial: &ExecutionCounts) -> bool {
        partial.0.keys().all(|&number| Isa::from_number(number).is_some())
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

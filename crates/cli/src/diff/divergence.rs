//! The divergence of two executions, as a table.

use hodo_compare::Sides;
use hodo_engine::{
    Chunks, CodeLocation, Divergence, Execution, Experiment, Needs, Reading, Trace, divergence,
};
use hodo_model::{Column, Shape, Table, Unit, Value};

use super::Diff;
use crate::{arguments::Input, failure::Failure, function, input, progress::Begin};

/// Returns a table of the branch at which the compared executions diverge.
pub fn table(command: &Diff, sides: &Sides<Vec<Input>>, begin: Begin<'_>) -> Result<Table, Failure> {
    let progress = begin(0);
    let ([a], [b]) = (sides.a.as_slice(), sides.b.as_slice()) else {
        return Err(Failure::usage(
            "--divergence compares two executions, but a side has several recordings",
        ));
    };
    let name = command.function.as_deref().or(command.per.as_deref()).unwrap_or("main");
    let (nth_a, nth_b) = command.nth.unwrap_or((1, 1));
    let found = with_flow(a, &mut |of_a| {
        with_flow(b, &mut |of_b| {
            let readings = [reading(a), reading(b)];
            let calls = [
                function::calls(&format!("{name}#{nth_a}"), of_a)?,
                function::calls(&format!("{name}#{nth_b}"), of_b)?,
            ];
            let first = Execution::find(of_a, &calls[0], readings[0], |_| !progress.is_interrupted())?;
            let second = Execution::find(of_b, &calls[1], readings[1], |_| !progress.is_interrupted())?;
            first.runs_the_same_files(&second)?;
            Ok(divergence(&first, &second, readings))
        })
    })?;
    Ok(draw(&found))
}

/// Opens an input with control flow and passes the flow to `work`.
fn with_flow<R>(input: &Input, work: &mut dyn FnMut(&Trace<'_>) -> Result<R, Failure>) -> Result<R, Failure> {
    let trace: Experiment = input::experiment(input, Needs { flow: true, sideband: false, events: false })?;
    trace.with(|traces| match traces.flows.as_slice() {
        [flow] => work(flow),
        _ => Err(Failure::usage("--divergence needs control flow, but the input has none")),
    })
}

fn reading(input: &Input) -> Reading<'static> {
    Reading::new(input::threads(input), Chunks::Default)
}

fn draw(found: &Divergence) -> Table {
    let row = |label: &str, number: u64, location: &Option<CodeLocation>| -> Vec<Value> {
        let known = location.as_ref();
        vec![
            label.into(),
            number.into(),
            known.map_or("(the execution ends)", |location| location.function.as_str()).into(),
            known.map(|location| location.offset).into(),
            known.and_then(|location| location.line.as_deref()).into(),
            known.map(|location| location.module.as_str()).into(),
        ]
    };
    let rows = match found.is_none() {
        true => Vec::new(),
        false => vec![
            row("both: the branch", found.common, &found.branch),
            row("A goes on", found.common + 1, &found.next[0]),
            row("B goes on", found.common + 1, &found.next[1]),
        ],
    };
    let columns = vec![
        Column::name("where"),
        Column::integer("instruction", Unit::Count),
        Column::name("function"),
        Column::integer("offset", Unit::Address),
        Column::text("line"),
        Column::name("module").secondary(),
    ];
    let summary = vec![
        ("same", found.is_none().into()),
        ("common_instructions", found.common.into()),
        ("a_instructions", found.instructions[0].into()),
        ("b_instructions", found.instructions[1].into()),
    ];
    Table::new("first_divergence", Shape::Counters, summary, columns, rows)
}

//! `hodo latency`.

pub mod arguments;
mod never;
pub mod question;
pub mod tables;

use std::{
    cmp::Reverse,
    io::{self, Write},
    process::ExitCode,
};

use hodo_engine::{
    CHUNKS_IN_ORDER, Chunks, Experiment, Outcome, Reading, Request,
    latency::{self, CallTree, Compared, Interval, Measure, Scale},
};
use hodo_model::{Parameters, Role, Selection, Table};

use self::{
    arguments::{Bins, Latency, Worst},
    question::{Question, only},
};
use crate::{
    arguments::Input,
    failure::{Failure, INTERRUPTED, written},
    input,
    output::{self, Destination},
    progress::{Begin, Progress},
};

/// Number of worst executions listed by default.
const LISTED: usize = 10;

/// Runs the command.
pub fn run(command: &Latency) -> Result<ExitCode, Failure> {
    if let Some(list) = question::pair_list(&command.question)? {
        written(io::stdout().write_all(list.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (experiment, request) = open(command)?;
    let progress = Progress::new(experiment.work(&request), command.input.quiet);
    let outcome = experiment.run(&request, &mut |done| progress.set(done))?;
    progress.finish();
    if progress.is_interrupted() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    finish(command, &experiment, &request, outcome)
}

/// Opens the inputs of a latency, and makes its request.
pub fn open(command: &Latency) -> Result<(Experiment, Request), Failure> {
    let Some(question) = Question::of(&command.question, &command.matched)? else {
        return Err(Failure::usage(
            "from where to where? --function FUNC, --functions, --from MARKER --to MARKER, --pair NAME, --syscall NAME, --irq NUMBER, --state STATE or --period 'BEGIN -> END'; see `hodo latency --help`",
        ));
    };
    check(command, &question)?;
    let experiment = input::experiment(&command.input, question.needs())?;
    let question = question.settled(&experiment)?;
    check(command, &question)?;
    let request = request(&question, &command.input, &experiment, view(command))?;
    Ok((experiment, request))
}

/// Draws an outcome, with single executions if the output shows them.
fn finish(
    command: &Latency,
    experiment: &Experiment,
    request: &Request,
    outcome: Outcome,
) -> Result<ExitCode, Failure> {
    let lossless = outcome.is_lossless();
    if !command.input.quiet {
        outcome.notes.iter().for_each(|note| message!("{note}"));
        let question = Question::of(&command.question, &command.matched)?;
        let notes = question
            .map(|question| {
                never::notes(&question.settled(experiment)?, experiment, request, &outcome.tables)
            })
            .transpose()?;
        notes.iter().flatten().for_each(|note| message!("{note}"));
    }
    let code = input::exit_code_of(&command.input, experiment, lossless);
    match has_details(command) {
        true => details(command, experiment, request, outcome)
            .map(|done| if done { code } else { INTERRUPTED.into() }),
        false => output::draw_all(outcome.tables, &command.output).map(|()| code),
    }
}

/// Returns the request for a view of the intervals.
pub fn request(
    question: &Question,
    input: &Input,
    experiment: &Experiment,
    view: &str,
) -> Result<Request, Failure> {
    let selection = match question.is_of_events() {
        true => crate::selection::Selection::new(input, None)?.of_tables(Some(view)),
        false => Selection { view: view.to_owned(), ..Selection::default() },
    };
    let intervals = Some(question.resolve(experiment)?);
    let parameters = Parameters { selection, intervals, alone: true, ..Parameters::default() };
    let report = hodo_engine::report_for(Role::Intervals);
    input::request(input, None, vec![report], parameters, experiment)
}

/// Returns whether the output shows single executions.
fn has_details(command: &Latency) -> bool {
    let is_shown = ["text", "json", "markdown"].contains(&command.output.format.as_str());
    command.by.is_none() && is_shown && !command.question.functions
}

/// Returns the view of the report that the output requires.
fn view(command: &Latency) -> &'static str {
    let known = ["thread", "caller", "cpu", "time", "executions"];
    match &command.by {
        Some(by) => known.into_iter().find(|known| known == by).unwrap_or_default(),
        None if has_details(command) => "executions",
        None => "",
    }
}

/// Rejects options that can't be combined.
fn check(command: &Latency, question: &Question) -> Result<(), Failure> {
    let Input { tid, pid, comm, .. } = &command.input;
    let has_threads = !(tid.is_empty() && pid.is_empty() && comm.is_empty());
    let shows_single = command.outliers.is_some() || command.nth.is_some() || command.compare;
    let wrong = if command.question.functions && (shows_single || command.by.is_some()) {
        "--functions is about all of them; --by, --outliers, --nth and --compare are about one, with --function"
    } else if shows_single && !has_details(command) {
        "--outliers, --nth and --compare are for --format text, json or markdown, without --by"
    } else if shows_single && (command.input.time.is_some() || command.input.call.is_some()) {
        "--outliers, --nth and --compare look at whole threads, without --time and --call"
    } else if !question.belongs_to_threads() && has_threads {
        "--tid, --pid and --comm select threads, but interrupts and periods belong to none; `--period 'BEGIN where …'` selects events"
    } else if (command.compare || command.nth.is_some()) && question.is_of_events() {
        "--nth and --compare need control flow: software events have no call trees"
    } else {
        return Ok(());
    };
    Err(Failure::usage(wrong))
}

/// The single executions to show.
struct Shown<'i> {
    worst: Vec<&'i Interval>,
    /// Their call trees, if available.
    trees: Option<Vec<CallTree>>,
    nth: Option<(&'i Interval, CallTree)>,
    comparison: Option<Comparison<'i>>,
}

/// The slowest executions compared with a typical one.
struct Comparison<'i> {
    slow_count: usize,
    typical: &'i Interval,
    compared: Compared,
}

impl Comparison<'_> {
    fn table(&self) -> Table {
        self.compared.table(self.slow_count, self.typical)
    }

    fn causes(&self) -> Table {
        self.compared.causes_table(Vec::new())
    }
}

/// Draws the summary and single executions; returns false if interrupted.
fn details(
    command: &Latency,
    experiment: &Experiment,
    request: &Request,
    outcome: Outcome,
) -> Result<bool, Failure> {
    let [table] = <[Table; 1]>::try_from(outcome.tables).expect("one report of one trace makes one table");
    let intervals = latency::of_table(&table).expect("it was asked for executions");
    let mut order: Vec<&Interval> =
        intervals.iter().filter(|interval| interval.ended.is_complete()).collect();
    order.sort_by_key(|interval| match command.worst_by {
        Worst::Time => Reverse((interval.time, interval.instructions)),
        Worst::Instructions => Reverse((interval.instructions, interval.time)),
    });
    let listed = command.outliers.map_or(LISTED, |count| count as usize);
    let mut shown = Shown {
        worst: order.iter().copied().take(listed).collect(),
        trees: None,
        nth: None,
        comparison: None,
    };
    let slow = latency::slowest(&order);
    let typical = latency::typical(&order).filter(|_| command.compare);
    let nth = command.nth.map(|number| nth(&intervals, number)).transpose()?;
    let whole = command.input.time.is_none() && command.input.call.is_none();
    let wants_trees = command.outliers.is_some() || command.output.format == "json" && whole;
    // One pass makes all trees, in this order: of the worst, of the chosen one, of the typical one, of the slow ones.
    let mut asked: Vec<&Interval> = if wants_trees { shown.worst.clone() } else { Vec::new() };
    let worst = asked.len();
    asked.extend(nth);
    asked.extend(typical);
    asked.extend(typical.iter().flat_map(|_| slow.iter().copied()));
    let asked: Vec<_> = asked.into_iter().filter(|interval| interval.first.is_some()).collect();
    if !asked.is_empty() {
        let begin: Begin<'_> = &|bytes| Progress::new(bytes, command.input.quiet);
        let Some(mut trees) = trees(experiment, request, &asked, begin)? else { return Ok(false) };
        let mut rest = trees.split_off(worst).into_iter();
        shown.trees = wants_trees.then_some(trees);
        shown.nth = nth.and_then(|interval| Some((interval, rest.next()?)));
        shown.comparison = typical.and_then(|typical| {
            let tree = rest.next()?;
            let slow: Vec<CallTree> = rest.collect();
            let compared = latency::compare(&tree, &slow);
            Some(Comparison { slow_count: slow.len(), typical, compared })
        });
    }
    match command.output.format.as_str() {
        "json" => json(command, &table, &intervals, &shown)?,
        _ => draw(command, table, &intervals, &shown)?,
    }
    Ok(true)
}

fn nth(intervals: &[Interval], number: u64) -> Result<&Interval, Failure> {
    let interval = usize::try_from(number).ok().and_then(|number| intervals.get(number - 1));
    interval.ok_or_else(|| Failure::usage(format!("--nth {number}: there are only {}", intervals.len())))
}

/// Returns the call trees of executions; `None` if interrupted.
pub fn trees(
    experiment: &Experiment,
    request: &Request,
    asked: &[&Interval],
    begin: Begin<'_>,
) -> Result<Option<Vec<CallTree>>, Failure> {
    let spans: Option<Vec<_>> = asked.iter().map(|interval| latency::location(interval)).collect();
    let spans = spans.expect("executions of control flow say whose they are, and which instructions");
    experiment.with(|traces| {
        let flow = only(traces)?;
        let reading = reading_in_order(request);
        // The trees need two passes.
        let progress = begin(flow.bytes() * 2);
        let numbers = hodo_engine::numbers(flow, reading, |done| progress.set(done));
        let (trees, _) =
            latency::trees(flow, &spans, &numbers, reading, |done| progress.set(flow.bytes() + done));
        progress.finish();
        Ok(Some(trees).filter(|_| !progress.is_interrupted()))
    })
}

/// Returns a reading of a whole recording for results that come in order.
pub fn reading_in_order(request: &Request) -> Reading<'static> {
    let chunks = match request.chunks {
        Chunks::Bytes(_) => request.chunks,
        _ => CHUNKS_IN_ORDER,
    };
    Reading::new(request.threads, chunks)
}

/// Draws all tables for people.
fn draw(command: &Latency, table: Table, intervals: &[Interval], shown: &Shown<'_>) -> Result<(), Failure> {
    let scale = if command.bins == Bins::Linear { Scale::Linear } else { Scale::Logarithmic };
    let loss = table.loss.clone();
    let mut all = vec![tables::percentiles(table.summary, intervals)];
    if command.nth.is_none() && !command.compare {
        for measure in [Measure::Time, Measure::Instructions] {
            all.extend(tables::histogram(intervals, measure, scale));
        }
        all.extend((!shown.worst.is_empty()).then(|| tables::outliers(&shown.worst)));
    }
    let trees = shown.worst.iter().zip(shown.trees.iter().flatten());
    all.extend(trees.map(|(interval, tree)| tables::tree(interval, tree)));
    all.extend(shown.nth.iter().map(|(interval, tree)| tables::tree(interval, tree)));
    all.extend(shown.comparison.iter().flat_map(|comparison| [comparison.table(), comparison.causes()]));
    if let Some(last) = all.last_mut() {
        last.loss = loss;
    }
    let mut out = Destination::open(command.output.output.as_deref())?;
    let view = output::view(&command.output);
    for (index, table) in all.iter().enumerate() {
        if index > 0 {
            written(out.write_all(b"\n"))?;
        }
        written(view.draw(table, &output::options(command.output.limit, &command.output), &mut out))?;
    }
    out.finish()
}

/// Writes the histogram as JSON, with the worst executions and the other requested results as further members.
fn json(command: &Latency, table: &Table, intervals: &[Interval], shown: &Shown<'_>) -> Result<(), Failure> {
    let histogram = latency::histogram(table.summary.clone(), intervals).with_loss(table.loss.clone());
    let execution = |interval: &Interval, tree: Option<&CallTree>| {
        let mut object = serde_json::json!({
            "begin_ns": interval.begin,
            "time_ns": interval.time,
            "instructions": interval.instructions,
            "cycles": interval.cycles,
            "thread": &*interval.thread,
            "number": interval.number,
            "first_instruction": interval.first,
            "caller": &*interval.caller,
            "ended": interval.ended.name(),
        });
        let node = |node: &latency::CallNode| {
            serde_json::json!({
                "depth": node.depth,
                "function": &*node.function,
                "module": &*node.module,
                "recursion": node.recursion,
                "calls": node.calls,
                "instructions": node.instructions,
                "self_instructions": node.self_instructions,
                "time_ns": node.time,
                "waiting_ns": node.waiting,
            })
        };
        if let Some(tree) = tree {
            object["tree"] = tree.nodes.iter().map(node).collect();
        }
        object
    };
    let trees = shown.trees.as_deref().unwrap_or_default();
    let outliers =
        shown.worst.iter().enumerate().map(|(index, interval)| execution(interval, trees.get(index)));
    let mut members = vec![("outliers", outliers.collect::<serde_json::Value>())];
    members.extend(shown.nth.iter().map(|(interval, tree)| ("nth", execution(interval, Some(tree)))));
    members.extend(shown.comparison.iter().flat_map(|comparison| {
        [("compare", table_json(&comparison.table())), ("causes", table_json(&comparison.causes()))]
    }));
    let mut text = Vec::new();
    let view = output::view(&command.output);
    written(view.draw(&histogram, &output::options(command.output.limit, &command.output), &mut text))?;
    // Further members go before the closing brace of the table's object.
    let end = text.iter().rposition(|&byte| byte == b'}').expect("a table is an object");
    let more: String = members.iter().map(|(name, value)| format!(",\n\"{name}\":{value}")).collect();
    text.splice(end..end, more.into_bytes());
    let mut out = Destination::open(command.output.output.as_deref())?;
    written(out.write_all(&text))?;
    out.finish()
}

/// Converts a value of a table.
pub fn json_of(value: &hodo_model::Value) -> serde_json::Value {
    let mut text = Vec::new();
    value.cell().write_json(&mut text);
    serde_json::from_slice(&text).expect("a cell is JSON")
}

/// Converts a table to an object: its summary, and an object per row.
fn table_json(table: &Table) -> serde_json::Value {
    let value = json_of;
    let summary: serde_json::Map<_, _> =
        table.summary.iter().map(|(name, own)| ((*name).to_owned(), value(own))).collect();
    let row = |cells: Vec<hodo_model::Value>| {
        let members = table.columns().iter().zip(&cells);
        let members: serde_json::Map<_, _> =
            members.map(|(column, cell)| (column.name.to_owned(), value(cell))).collect();
        serde_json::Value::from(members)
    };
    let rows: Vec<serde_json::Value> = table.rows().into_iter().map(row).collect();
    serde_json::json!({ "summary": summary, "rows": rows })
}

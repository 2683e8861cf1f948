//! Computes the tables of one side.

use std::collections::{BTreeMap, BTreeSet};

use hodo_compare::Inlined;
use hodo_engine::{AnyReport, Experiment, Needs, reports_for};
use hodo_model::{Loss, Parameters, Role, Root, Selection, Table, Value};

use super::Diff;
use crate::{arguments::Input, failure::Failure, function, input, progress::Begin};

/// The tables of a side's recordings.
#[derive(Default)]
pub struct Gathered {
    /// Call paths, one table per recording.
    pub paths: Vec<Table>,
    /// The divisor of each recording.
    pub weights: Vec<u64>,
    /// Latencies by report, one table per recording.
    pub events: BTreeMap<&'static str, Vec<Table>>,
    /// Losses of the recordings.
    pub loss: Vec<Loss>,
}

/// Reads the recordings of a side; `None` if interrupted.
pub fn gather(
    command: &Diff,
    side: &[Input],
    name: &str,
    begin: Begin<'_>,
) -> Result<Option<Gathered>, Failure> {
    let mut gathered = Gathered::default();
    for input in side {
        let experiment = input::experiment(input, Needs::ALL)?;
        if let Some(problem) = experiment.problems.first() {
            return Err(Failure::unreadable(problem));
        }
        if experiment.contents.flow && !gathered.add_flow(command, input, &experiment, begin)? {
            return Ok(None);
        }
        if experiment.contents.events && !gathered.add_events(command, input, &experiment, begin)? {
            return Ok(None);
        }
    }
    for loss in &mut gathered.loss {
        loss.stream = format!("{name}: {}", loss.stream).trim_end_matches([' ', ':']).to_owned();
    }
    Ok(Some(gathered))
}

impl Gathered {
    /// Adds the call paths of a recording; returns false if interrupted.
    fn add_flow(
        &mut self,
        command: &Diff,
        input: &Input,
        experiment: &Experiment,
        begin: Begin<'_>,
    ) -> Result<bool, Failure> {
        // With --nth, the selected calls already have their function as root.
        let root = command.root().filter(|_| command.nth.is_none());
        let root = root.map(|root| function::root(&root, experiment)).transpose()?;
        let selection = Selection { root, ..selection(input) };
        let parameters = Parameters { selection, ..Parameters::default() };
        let Some(tables) = run(input, experiment, reports_for(Role::CallPaths), parameters, begin)? else {
            return Ok(false);
        };
        for mut table in tables {
            let executions = match table.figure("executions") {
                Some(Value::Integer(executions)) => *executions,
                _ => 1,
            };
            self.loss.append(&mut table.loss);
            self.weights.push(executions);
            self.paths.push(table);
        }
        Ok(true)
    }

    /// Adds the latencies of a trace of events.
    fn add_events(
        &mut self,
        command: &Diff,
        input: &Input,
        experiment: &Experiment,
        begin: Begin<'_>,
    ) -> Result<bool, Failure> {
        if !experiment.contents.flow && command.root().is_some() {
            return Err(Failure::usage(
                "--per and --function are about control flow, and the input has software events",
            ));
        }
        // With control flow, --call selects from it and not from events.
        let call = input.call.clone().filter(|_| !experiment.contents.flow);
        let input = Input { call, ..input.clone() };
        let usual = Parameters { selection: selection(&input), ..Parameters::default() };
        let selects_threads = !usual.selection.is_of_all();
        let is_usable = |report: &&'static AnyReport| !selects_threads || report.description().takes.threads;
        let mut requests: Vec<(Vec<&'static AnyReport>, Parameters)> =
            vec![(reports_for(Role::Latencies), usual.clone())];
        if let Some(period) = command.period.period()? {
            requests.push((reports_for(Role::Periods), Parameters { period: Some(period), ..usual }));
        }
        requests.iter_mut().for_each(|(reports, _)| reports.retain(is_usable));
        requests.retain(|(reports, _)| !reports.is_empty());
        for (reports, parameters) in requests {
            let Some(tables) = run(&input, experiment, reports, parameters, begin)? else { return Ok(false) };
            for table in tables {
                for loss in &table.loss {
                    if !self.loss.contains(loss) {
                        self.loss.push(loss.clone());
                    }
                }
                self.events.entry(table.name()).or_default().push(table);
            }
        }
        Ok(true)
    }
}

pub fn selection(input: &Input) -> Selection {
    Selection { tids: input.tid.clone(), pids: input.pid.clone(), ..Selection::default() }
}

/// Runs reports and returns their tables; `None` if interrupted.
pub fn run(
    input: &Input,
    experiment: &Experiment,
    reports: Vec<&'static AnyReport>,
    parameters: Parameters,
    begin: Begin<'_>,
) -> Result<Option<Vec<Table>>, Failure> {
    let request = input::request(input, None, reports, parameters, experiment)?;
    let progress = begin(experiment.work(&request));
    let outcome = experiment.run(&request, &mut |done| progress.set(done))?;
    progress.finish();
    Ok((!progress.is_interrupted()).then_some(outcome.tables))
}

/// Returns the instructions that functions with these names executed inline, those of functions inlined into them included,
/// according to debugging information. With a root, counts only while the root runs.
pub fn inlined(
    input: &Input,
    root: Option<Root>,
    names: &BTreeSet<String>,
    begin: Begin<'_>,
) -> Result<Inlined, Failure> {
    let mut counts = Inlined::new();
    let call = match root {
        None => input.call.clone(),
        Some(Root::Function(name)) => input.call.clone().or(Some(name)),
        // A system call may have several functions, so no single --call selects its executions.
        Some(Root::SystemCall(_)) => return Ok(counts),
    };
    if names.is_empty() {
        return Ok(counts);
    }
    let input = &Input { call, ..input.clone() };
    let experiment = input::experiment(input, Needs { flow: true, sideband: false, events: false })?;
    if input::request(input, None, Vec::new(), Parameters::default(), &experiment).is_err() {
        return Ok(counts);
    }
    let selection = Selection { view: "inlined".to_owned(), ..selection(input) };
    let parameters = Parameters { selection, alone: true, ..Parameters::default() };
    let tables = run(input, &experiment, reports_for(Role::SourceLines), parameters, begin)?;
    for table in tables.iter().flatten() {
        let index_of = |name: &str| table.columns().iter().position(|column| column.name == name);
        let (Some(function), Some(instructions)) = (index_of("function"), index_of("total_instructions"))
        else {
            continue;
        };
        for row in table.rows() {
            if let (Value::Text(name), Value::Integer(count)) = (&row[function], &row[instructions])
                && names.contains(name)
            {
                *counts.entry(name.clone()).or_default() += count;
            }
        }
    }
    Ok(counts)
}

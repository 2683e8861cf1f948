//! `hodo explain`.

mod closer;
mod difference;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    process::ExitCode,
};

use hodo_engine::{Experiment, Needs, Request};
use hodo_findings::{
    DIFFERENCE_RULES, Evidence, FUNCTIONS, Finding, Need, RULES, Rule, WIDTH, findings, functions, further,
    needs, questions, quoted, table, why, wrapped,
};
use hodo_model::{Loss, Parameters, Table};
use hodo_views::write_loss;

use crate::{
    arguments::{Explain, Input},
    failure::{Failure, INTERRUPTED, written},
    input,
    latency::json_of,
    output::{self, Destination},
    progress::Progress,
};

/// Runs the command.
pub fn run(command: &Explain) -> Result<ExitCode, Failure> {
    if command.list {
        let rules = RULES.iter().chain(DIFFERENCE_RULES);
        let lines = rules.map(|rule| format!("{:16} {}\n", rule.name, rule.help));
        written(io::stdout().write_all(lines.collect::<String>().as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rule = command.why.as_deref().map(rule).transpose()?;
    if let Some(sides) = difference::sides(command)? {
        return difference::run(command, rule, &sides);
    }
    let experiment = input::experiment(&command.input, Needs::ALL)?;
    let progress = Progress::new(work(&command.input, &experiment)?, command.input.quiet);
    let read = read(&command.input, &experiment, &mut |done| progress.set(done))?;
    progress.finish();
    let Some(read) = read else { return Ok(ExitCode::from(INTERRUPTED)) };
    let losses: Vec<Loss> = read.evidence().losses().into_iter().map(|(_, loss)| loss.clone()).collect();
    let nothing =
        format!("no number of {} tables passes a threshold (`hodo explain --list`)", read.tables.len());
    match rule {
        Some(rule) => write(&why(rule, &read.evidence(), findings), command)?,
        None => {
            let found = with_selection(findings(&read.evidence()), &command.input);
            Explained { found, losses: &losses, subject: "Nothing", nothing }.draw(command)?;
        }
    }
    if command.input.strict && !read.lossless {
        say_losses(&losses);
    }
    Ok(input::exit_code_of(&command.input, &experiment, read.lossless))
}

/// Says on standard error why `--strict` fails.
fn say_losses(losses: &[Loss]) {
    message!("--strict: data is missing, as the finding of the rule `lost` says");
    input::report_loss_list(losses);
}

/// What is explained of an input.
struct Explained<'l> {
    found: Vec<Finding>,
    losses: &'l [Loss],
    /// What does not stand out if there are no findings: `Nothing`.
    subject: &'static str,
    /// Why there are no more findings, as the end of a sentence.
    nothing: String,
}

impl Explained<'_> {
    /// Draws the findings in the chosen format.
    fn draw(&self, command: &Explain) -> Result<(), Failure> {
        match command.output.format.as_str() {
            "text" => write(&self.text(command)?, command),
            "json" => write(&self.json(command)?, command),
            _ => output::draw(self.table(), &command.output),
        }
    }

    fn table(&self) -> Table {
        let mut table = table(&self.found);
        table.loss = self.losses.to_vec();
        table
    }

    /// Formats the findings as the JSON of their table, with an object for each: the rule, the numbers of the sentence by
    /// name, the command and the link.
    fn json(&self, command: &Explain) -> Result<String, Failure> {
        let mut text = Vec::new();
        let options = output::options(command.output.limit, &command.output);
        written(output::view(&command.output).draw(&self.table(), &options, &mut text))?;
        let mut text = String::from_utf8(text).expect("JSON is UTF-8");
        let objects: Vec<serde_json::Value> = self.found.iter().map(object).collect();
        // A further member goes before the closing brace of the table's object.
        let end = text.rfind('}').expect("a table is an object");
        text.insert_str(end, &format!(",\n\"findings\":{}", serde_json::Value::from(objects)));
        Ok(text)
    }

    /// Formats the findings for people, with the losses at the end, as reports list them.
    fn text(&self, command: &Explain) -> Result<String, Failure> {
        let files = command.baseline.iter().chain(&command.input.files);
        let names: Vec<String> = files.map(|file| file.display().to_string()).collect();
        let inputs = names.join(" ");
        let limit =
            command.output.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let mut text = String::new();
        for (number, finding) in (1..).zip(self.found.iter().take(limit)) {
            let lines = wrapped(&finding.sentence, WIDTH);
            let number = format!("{number:2}. ");
            for (index, line) in lines.iter().enumerate() {
                text.push_str(if index == 0 { &number } else { "    " });
                text.push_str(line);
                text.push('\n');
            }
            // For a shell the link is a comment, so the line can be copied as it is.
            text.push_str(&format!("    hodo {} {inputs}  {}\n\n", finding.command, finding.link));
        }
        let is_loss = |finding: &Finding| finding.rule == "lost";
        if self.found.iter().all(is_loss) {
            let other = if self.found.is_empty() { "" } else { " else" };
            let known = if self.losses.is_empty() { "" } else { " of what could be read" };
            text.push_str(&format!("{}{other} stands out{known}: {}.\n", self.subject, self.nothing));
            text.push_str(if self.losses.is_empty() { "" } else { "\n" });
        }
        let mut losses = Vec::new();
        let options = output::options(command.output.limit, &command.output);
        written(write_loss(self.losses, &options, &mut losses))?;
        text.push_str(&String::from_utf8_lossy(&losses));
        Ok(text)
    }
}

/// Adds the selection to the commands of findings, so that they show the numbers of the sentences.
fn with_selection(mut found: Vec<Finding>, input: &Input) -> Vec<Finding> {
    let is_part = input.time.is_some() || input.call.is_some();
    for finding in &mut found {
        // Single executions are compared in whole threads only.
        if is_part {
            finding.command = finding.command.replace(" --compare", "");
        }
        finding.command += &selection_of(input, &finding.command);
    }
    found
}

/// Returns the options that select a part of the input, but for those that a command has.
fn selection_of(input: &Input, command: &str) -> String {
    let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let options = [
        ("--tid", list(&input.tid)),
        ("--pid", list(&input.pid)),
        ("--comm", input.comm.join(",")),
        ("--time", input.time.clone().unwrap_or_default()),
        ("--call", input.call.clone().unwrap_or_default()),
    ];
    let mut words = String::new();
    for (option, value) in options {
        let is_known = command.split(' ').any(|word| word == option);
        if !value.is_empty() && !is_known {
            words += &format!(" {option} {}", quoted(&value));
        }
    }
    if input.without_recorder {
        words += " --without-recorder";
    }
    words
}

fn object(finding: &Finding) -> serde_json::Value {
    let numbers: serde_json::Map<String, serde_json::Value> =
        finding.numbers.iter().map(|(name, value)| ((*name).to_owned(), json_of(value))).collect();
    serde_json::json!({
        "rule": finding.rule,
        "weight": finding.weight,
        "sentence": finding.sentence,
        "numbers": numbers,
        "command": finding.command,
        "link": finding.link,
    })
}

fn write(text: &str, command: &Explain) -> Result<(), Failure> {
    let mut out = Destination::open(command.output.output.as_deref())?;
    written(out.write_all(text.as_bytes()))?;
    out.finish()
}

/// Returns the rule with this name.
fn rule(name: &str) -> Result<&'static Rule, Failure> {
    let rules = || RULES.iter().chain(DIFFERENCE_RULES);
    rules().find(|rule| rule.name == name).ok_or_else(|| {
        let names: Vec<&str> = rules().map(|rule| rule.name).collect();
        Failure::usage(format!("--why {name}: no such rule; the rules are {}", names.join(", ")))
    })
}

/// The tables that the rules read.
struct ReadTables {
    tables: Vec<(Need, Table)>,
    /// Whether nothing is missing from these.
    lossless: bool,
}

impl ReadTables {
    fn evidence(&self) -> Evidence<'_> {
        Evidence::new(self.tables.iter().map(|(need, table)| (*need, table)).collect())
    }
}

/// Returns the number of bytes that [`find`] reads, besides those of slow executions.
pub fn work(input: &Input, experiment: &Experiment) -> Result<u64, Failure> {
    let (_, request) = request(input, experiment)?;
    Ok(experiment.work(&request))
}

/// Reads the tables and applies the rules; `None` if `progress`, which gets the bytes done, or the user ends the work.
pub fn find(
    input: &Input,
    experiment: &Experiment,
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> Result<Option<Vec<Finding>>, Failure> {
    Ok(read(input, experiment, progress)?.map(|read| findings(&read.evidence())))
}

/// Reads the tables: those of all rules, the functions of call trees, those that few inputs need, and those about executions of single functions.
fn read(
    input: &Input,
    experiment: &Experiment,
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> Result<Option<ReadTables>, Failure> {
    let (needs, request) = request(input, experiment)?;
    let mut wants_more = true;
    let outcome = experiment.run(&request, &mut |done| {
        wants_more = progress(done);
        wants_more
    })?;
    if !wants_more {
        return Ok(None);
    }
    let lossless = outcome.is_lossless();
    let mut read = ReadTables { tables: by_need(outcome.tables, &needs), lossless };
    let trees = read.tables.iter().filter(|(need, _)| need.0 == "tree");
    let of_trees: Vec<_> = trees.map(|(_, tree)| (FUNCTIONS, functions(tree))).collect();
    read.tables.extend(of_trees);
    let needs = further(&read.evidence());
    if !needs.is_empty() {
        let further = request_of(input, experiment, &needs)?;
        let progress = Progress::new(experiment.work(&further), input.quiet);
        let outcome = experiment.run(&further, &mut |done| progress.set(done))?;
        progress.finish();
        if progress.is_interrupted() {
            return Ok(None);
        }
        read.tables.extend(by_need(outcome.tables, &needs));
    }
    let questions = questions(&read.evidence());
    let Some(closer) = closer::look(input, experiment, &request, &questions)? else { return Ok(None) };
    read.tables.extend(closer);
    Ok(Some(read))
}

/// Returns the request for the tables of all rules, and the need that each table meets.
fn request(input: &Input, experiment: &Experiment) -> Result<(Vec<Need>, Request), Failure> {
    let needs = needs();
    let request = request_of(input, experiment, &needs)?;
    Ok((needs, request))
}

fn request_of(input: &Input, experiment: &Experiment, needs: &[Need]) -> Result<Request, Failure> {
    let selection = crate::selection::Selection::new(input, None)?.of_tables(None);
    let report = |&(name, _): &Need| hodo_engine::report(name).expect("rules name reports");
    let reports = needs.iter().map(report).collect();
    let parameters = Parameters { selection, ..Parameters::default() };
    let mut request = crate::input::request(input, None, reports, parameters, experiment)?;
    request.views = needs.iter().map(|(_, view)| *view).collect();
    Ok(request)
}

/// Says of each table what it is of. Tables of one report come in the order of its views, for each trace.
fn by_need(tables: Vec<Table>, needs: &[Need]) -> Vec<(Need, Table)> {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    let need = |table: Table| {
        let name = table.name();
        let views: Vec<Need> = needs.iter().copied().filter(|(report, _)| *report == name).collect();
        let count = counts.entry(views.first()?.0).or_default();
        *count += 1;
        Some((views[(*count - 1) % views.len()], table))
    };
    tables.into_iter().filter_map(need).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The engine folds all that rules read of control flow in one pass, if these are the analyses that it expects.
    #[test]
    fn control_flow_is_decoded_once_for_all_rules() {
        let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/perf/tiny.data");
        let input = Input { files: vec![recording.into()], ..Input::default() };
        let experiment = input::experiment(&input, Needs::ALL).expect("the recording is there");
        let tree = request_of(&input, &experiment, &[("tree", "")]).expect("it has control flow");
        assert!(experiment.work(&tree) > 0);
        assert_eq!(work(&input, &experiment).expect("it has control flow"), experiment.work(&tree));
    }

    #[test]
    fn commands_have_the_selection() {
        let input = Input {
            tid: vec![7, 8],
            comm: vec!["my prog".to_owned()],
            time: Some("10%-20%".to_owned()),
            ..Input::default()
        };
        let words = selection_of(&input, "report states");
        assert_eq!(words, " --tid 7,8 --comm 'my prog' --time 10%-20%");
        assert_eq!(selection_of(&input, "report io --tid 9"), " --comm 'my prog' --time 10%-20%");
        assert_eq!(selection_of(&Input::default(), "path"), "");
    }
}

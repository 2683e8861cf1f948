//! `hodo help`: the help texts, and with `--json` a description of all commands, reports and units for programs.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Arg, ArgAction, Args, Command, CommandFactory};
use hodo_engine::{AnyReport, Needs, empty_table, reports};
use hodo_model::{
    LaneValue, Lanes,
    table::{Unit, metadata::ColumnMetadata},
};
use serde_json::{Value, json};

use crate::{
    arguments::Arguments,
    export,
    failure::{Failure, written},
    report,
};

/// The version of the description: it grows when a member changes its meaning or disappears.
const VERSION: u32 = 1;

#[derive(Debug, Args)]
pub struct Help {
    /// Command to describe
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
    /// Describe the command for programs; without one everything: commands, reports with their columns, formats, rules
    /// and units
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(help: &Help) -> Result<ExitCode, Failure> {
    let mut program = Arguments::command();
    program.build();
    let chosen = match &help.command {
        None => &mut program,
        Some(name) => program
            .find_subcommand_mut(name)
            .ok_or_else(|| Failure::usage(format!("no command is named `{name}`; `hodo help` lists them")))?,
    };
    if !help.json {
        written(chosen.print_long_help())?;
        return Ok(ExitCode::SUCCESS);
    }
    let description = if help.command.is_some() { command(chosen) } else { description(chosen) };
    let text = serde_json::to_string_pretty(&description).expect("names are text");
    written(writeln!(io::stdout(), "{text}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Describes the whole program.
fn description(program: &Command) -> Value {
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    let named = |(name, help): (&str, &str)| json!({ "name": name, "help": help });
    let list = |list: Vec<(&'static str, &'static str)>| list.into_iter().map(named).collect::<Vec<_>>();
    let units = Unit::ALL.map(|unit| json!({ "name": unit.name(), "meaning": unit.meaning() }));
    json!({
        "version": VERSION,
        "program": program.get_name(),
        "program_version": env!("CARGO_PKG_VERSION"),
        "commands": commands.map(command).collect::<Vec<_>>(),
        "reports": reports().iter().map(report_description).collect::<Vec<_>>(),
        "formats": list(hodo_views::VIEWS.iter().map(|view| (view.name, view.help)).collect()),
        "exports": list(export::list().collect()),
        "rules": list(hodo_findings::RULES.iter().map(|rule| (rule.name, rule.help)).collect()),
        "units": units,
    })
}

fn command(command: &Command) -> Value {
    let usage = command.clone().render_usage().to_string();
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    json!({
        "name": command.get_name(),
        "help": command.get_about().map(ToString::to_string),
        "usage": usage.trim_start_matches("Usage:").trim(),
        "arguments": arguments.map(argument).collect::<Vec<_>>(),
        "notes": command.get_after_help().map(ToString::to_string),
    })
}

fn argument(argument: &Arg) -> Value {
    let takes_values = argument.get_action().takes_values();
    let values = argument.get_possible_values();
    let values = values.iter().filter(|value| !value.is_hide_set());
    let values = values
        .map(|value| json!({ "name": value.get_name(), "help": value.get_help().map(ToString::to_string) }));
    let values = values.collect::<Vec<_>>();
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy());
    let is_repeatable = matches!(argument.get_action(), ArgAction::Append)
        || argument.get_num_args().is_some_and(|count| count.max_values() > 1);
    json!({
        "name": argument.get_id().as_str(),
        "long": argument.get_long(),
        "short": argument.get_short(),
        "value": argument.get_value_names().filter(|_| takes_values).map(|names| names.join(" ")),
        "help": argument.get_help().map(ToString::to_string),
        "values": if takes_values { values } else { Vec::new() },
        "default": if takes_values { defaults.collect::<Vec<_>>() } else { Vec::new() },
        "required": argument.is_required_set(),
        "repeatable": is_repeatable,
    })
}

/// Describes a report, with the columns of each view.
fn report_description(report: &'static AnyReport) -> Value {
    let about = report.description();
    let Needs { flow, .. } = report::needs(&[report]);
    let names = if about.views.is_empty() { &[""][..] } else { about.views };
    let views = names.iter().map(|view| {
        let schema = empty_table(report, view).schema();
        let columns = schema.fields().iter().map(
            |field| json!({ "name": field.name(), "type": field.type_name(), "unit": field.unit().name() }),
        );
        json!({ "name": view, "columns": columns.collect::<Vec<_>>() })
    });
    json!({
        "name": about.name,
        "help": about.help,
        "reads": if flow { "control flow" } else { "events" },
        "in_all": about.in_all,
        "requires": if about.takes.period { &["--begin", "--end"][..] } else { &[] },
        "views": views.collect::<Vec<_>>(),
        "lanes": about.lanes.map(lanes),
    })
}

/// Describes the records that a report's rows become in the history on disk.
fn lanes(lanes: Lanes) -> Value {
    let (is_link, value) = match lanes.value {
        LaneValue::Column(name) => (false, vec![name]),
        LaneValue::Lane(names) => (true, names.to_vec()),
    };
    let Lanes { view, lane, path, .. } = lanes;
    json!({ "view": view, "lane": lane, "value": value, "is_link": is_link, "path": path })
}

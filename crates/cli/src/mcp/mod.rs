//! `hodo mcp`: tools for programs that plan, over the Model Context Protocol.
//!
//! Each call runs `hodo` itself, so that a call can be stopped, and what it reads can't break the server.

mod child;
mod tools;

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::AtomicBool,
    time::Duration,
};

use clap::{Args, Command, CommandFactory};
use hodo_engine::reports;
use hodo_mcp::{Answer, Limits, Tool, Tools};
use serde_json::{Map, Value, json};

use self::{
    child::Outcome,
    tools::{PATHS, Spec, TOOLS, call_of},
};
use crate::{arguments::Arguments, failure::Failure};

/// The most bytes of an answer by default.
const ANSWER_BYTES: usize = 4096;
/// The fewest, so that each part has room for text besides the calls that follow.
const LEAST_ANSWER_BYTES: u64 = 1024;
/// The longest time of a call by default, in seconds.
const SECONDS: u64 = 600;

const INSTRUCTIONS: &str = "Exact execution traces: every call, branch and instruction that a program ran, and what the kernel \
did meanwhile. Begin with explain, which says in sentences what stands out; then latency (why were some executions slow), \
diff or explain with a baseline (what changed), source (counts of each line), sql (any question). Every answer ends with \
calls that probably follow. Counts are exact; losses are always said.";

/// Arguments of `hodo mcp`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo mcp --allow .                        a client starts it, and talks to it on standard input and output
  hodo mcp --allow ~/traces --allow-record  it may also run programs and record them

A client's configuration:
  { \"mcpServers\": { \"hodo\": { \"command\": \"hodo\", \"args\": [\"mcp\", \"--allow\", \"/home/me/traces\"] } } }")]
pub struct Mcp {
    /// Folder in which recordings and sources may be read (repeatable)
    #[arg(long, value_name = "DIR", required = true)]
    pub allow: Vec<PathBuf>,
    /// Let the client run programs, and write recordings into the folders
    #[arg(long)]
    pub allow_record: bool,
    /// The most bytes of an answer; longer ones come in parts
    #[arg(long, value_name = "N", default_value_t = ANSWER_BYTES as u64, value_parser = clap::value_parser!(u64).range(LEAST_ANSWER_BYTES..))]
    pub answer_bytes: u64,
    /// The longest time of a call, in seconds
    #[arg(long, value_name = "N", default_value_t = SECONDS)]
    pub timeout: u64,
}

/// Runs the command.
pub fn run(command: &Mcp) -> Result<ExitCode, Failure> {
    let folders = command.allow.iter().map(|folder| {
        let whole = folder.canonicalize();
        whole.map_err(|error| Failure::unreadable(format!("{}: {error}", folder.display())))
    });
    let mut program = Arguments::command();
    program.build();
    let server = Server {
        program,
        folders: folders.collect::<Result<_, _>>()?,
        may_record: command.allow_record,
        timeout: Duration::from_secs(command.timeout),
    };
    let answer_bytes = usize::try_from(command.answer_bytes).unwrap_or(usize::MAX);
    let limits = Limits { answer_bytes, instructions: INSTRUCTIONS.to_owned() };
    let input = io::BufReader::new(io::stdin());
    hodo_mcp::serve(input, &mut io::stdout().lock(), &server, &limits).map_err(Failure::unreadable)?;
    Ok(ExitCode::SUCCESS)
}

struct Server {
    /// All commands with their arguments.
    program: Command,
    folders: Vec<PathBuf>,
    may_record: bool,
    timeout: Duration,
}

impl Tools for Server {
    fn list(&self) -> Vec<Tool> {
        let describe = |spec: &'static Spec| {
            let command = self.command(spec);
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let description = match spec.name {
                "report" => {
                    let names: Vec<&str> = reports().iter().map(|report| report.description().name).collect();
                    format!("{about}. Kinds: {}", names.join(", "))
                }
                "step" => {
                    "The place and the call stack of each thread at an instant of the execution".to_owned()
                }
                _ => about,
            };
            Tool { name: spec.name, description, schema: spec.schema(command), only_reads: !spec.records }
        };
        TOOLS.iter().filter(|spec| self.may_record || !spec.records).map(describe).collect()
    }

    fn call(&self, name: &str, arguments: &Map<String, Value>, stop: &AtomicBool) -> Option<Answer> {
        let spec = TOOLS.iter().find(|spec| spec.name == name && (self.may_record || !spec.records))?;
        let answer = match self.words(spec, arguments) {
            Ok(words) if spec.name == "explain" && !arguments.contains_key("why") => {
                self.explain(spec, arguments, &words, stop)
            }
            Ok(words) => self.answer(spec, arguments, &words, stop),
            Err(why) => Answer { text: why, failed: true, ..Answer::default() },
        };
        Some(answer)
    }
}

impl Server {
    fn command(&self, spec: &Spec) -> &Command {
        self.program.find_subcommand(spec.command).expect("a tool is a command")
    }

    /// The command line that a call stands for.
    fn words(&self, spec: &Spec, arguments: &Map<String, Value>) -> Result<Vec<String>, String> {
        let known: Vec<&str> = spec.arguments().collect();
        if let Some(unknown) = arguments.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("{} has no argument `{unknown}`; it has {}", spec.name, known.join(", ")));
        }
        if let Some(missing) = spec.required.iter().find(|name| !arguments.contains_key(**name)) {
            return Err(format!("{} needs the argument `{missing}`", spec.name));
        }
        for name in PATHS {
            for path in texts(arguments.get(name), name)? {
                self.check(&path)?;
            }
        }
        let command = self.command(spec);
        let mut words = vec![spec.command.to_owned(), "--quiet".to_owned()];
        for &name in spec.options {
            let argument = command.get_arguments().find(|argument| argument.get_id() == name);
            let long = argument.and_then(|argument| argument.get_long()).unwrap_or(name);
            match arguments.get(name) {
                None | Some(Value::Bool(false)) => {}
                Some(Value::Bool(true)) => words.push(format!("--{long}")),
                given => words.extend(texts(given, name)?.iter().map(|value| format!("--{long}={value}"))),
            }
        }
        words.push("--".to_owned());
        for name in spec.positionals {
            words.extend(texts(arguments.get(*name), name)?);
        }
        Ok(words)
    }

    /// Refuses what is in no folder that the user allowed.
    fn check(&self, path: &str) -> Result<(), String> {
        let given = Path::new(path);
        // What is still to be written has no path of its own yet.
        let whole = given.canonicalize().or_else(|_| {
            let parent = given.parent().filter(|parent| !parent.as_os_str().is_empty());
            let folder = parent.unwrap_or(Path::new(".")).canonicalize()?;
            let name = given.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            Ok::<_, io::Error>(folder.join(name))
        });
        let whole = whole.map_err(|error| format!("{path}: {error}"))?;
        if self.folders.iter().any(|folder| whole.starts_with(folder)) {
            return Ok(());
        }
        let allowed: Vec<String> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
        Err(format!("{path} is in no folder that the user allowed: {}", allowed.join(", ")))
    }

    fn answer(
        &self,
        spec: &Spec,
        arguments: &Map<String, Value>,
        words: &[String],
        stop: &AtomicBool,
    ) -> Answer {
        let Outcome { text, messages, succeeded } = child::run(words, &self.folders, self.timeout, stop);
        let parts = [text.trim_end(), messages.trim_end()];
        let text = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
        let next = if succeeded { spec.next(arguments) } else { Vec::new() };
        Answer { text, next, failed: !succeeded }
    }

    /// Findings, with the calls that show their evidence.
    fn explain(
        &self,
        spec: &Spec,
        arguments: &Map<String, Value>,
        words: &[String],
        stop: &AtomicBool,
    ) -> Answer {
        let words = [&words[..1], &["--format=json".to_owned()], &words[1..]].concat();
        let Outcome { text, messages, succeeded } = child::run(&words, &self.folders, self.timeout, stop);
        let table: Value = serde_json::from_str(&text).unwrap_or_default();
        let Some(findings) = table["findings"].as_array().filter(|_| succeeded) else {
            return Answer { text: format!("{text}{messages}"), next: Vec::new(), failed: true };
        };
        let files = arguments.get("files").cloned().unwrap_or_default();
        let mut lines = Vec::new();
        for (number, finding) in findings.iter().enumerate() {
            let of = |name: &str| finding[name].as_str().unwrap_or_default();
            lines.push(format!("{}. [{}] {}", number + 1, of("rule"), of("sentence")));
            if let Some(call) = call_of(of("command"), &files, &self.program) {
                lines.push(format!("   Evidence: {call}"));
            }
        }
        if findings.is_empty() {
            lines.push("Nothing stands out.".to_owned());
        }
        let losses = table["loss"].as_array().into_iter().flatten();
        lines.extend(
            losses.map(|loss| format!("Loss: {}", loss.as_str().map_or(loss.to_string(), str::to_owned))),
        );
        lines.extend(Some(messages.trim_end().to_owned()).filter(|messages| !messages.is_empty()));
        Answer { text: lines.join("\n"), next: spec.next(arguments), failed: false }
    }
}

/// The texts that an argument holds: none, one or a list.
fn texts(value: Option<&Value>, name: &str) -> Result<Vec<String>, String> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(format!("`{name}` is no text: {}", json!(value))),
    };
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(values)) => values.iter().map(text).collect(),
        Some(value) => Ok(vec![text(value)?]),
    }
}

//! The tools: commands with those of their options that answer questions.

use clap::{ArgAction, Command};
use serde_json::{Map, Value, json};

/// A tool: a command, and what of it is offered.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    /// The command that it runs.
    pub(super) command: &'static str,
    /// Arguments without a name, in their order. They are clap's, or those of `own`.
    pub(super) positionals: &'static [&'static str],
    /// Arguments with a name.
    pub(super) options: &'static [&'static str],
    /// Arguments that must be there.
    pub(super) required: &'static [&'static str],
    /// Arguments that clap does not know by a name: the name and what it is.
    pub(super) own: &'static [(&'static str, &'static str)],
    /// Calls that probably follow. `FILES` stands for the recordings of this call, `OUTPUT` for its output.
    pub(super) next: &'static [&'static str],
    /// Whether it runs programs and writes files.
    pub(super) records: bool,
}

/// Arguments that are files or folders, which must be in a folder that the user allowed.
pub(super) const PATHS: [&str; 3] = ["files", "baseline", "output"];

const NOTHING: Spec = Spec {
    name: "",
    command: "",
    positionals: &["files"],
    options: &[],
    required: &["files"],
    own: &[],
    next: &[],
    records: false,
};

/// All of them.
pub(super) const TOOLS: &[Spec] = &[
    Spec {
        name: "record",
        command: "record",
        positionals: &["command"],
        options: &[
            "output",
            "filter",
            "threads",
            "after",
            "duration",
            "snapshot",
            "trigger",
            "deterministic",
        ],
        required: &["command", "output"],
        next: &[r#"explain {"files":[OUTPUT]}"#, r#"report {"kind":"functions","files":[OUTPUT]}"#],
        records: true,
        ..NOTHING
    },
    Spec {
        name: "info",
        command: "info",
        next: &[r#"explain {"files":FILES}"#, r#"sql {"tables":true,"files":FILES}"#],
        ..NOTHING
    },
    Spec {
        name: "explain",
        command: "explain",
        options: &["baseline", "why", "tid", "pid", "comm", "time", "call"],
        next: &[
            r#"report {"kind":"functions","files":FILES}"#,
            r#"latency {"functions":true,"files":FILES}"#,
        ],
        ..NOTHING
    },
    Spec {
        name: "report",
        command: "report",
        positionals: &["kind", "files"],
        options: &["by", "every", "tid", "pid", "comm", "time", "call", "event", "limit"],
        required: &["kind", "files"],
        next: &[r#"source {"function":"NAME","files":FILES}"#],
        ..NOTHING
    },
    Spec {
        name: "latency",
        command: "latency",
        options: &[
            "function",
            "functions",
            "from",
            "to",
            "pair",
            "syscall",
            "irq",
            "state",
            "by",
            "outliers",
            "worst_by",
            "nth",
            "compare",
            "tid",
            "pid",
            "comm",
            "time",
            "limit",
        ],
        next: &[
            r#"latency {"function":"NAME","compare":true,"files":FILES}"#,
            r#"source {"function":"NAME","files":FILES}"#,
        ],
        ..NOTHING
    },
    Spec {
        name: "diff",
        command: "diff",
        options: &[
            "a_time",
            "b_time",
            "function",
            "nth",
            "per",
            "by",
            "divergence",
            "tid",
            "pid",
            "comm",
            "limit",
        ],
        next: &[r#"source {"function":"NAME","files":FILES}"#],
        ..NOTHING
    },
    Spec {
        name: "sql",
        command: "sql",
        positionals: &["files", "query"],
        options: &["tables", "time", "limit"],
        own: &[("query", "A statement that reads; left out with `tables`")],
        next: &[r#"sql {"query":"describe NAME","files":FILES}"#],
        ..NOTHING
    },
    Spec {
        name: "source",
        command: "annotate",
        positionals: &["function", "files"],
        options: &["tid", "pid", "comm", "time", "call"],
        required: &["function", "files"],
        next: &[r#"latency {"function":"NAME","files":FILES}"#],
        ..NOTHING
    },
    Spec {
        name: "step",
        command: "script",
        options: &["at", "tid", "pid"],
        required: &["at", "files"],
        next: &[
            r##"step {"at":"#N","tid":["TID"],"files":FILES}"##,
            r#"source {"function":"NAME","files":FILES}"#,
        ],
        ..NOTHING
    },
];

impl Spec {
    /// The names of all arguments.
    pub(super) fn arguments(&self) -> impl Iterator<Item = &'static str> {
        self.positionals.iter().chain(self.options).copied()
    }

    /// Describes the arguments, with clap's help of the command.
    pub(super) fn schema(&self, command: &Command) -> Value {
        let properties: Map<String, Value> =
            self.arguments().map(|name| (name.to_owned(), self.property(name, command))).collect();
        json!({
            "type": "object",
            "properties": properties,
            "required": self.required,
            "additionalProperties": false,
        })
    }

    fn property(&self, name: &str, command: &Command) -> Value {
        if let Some((_, help)) = self.own.iter().find(|(own, _)| *own == name) {
            return json!({ "type": "string", "description": help });
        }
        let argument = command.get_arguments().find(|argument| argument.get_id() == name);
        let argument = argument.expect("a tool offers arguments that its command has");
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let values: Vec<String> =
            argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        let is_list = matches!(argument.get_action(), ArgAction::Append)
            || argument.get_num_args().is_some_and(|count| count.max_values() > 1);
        if !argument.get_action().takes_values() {
            return json!({ "type": "boolean", "description": help });
        }
        let mut one = json!({ "type": "string" });
        if !values.is_empty() {
            one["enum"] = json!(values);
        }
        if is_list {
            return json!({ "type": "array", "items": one, "description": help });
        }
        one["description"] = json!(help);
        one
    }

    /// The calls that probably follow one with these arguments.
    pub(super) fn next(&self, arguments: &Map<String, Value>) -> Vec<String> {
        let none = Value::Null;
        let [files, output] =
            ["files", "output"].map(|name| arguments.get(name).unwrap_or(&none).to_string());
        let fill = |call: &&str| call.replace("FILES", &files).replace("OUTPUT", &output);
        self.next.iter().map(fill).collect()
    }
}

/// The call of a tool that does what a command line of `hodo` does, as `report tree` does; the recordings are added.
/// `None` if no tool offers that.
pub(super) fn call_of(line: &str, files: &Value, program: &Command) -> Option<String> {
    let words = shlex::split(line)?;
    let (name, words) = words.split_first()?;
    let spec = TOOLS.iter().find(|spec| spec.command == name)?;
    let command = program.find_subcommand(name)?;
    let mut arguments = Map::new();
    let mut positionals = spec.positionals.iter().filter(|&&name| name != "files");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--") else {
            arguments.insert((*positionals.next()?).to_owned(), json!(word));
            continue;
        };
        let (long, value) =
            option.split_once('=').map_or((option, None), |(long, value)| (long, Some(value)));
        let argument = command.get_arguments().find(|argument| argument.get_long() == Some(long))?;
        let id = argument.get_id().as_str();
        if !spec.options.contains(&id) {
            return None;
        }
        let value = match value {
            _ if !argument.get_action().takes_values() => json!(true),
            Some(value) => json!(value),
            None => json!(words.next()?),
        };
        let is_list = matches!(argument.get_action(), ArgAction::Append);
        arguments.insert(id.to_owned(), if is_list { json!([value]) } else { value });
    }
    arguments.insert("files".to_owned(), files.clone());
    Some(format!("{} {}", spec.name, Value::Object(arguments)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn every_tool_offers_what_its_command_has() {
        let mut program = Arguments::command();
        program.build();
        for spec in TOOLS {
            let command = program.find_subcommand(spec.command).expect(spec.name);
            let schema = spec.schema(command);
            for name in spec.required {
                assert!(schema["properties"][name].is_object(), "{} {name}", spec.name);
            }
        }
        let latency = program.find_subcommand("latency").expect("a command");
        let spec = TOOLS.iter().find(|spec| spec.name == "latency").expect("a tool");
        assert_eq!(spec.schema(latency)["properties"]["compare"]["type"], "boolean");
        assert_eq!(spec.schema(latency)["properties"]["files"]["type"], "array");
    }

    #[test]
    fn a_command_line_is_a_call() {
        let mut program = Arguments::command();
        program.build();
        let call = |line| call_of(line, &json!(["a"]), &program);
        assert_eq!(call("report tree").as_deref(), Some(r#"report {"files":["a"],"kind":"tree"}"#));
        assert_eq!(
            call("latency --function 'a b' --compare").as_deref(),
            Some(r#"latency {"compare":true,"files":["a"],"function":"a b"}"#)
        );
        assert_eq!(call("index"), None);
        assert_eq!(call("latency --pairs x.toml"), None);
    }
}

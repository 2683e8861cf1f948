//! Help, man pages, completions, and the schemas of what `hodo` prints for programs.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    exports::{output, target},
    run::{self, Folder, hodo},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn man_formats_a_page_for_each_command() {
    let folder = Folder::new();
    hodo(&["manual", &folder.file("man")]).fine();
    let help = hodo(&["help", "--json"]).fine().json();
    let commands = help["commands"].as_array().expect("commands").iter();
    let names: Vec<&str> = commands.filter_map(|command| command["name"].as_str()).collect();
    assert!(names.contains(&"report") && names.contains(&"export"), "{names:?}");
    for name in names.iter().filter(|name| **name != "help") {
        let page = folder.path().join("man").join(format!("hodo-{name}.1"));
        // Without `-Tutf8` and a width, pages have the terminal's.
        let mut groff = Command::new("groff");
        let page = output(groff.args(["-man", "-Tutf8", "-ww", "-P-cbou"]).arg(page));
        for section in ["NAME", "SYNOPSIS", "OPTIONS", "SEE ALSO"] {
            assert!(page.lines().any(|line| line.trim() == section), "{name}: no {section} in {page}");
        }
        assert!(page.contains(&format!("hodo {name} [OPTIONS]")), "{page}");
    }
    let report = std::fs::read_to_string(folder.file("man/hodo-report.1")).unwrap();
    // An example is a term of its own, and the text after it its explanation.
    let example =
        ".TP\n\\fBhodo report functions \\-\\-every 1us perf.data\\fR\nas a sampling profiler would see it\n";
    assert!(report.contains(example), "{report}");
}

#[test]
fn shells_complete_commands_and_options() {
    let folder = Folder::new();
    let script = |shell: &str| folder.write(shell, hodo(&["completions", shell]).fine().stdout.as_bytes());
    let complete = format!(
        "source {}; COMP_WORDS=(hodo rep); COMP_CWORD=1; _hodo hodo rep hodo; echo \"${{COMPREPLY[@]}}\"
        COMP_WORDS=(hodo report --stri); COMP_CWORD=2; _hodo hodo --stri report; echo \"${{COMPREPLY[@]}}\"",
        script("bash")
    );
    assert_eq!(output(Command::new("bash").args(["-c", &complete])), "report\n--strict\n");
    output(Command::new("zsh").arg("-n").arg(script("zsh")));
    let complete = format!("source {}; complete --do-complete 'hodo rep'", script("fish"));
    let completed = output(Command::new("fish").args(["--no-config", "-c", &complete]));
    assert!(completed.starts_with("report\t"), "{completed}");
}

#[test]
fn help_names_every_report_with_its_columns() {
    let help = hodo(&["help", "--json"]).fine().json();
    let list = hodo(&["report", "--list"]).fine().stdout;
    let listed: BTreeSet<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let reports = help["reports"].as_array().expect("reports");
    let described: BTreeSet<&str> = reports.iter().filter_map(|report| report["name"].as_str()).collect();
    assert_eq!(listed.difference(&described).copied().collect::<Vec<_>>(), ["all"]);
    let input = root().join("fixtures/ctf/lttng2.13-kernel");
    for report in run::reports().iter().filter(|report| report["reads"] == "events") {
        let name = report["name"].as_str().unwrap();
        for view in report["views"].as_array().unwrap() {
            let mut arguments = vec!["report", name, "--format", "json", "-q"];
            arguments
                .extend(view["name"].as_str().filter(|by| !by.is_empty()).iter().flat_map(|by| ["--by", by]));
            let table = hodo(&[&arguments[..], &[input.to_str().unwrap()]].concat()).fine().json();
            assert_eq!(table["columns"], view["columns"], "{name} {}", view["name"]);
        }
    }
    assert!(hodo(&["help", "report"]).fine().stdout.contains("hodo report [OPTIONS]"));
    let wrong = hodo(&["help", "nothing"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("no command is named `nothing`"), "{wrong:?}");
}

#[test]
fn docs_have_all_that_the_program_lists() {
    let help = hodo(&["help", "--json"]).fine().json();
    let page = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
    let lists =
        [("formats", "analyses"), ("rules", "analyses"), ("exports", "exports"), ("reports", "store")];
    for (list, file) in lists {
        let page = page(&format!("docs/{file}.md"));
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let named: String = rows.filter_map(|line| line.split(" | ").next()).collect();
        for entry in help[list].as_array().unwrap() {
            let is_stored = list != "reports" || !entry["lanes"].is_null();
            let name = format!("`{}`", entry["name"].as_str().unwrap());
            assert!(!is_stored || named.contains(&name), "no table of docs/{file}.md has a row of {name}");
        }
    }
    let pages = ["README.md", "docs/analyses.md", "docs/exports.md", "docs/intel-pt.md"].map(page).concat();
    for report in help["reports"].as_array().unwrap() {
        let name = report["name"].as_str().unwrap();
        let is_end = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '-');
        let has = |word: &str| pages.split(&format!("{word} {name}")).skip(1).any(is_end);
        assert!(has("report") || has("##"), "no page has a section or a command of the report {name}");
    }
}

/// Checks values against a schema. Schemas refer to each other by their ids.
const VALIDATE: &str = r#"
import json, pathlib, sys
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
folder, name, file, kind = sys.argv[1:]
schemas = [json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.json"))]
for schema in schemas:
    Draft202012Validator.check_schema(schema)
registry = Registry().with_resources([(schema["$id"], Resource.from_contents(schema)) for schema in schemas])
validator = Draft202012Validator({"$ref": f"urn:hodo:schema:1:{name}"}, registry=registry)
text = open(file).read()
values = [json.loads(line) for line in text.splitlines()] if kind == "lines" else [json.loads(text)]
assert values
for value in values:
    validator.validate(value)
"#;

/// The schema of a command's output; `.lines` for one value a line.
const OUTPUTS: &[(&str, &[&str])] = &[
    ("help", &["help", "--json"]),
    ("info", &["info", "--format", "json", KERNEL]),
    ("info", &["info", "--format", "json", TINY]),
    ("info", &["info", "--format", "json", TINY, KERNEL]),
    ("info", &["info", "--format", "json", "ftrace/small-7.dat"]),
    ("info", &["info", "--format", "json", "perf/events.data"]),
    ("info", &["info", "--format", "json", "ctf/barectf3.1"]),
    ("table", &["report", "syscalls", "--format", "json", KERNEL]),
    ("table", &["report", "functions", "--format", "json", TINY]),
    ("tables", &["report", "all", "--format", "json", KERNEL]),
    ("table", &["explain", "--format", "json", KERNEL]),
    ("table", &["path", "--format", "json", KERNEL]),
    ("table", &["sql", "--format", "json", KERNEL, "select call from syscalls"]),
    ("latency", &["latency", "--function", "fib", "--format", "json", TINY]),
    ("latency", &["latency", "--function", "fib", "--compare", "--nth", "2", "--format", "json", TINY]),
    ("latency", &["latency", "--syscall", "read", "--format", "json", KERNEL]),
    ("table", &["latency", "--function", "fib", "--by", "thread", "--format", "json", TINY]),
    ("table", &["diff", "--format", "json", TINY, TINY]),
    ("tables", &["diff", "--format", "json", KERNEL, KERNEL]),
    ("annotation", &["annotate", "fib", "--format", "json", TINY]),
    ("event.lines", &["script", "--events", "--format", "jsonl", "--limit", "100", KERNEL]),
    ("event.lines", &["script", "--events", "--format", "jsonl", TINY]),
    ("call.lines", &["script", "--calls", "--format", "jsonl", TINY]),
    ("scene.lines", &["script", "--at", "#1000", "--format", "jsonl", TINY]),
    (
        "check",
        &["check", "--quiet", "--format", "json", "--config", "../crates/check/tests/shrunk/hodo.toml"],
    ),
    ("task.lines", &["plan", "functions", "--parts", "3", TINY]),
];
const KERNEL: &str = "ctf/lttng2.13-kernel";
const TINY: &str = "perf/tiny.data";

#[test]
fn output_for_programs_has_the_shape_of_its_schema() {
    let folder = Folder::new();
    let (schemas, fixtures) = (root().join("docs/schemas"), root().join("fixtures"));
    for (schema, arguments) in OUTPUTS {
        let absolute = |argument: &&str| match fixtures.join(argument) {
            path if argument.contains('/') => path.to_string_lossy().into_owned(),
            _ => (*argument).to_owned(),
        };
        let mut arguments: Vec<String> = arguments.iter().map(absolute).collect();
        // Its code lies elsewhere.
        if arguments.iter().any(|argument| argument.ends_with(TINY)) {
            arguments.push(format!("--symfs={}", fixtures.join("perf/symfs").display()));
        }
        let file = folder.write("output", hodo(&arguments).fine().stdout.as_bytes());
        let (name, kind) = schema.split_once('.').unwrap_or((schema, "one"));
        let mut python = Command::new(target().join("python/bin/python"));
        output(python.args(["-c", VALIDATE]).arg(&schemas).args([name, &file, kind]));
    }
}

#[test]
fn each_schema_is_of_a_command_and_each_command_has_one() {
    let names: BTreeSet<String> = std::fs::read_dir(root().join("docs/schemas"))
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().to_str()?.strip_suffix(".schema.json").map(str::to_owned)
        })
        .collect();
    let used = OUTPUTS.iter().map(|(schema, _)| schema.split('.').next().unwrap().to_owned()).collect();
    assert_eq!(names, used);
    let help = hodo(&["help", "--json"]).fine().json();
    let writes_json = |command: &&Value| {
        let arguments = command["arguments"].as_array().unwrap();
        let takes = |name: &str| arguments.iter().any(|argument| argument["long"] == name);
        takes("format") || takes("json")
    };
    let commands = help["commands"].as_array().unwrap().iter().filter(writes_json);
    let commands: BTreeSet<&str> = commands.map(|command| command["name"].as_str().unwrap()).collect();
    let tested: BTreeSet<&str> = OUTPUTS.iter().map(|(_, arguments)| arguments[0]).collect();
    // `merge` makes the tables of `report`; `sync` needs traces of several clocks, and makes a table too.
    assert_eq!(commands.difference(&tested).copied().collect::<Vec<_>>(), ["merge", "sync"]);
}

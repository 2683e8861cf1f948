//! Help, man pages, completions, and the schemas of what `hodo` prints for programs.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    exports::{output, target},
    run::{Folder, hodo},
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
    let found = output(Command::new("fish").args(["--no-config", "-c", &complete]));
    assert!(found.starts_with("report\t"), "{found}");
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
    for report in reports.iter().filter(|report| report["reads"] == "events" && report["name"] != "periods") {
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
fn output_for_programs_has_the_shape_of_its_schema() {
    let folder = Folder::new();
    let kernel = root().join("fixtures/ctf/lttng2.13-kernel").into_os_string().into_string().unwrap();
    let tiny = root().join("fixtures/perf/tiny.data").into_os_string().into_string().unwrap();
    let cases: [(&str, &[&str]); 6] = [
        ("help", &["help", "--json"]),
        ("table", &["report", "syscalls", "--format", "json", &kernel]),
        ("table", &["report", "functions", "--format", "json", &tiny]),
        ("table", &["explain", "--format", "json", &kernel]),
        ("event", &["script", "--events", "--format", "jsonl", "--limit", "100", &kernel]),
        ("task", &["plan", "--analysis", "functions", "--parts", "3", &tiny]),
    ];
    let check = "import json, sys
from jsonschema import Draft202012Validator
schema = json.load(open(sys.argv[1]))
Draft202012Validator.check_schema(schema)
text = open(sys.argv[2]).read()
values = [json.loads(line) for line in text.splitlines()] if sys.argv[3] == 'lines' else [json.loads(text)]
assert values
for value in values:
    Draft202012Validator(schema).validate(value)";
    for (schema, arguments) in cases {
        let file = folder.write("output", hodo(arguments).fine().stdout.as_bytes());
        let schema = root().join("docs/schemas").join(format!("{schema}.schema.json"));
        let lines = if matches!(arguments[0], "plan" | "script") { "lines" } else { "one" };
        let mut python = Command::new(target().join("python/bin/python"));
        output(python.args(["-c", check]).arg(schema).args([&file, lines]));
    }
}

//! `hodo mcp`, asked by the protocol's own client.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    recorded::compile,
    run::{Folder, node_modules},
};

/// The client, in the tested version.
const PACKAGES: &str = r#"{
    "private": true,
    "dependencies": { "@modelcontextprotocol/sdk": "1.32.2" }
}"#;

/// What the server said.
struct Said {
    tools: Vec<Value>,
    answers: Vec<Value>,
}

impl Said {
    fn text(&self, index: usize) -> &str {
        self.answers[index]["text"].as_str().expect("text")
    }

    fn failed(&self, index: usize) -> bool {
        self.answers[index]["failed"] == true
    }
}

/// Plays calls to a server with these arguments.
fn play(arguments: &[&str], calls: &Value) -> Said {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/mcp.js");
    let mut node = Command::new("node");
    node.arg(script)
        .arg(node_modules("mcp", PACKAGES))
        .arg(env!("CARGO_BIN_EXE_hodo"))
        .arg("mcp")
        .args(arguments);
    let mut node = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node");
    node.stdin.take().expect("input").write_all(calls.to_string().as_bytes()).expect("calls");
    let output = node.wait_with_output().expect("an end");
    assert!(output.status.success());
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let list = |name: &str| said[name].as_array().expect("a list").clone();
    Said { tools: list("tools"), answers: list("answers") }
}

fn call(name: &str, arguments: Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

#[test]
fn a_client_records_and_finds_the_cause() {
    let folder = Folder::new();
    let program = compile(&folder, "slowpath.c", &["-g", "-O0"]);
    let recording = folder.file("slow.data");
    let path = folder.path();
    let allowed = path.to_str().expect("text");
    let files = json!([recording]);
    let said = play(
        &["--allow", allowed, "--allow-record"],
        &json!([
            call("record", json!({ "command": [program], "output": recording })),
            call("explain", json!({ "files": files })),
            call("latency", json!({ "files": files, "functions": true })),
            call("source", json!({ "files": files, "function": "rehash" })),
            call(
                "sql",
                json!({ "files": files, "query": "select function, calls from functions where function = 'rehash'" })
            ),
            call("step", json!({ "files": files, "at": "50%" })),
            call("continue", json!({ "answer": 1 })),
        ]),
    );
    for (index, answer) in said.answers.iter().enumerate() {
        assert!(!said.failed(index), "{answer}");
        assert!(said.text(index).len() <= 4096, "{answer}");
    }
    assert!(said.text(0).contains("Next: explain {\"files\":["), "{}", said.text(0));
    assert!(said.text(1).contains("rehash") && said.text(1).contains("   Evidence: "), "{}", said.text(1));
    assert!(said.text(2).contains("rehash"));
    assert!(
        said.text(3).contains("rehash in ") && said.text(3).contains("Next: continue"),
        "{}",
        said.text(3)
    );
    assert!(said.text(4).contains("rehash"));
    assert!(said.text(5).contains("main"), "{}", said.text(5));
    assert!(said.text(6).contains("bytes "), "{}", said.text(6));
    let names: Vec<&str> = said.tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    let all = ["record", "info", "explain", "report", "latency", "diff", "sql", "source", "step", "continue"];
    assert_eq!(names, all);
    let latency = &said.tools[4]["inputSchema"];
    assert_eq!(latency["properties"]["function"]["type"], "string", "{latency}");
}

#[test]
fn what_was_not_allowed_is_refused() {
    let folder = Folder::new();
    let inside = folder.path().join("inside");
    std::fs::create_dir(&inside).expect("a folder");
    std::fs::write(folder.file("secret"), "secret").expect("a file");
    let link = inside.join("link");
    std::os::unix::fs::symlink(folder.file("secret"), &link).expect("a link");
    let said = play(
        &["--allow", inside.to_str().expect("text")],
        &json!([
            call("info", json!({ "files": [folder.file("secret")] })),
            call("info", json!({ "files": [link] })),
            call("info", json!({ "files": [format!("{}/../secret", inside.display())] })),
            call("info", json!({ "files": ["net://127.0.0.1:1/host/a/b"] })),
            call("info", json!({ "files": [inside], "symfs": "/" })),
            call("info", json!({})),
            call("report", json!({ "files": [inside], "kind": "--list" })),
        ]),
    );
    for (index, answer) in said.answers.iter().enumerate() {
        assert!(said.failed(index), "{answer}");
    }
    for index in 0..3 {
        assert!(said.text(index).contains("is in no folder that the user allowed"), "{}", said.text(index));
    }
    assert!(said.text(4).contains("no argument `symfs`"), "{}", said.text(4));
    assert!(said.text(5).contains("needs the argument `files`"));
    assert!(said.tools.iter().all(|tool| tool["name"] != "record"));
}

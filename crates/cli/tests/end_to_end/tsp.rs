//! `hodo serve --tsp`, asked by the protocol's own client.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Map, Value, json};

use crate::run::{Folder, command, hodo, node_modules, reports, wait};

/// The client, what checks answers against the schema, and JSON with 64-bit integers. The client asks for another
/// json-bigint, from a commit.
const PACKAGES: &str = r#"{
    "private": true,
    "dependencies": { "tsp-typescript-client": "0.9.0", "json-bigint": "1.0.0", "ajv": "8.17.1", "yaml": "2.8.1" },
    "overrides": { "json-bigint": "$json-bigint" }
}"#;

/// A server, which ends with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Server {
        let mut child = command(&[&["serve", "--tsp", "--port", "0"], arguments].concat()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Server { child, address: address.trim().to_owned() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_protocols_client_finds_what_the_reports_have() {
    let folder = Folder::new();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ctf/lttng2.13-kernel");
    let (trace, store) = (trace.display().to_string(), folder.file("store"));
    let table = |report: &Value| {
        let (name, lanes) = (report["name"].as_str()?, &report["lanes"]);
        let rows = hodo(&["report", name, "--by", lanes["view"].as_str()?, "--format", "json", &trace]);
        let mut table = rows.fine().json();
        table["lanes"] = lanes.clone();
        (table["rows"] != json!([])).then(|| (name.to_owned(), table))
    };
    let tables: Map<String, Value> = reports().iter().filter_map(table).collect();
    let tables = folder.write("tables.json", serde_json::to_string(&tables).unwrap().as_bytes());
    let server = Server::start(&["-q", "--store", &store, &trace]);
    assert!(server.address.starts_with("http://127.0.0.1:"), "{}", server.address);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tsp/tests/client.mjs");
    let mut client = Command::new("node");
    client.arg(script).args([&server.address, &tables]).arg(node_modules("tsp-client", PACKAGES));
    let client = client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let ran = wait(client.expect("node, of version 18 or later, runs the client")).expect("it ends").fine();
    assert!(ran.stdout.contains("answers checked"), "{ran:?}");
}

#[test]
fn a_port_in_use_is_refused() {
    let folder = Folder::new();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ctf/lttng2.13-kernel");
    let (trace, store) = (trace.display().to_string(), folder.file("store"));
    let server = Server::start(&["-q", "--store", &store, &trace]);
    let port = server.address.trim_end_matches("/tsp/api").rsplit(':').next().unwrap();
    let ran = hodo(&["serve", "--tsp", "--port", port, "--store", &store, &trace]);
    assert!(ran.code == 2 && ran.stderr.contains("--port"), "{ran:?}");
}

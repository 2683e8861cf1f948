//! A server without a network: what it refuses, and that a query stops when its client disconnects.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
};
use hodo_store::{Field, Kind, Naming, Schema, Shape, Store, Writer};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

use crate::{
    Service,
    http::{App, router},
};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// A store of a lane with a name that a page must not take for its own text.
fn service() -> Service {
    let folder = tempfile::tempdir().unwrap();
    let writer = Writer::create(folder.path(), "test").unwrap();
    let schema = Schema {
        name: "states".to_owned(),
        shape: Shape::Intervals,
        key: vec![Field::new("comm", Kind::Name)],
        value: Field::new("state", Kind::Name),
        columns: Vec::new(),
        naming: Naming { title: "states".to_owned(), path: vec!["Threads".to_owned(), "{comm}".to_owned()] },
    };
    let mut feed = writer.feed(writer.table(&schema).unwrap());
    let name = feed.name("<script>\u{202e}\0").unwrap();
    let lane = feed.lane(&[Some(name)]).unwrap();
    for number in 0..100u64 {
        let state = feed.name(&format!("state {}", number % 3)).unwrap();
        feed.push(lane, (1000 + number * 10, 1010 + number * 10), Some(state), &[]).unwrap();
    }
    feed.flush().unwrap();
    drop(feed);
    writer.finish(1).unwrap();
    Service::new(Store::open(folder.path()).unwrap(), &["trace".into()])
}

/// Sends a request; returns the status and the JSON of the answer.
fn ask(host: &str, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(path).header(header::HOST, host);
    let request = request.body(Body::from(body.to_string())).unwrap();
    runtime().block_on(async {
        let response = router(service()).oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    })
}

fn output(name: &str) -> String {
    format!("/tsp/api/experiments/{}/outputs/{name}", service().experiment.uuid)
}

#[test]
fn only_this_machine_is_answered() {
    for (host, status) in [
        ("localhost:8080", 200),
        ("127.0.0.1", 200),
        ("[::1]:1", 200),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:8080", 403),
        ("", 403),
    ] {
        assert_eq!(ask(host, "GET", "/tsp/api/health", &Value::Null).0, status, "{host}");
    }
}

#[test]
fn states_are_records_or_cells_and_names_are_unchanged() {
    let states = |times: i64, end: i64| {
        let range = json!({ "start": 1000, "end": end, "nbTimes": times });
        let body =
            json!({ "parameters": { "requested_timerange": range, "requested_items": [0, 1, 7, -1] } });
        let (status, answer) = ask("localhost", "POST", &output("timeGraph/timeline.states/states"), &body);
        assert_eq!((status, &answer["status"]), (StatusCode::OK, &json!("COMPLETED")), "{answer}");
        answer["model"]["rows"][0]["states"].as_array().unwrap().clone()
    };
    assert_eq!(states(1000, 2000).len(), 100);
    assert_eq!(states(1000, 2000)[1]["label"], "state 1");
    let cells = states(4, 2000);
    assert!(cells.len() <= 5 && cells[0]["style"]["values"]["opacity"].is_number(), "{cells:?}");
    // Times beyond all bounds, and in the wrong order.
    assert!(states(i64::MAX, i64::MAX).len() == 100 && states(-5, i64::MIN).len() <= 1);
    let body = json!({ "parameters": {} });
    let tree = ask("localhost", "POST", &output("timeGraph/timeline.states/tree"), &body).1;
    assert_eq!(tree["model"]["entries"][1]["labels"][0], "<script>\u{202e}\0");
}

#[test]
fn wrong_requests_are_refused_with_a_title() {
    let good =
        json!({ "parameters": { "requested_timerange": { "start": 0, "end": 1 }, "requested_items": [] } });
    for (path, body, status) in [
        ("timeGraph/timeline.nothing/states", &good, 404),
        ("timeGraph/table.states/states", &good, 405),
        ("XY/chart.states/xy", &good, 404),
        ("timeGraph/timeline.states/states", &json!({ "parameters": { "requested_items": "all" } }), 400),
        ("timeGraph/timeline.states/states", &json!([]), 400),
        ("table/table.states/lines", &json!({ "parameters": { "requested_table_count": -1 } }), 400),
        (
            "table/table.states/lines",
            &json!({ "parameters": { "requested_table_count": 1, "table_search_expressions": { "0": "x" } } }),
            400,
        ),
        ("nowhere/states", &good, 404),
    ] {
        let (found, answer) = ask("localhost", "POST", &output(path), body);
        assert!(found == status && answer["title"].is_string(), "{path}: {found} {answer}");
    }
    let huge =
        json!({ "parameters": { "requested_table_index": u64::MAX, "requested_table_count": u64::MAX } });
    let lines = ask("localhost", "POST", &output("table/table.states/lines"), &huge).1;
    assert_eq!(lines["model"]["lines"], json!([]));
}

#[test]
fn a_query_stops_when_its_client_disconnects() {
    let (runtime, app) = (runtime(), App::new(service()));
    let stopped = Arc::new(AtomicBool::new(false));
    let has_stopped = Arc::clone(&stopped);
    let (begins, begun) = mpsc::channel();
    let answer = app.answer(move |_, budget| {
        begins.send(()).expect("the test waits for it");
        let stop = budget.stop.as_ref().expect("a query can be stopped");
        let begin = Instant::now();
        while !stop.load(Ordering::Acquire) && begin.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(1));
        }
        has_stopped.store(stop.load(Ordering::Acquire), Ordering::Release);
        Ok(((), String::new()))
    });
    let task = runtime.spawn(answer);
    begun.recv_timeout(Duration::from_secs(30)).expect("the query begins");
    task.abort();
    let begin = Instant::now();
    while !stopped.load(Ordering::Acquire) {
        assert!(begin.elapsed() < Duration::from_secs(30), "the query still runs");
        thread::sleep(Duration::from_millis(1));
    }
}

//! Serves made-up inputs with hostile names, and asks as a page and as others would.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use hodo_model::{Column, Shape, Table, Unit};
use hodo_server::{
    Compared, Differences, Extent, FlowInputs, FlowSelection, Inputs, Latency, Measured, NoStore, Pair,
    Progress, Recording, Refused, Report, Rows, SqlTable, Stop, Walk, serve, write_file,
};
use hodo_store::{Field, Kind, Schema, Store, Writer};

const HOSTILE: &str = "</script><script>alert(1)</script>\u{202e}\u{0}";

/// Inputs with a store of hostile names, one of which has a megabyte.
struct Made {
    folder: tempfile::TempDir,
    /// Set when a table's work began, and when it was stopped.
    began: AtomicBool,
    stopped: AtomicBool,
    rows: u64,
    /// Whether its store is built until that is stopped.
    takes_long: bool,
}

impl Made {
    fn new(rows: u64) -> Made {
        let folder = tempfile::tempdir().expect("a folder for the store");
        let (began, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        Made { folder, began, stopped, rows, takes_long: false }
    }

    fn build(&self) -> Store {
        let writer = Writer::create(self.folder.path(), "made up").expect("a store");
        let schema = Schema {
            name: "states".to_owned(),
            naming: hodo_store::Naming::default(),
            shape: hodo_store::Shape::Intervals,
            key: vec![Field::new("name", Kind::Name)],
            value: Field::new("state", Kind::Name),
            columns: Vec::new(),
        };
        let mut feed = writer.feed(writer.table(&schema).expect("a table"));
        let names = [HOSTILE.to_owned(), "x".repeat(1 << 20)].map(|name| feed.name(&name).expect("a name"));
        for name in names {
            let lane = feed.lane(&[Some(name)]).expect("a lane");
            for row in 0..self.rows {
                let begin = 1_000_000_000_000_000_000 + 1000 * row;
                feed.push(lane, (begin, begin + 1 + row % 999), Some(names[row as usize % 2]), &[])
                    .expect("a row");
            }
        }
        feed.flush().expect("flushed");
        writer.finish(1).expect("finished");
        Store::open(self.folder.path()).expect("a store")
    }
}

fn table() -> Table {
    let columns = vec![Column::name("name"), Column::integer("count", Unit::Count)];
    let rows = (0..5000u64).map(|row| vec![format!("{HOSTILE}{}", row * 7919).into(), row.into()]);
    Table::new("made", Shape::Counters, vec![("rows", 5000u64.into())], columns, rows)
}

/// There is no control flow.
fn no_flow<T>() -> Result<Option<T>, Refused> {
    Err(Refused("there is no control flow".to_owned()))
}

impl FlowInputs for Made {
    fn recordings(&self) -> Vec<Recording> {
        Vec::new()
    }

    fn functions(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn paths(&self, _: &FlowSelection, _: &Stop) -> Result<Option<Table>, Refused> {
        no_flow()
    }

    fn pairs(&self) -> Vec<Pair> {
        Vec::new()
    }

    fn latency(&self, _: &FlowSelection, _: &Measured, _: &Stop) -> Result<Option<Latency>, Refused> {
        no_flow()
    }

    fn trees(&self, _: &FlowSelection, _: &Measured, _: u64, _: &Stop) -> Result<Option<Table>, Refused> {
        no_flow()
    }

    fn diff(&self, _: &Compared, _: &Stop) -> Result<Option<Differences>, Refused> {
        no_flow()
    }

    fn divergence(&self, _: &Compared, _: &Stop) -> Result<Option<Table>, Refused> {
        no_flow()
    }

    fn annotate(&self, _: &FlowSelection, _: &str, _: &Stop) -> Result<Option<serde_json::Value>, Refused> {
        no_flow()
    }

    fn execution(&self, _: &Walk, _: &Stop) -> Result<Option<serde_json::Value>, Refused> {
        no_flow()
    }
}

impl Inputs for Made {
    fn names(&self) -> Vec<String> {
        vec![HOSTILE.to_owned()]
    }

    fn about(&self) -> Vec<Table> {
        vec![table()]
    }

    fn unrelated(&self) -> Vec<String> {
        Vec::new()
    }

    fn half_width(&self) -> u64 {
        0
    }

    fn reports(&self) -> Vec<Report> {
        vec![Report { name: "made", help: "made up", views: &[] }]
    }

    fn table(
        &self,
        report: &str,
        _: &str,
        _: usize,
        _: usize,
        progress: Progress<'_>,
    ) -> Result<Option<Rows>, Refused> {
        if report != "made" {
            return Err(Refused(format!("there is no report {report}")));
        }
        self.began.store(true, Ordering::SeqCst);
        // It ends when the page closes its connection. Otherwise it would take an hour.
        let begin = Instant::now();
        while self.rows == 0 && begin.elapsed() < Duration::from_secs(3600) {
            if !progress(0, 1) {
                self.stopped.store(true, Ordering::SeqCst);
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Some(Rows { table: table(), left_out: 0 }))
    }

    fn critical_path(&self, _: u32, _: Progress<'_>) -> Result<Option<Table>, Refused> {
        no_flow()
    }

    fn sql_tables(&self) -> Result<Vec<SqlTable>, Refused> {
        Ok(vec![SqlTable { name: HOSTILE.to_owned(), is_event: true }])
    }

    fn sql(&self, query: &str, _: u64, stop: &Arc<AtomicBool>) -> Result<Option<Table>, Refused> {
        if query != "select 1" {
            return Err(Refused(format!("SQL: {query}")));
        }
        Ok(Some(table()).filter(|_| !stop.load(Ordering::SeqCst)))
    }

    fn findings(&self, _: Progress<'_>) -> Result<Option<Table>, Refused> {
        Ok(Some(table()))
    }

    fn store(&self, progress: Progress<'_>) -> Result<Option<Store>, NoStore> {
        if self.takes_long {
            while progress(3, 10) {
                thread::sleep(Duration::from_millis(5));
            }
            return Ok(None);
        }
        if self.rows == 0 {
            return Err(NoStore::Nothing("nothing is in them".to_owned()));
        }
        Ok(Some(self.build()))
    }

    fn growing(&self) -> Option<Store> {
        None
    }

    fn change(&self) -> Option<String> {
        None
    }
}

/// Serves inputs until the test ends; returns the port and the token.
fn served(inputs: &Arc<Made>) -> (u16, String) {
    let inputs: Arc<dyn Inputs> = Arc::clone(inputs) as Arc<dyn Inputs>;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || serve(inputs, |address| sender.send(address.to_owned()).expect("the test waits")));
    let address = receiver.recv_timeout(Duration::from_secs(30)).expect("an address");
    let rest = address.strip_prefix("http://127.0.0.1:").expect("the loopback interface");
    let (port, token) = rest.trim_end_matches('/').split_once('/').expect("a token");
    (port.parse().expect("a port"), token.to_owned())
}

/// Sends a request line and a Host; returns the status and the whole answer.
fn ask(port: u16, line: &str, host: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    write!(stream, "{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer)
}

#[test]
fn only_who_knows_the_token_and_names_this_machine_gets_answers() {
    let (port, token) = served(&Arc::new(Made::new(10)));
    let local = format!("127.0.0.1:{port}");
    assert_eq!(ask(port, &format!("GET /{token}/"), &local).0, 200);
    assert_eq!(ask(port, &format!("GET /{token}/api/session"), &local).0, 200);
    for host in
        ["evil.example", "127.0.0.1", &format!("evil.example:{port}"), &format!("127.0.0.1.evil:{port}")]
    {
        assert_eq!(ask(port, &format!("GET /{token}/"), host).0, 403, "{host}");
    }
    let other = "0".repeat(token.len());
    for path in ["/", "/api/session", &format!("/{other}/"), &format!("/{other}/api/session")] {
        assert_eq!(ask(port, &format!("GET {path}"), &local).0, 404, "{path}");
    }
    for path in ["etc/passwd", "../etc/passwd", "%2e%2e/etc/passwd", "api/", "api/../../Cargo.toml"] {
        assert_eq!(ask(port, &format!("GET /{token}/{path}"), &local).0, 404, "{path}");
    }
    assert_eq!(ask(port, &format!("POST /{token}/api/session"), &local).0, 405);
}

#[test]
fn the_page_may_run_its_own_scripts_only() {
    let (port, token) = served(&Arc::new(Made::new(10)));
    let (_, answer) = ask(port, &format!("GET /{token}/"), &format!("127.0.0.1:{port}"));
    let head = String::from_utf8_lossy(&answer).to_lowercase();
    let policy = head.lines().find(|line| line.starts_with("content-security-policy:")).expect("a policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'nonce-"), "{policy}");
    assert!(!policy.contains("script-src 'unsafe"), "{policy}");
    assert!(head.contains("referrer-policy: no-referrer") && head.contains("nosniff"));
}

#[test]
fn wrong_questions_are_refused_with_a_reason() {
    let (port, token) = served(&Arc::new(Made::new(10)));
    let local = format!("127.0.0.1:{port}");
    for question in [
        "table?report=none",
        "about/table?number=7",
        "about/table?number=-1",
        "timeline/tile?generation=1&table=none&first=0&digits=10&tile=0",
        "timeline/tile?generation=1&table=states&first=0&digits=11&tile=0",
        "timeline/tile?generation=1&table=states&first=0&digits=62&tile=18446744073709551615",
        "timeline/tile?generation=1&table=states&first=9&digits=10&tile=0",
        "timeline/search?generation=1&text=",
        "timeline/sums?generation=1&table=states&lanes=&begin=0&end=9",
        "timeline/sums?generation=1&table=states&lanes=0-99999&begin=0&end=9",
        "timeline/sums?generation=1&table=states&lanes=0&begin=9&end=9",
    ] {
        wait_for_store(port, &token);
        let (status, answer) = ask(port, &format!("GET /{token}/api/{question}"), &local);
        assert_eq!(status, 422, "{question}: {}", String::from_utf8_lossy(&answer));
    }
}

fn wait_for_store(port: u16, token: &str) {
    let is_ready = || {
        let (_, answer) = ask(port, &format!("GET /{token}/api/timeline"), &format!("127.0.0.1:{port}"));
        String::from_utf8_lossy(&answer).contains("\"generation\":1")
    };
    while !is_ready() {
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn indexing_is_stopped_by_the_page() {
    let (port, token) = served(&Arc::new(Made { takes_long: true, ..Made::new(10) }));
    let session = |path: &str| {
        let (status, answer) =
            ask(port, &format!("GET /{token}/api/session{path}"), &format!("127.0.0.1:{port}"));
        assert_eq!(status, 200);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let begin = Instant::now();
    while !session("").contains(r#""done":3"#) {
        assert!(begin.elapsed() < Duration::from_secs(30), "it is built");
        thread::sleep(Duration::from_millis(20));
    }
    session("/stop");
    while !session("").contains(r#""why":"indexing was stopped"#) {
        assert!(begin.elapsed() < Duration::from_secs(30), "it stops");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_name_of_a_megabyte_is_cut_in_pictures() {
    let (port, token) = served(&Arc::new(Made::new(1000)));
    wait_for_store(port, &token);
    let local = format!("127.0.0.1:{port}");
    let tile = 1_000_000_000_000_000_000u64 >> 20;
    for question in [
        "timeline".to_owned(),
        format!("timeline/tile?generation=1&table=states&first=0&digits=12&tile={tile}"),
        "timeline/at?generation=1&table=states&lane=0&time=0".to_owned(),
        "timeline/search?generation=1&text=xxx".to_owned(),
    ] {
        let (status, answer) = ask(port, &format!("GET /{token}/api/{question}"), &local);
        assert_eq!(status, 200, "{question}: {}", String::from_utf8_lossy(&answer));
        assert!(answer.len() < 200_000, "{question}: {} bytes", answer.len());
    }
}

#[test]
fn sums_are_of_exactly_the_chosen_span() {
    let rows = 8000;
    let (port, token) = served(&Arc::new(Made::new(rows)));
    wait_for_store(port, &token);
    for (begin, end) in [(0, 8_000_000), (1, 2), (999, 1001), (1_234_567, 7_654_321), (5000, 5999)] {
        let question = format!("timeline/sums?generation=1&table=states&lanes=0-1&begin={begin}&end={end}");
        let (status, answer) =
            ask(port, &format!("GET /{token}/api/{question}"), &format!("127.0.0.1:{port}"));
        let text = String::from_utf8_lossy(&answer);
        assert_eq!(status, 200, "{text}");
        let json = text.split_once("\r\n\r\n").expect("a body").1;
        let json: serde_json::Value =
            serde_json::from_str(&json[json.find('{').expect("JSON")..=json.rfind('}').expect("JSON")])
                .expect("JSON");
        // `Made` writes them so: row n begins at 1000 n and lasts 1 + n % 999; even and odd rows have different values.
        let inside = |row: &u64| {
            let (from, until) = (1000 * row, 1000 * row + 1 + row % 999);
            until.min(end).saturating_sub(from.max(begin))
        };
        let begins = (0..rows).filter(|row| (begin..end).contains(&(1000 * row))).count() as u64;
        let by_value =
            [0, 1].map(|value| (0..rows).filter(|row| row % 2 == value).map(|row| inside(&row)).sum::<u64>());
        let lanes = json["lanes"].as_array().expect("lanes");
        assert_eq!(lanes.len(), if begins + by_value[0] + by_value[1] > 0 { 2 } else { 0 });
        for lane in lanes {
            assert_eq!(lane["records"], begins, "{begin} to {end}");
            assert_eq!(lane["weight"], by_value[0] + by_value[1], "{begin} to {end}");
            assert_eq!(lane["missing"], 0);
            let mut found: Vec<u64> = lane["values"]
                .as_array()
                .expect("values")
                .iter()
                .filter_map(|value| value[1].as_u64())
                .collect();
            let mut expected = by_value.to_vec();
            found.sort_unstable();
            expected.sort_unstable();
            found.retain(|weight| *weight > 0);
            expected.retain(|weight| *weight > 0);
            assert_eq!(found, expected, "{begin} to {end}");
        }
    }
}

#[test]
fn work_stops_when_the_page_goes() {
    let made = Arc::new(Made::new(0));
    let (port, token) = served(&made);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    write!(stream, "GET /{token}/api/table?report=made HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n")
        .expect("sent");
    wait_until(&made.began);
    assert!(!made.stopped.load(Ordering::SeqCst));
    drop(stream);
    wait_until(&made.stopped);
}

fn wait_until(flag: &AtomicBool) {
    let begin = Instant::now();
    while !flag.load(Ordering::SeqCst) {
        assert!(begin.elapsed() < Duration::from_secs(60), "it never happens");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_page_of_a_small_size_says_what_it_lacks() {
    // The page itself, which is larger if it is built, is in both.
    let own = written(1).1.len() as u64;
    let (all, whole) = written(20 << 20);
    let half = u64::midpoint(own, whole.len() as u64);
    let (lacks, part) = written(half);
    assert!(part.len() as u64 <= half, "{} bytes", part.len());
    assert!(lacks.iter().any(|line| line.contains("finer than")), "{lacks:?}");
    assert!(!all.iter().any(|line| line.contains("finer than")), "{all:?}");
    for page in [&whole, &part] {
        assert!(!page.contains("alert(1)"), "names are inside of base64 only");
        assert!(page.contains("timeline/tile?digits="));
    }
}

/// Writes a page; returns what was left out, and the page.
fn written(size: u64) -> (Vec<String>, String) {
    let mut out = Vec::new();
    let made = write_file(Arc::new(Made::new(8000)), size, Extent::default(), || true, &mut out);
    let made = made.expect("nothing fails").expect("nothing stops it");
    assert_eq!(made.bytes, out.len() as u64);
    (made.left_out, String::from_utf8(out).expect("a page is text"))
}

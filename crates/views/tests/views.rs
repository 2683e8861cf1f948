//! What the views draw, against files (`UPDATE=1` rewrites them), and what must hold for any table.

use std::fs;
use std::path::Path;

use hodo_clock::Nanos;
use hodo_trace::{Cause, Column, Loss, Shape, Table, Unit, Value};
use hodo_views::{Options, VIEWS, write_loss};
use proptest::prelude::*;

fn draw(view: &str, table: &Table, options: Options) -> String {
    let view = VIEWS.iter().find(|v| v.name == view).unwrap();
    let mut out = Vec::new();
    (view.write)(table, &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn check(file: &str, drawn: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, drawn).unwrap();
    }
    assert_eq!(drawn, fs::read_to_string(&path).unwrap(), "{file}; UPDATE=1 rewrites it");
}

fn functions() -> Table {
    let row = |function: &str, module: &str, own: u64, calls: u64, time: u64, share: f64| {
        vec![function.into(), module.into(), own.into(), calls.into(), time.into(), share.into()]
    };
    Table {
        name: "functions",
        shape: Shape::Counters,
        summary: vec![("instructions", 1_234_567_u64.into()), ("elapsed_ns", 2_500_000_u64.into())],
        columns: vec![
            Column::text("function"),
            Column::text("module"),
            Column::integer("self_instructions", Unit::Instructions),
            Column::integer("calls", Unit::Count),
            Column::integer("self_time_ns", Unit::Nanoseconds),
            Column::real("share", Unit::Share),
        ],
        rows: vec![
            row("fibonacci(int)", "/usr/bin/demo", 1_200_000, 21_891, 1_200_000, 0.972),
            row(
                "std::vector<std::string, std::allocator<std::string> >::push_back(std::string&&)",
                "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30",
                34_000,
                1,
                34_000,
                0.02754,
            ),
            row("a \"quoted\",\nbroken name\u{1b}[31m", "", 567, 0, 567, 0.00046),
            vec![
                "libc.so.6+0x28000".into(),
                Value::Null,
                0_u64.into(),
                u64::MAX.into(),
                Value::Null,
                Value::Null,
            ],
        ],
        loss: vec![
            Loss {
                stream: "tid 4242".into(),
                cause: Cause::Overflow,
                bytes: 0x100..0x102,
                time: Some((Nanos(1_000_000_001), Nanos(1_000_500_000))),
                count: 1,
                detail: "OVF packet".into(),
            },
            Loss {
                stream: String::new(),
                cause: Cause::MissingCode,
                bytes: 0..0,
                time: None,
                count: 12_000,
                detail: "/usr/bin/gone: no such file".into(),
            },
        ],
    }
}

fn tree() -> Table {
    let row = |depth: u64, function: &str, total: u64| vec![depth.into(), function.into(), total.into()];
    Table {
        name: "tree",
        shape: Shape::Tree,
        summary: vec![],
        columns: vec![
            Column::integer("depth", Unit::None),
            Column::text("function"),
            Column::integer("total_instructions", Unit::Instructions),
        ],
        rows: vec![
            row(0, "thread 1", 1_000),
            row(1, "_start", 990),
            row(2, "main", 900),
            row(3, "parse", 400),
            row(4, "read", 100),
            row(3, "print", 300),
            row(2, "exit", 50),
            row(1, "signal handler", 10),
            row(0, "thread 2", 7),
            row(1, "worker", 7),
        ],
        loss: vec![],
    }
}

#[test]
fn text() {
    check("functions.txt", &draw("text", &functions(), Options::default()));
    let narrow = Options { width: Some(80), rows_left_out: 1_007, ..Options::default() };
    check("functions-80.txt", &draw("text", &functions(), narrow));
    check("functions-colour.txt", &draw("text", &functions(), Options { colour: true, ..narrow }));
    check("tree.txt", &draw("text", &tree(), Options::default()));
}

#[test]
fn machines() {
    check("functions.json", &draw("json", &functions(), Options::default()));
    check("functions.jsonl", &draw("jsonl", &functions(), Options::default()));
    check("functions.csv", &draw("csv", &functions(), Options::default()));
}

#[test]
fn a_view_either_shows_loss_or_says_that_it_does_not() {
    for view in VIEWS {
        let drawn = draw(view.name, &functions(), Options::default());
        assert_eq!(drawn.contains("no such file"), view.shows_loss, "{}", view.name);
    }
    let mut beside = Vec::new();
    write_loss(&functions(), &Options::default(), &mut beside).unwrap();
    assert!(String::from_utf8(beside).unwrap().contains("no such file"));
}

#[test]
fn nothing_to_show_is_shown_as_such() {
    let table = Table { summary: vec![], rows: vec![], loss: vec![], ..functions() };
    assert_eq!(draw("text", &table, Options::default()), "functions\n");
    assert_eq!(draw("jsonl", &table, Options::default()), "");
    let parsed: serde_json::Value = serde_json::from_str(&draw("json", &table, Options::default())).unwrap();
    assert_eq!(parsed["rows"], serde_json::json!([]));
    assert_eq!(parsed["summary"], serde_json::json!({}));
}

#[test]
fn deep_trees_keep_to_the_width() {
    let mut table = tree();
    table.rows = (0..5_000).map(|depth| vec![depth.into(), "recursive".into(), 1_u64.into()]).collect();
    let drawn = draw("text", &table, Options { width: Some(100), ..Options::default() });
    assert!(drawn.lines().all(|line| line.chars().count() <= 100));
    assert!(drawn.lines().skip(4).all(|line| line.contains("recursive")));
}

#[test]
fn a_name_without_end_widens_its_own_line_alone() {
    let mut table = functions();
    table.rows[0][0] = "x".repeat(3_000).into();
    let drawn = draw("text", &table, Options::default());
    let (long, others): (Vec<&str>, Vec<&str>) = drawn.lines().partition(|line| line.contains("xxx"));
    assert!(long.len() == 1 && long[0].contains(&"x".repeat(3_000)) && long[0].contains("/usr/bin/demo"));
    assert!(others.iter().all(|line| line.chars().count() < 250));
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<String>().prop_map(Value::Text),
        "[,\"\r\n a]{0,6}".prop_map(Value::Text),
        any::<u64>().prop_map(Value::Integer),
        // With few digits, as serde_json reads long fractions only to the last bit but one.
        any::<i32>().prop_map(|n| Value::Real(f64::from(n) / 256.0)),
        Just(Value::Real(f64::INFINITY)),
        Just(Value::Real(f64::NAN)),
    ]
}

fn table() -> impl Strategy<Value = Table> {
    let columns = vec![
        Column::integer("depth", Unit::None),
        Column::text("name"),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::real("share", Unit::Share),
    ];
    let rows = prop::collection::vec(prop::collection::vec(value(), columns.len()), 0..8);
    (rows, value(), any::<bool>()).prop_map(move |(rows, figure, is_tree)| Table {
        name: "any",
        shape: if is_tree { Shape::Tree } else { Shape::Points },
        summary: vec![("figure_ns", figure)],
        columns: columns.clone(),
        rows,
        loss: vec![],
    })
}

/// The value that JSON has for a cell; it can tell no infinity.
fn as_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Text(text) => text.as_str().into(),
        Value::Integer(integer) => (*integer).into(),
        Value::Real(real) => (*real).into(),
    }
}

/// The fields of RFC 4180; an empty one without quotes is `None`.
fn parse_csv(text: &str) -> Vec<Vec<Option<String>>> {
    let mut records = vec![];
    let mut record = vec![];
    let mut rest = text;
    while !rest.is_empty() {
        let field = if let Some(mut quoted) = rest.strip_prefix('"') {
            let mut field = String::new();
            loop {
                let (part, after) = quoted.split_once('"').unwrap();
                field.push_str(part);
                match after.strip_prefix('"') {
                    Some(more) => {
                        field.push('"');
                        quoted = more;
                    }
                    None => {
                        rest = after;
                        break Some(field);
                    }
                }
            }
        } else {
            let end = rest.find([',', '\n']).unwrap();
            let (field, after) = rest.split_at(end);
            rest = after;
            (!field.is_empty()).then(|| field.to_owned())
        };
        record.push(field);
        if rest.starts_with('\n') {
            records.push(std::mem::take(&mut record));
        }
        rest = &rest[1..];
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_tells_every_value(table in table()) {
        let parsed: serde_json::Value = serde_json::from_str(&draw("json", &table, Options::default())).unwrap();
        let rows: Vec<Vec<serde_json::Value>> =
            table.rows.iter().map(|row| row.iter().map(as_json).collect()).collect();
        prop_assert_eq!(&parsed["rows"], &serde_json::json!(rows));
        prop_assert_eq!(&parsed["summary"]["figure_ns"], &as_json(&table.summary[0].1));
        let lines = draw("jsonl", &table, Options::default());
        prop_assert_eq!(lines.lines().count(), rows.len());
        for (line, row) in lines.lines().zip(&rows) {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            for (column, value) in table.columns.iter().zip(row) {
                prop_assert_eq!(&object[column.name], value);
            }
        }
    }

    #[test]
    fn csv_tells_every_value(table in table()) {
        let records = parse_csv(&draw("csv", &table, Options::default()));
        prop_assert_eq!(records.len(), table.rows.len() + 1);
        for (record, row) in records.iter().skip(1).zip(&table.rows) {
            let expected: Vec<Option<String>> = row.iter().map(|value| match value {
                Value::Null => None,
                Value::Text(text) => Some(text.clone()),
                Value::Integer(integer) => Some(integer.to_string()),
                Value::Real(real) => real.is_finite().then(|| real.to_string()),
            }).collect();
            prop_assert_eq!(record, &expected);
        }
    }

    #[test]
    fn text_sends_nothing_that_steers_a_terminal(table in table(), width in prop::option::of(0_usize..200)) {
        let drawn = draw("text", &table, Options { width, ..Options::default() });
        prop_assert!(drawn.chars().all(|c| c == '\n' || !c.is_control()));
        prop_assert!(drawn.lines().all(|line| line == line.trim_end()));
    }
}

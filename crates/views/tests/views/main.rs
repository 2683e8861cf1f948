//! Compares the output of views with files (`UPDATE=1` rewrites them), and tests properties of any table.

mod formats;

use std::fs;
use std::path::Path;

use hodo_clock::Nanos;
use hodo_model::{Cause, Column, Loss, Shape, Table, Type, Unit, Value};
use hodo_views::{Options, Reader, VIEWS, View, write_loss};
use proptest::prelude::*;

fn view(name: &str) -> &'static View {
    VIEWS.iter().find(|view| view.name == name).unwrap()
}

fn draw_bytes(name: &str, table: &Table, options: Options) -> Vec<u8> {
    let mut out = Vec::new();
    view(name).draw(table, &options, &mut out).unwrap();
    out
}

fn draw(name: &str, table: &Table, options: Options) -> String {
    String::from_utf8(draw_bytes(name, table, options)).unwrap()
}

/// The output of a view, or why it refuses the table.
fn drawn_by(view: &View, table: &Table) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    view.draw(table, &Options::default(), &mut out).map_err(|error| error.to_string())?;
    Ok(out)
}

/// The views with text output.
fn text_views() -> impl Iterator<Item = &'static View> {
    VIEWS.iter().filter(|view| view.reader != Reader::ProgramsOfBytes)
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
    let columns = vec![
        Column::text("function"),
        Column::name("module"),
        Column::integer("self_instructions", Unit::Instructions),
        Column::integer("calls", Unit::Count),
        Column::integer("self_time_ns", Unit::Nanoseconds),
        Column::real("share", Unit::Share),
    ];
    let summary = vec![("instructions", 1_234_567_u64.into()), ("elapsed_ns", 2_500_000_u64.into())];
    let rows = vec![
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
    ];
    let loss = vec![
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
    ];
    Table::new("functions", Shape::Counters, summary, columns, rows).with_loss(loss)
}

fn tree_of(rows: Vec<Vec<Value>>) -> Table {
    let columns = vec![
        Column::integer("depth", Unit::None),
        Column::name("function"),
        Column::integer("total_instructions", Unit::Instructions),
    ];
    Table::new("tree", Shape::Tree, vec![], columns, rows)
}

fn tree() -> Table {
    let row = |depth: u64, function: &str, total: u64| vec![depth.into(), function.into(), total.into()];
    tree_of(vec![
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
    ])
}

/// A column of each type, with its extreme values.
fn types() -> Table {
    let columns = vec![
        Column::text("text"),
        Column::name("name"),
        Column::integer("integer", Unit::Bytes).secondary(),
        Column::signed("signed_ns", Unit::Nanoseconds),
        Column::real("real", Unit::Share),
        Column::boolean("boolean"),
        Column::list("integers", &Type::Integer, Unit::Count),
        Column::list("texts", &Type::Text, Unit::None),
    ];
    let rows = vec![
        vec![
            "a|b".into(),
            "`tick` |".into(),
            u64::MAX.into(),
            i64::MIN.into(),
            0.1.into(),
            true.into(),
            vec![0, u64::MAX].into(),
            vec!["x,y", "\"z\""].into(),
        ],
        vec![Value::Null; 8],
        vec![
            "".into(),
            "".into(),
            0_u64.into(),
            i64::MAX.into(),
            f64::NAN.into(),
            false.into(),
            Vec::<u64>::new().into(),
            Value::List(vec![Value::Null, "".into()]),
        ],
    ];
    let summary = vec![("lowest", (-5_i64).into()), ("is_whole", false.into()), ("none", Value::Null)];
    Table::new("types", Shape::Intervals, summary, columns, rows)
}

#[test]
fn text_is_that_of_the_golden_files() {
    check("functions.txt", &draw("text", &functions(), Options::default()));
    let narrow = Options { width: Some(80), limit: Some(3), ..Options::default() };
    check("functions-80.txt", &draw("text", &functions(), narrow));
    check("functions-colour.txt", &draw("text", &functions(), Options { colour: true, ..narrow }));
    check("tree.txt", &draw("text", &tree(), Options::default()));
}

#[test]
fn text_for_programs_is_that_of_the_golden_files() {
    check("functions.json", &draw("json", &functions(), Options::default()));
    check("functions.jsonl", &draw("jsonl", &functions(), Options::default()));
    check("functions.csv", &draw("csv", &functions(), Options::default()));
    for view in text_views() {
        let drawn = drawn_by(view, &types()).unwrap_or_else(String::into_bytes);
        check(&format!("types.{}", view.name), &String::from_utf8(drawn).unwrap());
    }
}

#[test]
fn markdown_is_that_of_the_golden_files() {
    check("functions.md", &draw("markdown", &functions(), Options { limit: Some(3), ..Options::default() }));
    check("tree.md", &draw("markdown", &tree(), Options::default()));
}

#[test]
fn html_is_that_of_the_golden_files() {
    check("functions.html", &draw("html", &functions(), Options { limit: Some(3), ..Options::default() }));
    check("tree.html", &draw("html", &tree(), Options::default()));
}

#[test]
fn folded_paths_are_lines_of_their_own_numbers() {
    let row = |depth: u64, function: &str, total: u64, own: u64| {
        vec![depth.into(), function.into(), total.into(), own.into()]
    };
    let columns = vec![
        Column::integer("depth", Unit::None),
        Column::name("function"),
        Column::integer("total_instructions", Unit::Instructions),
        Column::integer("self_instructions", Unit::Instructions),
    ];
    let rows = vec![
        row(0, "main", 60, 10),
        row(1, "a;b 7\nmain;forged 9", 30, 30),
        row(2, "c\\\u{1b}[31m\u{2028}", 0, 0),
        row(3, "deep", 5, 5),
        row(1, "", 20, 20),
        row(0, "thread", 1, 1),
    ];
    let table = Table::new("paths", Shape::Tree, vec![], columns, rows);
    let expected = "main 10\n\
        main;a\\x3bb 7\\nmain\\x3bforged 9 30\n\
        main;a\\x3bb 7\\nmain\\x3bforged 9;c\\\\\\u{1b}[31m\\u{2028};deep 5\n\
        main;- 20\n\
        thread 1\n";
    assert_eq!(draw("folded", &table, Options::default()), expected);
}

/// Returns an attribute of an element.
fn attribute<'l>(line: &'l str, name: &str) -> &'l str {
    line.split_once(&format!(" {name}=\"")).unwrap().1.split('"').next().unwrap()
}

/// Returns an attribute of each rectangle of a plot that has a title.
fn attributes(drawn: &str, name: &str) -> Vec<f64> {
    let rectangles = drawn.lines().filter(|line| line.starts_with("<rect ") && line.contains("<title>"));
    rectangles.map(|line| attribute(line, name).parse().unwrap()).collect()
}

#[test]
fn a_plot_of_counters_has_a_bar_for_each_row() {
    let drawn = draw("svg", &functions(), Options::default());
    let widths = attributes(&drawn, "width");
    assert_eq!(widths.len(), functions().row_count());
    // 1,200,000 and 34,000 instructions.
    assert!((widths[0] / widths[1] - 1_200_000.0 / 34_000.0).abs() < 0.1, "{widths:?}");
    assert!(drawn.contains("functions: self instructions") && drawn.contains(">1,200,000</text>"), "{drawn}");
    let calls = hodo_views::plot(&functions(), Some("calls")).unwrap();
    assert!(calls.contains("functions: calls") && calls.contains(">21,891</text>"), "{calls}");
    let wrong = hodo_views::plot(&functions(), Some("module")).unwrap_err();
    assert!(
        wrong.contains("no column of numbers is called module; there are self_instructions, calls"),
        "{wrong}"
    );
}

/// A text of a drawing, and the pixels at which it begins and ends.
#[derive(Debug)]
struct DrawnText {
    begin: f64,
    end: f64,
    text: String,
}

/// The texts of a drawing in this font size; a character has the width of a digit of a wide font.
fn texts(drawn: &str, size: f64) -> Vec<DrawnText> {
    let of_size = format!("font-size=\"{size}\"");
    let lines = drawn.lines().filter(|line| line.starts_with("<text ") && line.contains(&of_size));
    let text = |line: &str| {
        let x: f64 = attribute(line, "x").parse().unwrap();
        let text = line.split_once('>').unwrap().1.strip_suffix("</text>").unwrap().to_owned();
        let width = text.chars().count() as f64 * 0.636 * size;
        let begin = match attribute(line, "text-anchor") {
            "middle" => x - width / 2.0,
            "end" => x - width,
            anchor => panic!("{anchor}"),
        };
        DrawnText { begin, end: begin + width, text }
    };
    lines.map(text).collect()
}

#[test]
fn labels_of_an_axis_of_time_are_round_and_apart() {
    let axis = |begin: u64, length: u64| {
        let columns = vec![
            Column::name("state"),
            Column::integer("begin_ns", Unit::Nanoseconds),
            Column::integer("duration_ns", Unit::Nanoseconds),
        ];
        let rows = [vec!["running".into(), begin.into(), length.into()]];
        let drawn =
            draw("svg", &Table::new("states", Shape::Intervals, vec![], columns, rows), Options::default());
        texts(&drawn, 10.0)
    };
    let words = |begin, length| axis(begin, length).into_iter().map(|drawn| drawn.text).collect::<Vec<_>>();
    assert_eq!(words(1_000, 1_000), ["0.000001000 s", "+200 ns", "+400 ns", "+600 ns", "+800 ns", "+1 µs"]);
    assert_eq!(words(5, 12_345_678), ["0.000000005 s", "+5 ms", "+10 ms"]);
    assert_eq!(words(0, 1_700_000), ["0.000000000 s", "+500 µs", "+1 ms", "+1.5 ms"]);
    assert_eq!(words(7, 0), ["0.000000007 s"]);
    for begin in [0, 1_700_000_000_123_456_789] {
        for length in (0..400).map(|power| (1.1_f64.powi(power) as u64).min(u64::MAX - begin)) {
            let texts = axis(begin, length);
            assert!(length < 3 || (3..=6).contains(&texts.len()), "{length}: {texts:?}");
            assert!(texts.windows(2).all(|pair| pair[0].end + 1.0 < pair[1].begin), "{length}: {texts:?}");
            assert!(texts.iter().all(|text| text.begin > 0.0 && text.end < 760.0), "{length}: {texts:?}");
        }
    }
}

#[test]
fn bars_are_sorted_by_the_plotted_column_unless_their_order_means_something() {
    let numbers = [5_i64, -900, 3, 40, 40];
    let columns = vec![Column::name("function"), Column::signed("change", Unit::Instructions)];
    let row = |(index, &number): (usize, &i64)| vec![format!("f{index}").as_str().into(), number.into()];
    let rows = numbers.iter().enumerate().map(row);
    let table = Table::new("diff", Shape::Counters, vec![], columns, rows);
    let labels = |drawn: &str| -> Vec<String> {
        let lines = drawn.lines().filter(|line| line.contains("text-anchor=\"end\""));
        lines.map(|line| line.split(['>', '<']).nth(2).unwrap().to_owned()).collect()
    };
    assert_eq!(labels(&draw("svg", &table, Options::default())), ["f1", "f3", "f4", "f0", "f2"]);

    // Of many rows the greatest are drawn, wherever they are.
    let columns = vec![Column::name("function"), Column::integer("calls", Unit::Count)];
    let rows = (0..100_u64).map(|index| vec![format!("f{index}").as_str().into(), index.into()]);
    let drawn =
        draw("svg", &Table::new("functions", Shape::Counters, vec![], columns, rows), Options::default());
    assert_eq!(labels(&drawn)[..2], ["f99", "f98"]);
    assert!(drawn.contains("functions: calls, 20 greatest of 100 rows"), "{drawn}");

    // A tree and bins keep their order.
    let drawn = draw("svg", &tree(), Options::default());
    assert_eq!(labels(&drawn)[..4], ["thread 1", "· _start", "· · main", "· · · parse"]);
    let columns = vec![
        Column::name("measure"),
        Column::integer("from", Unit::None),
        Column::integer("until", Unit::None),
        Column::integer("count", Unit::Count),
    ];
    let rows = [(0_u64, 3_u64), (10, 9), (20, 1)]
        .map(|(from, count)| vec!["time".into(), from.into(), (from + 10).into(), count.into()]);
    let table = Table::new("latency", Shape::Counters, vec![], columns, rows);
    assert_eq!(labels(&draw("svg", &table, Options::default())), ["time 0", "time 10", "time 20"]);
}

#[test]
fn a_plot_of_intervals_has_a_lane_for_each_thread() {
    let columns = vec![
        Column::name("comm"),
        Column::integer("tid", Unit::None),
        Column::name("state"),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::integer("duration_ns", Unit::Nanoseconds),
    ];
    let row = |tid: u64, state: &str, begin: u64, duration: u64| {
        vec!["worker".into(), tid.into(), state.into(), begin.into(), duration.into()]
    };
    let rows = vec![
        row(1, "running", 1_000, 500),
        row(2, "waiting", 1_000, 1_000),
        row(1, "waiting", 1_500, 250),
        // Too near to its neighbour, of the same state, to be seen.
        row(1, "waiting", 1_750, 250),
    ];
    let table = Table::new("states", Shape::Intervals, vec![], columns, rows);
    let drawn = draw("svg", &table, Options::default());
    let (x, width, y) = (attributes(&drawn, "x"), attributes(&drawn, "width"), attributes(&drawn, "y"));
    // The second one spans the whole plot.
    let whole = width[1];
    assert_eq!(x, [x[1], x[1], x[1] + whole / 2.0]);
    assert_eq!(width, [whole / 2.0, whole, whole / 2.0]);
    assert!(y[0] == y[2] && y[0] < y[1], "{y:?}");
    for text in [">worker 1</text>", ">worker 2</text>", ">running</text>", ">0.000001000 s</text>"] {
        assert!(drawn.contains(text), "{text}: {drawn}");
    }
}

#[test]
fn a_plot_of_points_shows_values_over_time() {
    let columns = vec![Column::integer("time_ns", Unit::Nanoseconds), Column::integer("bytes", Unit::Bytes)];
    let rows = (0..5_000_u64).map(|time| vec![time.into(), (time % 100).into()]);
    let drawn = draw("svg", &Table::new("sizes", Shape::Points, vec![], columns, rows), Options::default());
    assert!(drawn.contains("sizes: bytes over time") && drawn.contains(">99</text>"), "{drawn}");
    // One line for each pixel.
    assert!(drawn.matches('V').count() > 500 && drawn.len() < 30_000, "{}", drawn.len());
}

/// A table of call paths: the depth, the function and the own instructions of each row.
fn paths_of(rows: &[(u64, &str, u64)]) -> Table {
    let columns = vec![
        Column::integer("depth", Unit::None),
        Column::name("function"),
        Column::integer("self_instructions", Unit::Instructions),
    ];
    let rows = rows.iter().map(|&(depth, function, own)| vec![depth.into(), function.into(), own.into()]);
    Table::new("paths", Shape::Tree, vec![], columns, rows)
}

#[test]
fn a_sunburst_has_an_arc_for_each_path_with_a_share_of_the_whole() {
    let table =
        paths_of(&[(0, "main", 10), (1, "<a>", 30), (2, "unseen", 0), (1, "b", 20), (0, "thread", 40)]);
    let drawn = draw("sunburst", &table, Options::default());
    let expected = [
        "main: 60 instructions (60.00 %)",
        "&lt;a&gt;: 30 instructions (30.00 %)",
        "b: 20 instructions (20.00 %)",
        "thread: 40 instructions (40.00 %)",
    ];
    assert_eq!(titles(&drawn), expected);
    // A callee begins where its caller does, one ring further out.
    let begins: Vec<&str> =
        drawn.split("<path d=\"M").skip(1).map(|rest| rest.split(' ').next().unwrap()).collect();
    assert_eq!((begins[0], begins[1]), ("0.00", "0.00"));
}

#[test]
fn a_sunburst_with_a_limit_keeps_the_whole() {
    let table = paths_of(&[
        (0, "light", 5),
        (0, "main", 10),
        (1, "a", 20),
        (2, "aa", 8),
        (2, "ab", 2),
        (1, "b", 15),
        (0, "thread", 40),
    ]);
    let limited = |limit| draw("sunburst", &table, Options { limit: Some(limit), ..Options::default() });
    let three = [
        "main: 55 instructions (55.00 %)",
        "a: 30 instructions (30.00 %)",
        "2 more paths: 10 instructions (10.00 %)",
        "1 more path: 15 instructions (15.00 %)",
        "thread: 40 instructions (40.00 %)",
        "1 more path: 5 instructions (5.00 %)",
    ];
    assert_eq!(titles(&limited(3)), three);
    assert!(limited(3).contains(">100</text>"));
    assert_eq!(titles(&limited(0)), ["7 more paths: 100 instructions (100.00 %)"]);
    assert_eq!(limited(7), draw("sunburst", &table, Options::default()));
}

/// The texts of the arcs of a sunburst, in order.
fn titles(drawn: &str) -> Vec<&str> {
    drawn.split("<title>").skip(1).map(|rest| rest.split("</title>").next().unwrap()).collect()
}

#[test]
fn views_show_losses_exactly_if_they_say_so() {
    for view in VIEWS {
        let drawn = draw_bytes(view.name, &functions(), Options::default());
        let detail = b"no such file";
        assert_eq!(
            drawn.windows(detail.len()).any(|bytes| bytes == detail),
            view.shows_loss,
            "{}",
            view.name
        );
    }
    let mut beside = Vec::new();
    write_loss(&functions().loss, &Options::default(), &mut beside).unwrap();
    assert!(String::from_utf8(beside).unwrap().contains("no such file"));
}

#[test]
fn a_table_without_rows_is_drawn() {
    let table = Table::new("functions", Shape::Counters, vec![], functions().columns().to_vec(), vec![]);
    assert_eq!(draw("text", &table, Options::default()), "functions\n");
    assert_eq!(draw("markdown", &table, Options::default()), "### functions\n\n");
    assert_eq!(draw("jsonl", &table, Options::default()), "");
    let parsed: serde_json::Value = serde_json::from_str(&draw("json", &table, Options::default())).unwrap();
    assert_eq!(parsed["rows"], serde_json::json!([]));
    assert_eq!(parsed["summary"], serde_json::json!({}));
}

#[test]
fn deep_trees_keep_to_the_width() {
    let row = |depth: u64| vec![depth.into(), "recursive".into(), 1_u64.into()];
    let table = tree_of((0..5_000).map(row).collect());
    let drawn = draw("text", &table, Options { width: Some(100), ..Options::default() });
    assert!(drawn.lines().all(|line| line.chars().count() <= 100));
    assert!(drawn.lines().skip(4).all(|line| line.contains("recursive")));
}

#[test]
fn a_name_without_end_widens_its_own_line_alone() {
    let mut rows = functions().rows();
    rows[0][0] = "x".repeat(3_000).into();
    let table = Table::new("functions", Shape::Counters, vec![], functions().columns().to_vec(), rows);
    let drawn = draw("text", &table, Options::default());
    let (long, others): (Vec<&str>, Vec<&str>) = drawn.lines().partition(|line| line.contains("xxx"));
    assert!(long.len() == 1 && long[0].contains(&"x".repeat(3_000)) && long[0].contains("/usr/bin/demo"));
    assert!(others.iter().all(|line| line.chars().count() < 250));
}

#[test]
fn a_limit_leaves_rows_out_in_every_view_of_text() {
    for view in text_views() {
        let first = Options { limit: Some(1), ..Options::default() };
        let drawn = draw(view.name, &tree(), first);
        assert!(drawn.contains("thread 1") && !drawn.contains("_start"), "{}: {drawn}", view.name);
    }
}

#[test]
#[should_panic(expected = "the column `share` holds Real, and is given Text(\"much\")")]
fn a_cell_of_another_type_is_a_broken_invariant() {
    let columns = vec![Column::real("share", Unit::Share)];
    Table::new("any", Shape::Counters, vec![], columns, [vec!["much".into()]]);
}

#[test]
#[should_panic(expected = "a row ends before its column `calls`")]
fn a_row_that_is_too_short_is_a_broken_invariant() {
    let columns = vec![Column::real("share", Unit::Share), Column::integer("calls", Unit::Count)];
    Table::new("any", Shape::Counters, vec![], columns, [vec![0.5.into()]]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_sends_nothing_that_steers_a_terminal(
        table in formats::table(),
        width in prop::option::of(0_usize..200),
    ) {
        for view in VIEWS.iter().filter(|view| view.reader == Reader::People) {
            let drawn = draw(view.name, &table, Options { width, ..Options::default() });
            prop_assert!(drawn.chars().all(|c| c == '\n' || !c.is_control()));
            prop_assert!(drawn.lines().all(|line| line == line.trim_end()));
        }
    }

    #[test]
    fn a_drawing_is_xml_whatever_names_are(table in formats::table()) {
        for view in ["sunburst", "svg"] {
            let drawn = draw(view, &table, Options::default());
            prop_assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
            prop_assert!(drawn.chars().all(|c| c == '\n' || !c.is_control()));
            prop_assert_eq!(drawn.matches('<').count(), drawn.matches('>').count());
        }
    }

    #[test]
    fn folded_lines_end_in_a_number_whatever_names_are(table in formats::table()) {
        let drawn = draw("folded", &table, Options::default());
        prop_assert!(drawn.lines().count() <= table.row_count());
        for line in drawn.split_terminator('\n') {
            let (path, number) = line.rsplit_once(' ').unwrap();
            prop_assert!(number.parse::<u64>().is_ok_and(|number| number > 0) && !path.is_empty(), "{}", line);
            prop_assert!(!line.contains(char::is_control), "{:?}", line);
        }
    }

    #[test]
    fn every_row_of_a_table_of_markdown_has_all_columns(table in formats::table()) {
        let drawn = draw("markdown", &table, Options::default());
        // Bars that do not end a cell are escaped.
        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
        let rows: Vec<&str> = drawn.lines().filter(|line| line.starts_with('|')).collect();
        let is_tree = table.shape() == Shape::Tree;
        let columns = table.columns().len() - usize::from(is_tree);
        prop_assert_eq!(rows.len(), if table.is_empty() { 0 } else { table.row_count() + 2 });
        for row in rows {
            prop_assert_eq!(bars(row), columns + 1, "{}", row);
        }
    }
}

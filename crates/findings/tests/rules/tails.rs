//! Heavy tails, and two kinds of executions.

use hodo_findings::{CAUSES, Evidence, Execution, Executions, PATTERNS, Question, patterns, questions};
use hodo_model::{Column, Shape, Table, Unit, Value};

use super::{found, made, rules};

/// The shortest of the slowest executions.
const SLOW: u64 = 80;

/// Executions of a function: how many, the longest, the tail's share of the run, and all of their instructions.
fn executions(count: u64, max: u64, share: f64, total: u64) -> Table {
    let columns = vec![
        Column::name("function"),
        Column::name("module"),
        Column::integer("count", Unit::Count),
        Column::real("tail_share", Unit::Share),
        Column::integer("instructions_p50", Unit::Count),
        Column::integer("instructions_p99", Unit::Count),
        Column::integer("instructions_max", Unit::Count),
        Column::integer("instructions_total", Unit::Count),
    ];
    let names: [Value; 2] = ["serve<'a>".into(), "program".into()];
    let numbers: [Value; 6] =
        [count.into(), share.into(), 10u64.into(), SLOW.into(), max.into(), total.into()];
    Table::new("latency", Shape::Counters, Vec::new(), columns, [[&names[..], &numbers].concat()])
}

#[test]
fn tails_are_heavy_long_and_of_many() {
    let rules =
        |count, max, share| found(&[(("latency", "instructions"), &executions(count, max, share, 2_000))]);
    let [finding] = &rules(100, 88, 0.11)[..] else { panic!("one finding") };
    assert_eq!(finding.command, r"latency --compare --function 'serve<'\''a>@program'");
    assert!(finding.sentence.contains("88 instructions, 8 times the median of 10"), "{}", finding.sentence);
    assert_eq!(rules(100, 87, 0.11), []);
    assert_eq!(rules(100, 88, 0.051).len(), 1);
    assert_eq!(rules(100, 88, 0.05), []);
    assert_eq!(rules(20, 88, 0.11).len(), 1);
    assert_eq!(rules(20, 88, 0.1), [], "at least 10 % with few executions");
    assert_eq!(rules(19, 88, 0.11), []);
    assert_eq!(rules(1_000, SLOW * 8 + 7, 0.5).len(), 1);
    assert_eq!(rules(1_000, SLOW * 8 + 8, 0.5), [], "the slowest differ as much among themselves");
}

#[test]
fn slow_executions_that_differ_have_a_rare_callee() {
    let rules = |entries: u64, instructions: u64| {
        let row = |depth: u64, name: &str, entries: u64, total: u64| -> [Value; 5] {
            [name.into(), "program".into(), depth.into(), entries.into(), total.into()]
        };
        let rows = [
            row(0, "main", 1, 40_000),
            row(1, "serve<'a>", 1_000, 20_000),
            row(2, "grow", entries, instructions),
            row(3, "grow", 8, instructions),
        ];
        let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
        let columns = ["function", "module", "depth", "entries", "total_instructions"];
        let tree = made("tree", &[("instructions", 40_000)], &columns, &rows);
        let mut of_all_sizes = executions(1_000, 1_500, 0.2, 20_000);
        of_all_sizes.summary.push(("instructions", 40_000u64.into()));
        rules(&[(("latency", "instructions"), &of_all_sizes), (("tree", ""), &tree)])
            .into_iter()
            .filter(|rule| *rule == "heavy-tail")
            .count()
    };
    assert_eq!(rules(20, 4_000), 1);
    assert_eq!(rules(20, 3_999), 0, "less than half of the tail");
    assert_eq!(rules(21, 4_000), 0, "more than one of 50 executions calls it");
    assert_eq!(rules(1, 4_000), 0, "it runs once");
}

/// The functions of a program and of a library, and a call tree in which one calls another.
fn program() -> [Table; 2] {
    let row = |name: &str, module: &str| -> [Value; 3] { [name.into(), module.into(), 9_000u64.into()] };
    let rows = [row("main", "program"), row("get", "program"), row("take", "libx.so.1")];
    let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
    let functions =
        made("functions", &[("instructions", 9_000)], &["function", "module", "total_instructions"], &rows);
    let row =
        |depth: u64, name: &str, module: &str| -> [Value; 3] { [name.into(), module.into(), depth.into()] };
    let rows = [row(0, "main", "program"), row(1, "get", "program"), row(2, "take", "libx.so.1")];
    let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
    [functions, made("tree", &[("instructions", 9_000)], &["function", "module", "depth"], &rows)]
}

/// Returns the rules that find something in two kinds of executions of a function.
fn rules_of(name: &str, module: &str, counts: [u64; 2], share: f64) -> Vec<&'static str> {
    let kinds = kinds_of((name, module), counts, [5, 80_000, 80_000], share, 5);
    let [functions, _] = program();
    let mut rules = rules(&[(("latency", "instructions"), &kinds), (("functions", ""), &functions)]);
    rules.retain(|rule| *rule == "heavy-tail");
    rules
}

#[test]
fn libraries_have_tails_that_cost_more() {
    let rules = |counts, share| rules_of("take", "libx.so.1", counts, share).len();
    assert_eq!((rules([2970, 30], 0.11), rules([2970, 30], 0.1)), (1, 0));
    assert_eq!((rules([2700, 300], 0.26), rules([2700, 300], 0.25)), (1, 0));
    assert_eq!((rules([1500, 1500], 0.51), rules([1500, 1500], 0.5)), (1, 0));
    assert_eq!((rules([90, 10], 0.9), rules([89, 10], 0.9)), (1, 0), "fewer than 100 executions");
}

#[test]
fn slow_executions_of_a_kind_are_alike() {
    let rules = |short, long, longest| {
        let kinds = kinds_of(("get", "program"), [2970, 30], [short, long, longest], 0.9, 5);
        rules(&[(("latency", "instructions"), &kinds)]).len()
    };
    assert_eq!((rules(5, 80, 80 * 16 - 1), rules(5, 80, 80 * 16)), (1, 0));
    assert_eq!((rules(5, 500, 500 * 100 - 1), rules(5, 500, 500 * 100)), (1, 0), "less than from fast ones");
}

#[test]
fn functions_without_a_symbol_have_no_tail() {
    assert_eq!(rules_of("program+0x10", "program", [1500, 1500], 0.9), [] as [&str; 0]);
    assert_eq!(rules_of("program_x", "program", [1500, 1500], 0.9), ["heavy-tail"]);
}

#[test]
fn a_librarys_tail_is_not_its_callers() {
    let [functions, tree] = program();
    let with = |share: f64, of_library: f64| {
        let own = kinds_of(("get", "program"), [2970, 30], [5, 80_000, 80_000], share, 5);
        let library = kinds_of(("take", "libx.so.1"), [2970, 30], [5, 80_000, 80_000], of_library, 5);
        let latency = ("latency", "instructions");
        let tables =
            [(latency, &own), (latency, &library), (("functions", ""), &functions), (("tree", ""), &tree)];
        rules(&tables).contains(&"heavy-tail")
    };
    assert!(!with(0.02, 0.016), "the library keeps house");
    assert!(with(0.02, 0.0159), "the program does more than that");
    assert!(with(0.11, 0.09), "it costs more than a library may");
}

/// Two kinds of executions: how many are fast and slow, their medians, the share of the slow ones, and the first.
pub(crate) fn kinds(counts: [u64; 2], medians: [u64; 2], share: f64, first: u64) -> Table {
    let [short, long] = medians;
    kinds_of(("get", "program"), counts, [short, long, long], share, first)
}

/// The same of a function and its module, with the medians and the longest.
fn kinds_of(
    (function, module): (&str, &str),
    [fast, slow]: [u64; 2],
    [short, long, longest]: [u64; 3],
    share: f64,
    first: u64,
) -> Table {
    let columns = vec![
        Column::name("function"),
        Column::name("module"),
        Column::integer("count", Unit::Count),
        Column::real("tail_share", Unit::Share),
        Column::real("slow_share", Unit::Share),
        Column::integer("fast_count", Unit::Count),
        Column::integer("slow_count", Unit::Count),
        Column::integer("fast_p50", Unit::Count),
        Column::integer("slow_p50", Unit::Count),
        Column::integer("slow_from", Unit::Count),
        Column::integer("instructions_max", Unit::Count),
        Column::integer("instructions_first", Unit::Count),
    ];
    let numbers = [fast, slow, short, long, long, longest, first].map(Value::from);
    let cells: Vec<Value> =
        [function.into(), module.into(), (fast + slow).into(), share.into(), share.into()]
            .into_iter()
            .chain(numbers)
            .collect();
    let summary = vec![("threads", 1u64.into()), ("instructions", 1000u64.into())];
    Table::new("latency", Shape::Counters, summary, columns, [cells])
}

#[test]
fn two_kinds_of_executions_are_one_finding_however_many_are_slow() {
    let found =
        |counts, medians, share| found(&[(("latency", "instructions"), &kinds(counts, medians, share, 5))]);
    let [finding] = &found([2970, 30], [5, 80_000], 0.9)[..] else { panic!("one finding") };
    assert!(
        finding.sentence.contains("2,970 executions run 5 instructions (median), 30 run about 80,000"),
        "{}",
        finding.sentence
    );
    let [finding] = &found([1500, 1500], [5, 80_000], 0.9)[..] else { panic!("one finding") };
    let expected = "get has two kinds of executions: 1,500 executions run 5 instructions (median), 1,500 run about 80,000, 16,000 times";
    assert!(finding.sentence.starts_with(expected), "{}", finding.sentence);
    assert_eq!(found([1500, 1500], [5, 44], 0.9), [], "at most 8 times");
    assert_eq!(found([1500, 1500], [5, 80_000], 0.25), [], "at most 25 % of the run");
    assert_eq!(found([2700, 300], [5, 80_000], 0.26).len(), 1);
    assert_eq!(found([2700, 300], [5, 80_000], 0.1), [], "at most 10 % of the run");
    assert_eq!(found([2970, 30], [5, 80_000], 0.016).len(), 1);
    assert_eq!(found([2970, 30], [5, 80_000], 0.015), [], "at most 1.5 % of the run");
    assert_eq!(found([1499, 1501], [5, 80_000], 0.9), [], "the short ones are the exception");
    assert_eq!(found([98, 1], [5, 80_000], 0.9), [], "one of few");
    assert_eq!(found([97, 2], [5, 80_000], 0.9).len(), 1);
}

#[test]
fn one_long_execution_is_no_tail() {
    // The run has 1,000 instructions.
    let found = |longest: u64, share| {
        found(&[(("latency", "instructions"), &kinds([149, 1], [5, longest], share, 5))])
    };
    assert_eq!(found(405, 0.4), []);
    assert_eq!(found(205, 0.5).len(), 1, "others have most of it");
    assert_eq!(found(605, 0.6).len(), 1, "half of the run");
}

#[test]
fn callers_that_only_get_slow_executions_decide() {
    let found = |caller: fn(u64) -> u64| {
        let execution = |number| Execution {
            number,
            begin: None,
            end: None,
            instructions: if number % 100 == 7 { 80_000 } else { 5 },
            caller: caller(number),
        };
        let all: Vec<Execution> = (0..3000).map(execution).collect();
        let slow = all.iter().filter(|one| one.instructions > 5).copied().collect();
        let patterns = patterns("get", "program", &Executions { all, step: 1, slow });
        found(&[
            (("latency", "instructions"), &kinds([2970, 30], [5, 80_000], 0.9, 5)),
            (PATTERNS, &patterns),
        ])
    };
    assert_eq!(found(|_| 1)[0].rule, "heavy-tail");
    assert_eq!(found(|number| number % 100 / 8)[0].rule, "heavy-tail", "its caller gets fast ones too");
    assert_eq!(found(|number| u64::from(number % 100 == 7)), []);
}

#[test]
fn recursive_functions_have_no_tail() {
    let latency = executions(100, 88, 0.5, 2_000);
    let rules = |total: u64| {
        let row: [Value; 3] = ["serve<'a>".into(), "program".into(), total.into()];
        let functions = made("functions", &[], &["function", "module", "total_instructions"], &[&row]);
        rules(&[(("latency", "instructions"), &latency), (("functions", ""), &functions)])
    };
    assert_eq!(rules(2_000), ["heavy-tail"]);
    assert_eq!(rules(1_999), [] as [&str; 0], "executions contain one another");
}

#[test]
fn causes_of_a_tail_are_named_with_what_ran_more() {
    let latency = executions(100, 88, 0.5, 2_000);
    let evidence = Evidence::new(vec![(("latency", "instructions"), &latency)]);
    let question = Question {
        function: "serve<'a>".to_owned(),
        module: "program".to_owned(),
        slow_from: 78,
        compares: true,
        counts: false,
    };
    assert_eq!(questions(&evidence), [question]);
    let names =
        ["extra_", "extra_there_", "extra_self_"].map(|name| [format!("{name}min"), format!("{name}max")]);
    let mut columns = vec![Column::integer("executions", Unit::Count)];
    columns.extend(names.concat().into_iter().map(|name| Column::integer(name.leak(), Unit::Count)));
    columns.extend([Column::integer("extra_total", Unit::Count), Column::text("path")]);
    let row = |numbers: [u64; 8], path: &str| -> Vec<Value> {
        numbers.into_iter().map(Value::from).chain([path.into()]).collect()
    };
    let rows = [
        row([7, 40, 60, 30, 50, 1, 2, 350], "serve<'a> → grow"),
        row([6, 8, 8, 8, 8, 8, 8, 48], "serve<'a>"),
        row([1, 2, 2, 2, 2, 2, 2, 2], "serve<'a> → rare"),
    ];
    let sentence = |figures: &[(&'static str, u64)]| {
        let mut summary = vec![("function", "serve<'a>".into())];
        summary.extend(figures.iter().map(|&(name, figure)| (name, figure.into())));
        let causes = Table::new("causes", Shape::Counters, summary, columns.clone(), rows.clone());
        let tables = [(("latency", "instructions"), &latency), (CAUSES, &causes)];
        let [finding] = &found(&tables)[..] else { panic!("one finding") };
        finding.sentence.clone()
    };
    let all = sentence(&[]);
    let expected = "7 ran 40 to 60 more, 30 to 50 in serve<'a> → grow; 6 ran 8 more in its own code.";
    assert!(all.ends_with(expected) && all.contains("the slowest 1 %, and all as long, cost"), "{all}");
    // Of many slow executions some are compared.
    let exact = [("slowest", 14), ("compared", 7), ("median", 11), ("fast_count", 86), ("slow_count", 14)];
    let some = sentence(&exact);
    let expected = "8 times the median of 11; the slowest 14 cost 50 % of the run. Of these 14 all 7 that were compared ran 40 to \
                    60 more, 30 to 50 in serve<'a> → grow; 6 of 7 that were compared ran 8 more in its own code.";
    assert!(some.ends_with(expected), "{some}");
}

#[test]
fn lengths_of_two_kinds_are_exact_where_all_executions_are_known() {
    let latency = kinds([2970, 30], [612, 80_000], 0.9, 5);
    let sentence = |slow: u64| {
        let figures = [("fast_count", 2970), ("fast_p50", 609), ("slow_count", slow), ("slow_p50", 80_013)];
        let mut summary = vec![("function", "get".into())];
        summary.extend(figures.map(|(name, figure)| (name, Value::from(figure))));
        let columns = vec![Column::integer("executions", Unit::Count), Column::text("path")];
        let causes = Table::new("causes", Shape::Counters, summary, columns, [] as [Vec<Value>; 0]);
        let found = found(&[(("latency", "instructions"), &latency), (CAUSES, &causes)]);
        found[0].sentence.clone()
    };
    let exact = sentence(30);
    assert!(
        exact.contains("2,970 executions run 609 instructions (median), 30 run 80,013, 131 times"),
        "{exact}"
    );
    let rounded = sentence(31);
    assert!(rounded.contains("run about 612 instructions (median), 30 run about 80,000"), "{rounded}");
}

#[test]
fn a_tail_is_that_of_the_innermost_function_where_executions_were_not_compared() {
    let row = |name: &str, share: f64| -> Vec<Value> {
        let numbers: [Value; 6] =
            [1_000u64.into(), share.into(), 10u64.into(), SLOW.into(), 100u64.into(), 2_000u64.into()];
        [[name.into(), "program".into()].as_slice(), &numbers].concat()
    };
    let columns = executions(1, 1, 0.1, 1).columns().to_vec();
    let rows = [row("serve", 0.3), row("insert", 0.29), row("insert@plt", 0.29)];
    let latency = Table::new("latency", Shape::Counters, Vec::new(), columns, rows);
    let calls = |depth: u64, name: &str| -> [Value; 3] { [depth.into(), name.into(), "program".into()] };
    let tree = [calls(0, "main"), calls(1, "serve"), calls(2, "insert")];
    let tree: Vec<&[Value]> = tree.iter().map(|row| &row[..]).collect();
    let tree = made("tree", &[], &["depth", "function", "module"], &tree);
    let found = found(&[(("latency", "instructions"), &latency), (("tree", ""), &tree)]);
    let tails: Vec<_> = found.iter().filter(|finding| finding.rule == "heavy-tail").collect();
    assert_eq!(tails.len(), 1, "{found:?}");
    assert!(tails[0].sentence.starts_with("insert has a heavy tail"), "{found:?}");
}

use std::sync::{Mutex, atomic::AtomicBool};

use hodo_model::{Cause, Shape, Unit, Value};
use rusqlite::types::ValueRef;

use super::*;

mod expected;
mod orders;

/// Runs one statement; `None` if `stop` was set.
fn query(
    sql: &str,
    sources: impl IntoIterator<Item = Arc<dyn Source>>,
    limit: Option<u64>,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Table>, Error> {
    let results = Session::new(sources, stop)?.run(sql, limit)?;
    Ok(results.map(|mut results| results.pop().expect("a question has a result")))
}

/// Intervals of threads, not sorted by time.
struct Intervals(Table);

impl Intervals {
    fn columns() -> Vec<Column> {
        vec![
            Column::integer("tid", Unit::None),
            Column::name("name"),
            Column::signed("begin_ns", Unit::Nanoseconds),
            Column::signed("end_ns", Unit::Nanoseconds),
            Column::integer("address", Unit::Address),
            Column::boolean("open"),
            Column::list("list", &hodo_model::Type::Integer, Unit::None),
        ]
    }

    /// Interval `n` begins at 7 × n mod 1009, is (n mod 13) long, and is of thread n mod 5.
    fn new() -> Intervals {
        let row = |n: u64| {
            let begin = (7 * n % 1009) as i64;
            vec![
                Value::Integer(n % 5),
                format!("t{}", n % 5).into(),
                Value::Signed(begin),
                Value::Signed(begin + (n % 13) as i64),
                Value::Integer(0xffff_ffff_8000_0000 + n),
                Value::Boolean(n.is_multiple_of(2)),
                vec![n, n + 1].into(),
            ]
        };
        Intervals(Table::new("intervals", Shape::Intervals, Vec::new(), Self::columns(), (0..1009).map(row)))
    }
}

impl Source for Intervals {
    fn name(&self) -> &str {
        "intervals"
    }

    fn columns(&self) -> Result<Vec<Column>, String> {
        Ok(Self::columns())
    }

    fn table(&self, _: &[bool]) -> Result<Table, String> {
        let detail = "three packets".to_owned();
        let loss = hodo_model::Loss {
            stream: "s".to_owned(),
            cause: Cause::Corrupt,
            bytes: 0..1,
            time: None,
            count: 3,
            detail,
        };
        Ok(self.0.clone().with_loss(vec![loss]))
    }
}

/// A table whose computation fails: only a statement that names it may cause that.
struct Absent;

impl Source for Absent {
    fn name(&self) -> &str {
        "sched:absent"
    }

    fn columns(&self) -> Result<Vec<Column>, String> {
        Err("there are no events".to_owned())
    }

    fn table(&self, _: &[bool]) -> Result<Table, String> {
        Err("there are no rows".to_owned())
    }
}

/// A table that notes which columns are read.
struct Noting(Mutex<Vec<bool>>);

impl Source for Noting {
    fn name(&self) -> &str {
        "noting"
    }

    fn columns(&self) -> Result<Vec<Column>, String> {
        Ok(Intervals::columns())
    }

    fn table(&self, read: &[bool]) -> Result<Table, String> {
        *self.0.lock().expect("no thread panicked") = read.to_vec();
        Ok(Intervals::new().0)
    }
}

fn table_of(sql: &str) -> Result<Table, Error> {
    let sources: [Arc<dyn Source>; 2] = [Arc::new(Intervals::new()), Arc::new(Absent)];
    query(sql, sources, None, &Arc::default()).map(|table| table.expect("it was not stopped"))
}

fn rows(sql: &str) -> Vec<Vec<Value>> {
    table_of(sql).unwrap_or_else(|error| panic!("{error}")).rows()
}

fn number(sql: &str) -> i64 {
    match rows(sql).as_slice() {
        [row] => match row.as_slice() {
            [Value::Signed(number)] => *number,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn message(sql: &str) -> String {
    table_of(sql).expect_err(sql).to_string()
}

/// A `+` before a column hides its condition from lookups; the rows are the same.
#[test]
fn lookups_find_what_a_scan_finds() {
    for condition in [
        "begin_ns = 100",
        "begin_ns >= 990",
        "begin_ns > 1000 and end_ns < 1010",
        "begin_ns <= 500 and end_ns > 500",
        "begin_ns < 500.5 and end_ns >= 499.5",
        "begin_ns between 20 and 40 and tid = 3",
        "tid = 3 and end_ns > 800",
        "tid = 3.0",
        "name = 't2' and begin_ns < 9",
        "name = 'T2' collate nocase",
        "tid = 77",
        "tid = 3 and name = 't3' and begin_ns > 500",
        "tid = 3 and name = 't2'",
        "tid = 3.0 and name = 't3'",
        "tid = 3 and name = null",
        "tid = 2 and address = 0xffffffff80000007 and name = 't2' and end_ns > 0",
        "address = 0xffffffff80000003",
        "begin_ns > null",
    ] {
        let hidden = condition.replace("begin_ns", "+begin_ns").replace("end_ns", "+end_ns");
        let hidden = hidden.replace("tid", "+tid").replace("name", "+name").replace("address", "+address");
        let matching =
            |condition: &str| rows(&format!("select * from intervals where {condition} order by begin_ns"));
        assert_eq!(matching(condition), matching(&hidden), "{condition}");
    }
}

/// Rows are looked up by all columns that must be equal, whatever their order.
#[test]
fn a_join_uses_all_equal_columns() {
    let rows = index::Rows::new(Intervals::new().0).expect("it is small");
    let key =
        |tid: i64, name: &'static str| [(0, ValueRef::Integer(tid)), (1, ValueRef::Text(name.as_bytes()))];
    let mut lookup = index::Lookup::default();
    let mut found = |key: &[(usize, ValueRef<'_>)], bounds| match rows.find(
        key,
        &bounds,
        index::RowOrder::Begin,
        &mut lookup,
    ) {
        index::RowRange::Equal(_, range) => range.len(),
        other => panic!("{other:?}"),
    };
    let begin_from = |from| index::Bounds { begin_from: from, ..index::Bounds::ALL };
    assert_eq!(found(&key(3, "t3"), index::Bounds::ALL), 202);
    assert_eq!(found(&key(3, "t2"), index::Bounds::ALL), 0);
    assert_eq!(found(&key(3, "")[..1], begin_from(1000)), 3);
    assert_eq!(found(&key(3, "t3"), begin_from(1000)), 3);
    // The first lookup of a statement reads all rows, and later ones find groups.
    let same = "select sum((select count(*) from intervals b where b.tid = a.tid and b.name = a.name)) from intervals a";
    assert_eq!(number(same), 4 * 202 * 202 + 201 * 201);
    let plan = text_of(
        "explain query plan select * from intervals a join intervals b
        on a.tid = b.tid and a.name = b.name and b.begin_ns >= a.begin_ns",
    );
    assert!(plan.contains("VIRTUAL TABLE INDEX 1:0,1"), "{plan}");
}

fn text_of(sql: &str) -> String {
    rows(sql).iter().map(|row| format!("{row:?}\n")).collect()
}

/// A column's type applies to the value that it is compared with.
#[test]
fn a_text_that_is_a_number_equals_it() {
    assert_eq!(number("select count(*) from intervals where tid = '3'"), 202);
    assert_eq!(number("select count(*) from intervals where name = 2"), 0);
}

#[test]
fn intervals_join_by_overlap() {
    let count = |condition: &str| {
        number(&format!("select count(*) from intervals a join intervals b on {condition}"))
    };
    let expected = {
        let all = Intervals::new().0.rows();
        let time = |value: &Value| if let Value::Signed(time) = value { *time } else { panic!("{value:?}") };
        let overlap = |a: &&Vec<Value>, b: &Vec<Value>| {
            a[0] == b[0] && time(&b[2]) < time(&a[3]) && time(&b[3]) > time(&a[2])
        };
        all.iter().map(|a| all.iter().filter(|b| overlap(&a, b)).count()).sum::<usize>() as i64
    };
    assert!(expected > 1000, "{expected}");
    assert_eq!(count("a.tid = b.tid and b.begin_ns < a.end_ns and b.end_ns > a.begin_ns"), expected);
}

/// A table with begins and durations.
struct Durations;

impl Source for Durations {
    fn name(&self) -> &str {
        "durations"
    }

    fn columns(&self) -> Result<Vec<Column>, String> {
        Ok(["at", "begin_ns", "duration_ns"].map(|name| Column::integer(name, Unit::None)).to_vec())
    }

    fn table(&self, read: &[bool]) -> Result<Table, String> {
        let row = |n: u64| {
            let cells =
                [n, 10 * n, 4 + n].map(|cell| if n == 7 { Value::Null } else { Value::Integer(cell) });
            cells.into_iter().zip(read).map(|(cell, read)| if *read { cell } else { Value::Null }).collect()
        };
        Ok(Table::new("durations", Shape::Intervals, Vec::new(), self.columns()?, (0..20).map(row)))
    }
}

#[test]
fn an_end_is_computed_from_a_duration() {
    let rows = |sql: &str| {
        let table = query(sql, [Arc::new(Durations) as Arc<dyn Source>], None, &Arc::default());
        table.expect(sql).expect("it was not stopped").rows()
    };
    let row = |begin, end| vec![Value::Integer(begin), Value::Signed(end)];
    assert_eq!(rows("select begin_ns, end_ns from durations where at < 2"), [row(0, 4), row(10, 15)]);
    assert_eq!(rows("select begin_ns, end_ns from durations where end_ns > 212"), [row(190, 213)]);
    assert_eq!(rows("select * from durations where end_ns = 15").len(), 1);
    assert_eq!(rows("select * from durations where at = 1")[0].len(), 3);
    assert_eq!(rows("select end_ns from durations where end_ns is null"), [[Value::Null]]);
}

#[test]
fn values_keep_types_and_units() {
    let table = table_of(
        "select address, open, tid, tid + 1 as next, null as missing, list, 1.5 as real, x'0aff' as bytes
        from intervals where tid = 1 limit 1",
    )
    .expect("it is right");
    let kinds: Vec<_> =
        table.columns().iter().map(|column| (column.name, column.kind, column.unit)).collect();
    use hodo_model::Type;
    assert_eq!(kinds[0], ("address", Type::Integer, Unit::Address));
    assert_eq!(kinds[1], ("open", Type::Boolean, Unit::None));
    assert_eq!(kinds[3], ("next", Type::Signed, Unit::None));
    let row = &table.rows()[0];
    let Value::Integer(address) = row[0] else { panic!("{row:?}") };
    assert!(address > u64::MAX / 2);
    assert!(matches!(row[5], Value::Text(ref list) if list.starts_with('[')));
    assert_eq!(row[3..5], [Value::Signed(2), Value::Null]);
    assert_eq!(row[6..], [Value::Real(1.5), Value::from("0aff")]);
}

#[test]
fn a_column_of_several_types_is_text_or_real() {
    assert_eq!(rows("select 1 as x union all select 2.5"), [[Value::Real(1.0)], [Value::Real(2.5)]]);
    let mixed = rows("select null as x union all select 1 union all select 'a'");
    assert_eq!(mixed, [[Value::Null], [Value::from("1")], [Value::from("a")]]);
    let twice = table_of("select 1 as x, 2 as x").expect("it is right");
    assert_eq!(twice.columns().iter().map(|column| column.name).collect::<Vec<_>>(), ["x", "x_2"]);
}

#[test]
fn percentiles_are_of_nearest_rank() {
    assert_eq!(
        number("select median(value) from (select 4 as value union all select 1 union all select 9)"),
        4
    );
    // Up to 1 a share, above a percentage.
    for (argument, expected) in [
        ("99", 998),
        ("0.99", 998),
        ("50", 504),
        ("0.5", 504),
        ("1", 1008),
        ("1.0", 1008),
        ("100", 1008),
        ("0", 0),
    ] {
        assert_eq!(
            number(&format!("select percentile(begin_ns, {argument}) from intervals")),
            expected,
            "{argument}"
        );
    }
    assert_eq!(rows("select median(tid) from intervals where tid > 9"), [[Value::Null]]);
    for wrong in ["101", "-0.1"] {
        let message = message(&format!("select percentile(tid, {wrong}) from intervals"));
        assert!(message.contains("from 0 to 1"), "{message}");
    }
    assert!(message("select median(name) from intervals").contains("text"));
}

#[test]
fn functions_of_mathematics_are_there() {
    let real = |sql: &str| match rows(&format!("select {sql}"))[0][0] {
        Value::Real(real) => real,
        Value::Signed(integer) => integer as f64,
        ref other => panic!("{sql}: {other:?}"),
    };
    for (sql, expected) in [
        ("sqrt(2.25)", 1.5),
        ("pow(2, 10)", 1024.0),
        ("ln(exp(2))", 2.0),
        ("log2(8)", 3.0),
        ("log10(1000)", 3.0),
        ("floor(-1.5)", -2.0),
        ("ceil(1.2)", 2.0),
    ] {
        assert!((real(sql) - expected).abs() < 1e-12, "{sql}");
    }
    assert_eq!(rows("select sqrt(-1), ln(0)"), [[Value::Null, Value::Null]]);
}

#[test]
fn regular_expressions_match_a_part() {
    assert_eq!(number("select count(*) from intervals where name regexp '^t[12]$'"), 404);
    assert_eq!(number("select 'Straße' regexp '\\w{6}'"), 1);
    assert_eq!(number("select 123 regexp '2'"), 1);
    assert_eq!(rows("select null regexp 'a', 'a' regexp null"), [[Value::Null, Value::Null]]);
    assert!(message("select 'a' regexp '('").contains("regexp: "));
    assert!(message("select 'a' regexp '(\\w{1000}){1000}'").contains("size limit"));
}

#[test]
fn a_series_has_its_start_and_its_stop() {
    let series = |arguments: &str| -> Vec<i64> {
        let sql = format!("select value from generate_series({arguments}) limit 5");
        let value = |row: &Vec<Value>| match row[0] {
            Value::Signed(value) => value,
            ref other => panic!("{other:?}"),
        };
        rows(&sql).iter().map(value).collect()
    };
    assert_eq!(series("1, 3"), [1, 2, 3]);
    assert_eq!(series("0, 10, 4"), [0, 4, 8]);
    assert_eq!(series("3, 1, -1"), [3, 2, 1]);
    assert!(series("3, 1").is_empty());
    assert_eq!(series("1, 1"), [1]);
    assert!(series("1, null").is_empty());
    assert_eq!(series("9223372036854775806, 9223372036854775807"), [i64::MAX - 1, i64::MAX]);
    assert_eq!(series("-9223372036854775807 - 1, 9223372036854775807, 9223372036854775807").len(), 3);
    assert_eq!(series("0, -9223372036854775807 - 1, -9223372036854775807 - 1"), [0, i64::MIN]);
    for (arguments, why) in
        [("1", "a start and a stop"), ("1, 2, 0", "must not be 0"), ("1, 'b'", "an integer")]
    {
        let message = message(&format!("select * from generate_series({arguments})"));
        assert!(message.contains(why), "{arguments}: {message}");
    }
    // Intervals in bins, one of which is empty.
    let bins = rows(
        "select s.value, count(i.tid) from generate_series(1000, 1010, 5) s
        left join intervals i on i.begin_ns >= s.value and i.begin_ns < s.value + 5 group by 1",
    );
    let row = |from: i64, count: i64| vec![Value::Signed(from), Value::Signed(count)];
    assert_eq!(bins, [row(1000, 5), row(1005, 4), row(1010, 0)]);
    // An argument from another table.
    assert_eq!(
        number("select count(*) from intervals i join generate_series(1, i.tid) where i.begin_ns < 10"),
        14
    );
}

#[test]
fn only_reading_is_accepted() {
    for sql in [
        "create table x (y)",
        "insert into intervals values (1)",
        "delete from intervals",
        "update intervals set tid = 1",
        "drop table intervals",
        "attach 'other.db' as other",
        "pragma writable_schema = 1",
        "vacuum into 'file'",
        "begin",
        "select load_extension('x')",
        "select 1; delete from intervals",
        "delete from sqlite_master",
        "insert into sqlite_schema values ('view', 'v', 'v', 0, 'create view v as select 1')",
        "create view v as select 1; insert into v values (1)",
        "create view v as select 1; create trigger t instead of insert on v begin select 1; end",
        "reindex",
    ] {
        let message = message(sql);
        let is_refused = message.contains("are accepted, and traces are never written");
        assert!(is_refused || message.contains("it is a view"), "{sql}: {message}");
    }
    assert!(message("  -- nothing").contains("no statement"));
}

#[test]
fn errors_have_a_position() {
    let message = message("select tid,\n  nix from intervals");
    assert_eq!(message, "SQL: no such column: nix, at line 2, character 3:\n    nix from intervals\n    ^");
    assert!(self::message("select é, nix from intervals").contains("character 8"));
    assert!(self::message("select * from nowhere").contains("`--tables`"));
    assert!(self::message("selec").contains("at line 1, character 1"));
}

#[test]
fn tables_are_computed_when_they_are_named() {
    assert_eq!(number("select count(*) from intervals"), 1009);
    assert_eq!(message("select * from \"sched:absent\""), "SQL: there are no events");
    let noting = Arc::new(Noting(Mutex::default()));
    let ask = |sql| query(sql, [Arc::clone(&noting) as Arc<dyn Source>], None, &Arc::default());
    ask("select max(BEGIN_ns) from noting where tid = 3").expect("it is right");
    let read = noting.0.lock().expect("no thread panicked").clone();
    assert_eq!(read, [true, false, true, false, false, false, false]);
}

/// A table that notes that it leaves rows out.
struct Shortened;

impl Source for Shortened {
    fn name(&self) -> &str {
        "slowest"
    }

    fn columns(&self) -> Result<Vec<Column>, String> {
        Ok(vec![Column::integer("tid", Unit::None)])
    }

    fn table(&self, _: &[bool]) -> Result<Table, String> {
        let summary = vec![("note", Value::from("the 1 longest of 2"))];
        Ok(Table::new("slowest", Shape::Counters, summary, self.columns()?, [vec![Value::Integer(1)]]))
    }
}

#[test]
fn notes_on_tables_are_notes_on_the_result() {
    let ask = |sql: &str| {
        let sources: [Arc<dyn Source>; 2] = [Arc::new(Intervals::new()), Arc::new(Shortened)];
        query(sql, sources, None, &Arc::default()).expect("it is right").expect("it was not stopped")
    };
    let table = ask("select count(*) from slowest a join slowest b");
    let notes: Vec<_> = table.summary.iter().filter(|(name, _)| *name == "note").collect();
    assert_eq!(notes, [&("note", Value::from("slowest: the 1 longest of 2"))]);
    assert_eq!(ask("select count(*) from intervals").figure("note"), None);
}

#[test]
fn losses_are_those_of_the_tables() {
    assert_eq!(table_of("select count(*) from intervals").expect("it is right").loss.len(), 1);
    assert!(table_of("select 1").expect("it is right").loss.is_empty());
}

#[test]
fn a_limit_and_a_stop_end_a_statement() {
    let endless = "with recursive n(x) as (select 1 union all select x + 1 from n) select x from n";
    let none: [Arc<dyn Source>; 0] = [];
    let table = query(endless, none.clone(), Some(5), &Arc::default()).expect("it is right");
    assert_eq!(table.expect("it was not stopped").row_count(), 5);
    let stop = Arc::new(AtomicBool::new(true));
    assert_eq!(query(endless, none, None, &stop), Ok(None));
}

#[test]
fn statements_follow_each_other() {
    let noting = Arc::new(Noting(Mutex::default()));
    let session = Session::new([Arc::clone(&noting) as Arc<dyn Source>], &Arc::default()).expect("it begins");
    let run =
        |sql: &str| session.run(sql, None).unwrap_or_else(|error| panic!("{error}")).expect("not stopped");
    let read = || std::mem::take(&mut *noting.0.lock().expect("no thread panicked"));
    let results = run("create view late as select tid, begin_ns from noting where begin_ns > 1000;
        select count(*) from late; -- those of one thread
        select count(*) as n from late where tid = 3;");
    assert_eq!(
        results.iter().map(|table| table.rows()[0][0].clone()).collect::<Vec<_>>(),
        [8, 3].map(Value::Signed)
    );
    read();
    // The same columns are there; another one is computed with those before.
    assert_eq!(run("select min(begin_ns) from late")[0].rows(), [[Value::Signed(1001)]]);
    assert!(read().is_empty());
    assert_eq!(run("select max(name) from noting")[0].rows(), [[Value::from("t4")]]);
    assert_eq!(read()[..4], [true, true, true, false]);
    assert_eq!(session.names(), ["noting", "late"]);
    assert_eq!(session.known_columns("late"), ["tid", "begin_ns"]);
    assert_eq!(session.known_columns("noting")[..2], ["tid", "name"]);
    let described = run("describe late")[0].rows();
    assert_eq!(described[1], [Value::from("late"), "begin_ns".into(), "integer".into(), "ns".into()]);
    assert_eq!(run("describe \"noting\"")[0].row_count(), 7);
    run("drop view late");
    // Views stay after an error, and its position counts from the begin of the text.
    let error = session
        .run("create view v as select 1 as one;\n select nix from v", None)
        .expect_err("nix is no column");
    assert!(error.to_string().contains("at line 2, character 9"), "{error}");
    assert_eq!(run("select * from v")[0].rows(), [[Value::Signed(1)]]);
    assert!(session.run("describe nowhere", None).is_err());
}

/// A long interval before many short ones: a search by the largest end so far would visit all of them.
struct Nested;

impl Source for Nested {
    fn name(&self) -> &str {
        "nested"
    }

    fn columns(&self) -> Result<Vec<Column>, String> {
        Ok(["begin_ns", "end_ns", "of"].map(|name| Column::integer(name, Unit::None)).to_vec())
    }

    fn table(&self, _: &[bool]) -> Result<Table, String> {
        let count = 50_000;
        let row = |n: u64| {
            let end = if n.is_multiple_of(1000) { 10 * count } else { 10 * n + 5 };
            [10 * n, end, n % 2].map(Value::Integer).to_vec()
        };
        Ok(Table::new("nested", Shape::Intervals, Vec::new(), self.columns()?, (0..count).map(row)))
    }
}

#[test]
fn a_join_by_overlap_visits_the_pairs_only() {
    let ask = |sql: &str| {
        query(sql, [Arc::new(Nested) as Arc<dyn Source>], None, &Arc::default())
            .expect(sql)
            .expect("not stopped")
            .rows()
    };
    let begun = std::time::Instant::now();
    // The short ones overlap those of a thousand that began before them: 0 + 1 + … of each thousand.
    let expected: i64 = (0..50_000i64).map(|n| n / 1000 + i64::from(n % 1000 != 0)).sum();
    let found = ask(
        "select count(*) from nested a join nested b on b.begin_ns < a.begin_ns and b.end_ns > a.begin_ns",
    );
    assert_eq!(found, [[Value::Signed(expected)]]);
    // A million pairs take a second or two; a thousand million steps would take minutes.
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    let expected: i64 =
        (0..50_000i64).map(|n| if n % 2 == 0 { n / 1000 + i64::from(n % 1000 != 0) } else { 0 }).sum();
    let found = ask("select count(*) from nested a join nested b on a.of = b.of and b.begin_ns < a.begin_ns
        and b.end_ns > a.begin_ns");
    assert_eq!(found, [[Value::Signed(expected)]]);
}

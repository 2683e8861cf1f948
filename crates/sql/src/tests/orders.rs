//! Orders and groups that lookups give without sorting.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Instant,
};

use super::*;

/// A `+` hides a column from the orders that a lookup gives; SQLite then sorts rows itself.
#[test]
fn orders_and_groups_are_those_of_a_sort() {
    for (select, order) in [
        ("begin_ns, tid", "begin_ns"),
        ("begin_ns, tid", "begin_ns desc"),
        ("tid, name, begin_ns", "tid, name, begin_ns"),
        ("name, begin_ns", "name, begin_ns"),
        ("name, begin_ns", "name desc, begin_ns"),
        ("begin_ns, name, tid", "begin_ns, name, tid"),
        ("address, tid", "address"),
    ] {
        let hidden = order.split(", ").map(|term| format!("+{term}")).collect::<Vec<_>>().join(", ");
        for condition in ["1", "begin_ns > 900", "tid = 2", "tid = 2 and begin_ns < 40 and end_ns > 20"] {
            let sorted = |order: &str| {
                rows(&format!("select {select} from intervals where {condition} order by {order}"))
            };
            assert_eq!(sorted(order), sorted(&hidden), "{select}, {condition}, {order}");
        }
    }
    for group in ["tid", "name, tid", "open", "begin_ns", "begin_ns % 7"] {
        let hidden = group.split(", ").map(|term| format!("+{term}")).collect::<Vec<_>>().join(", ");
        let by = |group: &str| {
            rows(&format!(
                "select {hidden}, count(*), max(begin_ns) as latest from intervals group by {group} order by latest"
            ))
        };
        assert_eq!(by(group), by(&hidden), "{group}");
    }
    let plan = text_of("explain query plan select name, count(*) from intervals group by name");
    assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    // A lookup that happens once sorts what it finds.
    let found = "select name, count(*) from intervals where tid = 2 group by name";
    let plan = text_of(&format!("explain query plan {found}"));
    assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    assert_eq!(rows(found), rows(&found.replace("by name", "by +name")));
    // Groups come in one order, and the result in another one.
    let ordered =
        "select tid, name, count(*) as rows from intervals group by tid, name order by rows desc, tid";
    let plan = text_of(&format!("explain query plan {ordered}"));
    assert!(!plan.contains("TEMP B-TREE FOR GROUP BY"), "{plan}");
    assert_eq!(rows(ordered), rows(&ordered.replace("group by tid, name", "group by +tid, +name")));
}

/// Nulls are a group of their own, and come first.
#[test]
fn nulls_are_a_group() {
    let sources = || [Arc::new(Durations) as Arc<dyn Source>];
    let ask = |sql: &str| {
        query(sql, sources(), None, &Arc::default()).expect(sql).expect("it was not stopped").rows()
    };
    let rows = ask("select at, count(*) from durations group by at order by at");
    assert_eq!(rows.len(), 20);
    assert_eq!(rows[0], [Value::Null, Value::Signed(1)]);
    assert_eq!(ask("select count(distinct at) from durations"), [[Value::Signed(19)]]);
}

/// The first event after an instant is one lookup, not one for each event after it.
#[test]
fn the_next_event_is_one_lookup() {
    let begun = Instant::now();
    let ask = |sql: &str| {
        query(sql, [Arc::new(Nested) as Arc<dyn Source>], None, &Arc::default())
            .expect(sql)
            .expect("not stopped")
            .rows()
    };
    let next = "select b.begin_ns from nested b where b.of = a.of and b.begin_ns > a.begin_ns
        order by b.begin_ns limit 1";
    let sum = ask(&format!("select sum(({next}) - a.begin_ns) from nested a where a.begin_ns < 100000"));
    assert_eq!(sum, [[Value::Signed(20 * 10_000)]]);
    let before = "select max(b.begin_ns) from nested b where b.begin_ns < a.begin_ns";
    let sum = ask(&format!("select sum(a.begin_ns - ({before})) from nested a where a.begin_ns < 100000"));
    assert_eq!(sum, [[Value::Signed(10 * 9_999)]]);
    // All pairs would be some four hundred million steps.
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
}

/// Some intervals, one after the other, and how often they were made.
struct Counted {
    name: &'static str,
    rows: u64,
    made: AtomicUsize,
}

impl Source for Counted {
    fn name(&self) -> &str {
        self.name
    }

    fn columns(&self) -> Result<Vec<Column>, String> {
        Ok(["begin_ns", "end_ns", "of"].map(|name| Column::integer(name, Unit::None)).to_vec())
    }

    fn table(&self, _: &[bool]) -> Result<Table, String> {
        self.made.fetch_add(1, Relaxed);
        let length = 1_000_000 / self.rows;
        let row = |n: u64| [n * length, (n + 1) * length, n % 2].map(Value::Integer).to_vec();
        Ok(Table::new(self.name, Shape::Intervals, Vec::new(), self.columns()?, (0..self.rows).map(row)))
    }
}

/// The table with fewer rows is read, and the other one is looked up, wherever a statement names them.
#[test]
fn the_smaller_table_of_a_join_comes_first() {
    let counted = |name, rows| Arc::new(Counted { name, rows, made: AtomicUsize::new(0) });
    let overlap = "m.of = f.of and m.begin_ns < f.end_ns and m.end_ns > f.begin_ns";
    for from in ["few f join many m", "many m join few f"] {
        let tables = [counted("few", 10), counted("many", 10_000)];
        let sources = || tables.iter().map(|table| Arc::clone(table) as Arc<dyn Source>);
        let ask =
            |sql: &str| query(sql, sources(), None, &Arc::default()).expect(sql).expect("not stopped").rows();
        let plan = ask(&format!("explain query plan select count(*) from {from} on {overlap}"));
        assert!(format!("{:?}", plan[0]).contains("SCAN f "), "{plan:?}");
        let sum = ask(&format!("select count(*), sum(m.begin_ns) from {from} on {overlap}"));
        assert_eq!(sum[0][0], Value::Signed(5_000));
        // Once for each of the two statements, which are of two sessions.
        assert!(tables.iter().all(|table| table.made.load(Relaxed) == 2));
    }
}

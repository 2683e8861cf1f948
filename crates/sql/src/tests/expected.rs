//! Each source gets the columns that a statement reads before the first table is made.

use super::*;

/// The calls of `expect` and `table`, in order.
type Log = Mutex<Vec<String>>;

struct Logged(&'static str, Arc<Log>);

impl Logged {
    fn note(&self, what: &str) {
        self.1.lock().expect("no thread panicked").push(format!("{} {what}", self.0));
    }
}

impl Source for Logged {
    fn name(&self) -> &str {
        self.0
    }

    fn columns(&self) -> Result<Vec<Column>, String> {
        Ok(vec![Column::signed("begin_ns", Unit::Nanoseconds), Column::integer("tid", Unit::None)])
    }

    fn expect(&self, read: Option<&[bool]>) {
        if let Some(read) = read {
            self.note(&format!("expects {read:?}"));
        }
    }

    fn table(&self, read: &[bool]) -> Result<Table, String> {
        self.note(&format!("makes {read:?}"));
        let row = || vec![Value::Signed(1), Value::Integer(1)];
        Ok(Table::new("logged", Shape::Points, Vec::new(), self.columns()?, [row()]))
    }
}

#[test]
fn sources_know_all_that_a_statement_reads_before_the_first_makes_rows() {
    let log = Arc::new(Log::default());
    let sources = ["a", "b", "c"].map(|name| Arc::new(Logged(name, Arc::clone(&log))) as Arc<dyn Source>);
    let session = Session::new(sources, &Arc::default()).expect("SQLite starts");
    let ask = |sql: &str| {
        session.run(sql, None).expect(sql);
        std::mem::take(&mut *log.lock().expect("no thread panicked"))
    };
    assert_eq!(
        ask("select a.begin_ns from a join b on a.tid = b.tid"),
        [
            "a expects [true, true]",
            "b expects [false, true]",
            "a makes [true, true]",
            "b makes [false, true]"
        ]
    );
    // What is there is not expected again; further columns are, with those that the table has.
    assert_eq!(
        ask("select b.begin_ns, c.tid from a join b on a.tid = b.tid, c"),
        [
            "b expects [true, true]",
            "c expects [false, true]",
            "b makes [true, true]",
            "c makes [false, true]"
        ]
    );
    assert_eq!(ask("select count(*) from a, b"), [""; 0]);
}

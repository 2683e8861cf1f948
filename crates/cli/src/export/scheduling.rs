//! Switches of CPUs and wake-ups for a timeline.

use std::io;

use hodo_exports::{EventThread, Switch, Timeline, Wakeup};
use hodo_model::{Cell, RecordBatch, Role, cells, table::Cells};

/// Adds the events of a batch.
pub(super) type AddEvents = fn(&RecordBatch, &mut dyn Timeline) -> io::Result<()>;

/// The reports of events that are no intervals, the view of each, and what adds its rows.
pub(super) const EVENTS: [(Role, &str, AddEvents); 2] =
    [(Role::Switches, "switch", add_switches), (Role::Wakeups, "wakeup", add_wakeups)];

/// The columns of a batch.
struct Columns<'b> {
    batch: &'b RecordBatch,
    cells: Vec<Cells<'b>>,
}

impl<'b> Columns<'b> {
    fn of(batch: &'b RecordBatch) -> Columns<'b> {
        Columns { batch, cells: cells(batch) }
    }

    fn cell(&self, name: &str, row: usize) -> Cell<'_> {
        let index = self.batch.schema_ref().index_of(name).expect("the report has this column");
        self.cells[index].cell(row)
    }

    fn integer(&self, name: &str, row: usize) -> u64 {
        if let Cell::Integer(integer) = self.cell(name, row) { integer } else { 0 }
    }

    fn text(&self, name: &str, row: usize) -> &str {
        if let Cell::Text(text) = self.cell(name, row) { text } else { "" }
    }

    /// The thread in the columns NAME, NAME_tid and NAME_pid.
    fn thread(&self, name: &str, row: usize) -> EventThread<'_> {
        let number = |part: &str| self.integer(&format!("{name}_{part}"), row) as u32;
        EventThread { name: self.text(name, row), tid: number("tid"), pid: number("pid") }
    }
}

fn add_switches(batch: &RecordBatch, timeline: &mut dyn Timeline) -> io::Result<()> {
    let columns = Columns::of(batch);
    (0..batch.num_rows()).try_for_each(|row| {
        let priority = match columns.cell("next_priority", row) {
            Cell::Signed(priority) => priority,
            _ => 0,
        };
        timeline.switch(&Switch {
            time: columns.integer("at_ns", row),
            cpu: columns.integer("cpu", row) as u32,
            previous: columns.thread("previous", row),
            state: columns.text("previous_state", row),
            next: columns.thread("next", row),
            priority,
        })
    })
}

fn add_wakeups(batch: &RecordBatch, timeline: &mut dyn Timeline) -> io::Result<()> {
    let columns = Columns::of(batch);
    (0..batch.num_rows()).try_for_each(|row| {
        timeline.wakeup(&Wakeup {
            time: columns.integer("at_ns", row),
            cpu: columns.integer("cpu", row) as u32,
            waker: columns.thread("waker", row),
            woken: columns.thread("woken", row),
        })
    })
}

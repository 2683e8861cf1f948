//! `cargo bench-peers sql [TRACE]`: the questions of docs/sql.md over a trace of software events, each asked twice: the first
//! time `hodo` computes the tables, the second time it reads them from the store.

use std::{fs, path::Path, process::Command, time::Duration};

use workbench::{
    Outcome, command,
    release::{self, shipped},
};

use super::{ARCHIVE, Tap, peak_memory, processor_time};

/// The most processor time of a question, and of one whose tables are stored.
const COMPUTED: Duration = Duration::from_millis(2000);
const STORED: Duration = Duration::from_millis(500);
/// Questions beyond those of the page.
const MORE: [Question<'static>; 1] = [Question {
    title: "Events by name",
    statement: "select event, count(*) as events from events group by event order by event",
}];

/// A question of the page.
#[derive(Debug, PartialEq, Eq)]
struct Question<'p> {
    title: &'p str,
    statement: &'p str,
}

/// The questions of a page: each a line that ends in a colon, and a block of SQL.
fn questions(page: &str) -> Vec<Question<'_>> {
    const FENCE: &str = "```sql\n";
    let mut questions = Vec::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(FENCE) {
        let Some((statement, after)) = after.split_once("```") else { break };
        let title = before.trim_end().lines().next_back().unwrap_or_default().trim_end_matches(':');
        questions.push(Question { title, statement });
        rest = after;
    }
    questions
}

pub(super) fn run(traces: &[String]) -> Outcome {
    let trace = match traces {
        [] => command::root().join(ARCHIVE),
        [trace] => trace.into(),
        _ => return Err("usage: cargo bench-peers sql [TRACE]".into()),
    };
    release::build()?;
    let trace = judge::unpacked(&trace)?;
    let page = fs::read_to_string(command::root().join("docs/sql.md"))?;
    let store = tempfile::tempdir()?;
    println!("processor time of `hodo sql {}`: computed, and from the store", trace.display());
    let mut late = 0;
    for question in questions(&page).iter().chain(&MORE) {
        late += usize::from(!measure(question, &trace, store.path())?);
    }
    println!("{late} took longer than {COMPUTED:?}, or {STORED:?} from the store");
    Ok(())
}

/// Prints how long a question takes; returns whether that is short enough. One that names a table of control flow has no answer in a
/// trace of events.
fn measure(question: &Question<'_>, trace: &Path, store: &Path) -> Outcome<bool> {
    let ask = || {
        Command::new(shipped("hodo")).tap(|command| {
            command.args(["sql", "-q", "--format", "jsonl", "--store"]).arg(store).arg(trace);
            command.arg(question.statement)
        })
    };
    let Question { title, .. } = question;
    if !ask().output()?.status.success() {
        println!("{title:60} no such table in this trace");
        return Ok(true);
    }
    let stored = processor_time(&mut ask())?;
    let (memory, _) = peak_memory(&mut ask())?;
    let computed = processor_time(ask().arg("--no-cache"))?;
    let is_short = computed <= COMPUTED && stored <= STORED;
    let mark = if is_short { "" } else { "  late" };
    let [computed, stored] = [computed, stored].map(|time| time.as_secs_f64());
    println!("{title:60} {computed:6.2} s {stored:6.2} s {:5} MB{mark}", memory / 1000);
    Ok(is_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_twenty_five_questions() {
        let page = fs::read_to_string(command::root().join("docs/sql.md")).expect("it is there");
        let all = questions(&page);
        assert_eq!(all.len(), 25);
        assert_eq!(all[0].title, "Time in each system call");
        let begins = ["select ", "with "];
        let is_statement =
            |question: &Question| begins.iter().any(|begin| question.statement.starts_with(begin));
        assert!(all.iter().all(is_statement), "{all:?}");
    }
}

//! `hodo sql --shell`: statements from a terminal, or a pipe.

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use hodo_model::Table;
use hodo_sql::{Session, statements};
use rustyline::{
    CompletionType, Config, Context, Editor, Helper, Result,
    completion::{Completer, Pair},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::MemHistory,
    validate::Validator,
};

use super::Sql;
use crate::{
    failure::{Failure, written},
    output,
};

const PROMPT: &str = "sql> ";
/// The prompt of the further lines of a statement.
const FURTHER: &str = "...> ";

const HELP: &str =
    "Statements end with a semicolon. Tab completes words, tables, and columns of tables that were named.
.tables    the tables and views
.quit      leave (also Ctrl-D)";

/// Words that statements are made of.
const WORDS: [&str; 44] = [
    "and",
    "as",
    "asc",
    "avg",
    "between",
    "by",
    "case",
    "cast",
    "count",
    "create view",
    "cross join",
    "desc",
    "describe",
    "distinct",
    "drop view",
    "else",
    "end",
    "exists",
    "explain query plan",
    "from",
    "generate_series",
    "group by",
    "having",
    "in",
    "is null",
    "join",
    "left join",
    "like",
    "limit",
    "max",
    "median",
    "min",
    "not",
    "on",
    "or",
    "order by",
    "over",
    "partition by",
    "percentile",
    "regexp",
    "select",
    "sum",
    "when",
    "where",
];

/// Runs statements until the end of the input. The results so far are shown first.
pub(super) fn run(
    session: &Session,
    results: Vec<Table>,
    command: &Sql,
    stop: &Arc<AtomicBool>,
) -> std::result::Result<ExitCode, Failure> {
    draw(results, command)?;
    let config = Config::builder().completion_type(CompletionType::List).auto_add_history(true).build();
    let failed = |error: ReadlineError| Failure::unreadable(format!("the terminal: {error}"));
    let mut editor: Editor<Names<'_>, MemHistory> =
        Editor::with_history(config, MemHistory::new()).map_err(failed)?;
    editor.set_helper(Some(Names { session }));
    let mut text = String::new();
    loop {
        match editor.readline(if text.is_empty() { PROMPT } else { FURTHER }) {
            Ok(line) if text.is_empty() && line.trim_start().starts_with('.') => match line.trim() {
                ".quit" | ".exit" => return Ok(ExitCode::SUCCESS),
                ".tables" => say(&session.names().join("\n"))?,
                _ => say(HELP)?,
            },
            Ok(line) => {
                text.push_str(&line);
                text.push('\n');
                if is_complete(&text) {
                    answer(session, &std::mem::take(&mut text), command, stop)?;
                }
            }
            // Ctrl-C drops what was typed.
            Err(ReadlineError::Interrupted) => text.clear(),
            Err(ReadlineError::Eof) => {
                if !statements(&text).is_empty() {
                    answer(session, &text, command, stop)?;
                }
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

fn say(text: &str) -> std::result::Result<(), Failure> {
    written(writeln!(io::stdout(), "{text}"))
}

/// Returns whether the last statement ends with a semicolon.
fn is_complete(text: &str) -> bool {
    let places = statements(text);
    places.last().is_none_or(|last| text[last.end..].trim_start().starts_with(';'))
}

fn answer(
    session: &Session,
    text: &str,
    command: &Sql,
    stop: &Arc<AtomicBool>,
) -> std::result::Result<(), Failure> {
    match session.run(text, command.output.limit) {
        Ok(Some(results)) => draw(results, command),
        Ok(None) => {
            message!("interrupted");
            stop.store(false, Relaxed);
            Ok(())
        }
        Err(error) => {
            message!("{error}");
            Ok(())
        }
    }
}

fn draw(results: Vec<Table>, command: &Sql) -> std::result::Result<(), Failure> {
    for table in results {
        written(output::write_all(&[table], command.output.limit, &command.output, &mut io::stdout()))?;
    }
    Ok(())
}

/// Completes names.
struct Names<'s> {
    session: &'s Session,
}

impl Helper for Names<'_> {}
impl Highlighter for Names<'_> {}
impl Validator for Names<'_> {}

impl Hinter for Names<'_> {
    type Hint = String;
}

impl Completer for Names<'_> {
    type Candidate = Pair;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> Result<(usize, Vec<Pair>)> {
        let before = &line[..position];
        let is_name = |character: char| character.is_alphanumeric() || matches!(character, '_' | '.' | ':');
        let begin = before
            .rfind(|character| !is_name(character))
            .map_or(0, |at| at + before[at..].chars().next().map_or(0, char::len_utf8));
        let candidates = candidates(self.session, line, &before[begin..]);
        let pairs = candidates.into_iter().map(|name| Pair { display: name.clone(), replacement: name });
        Ok((begin, pairs.collect()))
    }
}

/// Returns the words that begin with `typed`: those of SQL, tables and views, and columns of the tables that the line names.
fn candidates(session: &Session, line: &str, typed: &str) -> Vec<String> {
    // `t.c`: the columns of a table.
    if let Some((table, column)) = typed.rsplit_once('.') {
        let columns = session.known_columns(table).into_iter().filter(|name| name.starts_with(column));
        return columns.map(|name| format!("{table}.{name}")).collect();
    }
    let tables = session.names();
    let is_named = |table: &&String| {
        line.split(|character: char| !(character.is_alphanumeric() || character == '_'))
            .any(|word| word.eq_ignore_ascii_case(table))
    };
    let mut names: Vec<String> =
        tables.iter().filter(is_named).flat_map(|table| session.known_columns(table)).collect();
    let quoted =
        |name: &String| match name.chars().all(|character| character.is_alphanumeric() || character == '_') {
            true => name.clone(),
            false => format!("\"{name}\""),
        };
    names.extend(tables.iter().map(quoted));
    names.extend(WORDS.map(str::to_owned));
    let typed = typed.to_lowercase();
    names.retain(|name| name.trim_start_matches('"').to_lowercase().starts_with(&typed));
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn names_are_completed() {
        let none: [Arc<dyn hodo_sql::Source>; 0] = [];
        let session = Session::new(none, &Arc::default()).expect("it begins");
        session.run("create view waits as select 1 as begin_ns, 'a' as what", None).expect("it is right");
        let complete = |line: &str, typed: &str| candidates(&session, line, typed);
        assert_eq!(complete("select * from wa", "wa"), ["waits"]);
        assert_eq!(complete("SELECT BE", "BE"), ["between"]);
        assert_eq!(complete("select be from waits", "be"), ["begin_ns", "between"]);
        assert_eq!(complete("select waits.", "waits."), ["waits.begin_ns", "waits.what"]);
        assert!(complete("select zzz", "zzz").is_empty());
    }

    #[test]
    fn a_statement_ends_with_a_semicolon() {
        assert!(
            !is_complete("select 1\n")
                && !is_complete("select ';'\n")
                && !is_complete("select 1; select 2\n")
        );
        assert!(
            is_complete("select 1;\n") && is_complete("select 1; -- done\n") && is_complete("-- nothing\n")
        );
    }
}

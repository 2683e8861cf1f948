//! What can go wrong.

use std::{fmt, io, path::PathBuf};

/// Why a store can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refuses: no space, no permission, no such file.
    #[error("{file}: {error}", file = file.display())]
    System {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file is not what a writer wrote.
    #[error("{file}: byte {offset}: {expected} is expected; build the store again", file = file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The byte from which on it is damaged.
        offset: u64,
        /// What should be there.
        expected: &'static str,
    },
    /// The store has another version of the format.
    #[error("{file}: version {found} of the format, and this program reads {known}; build the store again", file = file.display())]
    Version {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u16,
        /// That of this program.
        known: u16,
    },
    /// There is no store in the folder.
    #[error("{}: no store is there", .0.display())]
    None(PathBuf),
    /// Another process writes the store.
    #[error("{}: another process writes this store", .0.display())]
    Busy(PathBuf),
    /// What was given to the writer does not fit the table, or the query does not.
    #[error("{0}")]
    Refused(Refused),
    /// Feeds were dropped with so many rows that were not flushed.
    #[error("{0} rows were not flushed")]
    NotFlushed(u64),
    /// A query took more work than it was allowed: rows decoded.
    #[error("the query needs more than {0} rows decoded: ask for less time, fewer rows or a coarser picture")]
    TooMuch(u64),
    /// Who asked does not want the answer any more.
    #[error("the query was stopped")]
    Stopped,
}

/// What does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A record ends before it begins.
    EndsBeforeItBegins,
    /// A record has another number of cells than the table has columns.
    Cells,
    /// A lane or a name that is not known.
    Unknown,
    /// More columns, tables, names or lanes than the format has numbers for.
    TooMany,
    /// A table of the same name with other columns.
    OtherTable,
    /// A span without an instant, or no slice asked for.
    EmptySpan,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::EndsBeforeItBegins => "a record ends before it begins",
            Refused::Cells => "a record has as many cells as its table has columns",
            Refused::Unknown => "a record's lane and names are made by its store",
            Refused::TooMany => "more columns, tables, names or lanes than a store has numbers for",
            Refused::OtherTable => "the store has a table of this name with other columns",
            Refused::EmptySpan => "a span has at least one instant, and a picture at least one slice",
        })
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        Error::Refused(refused)
    }
}

impl Error {
    /// The system's error with a file.
    pub(crate) fn system(file: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let file = file.to_owned();
        move |error| Error::System { file, error }
    }
}

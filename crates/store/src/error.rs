//! Errors of stores.

use std::{fmt, io, path::PathBuf};

/// Why a store can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system reports an error: no space, no permission, no such file.
    #[error("{file}: {error}", file = file.display())]
    System {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is damaged.
    #[error("{file}: byte {offset}: {expected} is expected; build the store again", file = file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Offset of the damaged part.
        offset: u64,
        /// The expected content.
        expected: &'static str,
    },
    /// The store has a different version of the format.
    #[error("{file}: version {found} of the format, and this program reads {known}; build the store again", file = file.display())]
    Version {
        /// The file.
        file: PathBuf,
        /// The file's version.
        found: u16,
        /// The version that this program reads.
        known: u16,
    },
    /// The folder contains no store.
    #[error("{}: this folder contains no store", .0.display())]
    None(PathBuf),
    /// Another process writes the store.
    #[error("{}: another process writes this store", .0.display())]
    Busy(PathBuf),
    /// The writer's or the query's input does not fit the table.
    #[error("{0}")]
    Refused(Refused),
    /// Feeds were dropped with this many rows that were not flushed.
    #[error("{0} rows were not flushed")]
    NotFlushed(u64),
    /// A query exceeded this [`Budget`](crate::Budget), in rows.
    #[error("the query would decode more than {0} rows: request a shorter span, fewer rows or fewer slices")]
    TooMuch(u64),
    /// The caller stopped the query.
    #[error("the query was stopped")]
    Stopped,
}

/// The reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A record ends before it begins.
    EndsBeforeItBegins,
    /// A record has another number of cells than the table has columns.
    Cells,
    /// An unknown lane or name.
    Unknown,
    /// More columns, tables, names or lanes than the format has numbers for.
    TooMany,
    /// A table of the same name with other columns.
    OtherTable,
    /// An empty span, or a request for zero slices.
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
    /// Returns a conversion of system errors on `file`.
    pub(crate) fn system(file: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let file = file.to_owned();
        move |error| Error::System { file, error }
    }
}

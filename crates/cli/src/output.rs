//! Where output goes.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufWriter, IsTerminal, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use hodo_trace::Table;
use hodo_views::VIEWS;
use tempfile::{Builder, NamedTempFile};

use crate::{
    arguments::Output,
    failure::{Failure, written},
};

/// Bytes that are written at a time.
const BUFFER: usize = 1 << 16;
/// Rows of each of several tables, where nobody asks for more.
const ROWS_OF_SEVERAL: u64 = 10;

/// Standard output, or a file that is whole or absent.
pub enum Destination {
    /// Standard output, or something that is written in place, such as a pipe or a device.
    Stream(BufWriter<Box<dyn Write + Send>>),
    /// A file, under another name until it is whole; gone if it never is.
    File { writer: BufWriter<NamedTempFile>, path: PathBuf },
}

impl Destination {
    /// Opens the file, or standard output where there is none.
    pub fn open(path: Option<&Path>) -> Result<Destination, Failure> {
        let Some(path) = path else {
            return Ok(Destination::Stream(BufWriter::with_capacity(BUFFER, Box::new(io::stdout()))));
        };
        let failed = |error: io::Error| Failure::unreadable(format!("{}: {error}", path.display()));
        // A link stays, and what it points to is replaced; a device or a pipe is never replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            let file = File::options().write(true).open(&path).map_err(failed)?;
            return Ok(Destination::Stream(BufWriter::with_capacity(BUFFER, Box::new(file))));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mode = Permissions::from_mode(0o666);
        let temporary =
            Builder::new().prefix(".hodo-").permissions(mode).tempfile_in(folder.unwrap_or(Path::new(".")));
        let writer = BufWriter::with_capacity(BUFFER, temporary.map_err(failed)?);
        Ok(Destination::File { writer, path })
    }

    /// Makes the output whole.
    pub fn finish(self) -> Result<(), Failure> {
        written(match self {
            Destination::Stream(mut writer) => writer.flush(),
            Destination::File { writer, path } => {
                let temporary = writer.into_inner().map_err(io::IntoInnerError::into_error);
                temporary.and_then(|temporary| temporary.persist(path).map(drop).map_err(|error| error.error))
            }
        })
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Destination::Stream(writer) => writer.write(bytes),
            Destination::File { writer, .. } => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Destination::Stream(writer) => writer.flush(),
            Destination::File { writer, .. } => writer.flush(),
        }
    }
}

/// How to draw a table as the command line asks for it; takes the rows away that are too many.
pub fn options(table: &mut Table, output: &Output) -> hodo_views::Options {
    limited(table, output.limit, output)
}

/// The same with another number of rows.
fn limited(table: &mut Table, limit: Option<u64>, output: &Output) -> hodo_views::Options {
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let left_out = table.rows.len().saturating_sub(limit);
    table.rows.truncate(limit);
    let terminal = output.output.is_none() && io::stdout().is_terminal();
    hodo_views::Options {
        width: terminal.then(terminal_width).flatten(),
        colour: colours(output, terminal),
        rows_left_out: left_out as u64,
    }
}

/// Whether to use colours; `terminal` if that is where the output goes.
pub fn colours(output: &Output, terminal: bool) -> bool {
    match output.color {
        clap::ColorChoice::Always => true,
        clap::ColorChoice::Never => false,
        clap::ColorChoice::Auto => {
            terminal && output.output.is_none() && std::env::var_os("NO_COLOR").is_none()
        }
    }
}

/// Draws a table as the command line asks for it.
pub fn draw(table: Table, output: &Output) -> Result<(), Failure> {
    draw_all(vec![table], output)
}

/// Draws tables of one reading as the command line asks for it: as text below each other, the first rows of each,
/// as JSON in a list.
pub fn draw_all(mut tables: Vec<Table>, output: &Output) -> Result<(), Failure> {
    let view = VIEWS.iter().find(|view| view.name == output.format).expect("the parser knows the names");
    let several = tables.len() > 1;
    let [before, between, after] = match view.name {
        _ if !several => ["", "", ""],
        "text" => ["", "\n", ""],
        "json" => ["[", ",\n", "]\n"],
        _ => return Err(Failure::usage("several tables are written as text or as json")),
    };
    let is_text = several && view.name == "text";
    if is_text {
        // All tables of one reading miss the same, which is told once.
        tables.iter_mut().rev().skip(1).for_each(|table| table.loss.clear());
    }
    let limit = output.limit.or(is_text.then_some(ROWS_OF_SEVERAL));
    let mut destination = Destination::open(output.output.as_deref())?;
    let mut separator = before;
    for table in &mut tables {
        let options = limited(table, limit, output);
        written(destination.write_all(separator.as_bytes()))?;
        written((view.write)(table, &options, &mut destination))?;
        separator = between;
    }
    written(destination.write_all(after.as_bytes()))?;
    destination.finish()?;
    for table in tables.iter().filter(|_| !view.shows_loss) {
        written(hodo_views::write_loss(table, &hodo_views::Options::default(), &mut io::stderr()))?;
    }
    Ok(())
}

fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

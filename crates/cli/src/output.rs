//! Destinations of output.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufWriter, IsTerminal, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use hodo_model::{Heading, Table, table::RecordBatch};
use hodo_views::{Reader, VIEWS, View};
use tempfile::{Builder, NamedTempFile};

use crate::{
    arguments::Output,
    failure::{Failure, written},
};

/// Size of the write buffer, in bytes.
const BUFFER: usize = 1 << 16;

/// Standard output, or a file that is either complete or absent.
pub enum Destination {
    /// Standard output, or a file written in place, such as a pipe or a device.
    Stream(BufWriter<Box<dyn Write + Send>>),
    /// A file, which has a temporary name until it is complete, and is deleted if it never is.
    File { writer: BufWriter<NamedTempFile>, path: PathBuf },
}

impl Destination {
    /// Opens the file, or standard output if `path` is `None`.
    pub fn open(path: Option<&Path>) -> Result<Destination, Failure> {
        let Some(path) = path else {
            return Ok(Destination::Stream(BufWriter::with_capacity(BUFFER, Box::new(io::stdout()))));
        };
        let failed = |error: io::Error| Failure::unreadable(format!("{}: {error}", path.display()));
        // A link stays, and its target is replaced. A device or a pipe is never replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
            let file = File::options().write(true).open(&path).map_err(failed)?;
            return Ok(Destination::Stream(BufWriter::with_capacity(BUFFER, Box::new(file))));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // As for any new file: the user's mask removes bits.
        let mode = Permissions::from_mode(0o666);
        let temporary =
            Builder::new().prefix(".hodo-").permissions(mode).tempfile_in(folder.unwrap_or(Path::new(".")));
        let writer = BufWriter::with_capacity(BUFFER, temporary.map_err(failed)?);
        Ok(Destination::File { writer, path })
    }

    /// Completes the output.
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

/// Returns the view that the command line selects.
pub fn view(output: &Output) -> &'static View {
    VIEWS.iter().find(|view| view.name == output.format).expect("the parser knows the names")
}

/// Returns the names of the views that satisfy a condition.
pub fn names(which: impl Fn(&View) -> bool) -> String {
    let names: Vec<&str> = VIEWS.iter().filter(|view| which(view)).map(|view| view.name).collect();
    names.join(", ")
}

/// Rejects output that can't be drawn before any work is done: several tables in a view for one, and binary data on a
/// terminal.
pub fn check(tables: usize, output: &Output) -> Result<(), Failure> {
    let view = view(output);
    if tables > 1 && view.several.is_none() {
        let others = names(|view| view.several.is_some());
        return Err(Failure::usage(format!(
            "--format {} supports one table, but there are {tables}: select one, or use one of the formats {others}",
            view.name
        )));
    }
    let is_terminal = output.output.is_none() && io::stdout().is_terminal();
    if is_terminal && view.reader == Reader::ProgramsOfBytes {
        return Err(Failure::usage(format!(
            "{} is binary and not written to a terminal: use -o FILE",
            view.name
        )));
    }
    Ok(())
}

/// Returns the options for drawing, with at most `limit` rows per table.
pub fn options(limit: Option<u64>, output: &Output) -> hodo_views::Options {
    let is_terminal = output.output.is_none() && io::stdout().is_terminal();
    hodo_views::Options {
        width: if is_terminal { terminal_width() } else { None },
        colour: colours(output, is_terminal),
        limit,
    }
}

/// Returns whether to use colours.
pub fn colours(output: &Output, is_terminal: bool) -> bool {
    match output.color {
        clap::ColorChoice::Always => true,
        clap::ColorChoice::Never => false,
        clap::ColorChoice::Auto => {
            is_terminal && output.output.is_none() && std::env::var_os("NO_COLOR").is_none()
        }
    }
}

/// Draws a table as the command line selects.
pub fn draw(table: Table, output: &Output) -> Result<(), Failure> {
    draw_all(vec![table], output)
}

/// Draws the tables of one pass as the command line selects.
pub fn draw_all(mut tables: Vec<Table>, output: &Output) -> Result<(), Failure> {
    check(tables.len(), output)?;
    let view = view(output);
    let several = view.several.filter(|_| tables.len() > 1);
    if several.is_some_and(|several| several.loss_once) {
        // All tables of one pass have the same losses.
        tables.iter_mut().rev().skip(1).for_each(|table| table.loss.clear());
    }
    let limit = output.limit.or(several.and_then(|several| several.rows));
    let mut destination = Destination::open(output.output.as_deref())?;
    written(write_all(&tables, limit, output, &mut destination))?;
    destination.finish()?;
    for table in tables.iter().filter(|_| !view.shows_loss) {
        written(hodo_views::write_loss(&table.loss, &hodo_views::Options::default(), &mut io::stderr()))?;
    }
    Ok(())
}

/// Draws a table whose rows arrive in batches. `make` passes batches to its argument while that returns `true`, and
/// returns the table of the last rows, or `None` if interrupted, which leaves no file.
pub fn draw_stream(
    heading: Heading,
    output: &Output,
    make: impl FnOnce(&mut (dyn FnMut(&RecordBatch) -> bool + Send)) -> Result<Option<Table>, Failure>,
) -> Result<(), Failure> {
    let view = view(output);
    let mut destination = Destination::open(output.output.as_deref())?;
    let schema = Arc::clone(heading.builder().schema());
    let options = options(output.limit, output);
    let mut made = Ok(None);
    let draw = || {
        let mut drawing = view.begin(&schema, &options, &mut destination)?;
        let mut drawn = Ok(());
        made = make(&mut |batch| {
            drawn = drawing.batch(batch);
            drawn.is_ok()
        });
        drawn?;
        let Ok(Some(last)) = &made else { return Ok(()) };
        last.batches().iter().try_for_each(|batch| drawing.batch(batch))?;
        drawing.end(&last.summary, &last.loss)
    };
    written(draw())?;
    let Some(last) = made? else { return Ok(()) };
    destination.finish()?;
    if !view.shows_loss {
        written(hodo_views::write_loss(&last.loss, &hodo_views::Options::default(), &mut io::stderr()))?;
    }
    Ok(())
}

/// Writes tables, at most `limit` rows of each. The view must support several tables if there are several.
pub fn write_all(
    tables: &[Table],
    limit: Option<u64>,
    output: &Output,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let view = view(output);
    let around = view.several.filter(|_| tables.len() > 1).map_or([""; 3], |several| several.around);
    let [mut separator, between, after] = around;
    for table in tables {
        out.write_all(separator.as_bytes())?;
        view.draw(table, &options(limit, output), out)?;
        separator = between;
    }
    out.write_all(after.as_bytes())
}

fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

//! Where output goes.

use std::{
    fs::{self, File},
    io::{self, BufWriter, IsTerminal, Write},
    path::{Path, PathBuf},
};

use hodo_trace::Table;
use hodo_views::VIEWS;

use crate::{
    arguments::Output,
    failure::{Failure, written},
};

/// A file that is whole or absent, or standard output.
pub enum Destination {
    /// Standard output.
    Terminal(BufWriter<io::Stdout>),
    /// A file, under another name until it is whole.
    File { writer: BufWriter<File>, temporary: PathBuf, path: PathBuf },
}

impl Destination {
    /// Opens the file, or standard output where there is none.
    pub fn open(path: Option<&Path>) -> Result<Destination, Failure> {
        let Some(path) = path else {
            return Ok(Destination::Terminal(BufWriter::with_capacity(1 << 16, io::stdout())));
        };
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".part");
        let temporary = PathBuf::from(temporary);
        let file = File::create(&temporary)
            .map_err(|error| Failure::unreadable(format!("{}: {error}", temporary.display())))?;
        let writer = BufWriter::with_capacity(1 << 16, file);
        Ok(Destination::File { writer, temporary, path: path.to_owned() })
    }

    /// Makes the output whole.
    pub fn finish(self) -> Result<(), Failure> {
        match self {
            Destination::Terminal(mut writer) => written(writer.flush()),
            Destination::File { mut writer, temporary, path } => {
                written(writer.flush().and_then(|()| fs::rename(&temporary, &path)))
            }
        }
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Destination::Terminal(writer) => writer.write(bytes),
            Destination::File { writer, .. } => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Destination::Terminal(writer) => writer.flush(),
            Destination::File { writer, .. } => writer.flush(),
        }
    }
}

/// Draws a table as the command line asks for it.
pub fn draw(mut table: Table, output: &Output) -> Result<(), Failure> {
    let limit = output.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let left_out = table.rows.len().saturating_sub(limit);
    table.rows.truncate(limit);
    let terminal = output.output.is_none() && io::stdout().is_terminal();
    let colour = match output.color {
        clap::ColorChoice::Always => true,
        clap::ColorChoice::Never => false,
        clap::ColorChoice::Auto => terminal && std::env::var_os("NO_COLOR").is_none(),
    };
    let options = hodo_views::Options {
        width: terminal.then(terminal_width).flatten(),
        colour,
        rows_left_out: left_out as u64,
    };
    let view = VIEWS.iter().find(|view| view.name == output.format).expect("the parser knows the names");
    let mut destination = Destination::open(output.output.as_deref())?;
    written((view.write)(&table, &options, &mut destination))?;
    destination.finish()?;
    if !view.shows_loss {
        written(hodo_views::write_loss(&table, &hodo_views::Options::default(), &mut io::stderr()))?;
    }
    Ok(())
}

fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

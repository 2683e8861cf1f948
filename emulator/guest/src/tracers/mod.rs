//! Software traces of the guest's kernel, recorded beside its Intel PT.
//!
//! ```text
//! tracers (spool) ──► Settings ──► ftrace: an instance of its own ──► tracing/ (spool), as in tracefs
//!                              └─► perf: the host's, beside the command ──► events/perf.data (spool)
//! ```
//!
//! Both write the guest's time-stamp counter, or times that follow from it.

mod ftrace;
mod perf;

use std::{fs, os::fd::RawFd};

use crate::system::{self, Error};
use ftrace::Ftrace;
use perf::Perf;

/// The recorder's settings: lines of a word and a value in `tracers` in the spool.
#[derive(Default)]
struct Settings {
    host: Option<String>,
    has_ftrace: bool,
    /// Path of the host's perf.
    perf: Option<String>,
    /// Systems and events, such as `sched:*`.
    events: Vec<String>,
    /// Buffer size per CPU in KiB.
    buffer: u64,
}

impl Settings {
    /// Without the file, no tracer is requested.
    fn read(spool: &str) -> Settings {
        let text = fs::read_to_string(format!("{spool}/tracers")).unwrap_or_default();
        let mut settings = Settings::default();
        for (word, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            match word {
                "host" => settings.host = Some(value.to_owned()),
                "ftrace" => settings.has_ftrace = true,
                "perf" => settings.perf = Some(value.to_owned()),
                "event" => settings.events.push(value.to_owned()),
                "buffer" => settings.buffer = value.parse().unwrap_or_default(),
                _ => {}
            }
        }
        settings
    }
}

/// The requested tracers.
pub(crate) struct Tracers {
    ftrace: Option<Ftrace>,
    perf: Option<Perf>,
}

impl Tracers {
    /// Prepares the tracers; they record nothing yet.
    pub(crate) fn open(spool: &str, root: &str) -> Result<Tracers, Error> {
        let settings = Settings::read(spool);
        if let Some(host) = &settings.host {
            system::set_host_name(host)?;
        }
        let ftrace = settings.has_ftrace.then(|| Ftrace::open(spool, &settings)).transpose()?;
        let perf = settings.perf.as_ref().map(|path| Perf::open(spool, root, path, &settings)).transpose()?;
        Ok(Tracers { ftrace, perf })
    }

    /// Begins recording.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        self.perf.as_mut().map_or(Ok(()), Perf::start)?;
        self.ftrace.as_ref().map_or(Ok(()), Ftrace::start)
    }

    /// The files that become readable when [`Tracers::drain`] has work.
    pub(crate) fn events(&self) -> impl Iterator<Item = RawFd> {
        self.ftrace.iter().flat_map(Ftrace::events)
    }

    /// Empties buffers that are half full.
    pub(crate) fn drain(&mut self) -> Result<(), Error> {
        self.ftrace.as_mut().map_or(Ok(()), Ftrace::drain)
    }

    /// Ends recording, and writes the rest.
    pub(crate) fn finish(self) -> Result<(), Error> {
        // Both stop before either writes.
        self.ftrace.as_ref().map_or(Ok(()), Ftrace::stop)?;
        self.perf.map_or(Ok(()), Perf::finish)?;
        self.ftrace.map_or(Ok(()), Ftrace::finish)
    }
}

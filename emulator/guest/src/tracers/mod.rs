//! Software traces of the guest's kernel, recorded beside its Intel PT.
//!
//! ```text
//! tracers (spool) ──► Settings ──► ftrace: an instance of its own ──► tracing/ (spool), as in tracefs
//!                              ├─► perf: the host's, beside the command ──► events/perf.data (spool)
//!                              └─► LTTng: the host's, beside the command ──► lttng/ (spool)
//! ```
//!
//! All write the guest's time-stamp counter, or times that follow from it.

mod ftrace;
mod lttng;
mod perf;
mod program;

use std::{fs, os::fd::RawFd};

use crate::system::{self, Error, mount_plainly};
use ftrace::Ftrace;
use lttng::Lttng;
use perf::Perf;

/// The recorder's settings: lines of a word and a value in `tracers` in the spool.
#[derive(Default)]
struct Settings {
    host: Option<String>,
    has_ftrace: bool,
    /// Path of the host's perf.
    perf: Option<String>,
    /// Path of the host's `lttng`.
    lttng: Option<String>,
    /// Path of the host's `lttng-sessiond`.
    lttng_daemon: String,
    /// Arguments of `lttng enable-event` for tracepoints and for system calls; empty for none.
    lttng_events: String,
    lttng_calls: String,
    /// Systems and events of the other tracers, such as `sched:*`.
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
                "lttng" => settings.lttng = Some(value.to_owned()),
                "lttng-daemon" => value.clone_into(&mut settings.lttng_daemon),
                "lttng-events" => value.clone_into(&mut settings.lttng_events),
                "lttng-calls" => value.clone_into(&mut settings.lttng_calls),
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
    lttng: Option<Lttng>,
}

impl Tracers {
    /// Prepares the tracers; they record nothing yet.
    pub(crate) fn open(spool: &str, root: &str) -> Result<Tracers, Error> {
        let settings = Settings::read(spool);
        if let Some(host) = &settings.host {
            system::set_host_name(host)?;
        }
        let ftrace = settings.has_ftrace.then(|| Ftrace::open(spool, &settings)).transpose()?;
        if settings.perf.is_some() || settings.lttng.is_some() {
            mount_plainly("events", program::FOLDER, "tmpfs")?;
        }
        let perf = settings.perf.as_ref().map(|path| Perf::open(spool, root, path, &settings)).transpose()?;
        let lttng =
            settings.lttng.as_ref().map(|path| Lttng::open(spool, root, path, &settings)).transpose()?;
        Ok(Tracers { ftrace, perf, lttng })
    }

    /// Begins recording.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        self.lttng.as_ref().map_or(Ok(()), Lttng::start)?;
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
        // Those that can stop do so before any of them writes. A failure of one does not concern the others.
        let stopped = [
            self.ftrace.as_ref().map_or(Ok(()), Ftrace::stop),
            self.lttng.as_ref().map_or(Ok(()), Lttng::stop),
        ];
        let finished = [
            self.perf.map_or(Ok(()), Perf::finish),
            self.lttng.map_or(Ok(()), Lttng::finish),
            self.ftrace.map_or(Ok(()), Ftrace::finish),
        ];
        stopped.into_iter().chain(finished).collect()
    }
}

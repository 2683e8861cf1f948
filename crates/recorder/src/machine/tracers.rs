//! Software traces that are recorded inside the machine: the settings for its first process, and the files that it
//! leaves in the spool.
//!
//! ```text
//! Request ──► tracers (spool) ──guest──► tracing/, as in tracefs ──► RECORDING.ftrace.dat
//!                                        events/perf.data        ──► RECORDING.events.data
//!                                        lttng/                  ──► RECORDING.lttng/
//! ```

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use hodo_clock::PerfClock;
use hodo_formats::ftrace::write::{Head, TscToNanos};

use super::lttng;
use crate::{Beside, Error, Request, Tracer, emulate, ftrace};

/// Systems that are recorded by default.
const EVENTS: [&str; 6] = ["sched", "irq", "raw_syscalls", "signal", "block", "timer"];
/// The default buffer size per CPU, in bytes; buffers are read while the command runs.
const DEFAULT_BUFFER: u64 = 16 << 20;
/// A page.
const LEAST_BUFFER_KIB: u64 = 4;

/// The requested systems and events.
pub(super) fn events(request: &Request) -> Vec<&str> {
    match request.with_events.as_slice() {
        [] => EVENTS.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    }
}

/// The settings, in the form that the guest's first process reads. `modules` are those of LTTng.
pub(super) fn settings(request: &Request, host: &str, modules: &Path) -> Result<String, Error> {
    let mut lines = vec![format!("host {host}")];
    let events = events(request);
    for event in &events {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_*?[]:-".contains(&byte);
        if event.is_empty() || !event.bytes().all(is_name) {
            let reason = "an event of the kernel is `system` or `system:event`, such as sched:sched_switch";
            return Err(Error::Event { event: (*event).to_owned(), reason: reason.to_owned() });
        }
        lines.push(format!("event {event}{}", if event.contains(':') { "" } else { ":*" }));
    }
    for tracer in &request.with {
        match tracer {
            Tracer::Ftrace => lines.push("ftrace on".to_owned()),
            Tracer::Perf => lines.push(format!("perf {}", perf()?.display())),
            Tracer::Lttng => lines.extend(lttng::settings(&events, modules)?),
        }
    }
    let buffer_kib = (request.buffer_size.unwrap_or(DEFAULT_BUFFER) >> 10).max(LEAST_BUFFER_KIB);
    lines.push(format!("buffer {buffer_kib}"));
    Ok(lines.join("\n") + "\n")
}

/// The system's perf, which the guest sees.
fn perf() -> Result<PathBuf, Error> {
    emulate::find_in_path("perf".as_ref()).ok_or_else(|| {
        Error::Missing(
            "--with perf runs this system's perf in the machine, and there is none (Debian: apt install linux-perf); \
             --with ftrace needs nothing"
                .to_owned(),
        )
    })
}

/// A recording beside that of Intel PT, and a warning about it.
pub(super) type Written = (Beside, Option<String>);

/// Writes the recording of a tracer, whose times are ticks of `clock`, or nanoseconds without one. `symbols` are those of the
/// kernel.
pub(super) fn write(
    tracer: Tracer,
    request: &Request,
    spool: &Path,
    clock: Option<&PerfClock>,
    symbols: &[u8],
) -> Result<Written, Error> {
    let output = &request.output;
    let (extension, source) = match tracer {
        Tracer::Ftrace => ("ftrace.dat", spool.join("tracing")),
        Tracer::Perf => ("events.data", spool.join("events/perf.data")),
        Tracer::Lttng => ("lttng", spool.join("lttng")),
    };
    if !source.exists() {
        return Err(Error::Missing(format!(
            "the machine wrote no {extension}; if its first process is of an older version, `cargo xtask setup --machine` \
             replaces it"
        )));
    }
    let path = output.with_extension(extension);
    let mut warning = None;
    let bytes = match tracer {
        Tracer::Ftrace => {
            let head = head(&source, clock, symbols)?;
            let mut pages = Vec::new();
            let mut lost = 0;
            for cpu in ftrace::cpus(&source)? {
                let path = source.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
                pages.push(File::open(&path).map_err(Error::file(&path))?);
                lost += ftrace::lost(&source, cpu);
            }
            warning = ftrace::lost_warning(lost);
            let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
            ftrace::assemble(&head, &mut pages, &path, folder.unwrap_or(Path::new(".")))
                .map_err(Error::file(&path))?
        }
        Tracer::Perf => {
            let moved = fs::rename(&source, &path).and_then(|()| fs::metadata(&path));
            moved.map_err(Error::file(&path))?.len()
        }
        Tracer::Lttng => {
            let (bytes, unknown) = lttng::write(&source, &path, &events(request))?;
            warning = unknown;
            bytes
        }
    };
    Ok((Beside { tracer, path, bytes }, warning))
}

/// The beginning of a trace.dat. On x86, its times follow the time-stamp counter, as those of the recording of Intel PT do.
fn head(tracing: &Path, clock: Option<&PerfClock>, symbols: &[u8]) -> Result<Head, Error> {
    let system = tracing.join("uname");
    let system = fs::read_to_string(&system).map_err(Error::file(&system))?;
    Ok(Head {
        tsc: clock.map(|clock| TscToNanos {
            multiplier: clock.multiplier(),
            shift: clock.shift(),
            offset: clock.zero(),
        }),
        ..ftrace::head(tracing, tracing, symbols.to_vec(), system.trim().to_owned())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_become_patterns() {
        let request = |events: &[&str]| Request {
            with: vec![Tracer::Ftrace],
            with_events: events.iter().map(|&event| event.to_owned()).collect(),
            ..Request::default()
        };
        let settings = |events: &[&str]| settings(&request(events), "machine-1", Path::new("/nonexistent"));
        let text = settings(&["sched", "irq:irq_handler_entry"]).unwrap();
        assert_eq!(
            text,
            "host machine-1\nevent sched:*\nevent irq:irq_handler_entry\nftrace on\nbuffer 16384\n"
        );
        assert!(settings(&["sched\nperf /bin/sh"]).is_err());
        assert!(settings(&[]).unwrap().contains("event raw_syscalls:*\n"));
    }
}

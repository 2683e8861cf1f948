//! Native recordings as Intel PT.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, BufWriter},
    path::PathBuf,
    process::ExitCode,
};

use hodo_clock::{Nanos, PerfClock};
use hodo_engine::{CHUNKS_IN_ORDER, Reading, Trace, convert_logs};
use hodo_formats::{
    perf::{
        layout::{CodeEntry, HodoscopeSection, intel_pt_config},
        write::{Setup, Source, TraceUnit, Writer},
    },
    recording::Thread,
};
use hodo_model::{Cause, Loss};

use crate::{arguments::Export, failure::Failure, input, progress::Progress, selection::Selection};

/// The event as `perf record` names it.
const EVENT: &str = "intel_pt//u";
/// `perf_event_attr.config`: tracing is on, with TSC packets.
const CONFIG: u64 = 1 | intel_pt_config::BRANCH | intel_pt_config::TSC;

/// Writes a perf.data of all threads.
pub(super) fn export(command: &Export) -> Result<ExitCode, Failure> {
    Selection::new(&command.input, Some(&command.filter))?.refuse_events()?;
    let with_sideband = false;
    input::open(&command.input, with_sideband, |trace, window| {
        if !trace.is_native() {
            return Err(Failure::usage(
                "this is not a recording of the native recorder: its trace is packets already",
            ));
        }
        if window.is_some() {
            return Err(Failure::usage("--to intel-pt writes whole threads; leave out --time"));
        }
        let mut partial = command.output.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let failed = |error: io::Error| Failure::unreadable(format!("{}: {error}", command.output.display()));
        let file = BufWriter::with_capacity(1 << 20, File::create(&partial).map_err(failed)?);
        let read = input::read(
            &command.input,
            trace,
            CHUNKS_IN_ORDER,
            window,
            &|bytes| Progress::new(bytes, command.input.quiet),
            |reading, keep_going| write(trace, reading, file, keep_going),
        );
        let written = match read {
            Ok(Some(Ok(damaged))) => fs::rename(&partial, &command.output).map(|()| damaged),
            Ok(Some(Err(error))) => Err(error),
            other => {
                _ = fs::remove_file(&partial);
                return other.map(|_| input::interrupted());
            }
        };
        let damaged = written.inspect_err(|_| _ = fs::remove_file(&partial)).map_err(failed)?;
        let mut losses = trace.recorded_losses();
        if damaged > 0 {
            let detail = "blocks of the log are damaged, and have no packets".to_owned();
            let (stream, cause) = (String::new(), Cause::Corrupt);
            losses.add(Loss { stream, cause, bytes: 0..0, time: None, count: damaged, detail });
        }
        let code = input::exit_code(&command.input, losses.is_empty());
        input::report_losses(losses);
        Ok(code)
    })
}

/// Writes the file; returns the number of damaged blocks.
fn write(
    trace: &Trace<'_>,
    reading: Reading<'_>,
    out: BufWriter<File>,
    mut keep_going: impl FnMut(u64) -> bool + Send,
) -> io::Result<u64> {
    let recording = &trace.recording;
    let (shift, multiplier, zero) = (0, 1, 0);
    let ticks_are_nanoseconds = || PerfClock::new(shift, multiplier, zero);
    let clock = recording.config.clock.or_else(ticks_are_nanoseconds).ok_or(io::ErrorKind::InvalidData)?;
    // A thread has a log for each program that it ran.
    let mut threads: Vec<Thread> = Vec::new();
    let of_track = |thread: Option<Thread>| {
        let thread = thread.unwrap_or(Thread { pid: 0, tid: 0 });
        threads.iter().position(|&known| known == thread).unwrap_or_else(|| {
            threads.push(thread);
            threads.len() - 1
        })
    };
    let sources: Vec<usize> = trace.streams.iter().map(|stream| stream.thread).map(of_track).collect();
    let command: Vec<Vec<u8>> = std::env::args_os().map(OsString::into_encoded_bytes).collect();
    let host = recording.facts.iter().find(|(name, _)| *name == "host").map_or("", |(_, host)| host);
    let setup = Setup {
        unit: TraceUnit::IntelPt,
        config: CONFIG,
        clock,
        // Only packets of timing use them, and there are none.
        tsc_ctc_ratio: (1, 1),
        max_nonturbo_ratio: 1,
        snapshot: false,
        filter: "",
        event: EVENT,
        command: &command,
        version: concat!("hodo ", env!("CARGO_PKG_VERSION")),
        host,
    };
    let names = threads.iter().map(|&thread| Source::Thread(thread)).collect();
    let mut writer = Writer::new(out, setup, names)?;
    recording.sideband.iter().try_for_each(|event| writer.sideband(event))?;
    writer.finished_round()?;
    let (mut result, mut damaged, mut done) = (Ok(()), 0, 0);
    convert_logs(trace, reading, |chunk| {
        let end = chunk.time.map_or(Nanos(0), |tsc| clock.nanos(tsc));
        let length = chunk.packets.len() as u64;
        result = writer.trace(sources[chunk.stream], end, length, chunk.packets.as_slice());
        damaged += chunk.damaged;
        done += chunk.bytes;
        result.is_ok() && keep_going(done)
    });
    result?;
    let recorder = recording.recorder.as_ref();
    let kept = || recorder.into_iter().flat_map(|recorder| &recorder.code);
    let code = kept().map(|code| CodeEntry {
        pid: code.pid,
        guest: None,
        time_ns: code.time.0,
        found_ns: None,
        address: code.address,
        length: code.bytes.len() as u64,
    });
    let notes = recorder.map(|recorder| recorder.notes.clone()).unwrap_or_default();
    let section = HodoscopeSection { notes, code: code.collect(), kallsyms: 0 };
    let bytes: Vec<u8> = kept().flat_map(|code| code.bytes).copied().collect();
    writer.finish(&section, bytes.as_slice())?;
    Ok(damaged)
}

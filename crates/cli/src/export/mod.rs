//! `hodo export`.

mod calls;
mod coverage;
mod intervals;
mod packets;
mod profile;
mod scheduling;

use std::{fs, io, path::Path, process::ExitCode};

use clap::builder::{PossibleValue, PossibleValuesParser};
use hodo_engine::{Needs, Traces};
use hodo_exports::{Content, EXPORTS};
use hodo_formats::ctf::write::Version;
use hodo_script::ExportError;
use tempfile::Builder;

use crate::{arguments::Export, events, failure::Failure, input, progress::Progress};

/// A format of traces, which are folders.
struct TraceFormat {
    name: &'static str,
    help: &'static str,
    version: Version,
}

const TRACES: &[TraceFormat] = &[
    TraceFormat {
        name: "ctf",
        help: "software events as CTF 1.8: a folder, for babeltrace2, Trace Compass and others",
        version: Version::Ctf18,
    },
    TraceFormat { name: "ctf2", help: "software events as CTF 2: a folder", version: Version::Ctf2 },
];

/// Intel PT, made of native recordings.
const PACKETS: &str = "intel-pt";

/// Returns the values of `--to`.
pub fn names() -> PossibleValuesParser {
    list().map(|(name, help)| PossibleValue::new(name).help(help)).collect::<Vec<_>>().into()
}

/// Returns the formats with their descriptions.
pub fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
    let packets = (PACKETS, "a native recording as Intel PT: a perf.data, for perf, libipt and others");
    let traces = TRACES.iter().map(|format| (format.name, format.help));
    traces.chain([packets]).chain(EXPORTS.iter().map(|export| (export.name, export.help)))
}

/// Runs the command.
pub fn run(command: &Export) -> Result<ExitCode, Failure> {
    if let Some(format) = TRACES.iter().find(|format| format.name == command.to) {
        return trace(command, format.version);
    }
    if command.to == PACKETS {
        return packets::export(command);
    }
    let export = EXPORTS.iter().find(|export| export.name == command.to);
    let is_of_module =
        export.is_some_and(|export| matches!(export.content, Content::Branches(_) | Content::Coverage(_)));
    if command.module.is_some() && !is_of_module {
        return Err(Failure::usage(format!(
            "--module is for lines, and for profiles of one module, but {} holds all",
            command.to
        )));
    }
    let flow = events::contents(&command.input)?.flow;
    match export.expect("the command line knows the names").content {
        Content::Timeline(begin) | Content::Calls(begin) if flow => calls::export(command, begin),
        Content::Timeline(begin) => intervals::export(command, begin),
        Content::Paths(begin) => profile::paths(command, begin),
        Content::Sources(write) => profile::sources(command, write),
        Content::Coverage(begin) => coverage::export(command, begin),
        Content::Branches(write) => profile::branches(command, write),
        Content::Calls(_) => {
            Err(Failure::usage(format!("{} contains calls, but this input has no control flow", command.to)))
        }
    }
}

fn trace(command: &Export, version: Version) -> Result<ExitCode, Failure> {
    if command.min.is_some() {
        return Err(Failure::usage("--min is for calls and intervals, but CTF contains events"));
    }
    let contents = events::contents(&command.input)?;
    if !contents.events && contents.flow {
        // What can't be read counts as control flow: this reports it.
        input::experiment(&command.input, Needs { flow: false, sideband: false, events: true })?;
        return Err(Failure::usage("CTF contains software events, but this input has none"));
    }
    events::refuse_flow(&command.input)?;
    let target = &command.output;
    if fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_some()) || target.is_file() {
        return Err(Failure::usage(format!("{} already exists; name a new folder", target.display())));
    }
    events::open(&command.input, |traces| write(command, version, traces))
}

/// Says that the file is empty, because the selection contains nothing.
fn emit_nothing(command: &Export, what: &str) {
    message!("nothing found: what was selected has no {what}, so {} is empty", command.output.display());
}

/// Reports how much is not in the file because it is short.
fn emit_left_out(command: &Export, count: u64) {
    if count > 0 && !command.input.quiet {
        message!("left out as shorter than --min: {count}");
    }
}

fn write(command: &Export, version: Version, traces: &Traces<'_>) -> Result<Option<bool>, Failure> {
    let target = &command.output;
    let reading = events::reading(&command.input, traces, events::EXPORT_CHUNKS)?;
    let wanted = events::wanted(&command.filter, &command.input, traces)?;
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |error: io::Error| Failure::unreadable(format!("{}: {error}", target.display()));
    // The folder is either complete or absent.
    let folder = Builder::new().prefix(".hodo-").tempdir_in(parent).map_err(failed)?;
    let progress = Progress::new(traces.event_bytes(), command.input.quiet);
    let exported =
        hodo_script::export(traces, &wanted, version, &reading, folder.path(), |done| progress.set(done));
    progress.finish();
    let exported = exported.map_err(|error| match error {
        ExportError::Unwritable(_) => Failure::usage(error),
        ExportError::System(..) => Failure::unreadable(error),
    })?;
    if !exported.is_whole {
        return Ok(None);
    }
    readable(folder.path()).and_then(|()| fs::rename(folder.path(), target)).map_err(failed)?;
    let _ = folder.keep();
    if exported.events == 0 {
        emit_nothing(command, "event");
    }
    for (conversion, count) in exported.conversions.iter().filter(|_| !command.input.quiet) {
        message!("{count} × {conversion}");
    }
    let lossless = exported.losses.is_empty() && !events::tracer_lost(traces);
    input::report_losses(exported.losses);
    Ok(Some(lossless))
}

/// Gives a folder that was created as temporary the permissions of an ordinary folder.
fn readable(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

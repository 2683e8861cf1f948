//! Records with the processor's Intel PT, through `perf record`.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::{Command, Stdio},
};

use crate::{Engine, Error, Outcome, Request, supervise};

/// The kernel's driver for Intel PT.
const DRIVER: &str = "/sys/bus/event_source/devices/intel_pt";

/// Whether this machine can record with hardware.
pub(crate) fn present() -> bool {
    Path::new(DRIVER).exists()
}

pub(crate) fn record(request: &Request) -> Result<Outcome, Error> {
    if !present() {
        return Err(Error::Missing(format!(
            "this machine has no Intel PT that the kernel can use ({DRIVER} is not there); virtual machines, other makers' processors and old \
             kernels have none. Use --engine native, which records on any x86-64 machine"
        )));
    }
    record_with(OsStr::new("perf"), request)
}

/// Records with this `perf`.
fn record_with(perf: &OsStr, request: &Request) -> Result<Outcome, Error> {
    if Command::new(perf).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return Err(Error::Missing(
            "perf is not installed; on Debian: apt-get install linux-perf. Or use --engine native".to_owned(),
        ));
    }
    if request.duration.is_some() && request.pid.is_none() {
        return Err(Error::Missing("--for needs --pid with --engine perf".to_owned()));
    }
    let output = &request.output;
    let mut command = Command::new(perf);
    command.args(arguments(request));
    if let Some(surroundings) = &request.surroundings {
        surroundings.give_to(&mut command)?;
    }
    let status = supervise::run(&mut command).map_err(Error::file(Path::new("perf")))?;
    let bytes = std::fs::metadata(output).map_err(Error::file(output))?.len();
    Ok(Outcome {
        engine: Engine::Perf,
        status,
        instructions: None,
        threads: None,
        snapshots: None,
        bytes,
        beside: Vec::new(),
        warnings: Vec::new(),
    })
}

/// The command line of `perf record`; perf itself checks the event and the filter.
fn arguments(request: &Request) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["record".into(), "--quiet".into(), "--output".into()];
    arguments.push(request.output.clone().into());
    arguments.extend(["--event".into(), request.event().unwrap_or("intel_pt//u").into()]);
    if let Some(filter) = &request.filter {
        arguments.extend(["--filter".into(), filter.into()]);
    }
    if let Some(size) = request.snapshot {
        arguments.push(format!("--snapshot=e{size}").into());
    }
    if let Some(process) = request.pid {
        arguments.push(format!("--pid={process}").into());
    }
    arguments.push("--".into());
    match request.duration {
        // perf records as long as its command runs.
        Some(duration) => arguments.extend(["sleep".into(), duration.as_secs_f64().to_string().into()]),
        None => arguments.extend(request.command.iter().cloned()),
    }
    if arguments.last().is_some_and(|last| last == "--") {
        arguments.pop();
    }
    arguments
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

    use super::*;

    /// Returns the arguments that a script in perf's place gets. It exits with 3.
    fn perf_arguments(request: Request) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let perf = folder.path().join("perf");
        let output = folder.path().join("perf.data");
        let script =
            format!("#!/bin/sh\n[ \"$1\" = --version ] || echo \"$@\" > {}\nexit 3\n", output.display());
        fs::write(&perf, script).expect("it is written");
        fs::set_permissions(&perf, fs::Permissions::from_mode(0o700)).expect("it can be run");
        let outcome = record_with(perf.as_os_str(), &Request { output: output.clone(), ..request });
        let outcome = outcome.expect("a recording");
        let words = fs::read_to_string(&output).expect("its arguments");
        assert_eq!((outcome.status.code(), outcome.bytes), (Some(3), words.len() as u64));
        words.replace(&*output.to_string_lossy(), "OUTPUT").trim_end().to_owned()
    }

    #[test]
    fn perf_gets_the_process_and_the_time() {
        let line = |duration: Option<Duration>| {
            perf_arguments(Request { pid: Some(7), duration, snapshot: Some(65536), ..Request::default() })
        };
        let common = "record --quiet --output OUTPUT --event intel_pt//u --snapshot=e65536 --pid=7";
        assert_eq!(line(None), common);
        assert_eq!(line(Some(Duration::from_millis(1500))), format!("{common} -- sleep 1.5"));
    }

    #[test]
    fn perf_gets_the_request() {
        let request = Request {
            filter: Some("filter main @ ./a".into()),
            snapshot: Some(4096),
            command: vec!["./a".into(), "-x".into()],
            ..Request::default()
        };
        assert_eq!(
            perf_arguments(request),
            "record --quiet --output OUTPUT --event intel_pt//u --filter filter main @ ./a --snapshot=e4096 -- ./a -x"
        );
    }

    #[test]
    fn a_missing_perf_and_a_time_without_a_process_are_refused() {
        let request = Request { command: vec!["true".into()], ..Request::default() };
        let missing = record_with(OsStr::new("/no/perf"), &request).expect_err("no perf");
        assert!(missing.to_string().contains("perf is not installed"), "{missing}");
        let request = Request { duration: Some(Duration::from_secs(1)), ..request };
        let refused = record_with(OsStr::new("true"), &request).expect_err("no process");
        assert!(refused.to_string().contains("--for needs --pid"), "{refused}");
    }
}

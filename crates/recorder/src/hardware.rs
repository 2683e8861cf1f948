//! Records with the processor's Intel PT, through `perf record`.

use std::{
    ffi::OsString,
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
    if Command::new("perf").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return Err(Error::Missing(
            "perf is not installed; on Debian: apt-get install linux-perf. Or use --engine native".to_owned(),
        ));
    }
    if request.duration.is_some() && request.pid.is_none() {
        return Err(Error::Missing("--for needs --pid with --engine perf".to_owned()));
    }
    let output = &request.output;
    let status = supervise::run(Command::new("perf").args(arguments(request)))
        .map_err(Error::file(Path::new("perf")))?;
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn perf_gets_the_process_and_the_time() {
        let line = |duration: Option<Duration>| {
            let request = Request {
                pid: Some(7),
                duration,
                snapshot: Some(65536),
                output: "o".into(),
                ..Request::default()
            };
            arguments(&request).join(std::ffi::OsStr::new(" "))
        };
        let all = "record --quiet --output o --event intel_pt//u --snapshot=e65536 --pid=7";
        assert_eq!(line(None), all);
        assert_eq!(line(Some(Duration::from_millis(1500))).to_str(), Some(&*format!("{all} -- sleep 1.5")));
    }

    #[test]
    fn perf_gets_the_request() {
        let request = Request {
            filter: Some("filter main @ ./a".into()),
            snapshot: Some(4096),
            output: "o".into(),
            command: vec!["./a".into(), "-x".into()],
            ..Request::default()
        };
        let line = arguments(&request).join(std::ffi::OsStr::new(" "));
        assert_eq!(
            line,
            "record --quiet --output o --event intel_pt//u --filter filter main @ ./a --snapshot=e4096 -- ./a -x"
        );
    }
}

//! LTTng's kernel tracer inside the machine: the names of its events, and its trace.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Error, emulate};

/// Systems that LTTng calls otherwise than the kernel.
const RENAMED: [(&str, &str); 2] = [("irq_vectors", "x86_irq_vectors"), ("exceptions", "x86_exceptions")];
/// The systems of the kernel whose events LTTng has as system calls.
const CALLS: [&str; 2] = ["raw_syscalls", "syscalls"];
/// Recorded in any case: without them no event has a thread, as LTTng's events do not contain it.
const THREADS: [&str; 2] = ["lttng_statedump_process_state", "sched_switch"];
/// Begin of the names of the modules that record the events of a system.
const PROBE: &str = "lttng-probe-";
/// A file of each trace in CTF.
const METADATA: &str = "metadata";

/// The settings for the guest's first process; `modules` are LTTng's.
pub(super) fn settings(events: &[&str], modules: &Path) -> Result<Vec<String>, Error> {
    let find = |program: &str| {
        emulate::find_in_path(program.as_ref()).ok_or_else(|| {
            Error::Missing(format!(
                "--with lttng runs this system's LTTng in the machine, and there is no {program} (Debian: apt install \
                 lttng-tools); --with ftrace needs nothing"
            ))
        })
    };
    let (client, daemon) = (find("lttng")?, find("lttng-sessiond")?);
    if !modules.exists() {
        return Err(Error::Missing(format!(
            "--with lttng loads LTTng's modules into the machine, and {} is not there. `cargo xtask setup --machine` \
             builds them; it needs make and gcc (Debian: apt install make gcc), and changes nothing in the system. \
             --with ftrace needs nothing",
            modules.display()
        )));
    }
    let threads = THREADS.map(str::to_owned);
    let mut lines = vec![
        format!("lttng {}", client.display()),
        format!("lttng-daemon {}", daemon.display()),
        format!("lttng-events {}", [&threads[..], &tracepoints(events)].concat().join(",")),
    ];
    lines.extend(calls(events).map(|calls| format!("lttng-calls --syscall {calls}")));
    Ok(lines)
}

/// The modules to load, in this folder: the tracer, and what records the events of the requested systems.
pub(super) fn modules(folder: &Path, events: &[&str]) -> io::Result<Vec<PathBuf>> {
    let systems = events.iter().map(|event| lttng_name(Event::parse(event).system));
    let needed: Vec<String> =
        systems.chain(["sched", "statedump"]).map(|system| system.replace('_', "-")).collect();
    let is_needed = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        name.strip_prefix(PROBE).is_none_or(|system| needed.iter().any(|needed| needed == system))
    };
    let mut modules = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    modules.retain(is_needed);
    modules.sort();
    Ok(modules)
}

/// LTTng's name of a system.
fn lttng_name(system: &str) -> &str {
    RENAMED.iter().find(|(kernels, _)| *kernels == system).map_or(system, |(_, lttngs)| lttngs)
}

/// An event, or events, in the kernel's words.
#[derive(Clone, Copy)]
struct Event<'a> {
    system: &'a str,
    /// A name or a pattern.
    name: &'a str,
}

impl Event<'_> {
    fn parse(event: &str) -> Event<'_> {
        let (system, name) = event.split_once(':').unwrap_or((event, "*"));
        Event { system, name }
    }

    /// Whether LTTng has it as a system call.
    fn is_call(self) -> bool {
        CALLS.contains(&self.system)
    }
}

/// LTTng's names of these events: the name of the system comes first, once.
fn tracepoints(events: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    for event in events.iter().map(|event| Event::parse(event)).filter(|event| !event.is_call()) {
        let prefix = format!("{}_", lttng_name(event.system));
        let rest = event.name.strip_prefix(&prefix).unwrap_or(event.name);
        names.push(format!("{prefix}{rest}"));
    }
    names
}

/// The system calls among these events, as arguments.
fn calls(events: &[&str]) -> Option<String> {
    let mut calls = Vec::new();
    for Event { name, .. } in events.iter().map(|event| Event::parse(event)).filter(|event| event.is_call()) {
        match name.strip_prefix("sys_enter_").or_else(|| name.strip_prefix("sys_exit_")) {
            Some(call) => calls.push(call),
            // `raw_syscalls:sys_enter` is every call.
            None => return Some("--all".to_owned()),
        }
    }
    (!calls.is_empty()).then(|| calls.join(","))
}

/// Moves the trace to its final place, and returns its size and the requested events that LTTng does not have.
pub(super) fn write(from: &Path, to: &Path, events: &[&str]) -> Result<(u64, Option<String>), Error> {
    let metadata = fs::read(from.join(METADATA)).map_err(Error::file(from))?;
    let metadata = String::from_utf8_lossy(&metadata).into_owned();
    if to.exists() && !to.join(METADATA).is_file() {
        return Err(Error::Missing(format!(
            "{}: is there, and is no trace; it stays as it is",
            to.display()
        )));
    }
    if to.exists() {
        fs::remove_dir_all(to).map_err(Error::file(to))?;
    }
    fs::rename(from, to).map_err(Error::file(to))?;
    let bytes = files(to)
        .and_then(|files| files.iter().map(|file| Ok(fs::metadata(file)?.len())).sum::<io::Result<u64>>());
    let unknown: Vec<String> =
        tracepoints(events).into_iter().filter(|pattern| !has(&metadata, pattern)).collect();
    let warning = (!unknown.is_empty()).then(|| format!("LTTng has no event {}", unknown.join(", ")));
    Ok((bytes.map_err(Error::file(to))?, warning))
}

/// Whether a trace's metadata, which lists the enabled events, has one with this name, of which a part may be `*`.
fn has(metadata: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        Some((begin, _)) => metadata.contains(&format!("name = \"{begin}")),
        None => metadata.contains(&format!("name = \"{pattern}\";")),
    }
}

/// The files in a folder, and in the folders in it.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { paths.extend(files(&path)?) } else { paths.push(path) }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_names_of_lttng() {
        let events = ["sched", "irq:softirq_entry", "irq:irq_handler_entry", "irq_vectors:local_timer_*"];
        let expected = ["sched_*", "irq_softirq_entry", "irq_handler_entry", "x86_irq_vectors_local_timer_*"];
        assert_eq!(tracepoints(&events), expected);
        assert_eq!(calls(&events), None);
        assert_eq!(calls(&["sched", "raw_syscalls:sys_enter"]).as_deref(), Some("--all"));
        assert_eq!(
            calls(&["syscalls:sys_enter_read", "syscalls:sys_exit_mmap"]).as_deref(),
            Some("read,mmap")
        );
        assert_eq!(calls(&["syscalls:sys_enter_read", "syscalls"]).as_deref(), Some("--all"));
        assert!(tracepoints(&["syscalls"]).is_empty());
    }

    #[test]
    fn modules_are_those_of_the_systems() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["tracer", "probe-sched", "probe-net", "probe-x86-irq-vectors"] {
            fs::write(folder.path().join(format!("lttng-{name}.ko")), "").unwrap();
        }
        let names = |events: &[&str]| {
            let found = modules(folder.path(), events).unwrap();
            found.iter().map(|path| path.file_stem().unwrap().display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["syscalls"]), ["lttng-probe-sched", "lttng-tracer"]);
        let all = ["lttng-probe-net", "lttng-probe-sched", "lttng-probe-x86-irq-vectors", "lttng-tracer"];
        assert_eq!(names(&["irq_vectors:local_timer_entry", "net"]), all);
    }

    #[test]
    fn a_trace_replaces_a_trace_only() {
        let folder = tempfile::tempdir().unwrap();
        let event = "event {\n\tname = \"sched_switch\";\n\tid = 1;";
        let trace = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.join("index")).unwrap();
            fs::write(path.join("index/k.idx"), "12345").unwrap();
            fs::write(path.join(METADATA), event).unwrap();
            path
        };
        let to = trace("to");
        let (bytes, warning) = write(&trace("from"), &to, &["sched", "sched:sched_sw", "irq"]).unwrap();
        assert_eq!(bytes, 5 + event.len() as u64);
        assert_eq!(warning.as_deref(), Some("LTTng has no event sched_sw, irq_*"));
        let mine = folder.path().join("mine");
        fs::create_dir(&mine).unwrap();
        assert!(write(&to, &mine, &[]).is_err() && mine.exists() && to.exists());
    }
}

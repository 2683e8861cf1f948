//! The first process of an emulated machine: prepares the guest, runs the command, and writes what the recorder needs.
//!
//! ```text
//! initramfs: modules ──► host's root (9p, read-only) under a writable layer ──► chroot, command
//! spool (9p): request ──► arguments, environment, folder          streams: stdin, stdout, stderr, signals
//!             symbols, modules ◄── the kernel's symbols and modules   between virtio ports and pipes
//!             sideband-N ◄── perf's own records of each CPU
//!             clock, rings, threads, maps, status ◄──
//!             tracers ──► ftrace, perf, LTTng ──► tracing/, events/, lttng/
//! ```
//!
//! It is linked statically, and starts before anything else exists. On an error it powers off the guest, and writes the
//! error to `error` in the spool, or to the console if the spool is not mounted yet.

#![allow(unsafe_code)]

mod command;
mod setup;
mod sideband;
mod streams;
mod system;
mod tracers;

use std::fs;

use command::Status;
use system::Error;

/// Mount point of the spool, outside the command's root.
const SPOOL: &str = "/spool";

fn main() {
    if let Err(error) = run() {
        let message = format!("{error}\n");
        if fs::write(format!("{SPOOL}/error"), &message).is_err() {
            eprint!("hodo: {message}");
        }
    }
    system::power_off();
}

fn run() -> Result<(), Error> {
    setup::mount_basics()?;
    setup::load_modules()?;
    setup::mount_spool(SPOOL)?;
    let request = command::Request::read(SPOOL)?;
    // Now, because the guest may crash.
    setup::copy("/proc/kallsyms", &format!("{SPOOL}/symbols"))?;
    setup::copy("/proc/modules", &format!("{SPOOL}/modules"))?;
    setup::bring_up_loopback()?;
    let root = setup::mount_root(SPOOL)?;
    let mut rings = sideband::Rings::open(SPOOL)?;
    let mut tracers = tracers::Tracers::open(SPOOL, &root)?;
    sideband::list_threads(SPOOL)?;
    setup::copy("/proc/self/maps", &format!("{SPOOL}/maps"))?;
    let mut streams = streams::Streams::open()?;
    tracers.start()?;
    let child = command::start(&request, &root, &mut streams)?;
    let status = streams.run(child, &mut rings, &mut tracers)?;
    command::mark_end();
    if let Err(error) = tracers.finish() {
        fs::write(format!("{SPOOL}/warning"), error.to_string()).map_err(Error::of("warning"))?;
    }
    streams.drain();
    let text = match status {
        Status::Exited(code) => format!("exit {code}\n"),
        Status::Killed(signal) => format!("signal {signal}\n"),
        Status::NotStarted(errno) => format!("exec {errno}\n"),
    };
    fs::write(format!("{SPOOL}/status"), text).map_err(Error::of("status"))?;
    rings.drain()
}

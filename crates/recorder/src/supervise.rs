//! Runs a program in the foreground, and forwards the signals that are meant for it.

use std::{
    io,
    process::{Child, Command, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use signal_hook::{
    SigId,
    iterator::{SignalsInfo, exfiltrator::WithOrigin},
};

use crate::signals;

/// Signals by which a user, or a process, ends the recorder's wait after the program has ended.
pub(crate) struct Interrupt {
    happened: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Interrupt {
    /// Handles these signals from now on.
    pub(crate) fn watch() -> io::Result<Interrupt> {
        let mut interrupt = Interrupt { happened: Arc::default(), registered: Vec::new() };
        for signal in signals::ending() {
            let happened = Arc::clone(&interrupt.happened);
            interrupt.registered.push(signal_hook::flag::register(signal, happened)?);
        }
        Ok(interrupt)
    }

    pub(crate) fn happened(&self) -> bool {
        self.happened.load(Ordering::Relaxed)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.registered.drain(..).for_each(|id| {
            signal_hook::low_level::unregister(id);
        });
    }
}

/// Runs the command to its end.
///
/// A key like Ctrl-C reaches the program directly, because it is in our process group; a signal that a process sends to
/// the recorder is forwarded. The recorder survives both.
pub(crate) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let mut incoming = SignalsInfo::<WithOrigin>::new(signals::ending())?;
    let handle = incoming.handle();
    let mut child = command.spawn()?;
    let program = pid(&child);
    let forwarder = thread::spawn(move || {
        for origin in incoming.forever() {
            let is_from_process = origin.process.is_some_and(|process| process.pid != 0);
            if is_from_process && let Some(signal) = rustix::process::Signal::from_named_raw(origin.signal) {
                // The program may have ended meanwhile.
                _ = rustix::process::kill_process(program, signal);
            }
        }
    });
    let status = child.wait();
    handle.close();
    _ = forwarder.join();
    status
}

fn pid(child: &Child) -> rustix::process::Pid {
    rustix::process::Pid::from_child(child)
}

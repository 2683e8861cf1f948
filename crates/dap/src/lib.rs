//! The Debug Adapter Protocol over a recording, for VS Code and other clients: they step through what was recorded, forwards
//! and backwards.
//!
//! ```text
//! client ──Content-Length, JSON──► reader thread ──channel──► Session: one request after the other ──► Stepper
//!                                    └─ pause, disconnect ──► stops a search                    │
//!    ◄──────────────────────────── responses, events ◄──────────────────────────────────────────┘
//! ```
//!
//! A recording has no memory and no registers: its scope of variables says where the execution is. All threads are shown at
//! the instant of the thread that moved last. The protocol: <https://microsoft.github.io/debug-adapter-protocol>.

mod breakpoints;
mod message;
mod moves;
mod session;
mod show;

use std::{
    io::{self, BufRead, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use hodo_engine::Trace;
use hodo_stepping::Execution;

use crate::session::Session;

/// Serves one client until it disconnects.
///
/// # Errors
/// The client can't be written to.
pub fn serve(
    trace: &Trace<'_>,
    execution: &mut Execution,
    mut input: impl BufRead + Send + 'static,
    output: &mut dyn Write,
) -> io::Result<()> {
    let (sender, requests) = mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let asked_to_stop = Arc::clone(&stop);
    // It ends with the input, which may be open longer than this session.
    thread::spawn(move || {
        while let Ok(Some(request)) = message::read(&mut input) {
            if ["pause", "disconnect", "terminate"].contains(&request.command.as_str()) {
                asked_to_stop.store(true, Ordering::Relaxed);
            }
            if sender.send(request).is_err() {
                return;
            }
        }
        // The client has left: a search that still runs has no reader.
        asked_to_stop.store(true, Ordering::Relaxed);
    });
    Session::new(trace, execution, &stop, output).run(&requests)
}

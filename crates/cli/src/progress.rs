//! A progress bar on terminals, and Ctrl-C.

use std::{
    io::{self, IsTerminal},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// Starts work on a number of bytes of trace: with a bar and Ctrl-C, or for a page.
pub type Begin<'b> = &'b dyn Fn(u64) -> Progress;

/// Shows the progress of long work, and records Ctrl-C.
pub struct Progress {
    bar: ProgressBar,
    interrupted: CtrlC,
}

/// Records Ctrl-C.
pub struct CtrlC(Arc<AtomicBool>);

impl CtrlC {
    /// Starts to record Ctrl-C. The second one ends the program at once, in case some code doesn't check.
    pub fn watch() -> CtrlC {
        let pressed = Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, pressed.clone());
        let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, pressed.clone());
        CtrlC(pressed)
    }

    /// Returns the flag that Ctrl-C sets.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Returns whether Ctrl-C was pressed.
    pub fn is_pressed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Progress {
    /// Starts work on `total` bytes of trace, without a bar if `quiet` or if standard error is not a terminal.
    pub fn new(total: u64, quiet: bool) -> Progress {
        Progress { bar: Progress::new_bar(total, quiet), interrupted: CtrlC::watch() }
    }

    /// As [`Progress::new`], for work that `stop` interrupts.
    pub fn new_stopped_by(stop: &Arc<AtomicBool>, total: u64, quiet: bool) -> Progress {
        Progress { bar: Progress::new_bar(total, quiet), interrupted: CtrlC(Arc::clone(stop)) }
    }

    fn new_bar(total: u64, quiet: bool) -> ProgressBar {
        bar(total, quiet, "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
    }

    /// Starts work without a bar, which `stop` interrupts.
    pub fn stopped_by(stop: &Arc<AtomicBool>) -> Progress {
        Progress { bar: ProgressBar::hidden(), interrupted: CtrlC(Arc::clone(stop)) }
    }

    /// Shows that `done` bytes are done. Returns whether to continue.
    pub fn set(&self, done: u64) -> bool {
        self.bar.set_position(done);
        !self.is_interrupted()
    }

    /// Returns whether Ctrl-C was pressed.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.is_pressed()
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Shows the progress of the search for packets, if it takes noticeably long.
pub struct Searching {
    bar: ProgressBar,
    since: Instant,
}

impl Searching {
    /// No bar is shown before this time.
    const QUIET_TIME: Duration = Duration::from_millis(500);

    pub fn new(quiet: bool) -> Searching {
        let bar = bar(0, quiet, "{bar:30} {bytes} of {total_bytes} searched for packets, {eta} left");
        Searching { bar, since: Instant::now() }
    }

    /// Shows that `done` bytes of `total` are done.
    pub fn set(&self, done: u64, total: u64) {
        if self.since.elapsed() > Searching::QUIET_TIME {
            self.bar.set_length(total);
            self.bar.set_position(done);
        }
    }
}

impl Drop for Searching {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Creates a bar, hidden if `quiet` or if standard error is not a terminal.
fn bar(total: u64, quiet: bool, template: &str) -> ProgressBar {
    let bar = match quiet || !io::stderr().is_terminal() {
        true => ProgressBar::hidden(),
        false => ProgressBar::new(total),
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()))
}

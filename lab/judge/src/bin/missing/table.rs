//! The results of all trials, one line each.

use crate::trial::Trial;

/// Prints trials as they finish.
#[derive(Debug, Default)]
pub(crate) struct Table {
    trials: u64,
    ran: u64,
    given: u64,
    shown: u64,
    gaps: u64,
    violations: u64,
}

impl Table {
    /// Prints a trial.
    pub(crate) fn add(&mut self, name: &str, trial: &Trial) {
        if self.trials == 0 {
            println!(
                "{:14} {:36} {:>11} {:>11} {:>11} {:>8} {:>8}",
                "program", "withheld", "ran", "given", "shown", "share", "gaps"
            );
        }
        self.trials += 1;
        let Trial { what, ran, given, shown, .. } = trial;
        self.ran += ran;
        self.given += given;
        self.shown += shown.instructions;
        self.gaps += shown.gaps;
        line(name, what, *ran, *given, shown.instructions, shown.gaps);
        if let Some(violation) = &shown.violation {
            self.violations += 1;
            println!("  {violation}");
        }
    }

    /// Prints the sums; the error contains the number of violations.
    pub(crate) fn end(&self) -> Result<(), String> {
        line("all", &format!("{} trials", self.trials), self.ran, self.given, self.shown, self.gaps);
        if self.violations > 0 { Err(format!("{} violations", self.violations)) } else { Ok(()) }
    }
}

fn line(name: &str, what: &str, ran: u64, given: u64, shown: u64, gaps: u64) {
    let share = 100.0 * shown as f64 / given.max(1) as f64;
    println!("{name:14} {what:36} {ran:11} {given:11} {shown:11} {share:7.2}% {gaps:8}");
}

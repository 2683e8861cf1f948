//! The processor time of programs that are started.

use std::{
    fs,
    ops::Sub,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{Outcome, command};

/// Processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessorTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl ProcessorTime {
    pub(crate) fn total(self) -> Duration {
        self.user + self.system
    }

    /// The time of the children that have ended: /proc/self/stat, fields 16 and 17, in hundredths of a second.
    fn of_children() -> Outcome<ProcessorTime> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let after_name = stat.rsplit_once(')').ok_or("no name in stat")?.1;
        let mut fields = after_name.split_whitespace().skip(13).map(str::parse);
        let mut next = || -> Outcome<Duration> {
            let hundredths: u64 = fields.next().ok_or("no times of children in stat")??;
            Ok(Duration::from_millis(hundredths * 10))
        };
        Ok(ProcessorTime { user: next()?, system: next()? })
    }
}

impl Sub for ProcessorTime {
    type Output = ProcessorTime;

    fn sub(self, earlier: ProcessorTime) -> ProcessorTime {
        ProcessorTime { user: self.user - earlier.user, system: self.system - earlier.system }
    }
}

/// Runs a command without output; returns its processor time.
pub(crate) fn processor_time(command: &mut Command) -> Outcome<ProcessorTime> {
    let before = ProcessorTime::of_children()?;
    command::quietly(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    Ok(ProcessorTime::of_children()? - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_loop_is_user_time() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "n=0; while [ $n -lt 200000 ]; do n=$((n + 1)); done"]);
        let time = processor_time(&mut shell).expect("a time");
        assert!(time.user > Duration::ZERO && time.total() < Duration::from_secs(60), "{time:?}");
    }
}

//! Runs both libraries and compares what they say, line by line.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
};

use crate::Outcome;

/// What a comparison found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Lines that were compared.
    pub(crate) lines: u64,
    /// Jobs with a difference.
    pub(crate) different: u64,
}

/// Lines shown before a difference.
const CONTEXT: usize = 6;
/// Differences that are shown.
const SHOWN: u64 = 40;

/// One library's text.
struct Text {
    child: Child,
    lines: BufReader<ChildStdout>,
    line: String,
}

impl Text {
    fn start(transcript: &Path, library: Option<&Path>, jobs: String) -> Outcome<Text> {
        let mut command = Command::new(transcript);
        if let Some(folder) = library {
            command.env("LD_LIBRARY_PATH", folder);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().ok_or("no standard input")?;
        thread::spawn(move || input.write_all(jobs.as_bytes()));
        let lines = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Text { child, lines, line: String::new() })
    }

    /// Reads the next line; returns whether there is one.
    fn advance(&mut self) -> Outcome<bool> {
        self.line.clear();
        Ok(self.lines.read_line(&mut self.line)? > 0)
    }

    fn is_job(&self) -> bool {
        self.line.starts_with("job ")
    }

    /// Skips to the next job; returns whether there is one.
    fn skip(&mut self) -> Outcome<bool> {
        while !self.line.is_empty() && !self.is_job() {
            self.advance()?;
        }
        Ok(!self.line.is_empty())
    }
}

/// Compares the texts of both libraries, and prints the first difference of each job.
pub(crate) fn compare(transcript: &Path, ours: &Path, jobs: &[String]) -> Outcome<Tally> {
    let input = jobs.join("\n") + "\n";
    let mut theirs = Text::start(transcript, None, input.clone())?;
    let mut ours = Text::start(transcript, Some(ours), input)?;
    let mut tally = Tally::default();
    let mut job = String::new();
    let mut before: VecDeque<String> = VecDeque::new();
    let (mut left, mut right) = (theirs.advance()?, ours.advance()?);
    while left || right {
        if theirs.line == ours.line {
            if theirs.is_job() {
                job.clone_from(&theirs.line);
                before.clear();
            }
            tally.lines += 1;
            before.push_back(theirs.line.clone());
            if before.len() > CONTEXT {
                before.pop_front();
            }
            (left, right) = (theirs.advance()?, ours.advance()?);
            continue;
        }
        tally.different += 1;
        if tally.different <= SHOWN {
            let context: String = before.iter().map(|line| format!("    {line}")).collect();
            print!("DIFFERS {job}{context}  - {}  + {}", theirs.line, ours.line);
        }
        (left, right) = (theirs.skip()?, ours.skip()?);
    }
    for (text, name) in [(&mut theirs, "Intel's"), (&mut ours, "our")] {
        let status = text.child.wait()?;
        if !status.success() {
            return Err(format!("with {name} library the transcript ends with {status}").into());
        }
    }
    Ok(tally)
}

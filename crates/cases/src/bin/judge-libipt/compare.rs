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
    /// Traces, damaged ones too.
    pub(crate) traces: u64,
    /// Lines that are equal.
    pub(crate) lines: u64,
    /// Traces with a difference.
    pub(crate) different: u64,
    /// Traces on which Intel's library crashes or does not end; ours says the same up to there.
    pub(crate) crashed: u64,
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

    /// Reads the next line; it is empty at the end.
    fn advance(&mut self) -> Outcome {
        self.line.clear();
        self.lines.read_line(&mut self.line)?;
        Ok(())
    }

    fn begins_trace(&self) -> bool {
        self.line.starts_with("job ") || self.line.starts_with("mutation ")
    }

    /// Skips to the next trace; returns whether a crash ended this one.
    fn skip(&mut self) -> Outcome<bool> {
        let mut crashed = false;
        while !self.line.is_empty() && !self.begins_trace() {
            crashed |= self.line.starts_with("crashed ");
            self.advance()?;
        }
        Ok(crashed)
    }
}

/// Compares the texts of both libraries, and prints the first difference of each trace.
pub(crate) fn compare(transcript: &Path, ours: &Path, jobs: &[String]) -> Outcome<Tally> {
    let input = jobs.join("\n") + "\n";
    let mut theirs = Text::start(transcript, None, input.clone())?;
    let mut ours = Text::start(transcript, Some(ours), input)?;
    let mut tally = Tally::default();
    let (mut job, mut mutation) = (String::new(), String::new());
    let mut before: VecDeque<String> = VecDeque::new();
    theirs.advance()?;
    ours.advance()?;
    while !theirs.line.is_empty() || !ours.line.is_empty() {
        if theirs.line == ours.line {
            if theirs.begins_trace() {
                let line = if theirs.line.starts_with("job ") { &mut job } else { &mut mutation };
                line.clone_from(&theirs.line);
                before.clear();
                tally.traces += 1;
            }
            tally.lines += 1;
            before.push_back(theirs.line.clone());
            if before.len() > CONTEXT {
                before.pop_front();
            }
            theirs.advance()?;
            ours.advance()?;
            continue;
        }
        let (left, right) = (theirs.line.clone(), ours.line.clone());
        ours.skip()?;
        if theirs.skip()? {
            tally.crashed += 1;
            continue;
        }
        tally.different += 1;
        if tally.different <= SHOWN {
            let context: String = before.iter().map(|line| format!("    {line}")).collect();
            print!("DIFFERS {job}  {mutation}{context}  - {left}  + {right}");
        }
    }
    for (text, name) in [(&mut theirs, "Intel's"), (&mut ours, "our")] {
        let status = text.child.wait()?;
        if !status.success() {
            return Err(format!("with {name} library the transcript ends with {status}").into());
        }
    }
    Ok(tally)
}

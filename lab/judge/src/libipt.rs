//! libipt as a judge: runs `lab/judges/libipt.c` on each thread and compares with our instructions.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use serde_json::Value;

use super::{
    maps::{Image, Images},
    perf,
    streams::Instruction,
};
use crate::{Outcome, command};

/// Compiles the harness; returns its path.
pub(super) fn compile(folder: &Path) -> Outcome<PathBuf> {
    let program = folder.join("libipt");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    command::quietly(gcc.arg(command::root().join("lab/judges/libipt.c")).arg("-lipt"))?;
    Ok(program)
}

/// libipt's result for a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Opinion {
    /// Instructions that it decoded as well.
    pub(super) same: u64,
    /// Return instructions at which libipt is known to fail.
    pub(super) stale: u64,
    /// Instructions after them, up to the next PSB.
    pub(super) left: u64,
    /// Instructions of threads that it can't judge: their code changes, or the recording itself contains code.
    pub(super) changing: u64,
    /// Differences.
    pub(super) complaints: Vec<String>,
}

impl Opinion {
    /// Adds its counts for another recording; complaints are printed with their recording.
    pub(super) fn merge(&mut self, other: &Opinion) {
        self.same += other.same;
        self.stale += other.stale;
        self.left += other.left;
        self.changing += other.changing;
    }
}

/// The streams of a recording, each with its code, for the harness.
pub(super) struct Judge<'r> {
    program: &'r Path,
    /// The harness's arguments by thread; `None` if libipt can't judge it.
    arguments: BTreeMap<u32, Option<Vec<String>>>,
    /// The thread of the present instructions.
    tid: Option<u32>,
    /// The harness process for that thread.
    running: Option<(Child, BufWriter<ChildStdin>)>,
    opinion: Opinion,
}

impl<'r> Judge<'r> {
    /// Looks up the streams and the code of a recording.
    pub(super) fn new(program: &'r Path, recording: &'r Path) -> Outcome<Judge<'r>> {
        let arguments = harness_arguments(recording)?;
        Ok(Judge { program, arguments, tid: None, running: None, opinion: Opinion::default() })
    }

    /// Passes the next instruction. Instructions come thread by thread.
    pub(super) fn take(&mut self, &Instruction { tid, address, time }: &Instruction) -> Outcome {
        if self.tid != Some(tid) {
            self.end_thread()?;
            self.tid = Some(tid);
            self.running = self.start(tid)?;
        }
        match &mut self.running {
            None => self.opinion.changing += 1,
            Some((_, expected)) => {
                expected.write_all(&address.to_ne_bytes())?;
                expected.write_all(&time.to_ne_bytes())?;
            }
        }
        Ok(())
    }

    fn start(&self, tid: u32) -> Outcome<Option<(Child, BufWriter<ChildStdin>)>> {
        let Some(arguments) = self.arguments.get(&tid).ok_or("instructions of a thread without trace")?
        else {
            return Ok(None);
        };
        let mut command = Command::new(self.program);
        command.arg("--expect").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let expected = child.stdin.take().ok_or("the harness takes no input")?;
        Ok(Some((child, BufWriter::with_capacity(1 << 16, expected))))
    }

    /// Reads the harness's result.
    fn end_thread(&mut self) -> Outcome {
        let (Some(tid), Some((child, expected))) = (self.tid, self.running.take()) else { return Ok(()) };
        drop(expected.into_inner().map_err(|error| error.into_error())?);
        let output = child.wait_with_output()?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            match line.split_once(' ') {
                Some(("same", count)) => self.opinion.same += count.parse::<u64>()?,
                Some(("stale", count)) => self.opinion.stale += count.parse::<u64>()?,
                Some(("left", count)) => self.opinion.left += count.parse::<u64>()?,
                _ => self.opinion.complaints.push(format!("  thread {tid}, libipt: {line}")),
            }
        }
        Ok(())
    }

    /// Ends the last thread.
    pub(super) fn end(mut self) -> Outcome<Opinion> {
        self.end_thread()?;
        Ok(self.opinion)
    }
}

/// The harness's arguments for a recording, by thread: code and trace. `None` if libipt can't judge it: its code
/// changes, or the recording itself contains code.
pub fn harness_arguments(recording: &Path) -> Outcome<BTreeMap<u32, Option<Vec<String>>>> {
    let mut hodo = Command::new(command::hodo());
    let info = command::capture(hodo.args(["info", "--format", "json"]).arg(recording))?;
    let info: Value = serde_json::from_str(&info)?;
    let images = Images::read(&perf::sideband(recording)?);
    let kept = info["kept_code"]["ranges"].as_u64().unwrap_or(0) > 0;
    let file = File::open(recording)?;
    let mut arguments = BTreeMap::new();
    for stream in info["streams"].as_array().ok_or("`hodo info` shows no streams")? {
        let number = |name: &str| u32::try_from(stream[name].as_u64()?).ok();
        let (pid, tid) = number("pid").zip(number("tid")).ok_or("a stream that is not a thread's")?;
        let ranges: Vec<(u64, u64)> = serde_json::from_value(stream["ranges"].clone())?;
        let pieces: Vec<Piece> =
            ranges.into_iter().map(|(offset, length)| Piece { offset, length }).collect();
        // Code that the recording itself contains is in no file that libipt could read.
        let of_stream = match kept {
            true => None,
            false => stream_arguments(recording, &file, &pieces, |time| images.at(pid, time))?,
        };
        arguments.insert(tid, of_stream);
    }
    Ok(arguments)
}

/// Trace of a stream in the file.
struct Piece {
    offset: u64,
    length: u64,
}

/// The harness's arguments for a stream: its pieces, each with the code of its process at its begin. A program begins
/// in a new piece. `None` if the code changes within one: libipt knows no time.
fn stream_arguments<'i>(
    recording: &Path,
    file: &File,
    pieces: &[Piece],
    image: impl Fn(u64) -> Option<&'i Image>,
) -> Outcome<Option<Vec<String>>> {
    let mut arguments = Vec::new();
    let mut rest = pieces;
    while let Some(&Piece { offset, length }) = rest.first() {
        let Some(time) = begin(file, offset)? else {
            return Err("a stream that does not begin with PSB".into());
        };
        let mut joint = 1;
        while let Some(next) = rest.get(joint)
            && begin(file, next.offset)?.is_none()
        {
            joint += 1;
        }
        let image = image(time).ok_or("trace of a process without code")?;
        if image.changes() {
            return Ok(None);
        }
        for map in image.maps.iter().filter(|map| map.path.starts_with('/') && !map.path.starts_with("//")) {
            arguments.push("--raw".to_owned());
            arguments.push(format!("{}:{}:{}@{}", map.path, map.offset, map.length, map.begin));
        }
        arguments.push(match joint {
            1 => format!("{}:{offset}:{length}", recording.display()),
            _ => joined(recording, file, &rest[..joint])?.display().to_string(),
        });
        rest = &rest[joint..];
    }
    Ok(Some(arguments))
}

/// Writes pieces that continue each other into one file, as libipt decodes each piece separately.
fn joined(recording: &Path, file: &File, pieces: &[Piece]) -> Outcome<PathBuf> {
    let path = recording.with_extension(format!("{}.pt", pieces[0].offset));
    let mut whole = File::create(&path)?;
    for &Piece { offset, length } in pieces {
        let mut file = file;
        file.seek(SeekFrom::Start(offset))?;
        io::copy(&mut file.take(length), &mut whole)?;
    }
    Ok(path)
}

/// The time at which a piece of trace begins, from its PSB and TSC (SDM, "PSB", "TSC"). The emulated processor's
/// counter ticks once per nanosecond. Without timestamps it is unknown: then the maximum, at which the process has all
/// of its code. `None` if the piece continues the one before.
fn begin(file: &File, offset: u64) -> Outcome<Option<u64>> {
    let mut bytes = [0; 24];
    file.read_at(&mut bytes, offset)?;
    Ok(match bytes {
        [0x02, 0x82, .., 0x19, a, b, c, d, e, f, g] => Some(u64::from_le_bytes([a, b, c, d, e, f, g, 0])),
        [0x02, 0x82, 0x02, 0x82, ..] => Some(u64::MAX),
        _ => None,
    })
}

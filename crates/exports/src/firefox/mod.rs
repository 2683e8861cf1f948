//! Firefox Profiler's processed profile: JSON with a sample for each time between two changes of a thread's call stack,
//! weighted by that time, so that sums are exact.
//!
//! Samples wait in a temporary file for each thread, because the format has them in columns. Calls that take no time have
//! no sample. Losses are markers of a thread named `lost`. Source: `docs-developer/processed-profile-format.md` and
//! `src/types/profile.ts` of Firefox Profiler; version 54 of the format, which later readers convert.

use std::{
    collections::HashMap,
    io::{self, BufReader, BufWriter, Read, Seek, Write},
};

use hodo_model::Loss;
use serde_json::{Value, json};
use tempfile::SpooledTempFile;

use crate::{Content, Export, Output, Timeline, Track, loss_line};

pub(crate) const EXPORT: Export = Export {
    name: "firefox",
    help: "calls in order of time for Firefox Profiler (JSON)",
    content: Content::Calls(begin),
};

/// Bytes of a thread's samples that stay in memory.
const IN_MEMORY: usize = 1 << 16;
/// Nanoseconds in the format's unit of time.
const MILLISECOND: u64 = 1_000_000;
/// The number of the name of slices in gaps, and the category of that function.
const LOST: u32 = 0;
const LOST_CATEGORY: u32 = 1;

/// A sample: the number of its stack, its begin and its length in nanoseconds.
#[derive(Clone, Copy)]
struct Sample {
    stack: u32,
    time: u64,
    weight: u64,
}

impl Sample {
    const BYTES: usize = 20;

    fn to_bytes(self) -> [u8; Sample::BYTES] {
        let mut bytes = [0; Sample::BYTES];
        bytes[..4].copy_from_slice(&self.stack.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.time.to_le_bytes());
        bytes[12..].copy_from_slice(&self.weight.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; Sample::BYTES]) -> Sample {
        let number =
            |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"));
        let stack = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        Sample { stack, time: number(4), weight: number(12) }
    }
}

/// A call stack: the number of the caller's stack, and of the innermost function.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Stack {
    caller: Option<u32>,
    function: u32,
}

/// A thread: its samples, and the stacks and functions that they refer to by number.
struct Thread {
    track: Track,
    samples: BufWriter<SpooledTempFile>,
    count: u64,
    /// The number of each function's name.
    functions: Vec<u32>,
    function_of_name: HashMap<u32, u32>,
    stacks: Vec<Stack>,
    number_of_stack: HashMap<Stack, u32>,
    /// The stack of each open call.
    open: Vec<u32>,
    /// The time of the last change.
    since: u64,
}

impl Thread {
    fn new(track: Track) -> Thread {
        Thread {
            track,
            samples: BufWriter::new(SpooledTempFile::new(IN_MEMORY)),
            count: 0,
            functions: Vec::new(),
            function_of_name: HashMap::new(),
            stacks: Vec::new(),
            number_of_stack: HashMap::new(),
            open: Vec::new(),
            since: 0,
        }
    }

    /// Writes the sample of the present stack, which ends at this time.
    fn end_stack(&mut self, time: u64) -> io::Result<()> {
        let begin = std::mem::replace(&mut self.since, time);
        let weight = time.saturating_sub(begin);
        match self.open.last() {
            Some(&stack) if weight > 0 => {
                self.count += 1;
                self.samples.write_all(&Sample { stack, time: begin, weight }.to_bytes())
            }
            _ => Ok(()),
        }
    }

    fn call(&mut self, name: u32) {
        let next = self.functions.len() as u32;
        let function = *self.function_of_name.entry(name).or_insert(next);
        if function == next {
            self.functions.push(name);
        }
        let stack = Stack { caller: self.open.last().copied(), function };
        let next = self.stacks.len() as u32;
        let number = *self.number_of_stack.entry(stack).or_insert(next);
        if number == next {
            self.stacks.push(stack);
        }
        self.open.push(number);
    }
}

struct Firefox<'o> {
    out: Output<'o>,
    names: Vec<String>,
    threads: Vec<Thread>,
    /// The first time.
    origin: Option<u64>,
}

fn begin<'o>(out: Output<'o>) -> io::Result<Box<dyn Timeline + 'o>> {
    Ok(Box::new(Firefox { out, names: Vec::new(), threads: Vec::new(), origin: None }))
}

impl Timeline for Firefox<'_> {
    fn begin_track(&mut self, track: &Track) -> io::Result<()> {
        self.threads.push(Thread::new(track.clone()));
        Ok(())
    }

    fn name(&mut self, name: &str) -> io::Result<()> {
        self.names.push(name.to_owned());
        Ok(())
    }

    fn begin(&mut self, track: u32, time: u64, name: u32) -> io::Result<()> {
        self.origin = Some(self.origin.map_or(time, |origin| origin.min(time)));
        let thread = &mut self.threads[track as usize];
        thread.end_stack(time)?;
        thread.call(name);
        Ok(())
    }

    fn end(&mut self, track: u32, time: u64) -> io::Result<()> {
        let thread = &mut self.threads[track as usize];
        thread.end_stack(time)?;
        thread.open.pop();
        Ok(())
    }

    fn finish(self: Box<Self>, losses: &[Loss]) -> io::Result<()> {
        let Firefox { out, names, threads, origin } = *self;
        // Times are floating-point numbers of milliseconds: small ones are exact to the nanosecond.
        let origin = origin.unwrap_or(0) / MILLISECOND * MILLISECOND;
        write!(out, r#"{{"meta":{},"libs":[],"pages":[],"counters":[],"threads":["#, meta(origin))?;
        let mut separator = "";
        for thread in threads {
            out.write_all(separator.as_bytes())?;
            let no_losses = &[];
            write_thread(thread, &names, no_losses, origin, out)?;
            separator = ",\n";
        }
        if !losses.is_empty() {
            out.write_all(separator.as_bytes())?;
            write_thread(Thread::new(Track::Named("lost".to_owned())), &names, losses, origin, out)?;
        }
        out.write_all(b"]}\n")?;
        out.flush()
    }
}

fn meta(origin: u64) -> Value {
    let category =
        |name: &str, color: &str| json!({ "name": name, "color": color, "subcategories": ["Other"] });
    let text = json!({ "key": "name", "label": "Details", "format": "string" });
    json!({
        "preprocessedProfileVersion": 54,
        "version": 24,
        "product": "hodo",
        "interval": 1,
        "startTime": origin / MILLISECOND,
        "processType": 0,
        "stackwalk": 1,
        "debug": false,
        "symbolicated": true,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "categories": [category("Other", "grey"), category("Lost", "red")],
        "extensions": { "length": 0, "id": [], "name": [], "baseURL": [] },
        "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" },
        "markerSchema": [{
            "name": "Text",
            "tableLabel": "{marker.name}: {marker.data.name}",
            "display": ["marker-chart", "marker-table", "timeline-overview"],
            "data": [text],
            "fields": [text],
        }],
    })
}

/// Formats nanoseconds as milliseconds.
fn milliseconds(nanoseconds: u64) -> String {
    format!("{}.{:06}", nanoseconds / MILLISECOND, nanoseconds % MILLISECOND)
}

fn write_thread(
    thread: Thread,
    names: &[String],
    losses: &[Loss],
    origin: u64,
    out: Output<'_>,
) -> io::Result<()> {
    let (pid, tid) = match thread.track {
        Track::Thread { pid, tid, .. } => (pid, tid),
        Track::Named(_) => (0, 0),
    };
    let functions = thread.functions.len();
    let mut strings: Vec<&str> = thread.functions.iter().map(|&name| names[name as usize].as_str()).collect();
    let marker_name = strings.len();
    strings.push("lost");
    let category = |&name: &u32| if name == LOST { LOST_CATEGORY } else { 0 };
    let category: Vec<u32> = thread.functions.iter().map(category).collect();
    let numbers: Vec<usize> = (0..functions).collect();
    let prefixes: Vec<Option<u32>> = thread.stacks.iter().map(|stack| stack.caller).collect();
    let frames: Vec<u32> = thread.stacks.iter().map(|stack| stack.function).collect();
    let stack_category: Vec<u32> = frames.iter().map(|&frame| category[frame as usize]).collect();
    let (none, zero) = (vec![Value::Null; functions], vec![0; functions]);
    let (no, minus) = (vec![false; functions], vec![-1; functions]);
    let begin = |loss: &Loss| loss.time.map_or(0, |(begin, _)| begin.0.saturating_sub(origin)) as f64;
    let start: Vec<f64> = losses.iter().map(|loss| begin(loss) / MILLISECOND as f64).collect();
    let data: Vec<Value> =
        losses.iter().map(|loss| json!({ "type": "Text", "name": loss_line(loss) })).collect();
    let count = losses.len();
    let head = json!({
        "name": thread.track.title(),
        "processName": thread.track.title(),
        "processType": "default",
        "isMainThread": pid == tid,
        "pid": pid.to_string(),
        "tid": tid,
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": 0,
        "unregisterTime": null,
        "pausedRanges": [],
        "stringArray": strings,
        "frameTable": {
            "length": functions, "func": numbers, "address": minus, "inlineDepth": zero, "category": category,
            "subcategory": zero, "nativeSymbol": none, "innerWindowID": none, "line": none, "column": none,
        },
        "funcTable": {
            "length": functions, "name": numbers, "isJS": no, "relevantForJS": no, "resource": minus,
            "fileName": none, "lineNumber": none, "columnNumber": none,
        },
        "resourceTable": { "length": 0, "lib": [], "name": [], "host": [], "type": [] },
        "nativeSymbols": { "length": 0, "libIndex": [], "address": [], "name": [], "functionSize": [] },
        "stackTable": {
            "length": frames.len(), "prefix": prefixes, "frame": frames, "category": stack_category,
            "subcategory": vec![0; frames.len()],
        },
        "markers": {
            "length": count, "name": vec![marker_name; count], "startTime": start,
            "endTime": vec![Value::Null; count], "phase": vec![0; count], "category": vec![LOST_CATEGORY; count],
            "data": data,
        },
    });
    write_samples(&head.to_string(), thread.samples, thread.count, origin, out)
}

/// Writes a thread whose other members are `head`, with its samples.
fn write_samples(
    head: &str,
    samples: BufWriter<SpooledTempFile>,
    count: u64,
    origin: u64,
    out: Output<'_>,
) -> io::Result<()> {
    write!(out, r#"{},"samples":{{"length":{},"weightType":"tracing-ms""#, &head[..head.len() - 1], count)?;
    let mut samples = samples.into_inner().map_err(io::IntoInnerError::into_error)?;
    let mut column = |name: &str, cell: &dyn Fn(Sample) -> String| -> io::Result<()> {
        write!(out, r#","{name}":["#)?;
        samples.rewind()?;
        let mut reader = BufReader::new(&mut samples);
        let mut bytes = [0; Sample::BYTES];
        for index in 0..count {
            reader.read_exact(&mut bytes)?;
            let separator = if index == 0 { "" } else { "," };
            write!(out, "{separator}{}", cell(Sample::from_bytes(&bytes)))?;
        }
        out.write_all(b"]")
    };
    column("stack", &|sample| sample.stack.to_string())?;
    column("time", &|sample| milliseconds(sample.time.saturating_sub(origin)))?;
    column("weight", &|sample| milliseconds(sample.weight))?;
    out.write_all(b"}}")
}

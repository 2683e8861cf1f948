//! Measures how fast this decoder reads a recording: packets, the profile of functions, calls (passed to this program,
//! or written as lines of JSON), or instructions.
//!
//! ```text
//! hodo-speed packets|functions|calls|lines|instructions|digests RECORDING [--without-memo | --threads N]
//! ```
//!
//! `digests` reads it once, and prints for each stream the number of its instructions and the digest of their addresses
//! (`CpuTruth::digest` of `hodo-formats`), to compare with the count of an emulated machine.
//!
//! Reads all trace twice in one process, by default on one thread, and prints one line of JSON like the harnesses of
//! other decoders (`lab/peers`): `bytes`, `cold_ns` (first pass, with empty caches), `hot_ns` (second pass), `items` of
//! both (for functions: a digest of the table), in CPU time of the first thread.

use std::{
    env,
    error::Error,
    fmt::Debug,
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
};

use hodo_analyses::{calls::Moment, profile::Functions};
use hodo_code::{Graph, Labels};
use hodo_engine::{
    CHUNKS_IN_ORDER, CallSink, Chunks, Files, Input, Options, Reading, StreamSink, Trace, decode_all, profile,
};
use hodo_intel_pt::{
    flow::{Event, Executed, Sink, Step},
    packet::{Decoder, IpPayload, Packet},
};
use rustix::time::{ClockId, clock_gettime};

const USAGE: &str = "usage: hodo-speed packets|functions|calls|lines|instructions|digests RECORDING [--without-memo | --threads N]";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [what, recording, options @ ..] = arguments.as_slice() else { return Err(USAGE.into()) };
    let (memo, threads) = match options {
        [] => (true, 1),
        [option] if option == "--without-memo" => (false, 1),
        [option, threads] if option == "--threads" => (true, threads.parse()?),
        _ => return Err(USAGE.into()),
    };
    let what = what.as_str();
    let files = Files::default();
    let input = Input::File(PathBuf::from(recording));
    let mut trace = Trace::open(&files, &input, &Options::default())?;
    let bytes: u64 = trace.streams.iter().map(|stream| stream.bytes()).sum();
    if what == "digests" {
        let chunks = CHUNKS_IN_ORDER;
        digests(&trace, Reading { memo, ..Reading::new(threads, chunks) });
        return Ok(());
    }
    let twice = trace.streams.clone();
    trace.streams.extend(twice);
    let chunks = if what == "functions" { Chunks::Default } else { CHUNKS_IN_ORDER };
    let reading = Reading { memo, ..Reading::new(threads, chunks) };
    let begin = processor_time();
    let mut first_pass_ended = begin;
    let progress = |done| {
        if done <= bytes {
            first_pass_ended = processor_time();
        }
        true
    };
    let mut table = None;
    let count = match what {
        "packets" => packets(&trace, progress),
        "functions" => {
            let analysis = Functions;
            table = Some(profile(&trace, &analysis, reading, progress));
            0
        }
        "calls" => {
            let mut calls = Intervals::default();
            hodo_engine::calls(&trace, reading, &mut calls, progress);
            std::hint::black_box(calls.sum);
            calls.count
        }
        "lines" => {
            let mut count = Count(0);
            let format = hodo_script::Format::JsonLines;
            hodo_script::flow::calls(&trace, format, reading, None, &mut count, progress);
            count.0
        }
        "instructions" => instructions(&trace, reading, progress),
        _ => return Err("expected packets, functions, calls, lines or instructions".into()),
    };
    let (cold, hot) = (first_pass_ended - begin, processor_time() - first_pass_ended);
    let items = table.map_or(count, |table| digest(&table));
    println!("{{\"bytes\":{bytes},\"cold_ns\":{cold},\"hot_ns\":{hot},\"items\":{items},\"errors\":0}}");
    Ok(())
}

/// CPU time of this thread so far, in nanoseconds.
fn processor_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bytes whose packets are read at once: the search for a PSB leaves them in the L2 cache.
const PART: u64 = 1 << 17;

fn packets(trace: &Trace<'_>, mut progress: impl FnMut(u64) -> bool) -> u64 {
    let (mut done, mut count, mut sum, mut errors) = (0, 0, 0u64, 0);
    for stream in &trace.streams {
        for bytes in stream.parts(PART) {
            let take = |packet| {
                count += 1;
                sum = sum.wrapping_add(payload(packet));
            };
            errors += u64::from(Decoder::new(&bytes, 0).for_each(take).is_err());
            done += bytes.len() as u64;
        }
        progress(done);
    }
    assert_eq!(errors, 0, "recordings that are whole are measured");
    std::hint::black_box(sum);
    count
}

/// A value of a packet, so that none is optimised away.
#[inline]
fn payload(packet: Packet) -> u64 {
    match packet {
        Packet::Tnt8(tnt) | Packet::Tnt64(tnt) => tnt.bits + u64::from(tnt.count),
        Packet::Tip(IpPayload::Update16(ip)) => u64::from(ip),
        Packet::Tip(IpPayload::Update32(ip)) => u64::from(ip),
        Packet::Tip(IpPayload::Sext48(ip)) => ip,
        Packet::Cyc(cycles) => cycles,
        Packet::Mtc(payload) => u64::from(payload),
        _ => 1,
    }
}

/// A digest of a table: the same with and without a memo.
fn digest(table: &impl Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{table:?}").hash(&mut hasher);
    hasher.finish() >> 32
}

/// Receives each call when it ends.
#[derive(Default)]
struct Intervals {
    count: u64,
    sum: u64,
}

impl CallSink for Intervals {
    fn begins(&self) -> bool {
        false
    }

    fn thread(&mut self, _: u32) {}

    #[inline]
    fn moment(&mut self, moment: Moment) {
        if let Moment::End { call } = moment {
            let (begin, end) = (call.begin.map_or(0, |time| time.0), call.end.map_or(0, |time| time.0));
            let rest = u64::from(call.function.index) ^ call.depth as u64 ^ call.instructions;
            self.sum = self.sum.rotate_left(1) ^ begin ^ end ^ rest;
            self.count += 1;
        }
    }
}

/// Counts and drops the written bytes.
struct Count(u64);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The factor of a digest.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Prints the number of instructions of each stream, the digest of their addresses, and the number of gaps.
fn digests(trace: &Trace<'_>, reading: Reading<'_>) {
    let mut streams = vec![Digest::default(); trace.streams.len()];
    let consume = |chunk: &hodo_engine::Chunk, of_chunk: Digest| {
        streams[chunk.stream].join(&of_chunk);
        true
    };
    let start = |_: &_, ()| Digest::default();
    decode_all(trace, reading, start, |sink: Digest| (sink, ()), consume, |_| true);
    for (stream, digest) in trace.streams.iter().zip(streams) {
        println!("{}: {} {} gaps {}", stream.name, digest.count, digest.digest, digest.gaps);
    }
}

/// The digest of consecutive instructions.
#[derive(Clone, Copy)]
struct Digest {
    count: u64,
    digest: u64,
    /// The factor for the digest of the instructions before.
    power: u64,
    gaps: u64,
}

impl Default for Digest {
    fn default() -> Digest {
        Digest { count: 0, digest: 0, power: 1, gaps: 0 }
    }
}

impl Digest {
    fn join(&mut self, next: &Digest) {
        self.count += next.count;
        self.digest = self.digest.wrapping_mul(next.power).wrapping_add(next.digest);
        self.power = self.power.wrapping_mul(next.power);
        self.gaps += next.gaps;
    }
}

impl Sink for Digest {
    const TAKES_BLOCKS: bool = true;

    fn executed(&mut self, executed: Executed<'_>) {
        for address in executed.addresses() {
            self.count += 1;
            self.digest = self.digest.wrapping_mul(FACTOR).wrapping_add(address);
            self.power = self.power.wrapping_mul(FACTOR);
        }
    }

    fn event(&mut self, event: Event) {
        self.gaps += u64::from(matches!(event, Event::Gap(_)));
    }
}

impl StreamSink for Digest {
    fn begin_segment(&mut self) {}
}

/// Receives the address of each instruction.
#[derive(Default)]
struct Addresses {
    sum: Sum,
    paths: Paths,
}

/// The addresses of instructions on memoized paths.
#[derive(Default)]
struct Paths {
    addresses: Vec<u64>,
    /// The ends of the paths; each path begins where the one before ends.
    ends: Vec<usize>,
}

/// The number of addresses, and a value of all, so that none is optimised away.
#[derive(Default)]
struct Sum {
    count: u64,
    value: u64,
}

impl Sum {
    #[inline]
    fn add(&mut self, address: u64) {
        self.count += 1;
        self.value = self.value.rotate_left(1) ^ address;
    }
}

impl Sink for Addresses {
    const TAKES_BLOCKS: bool = true;

    fn executed(&mut self, executed: Executed<'_>) {
        executed.addresses().for_each(|address| self.sum.add(address));
    }

    fn event(&mut self, _: Event) {}

    fn takes_paths(&self) -> bool {
        true
    }

    fn state(&mut self) -> Option<u32> {
        Some(0)
    }

    fn learn<L: Labels>(&mut self, state: u32, steps: &[Step], graph: &Graph<'_, L>) -> Option<(u32, u32)> {
        for step in steps {
            let mut address = step.start;
            for &length in graph.lengths(graph.block(step.block)) {
                self.paths.addresses.push(address);
                address = address.wrapping_add(u64::from(length));
            }
        }
        self.paths.ends.push(self.paths.addresses.len());
        Some((self.paths.ends.len() as u32 - 1, state))
    }

    fn path(&mut self, path: u32) {
        let path = path as usize;
        let start = path.checked_sub(1).map_or(0, |before| self.paths.ends[before]);
        for &address in &self.paths.addresses[start..self.paths.ends[path]] {
            self.sum.add(address);
        }
    }

    fn forget(&mut self) {
        self.paths = Paths::default();
    }
}

impl StreamSink for Addresses {
    fn begin_segment(&mut self) {}
}

fn instructions(trace: &Trace<'_>, reading: Reading<'_>, progress: impl FnMut(u64) -> bool + Send) -> u64 {
    let mut count = 0;
    let consume = |_: &_, sum: Sum| {
        std::hint::black_box(sum.value);
        count += sum.count;
        true
    };
    let start = |_: &_, paths| Addresses { paths, ..Addresses::default() };
    decode_all(trace, reading, start, |sink| (sink.sum, sink.paths), consume, progress);
    count
}

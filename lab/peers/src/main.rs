//! Measures how fast other decoders read raw Intel PT, and how fast ours fills a map of edges.
//!
//! ```text
//! peers iptr-packets|iptr-edges|ptcov|hodo-edges|hodo-paths [--code FILE:OFFSET:SIZE@ADDRESS]… TRACE[:OFFSET:SIZE]…
//! ```
//!
//! Reads all traces twice in one process and prints one line of JSON: `bytes`, `cold_ns` (first pass), `hot_ns` (second
//! pass, with the caches of the first), `items` (packets, blocks or edges, if the decoder reports them) and `errors`
//! (traces that it gave up).

use std::{
    convert::Infallible,
    num::NonZero,
    ops::{Deref, Range},
    process::exit,
    time::Duration,
};

use hodo_bytes::Map;
use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_intel_pt::{
    Config, EdgeMap,
    flow::{Decoder, Memos, Switch},
    packet::{PSB, find_psb},
};
use iptr_decoder::{DecodeOptions, DecoderContext, HandlePacket, IpReconstructionPattern, decode};
use iptr_edge_analyzer::{
    EdgeAnalyzer, control_flow_handler::fuzz_bitmap::FuzzBitmapControlFlowHandler, memory_reader::ReadMemory,
};
use ptcov::{PtCoverageDecoderBuilder, PtImage};
use rustix::time::{ClockId, clock_gettime};

/// The size of a coverage map, as in fuzzers.
const COVERAGE: usize = 1 << 16;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let decoder = arguments.next().unwrap_or_default();
    let (mut code, mut traces) = (Vec::new(), Vec::new());
    while let Some(argument) = arguments.next() {
        if argument == "--code" {
            let argument = arguments.next().unwrap_or_else(|| fail("--code", "needs a value"));
            let (source, address) =
                argument.rsplit_once('@').unwrap_or_else(|| fail(&argument, "has no address"));
            code.push(Code { address: number(address), bytes: load(source) });
        } else {
            traces.push(load(&argument));
        }
    }
    code.sort_by_key(|code| code.address);
    match decoder.as_str() {
        "iptr-packets" => iptr_packets(&traces),
        "iptr-edges" => iptr_edges(&traces, code),
        "ptcov" => ptcov(&traces, &code),
        "hodo-edges" => hodo_edges(&traces, &code, |map| EdgeMap::new(map)),
        "hodo-paths" => hodo_edges(&traces, &code, |map| EdgeMap::new(map).with_path()),
        other => fail(other, "expected iptr-packets, iptr-edges, ptcov, hodo-edges or hodo-paths"),
    }
}

fn fail(what: &str, why: &str) -> ! {
    eprintln!("peers: {what}: {why}");
    exit(2)
}

fn number(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| fail(text, "is no number"))
}

/// The bytes of `FILE` or `FILE:OFFSET:SIZE`, mapped.
fn load(source: &str) -> Mapped {
    let mut fields = source.rsplitn(3, ':');
    let (size, offset, file) = match (fields.next(), fields.next(), fields.next()) {
        (Some(size), Some(offset), Some(file)) => (Some(number(size)), number(offset), file),
        _ => (None, 0, source),
    };
    let map = Map::open(file.as_ref()).unwrap_or_else(|error| fail(file, &error.to_string()));
    let span = offset as usize..size.map_or(map.len(), |size| (offset + size) as usize);
    if map.get(span.clone()).is_none() {
        fail(source, "is shorter than that");
    }
    Mapped { map, span }
}

/// Bytes of a file.
struct Mapped {
    map: Map,
    span: Range<usize>,
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[self.span.clone()]
    }
}

struct Code {
    address: u64,
    bytes: Mapped,
}

/// The result of one pass.
#[derive(Default)]
struct Count {
    items: u64,
    errors: u64,
}

/// Runs two passes and prints their CPU time.
fn measure(traces: &[Mapped], mut pass: impl FnMut(&[u8]) -> Count) {
    let bytes: usize = traces.iter().map(|trace| trace.len()).sum();
    let mut times = Vec::new();
    let mut total = Count::default();
    for _ in 0..2 {
        let begin = processor_time();
        total = traces.iter().fold(Count::default(), |sum, trace| {
            let of_trace = pass(trace);
            Count { items: sum.items + of_trace.items, errors: sum.errors + of_trace.errors }
        });
        times.push((processor_time() - begin).as_nanos());
    }
    let Count { items, errors } = total;
    println!(
        "{{\"bytes\":{bytes},\"cold_ns\":{},\"hot_ns\":{},\"items\":{items},\"errors\":{errors}}}",
        times[0], times[1]
    );
}

/// CPU time of this process so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Counts packets and reads every payload, so that none is optimised away.
#[derive(Default)]
struct Packets {
    count: u64,
    sum: u64,
}

macro_rules! count {
    ($($name:ident($($argument:ident: $kind:ty),*) => $value:expr;)*) => {$(
        fn $name(&mut self, _: &DecoderContext, $($argument: $kind),*) -> Result<(), Infallible> {
            self.count += 1;
            self.sum = self.sum.wrapping_add($value);
            Ok(())
        }
    )*};
}

fn payload(ip: IpReconstructionPattern) -> u64 {
    let mut last = 0;
    u64::from(iptr_decoder::utils::reconstruct_ip_and_update_last(&mut last, ip)) ^ last
}

impl HandlePacket for Packets {
    type Error = Infallible;

    fn at_decode_begin(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    count! {
        on_short_tnt_packet(byte: NonZero<u8>, highest: u32) => u64::from(byte.get()) + u64::from(highest);
        on_long_tnt_packet(bytes: NonZero<u64>, highest: u32) => bytes.get() + u64::from(highest);
        on_tip_packet(ip: IpReconstructionPattern) => payload(ip);
        on_tip_pgd_packet(ip: IpReconstructionPattern) => payload(ip);
        on_tip_pge_packet(ip: IpReconstructionPattern) => payload(ip);
        on_fup_packet(ip: IpReconstructionPattern) => payload(ip);
        on_pad_packet() => 1;
        on_cyc_packet(bytes: &[u8]) => u64::from(bytes[0]);
        on_mode_packet(leaf: u8, mode: u8) => u64::from(leaf) + u64::from(mode);
        on_mtc_packet(payload: u8) => u64::from(payload);
    }
}

fn iptr_packets(traces: &[Mapped]) {
    measure(traces, |trace| {
        let mut packets = Packets::default();
        let failed = decode(trace, DecodeOptions::default(), &mut packets).is_err();
        std::hint::black_box(packets.sum);
        Count { items: packets.count, errors: u64::from(failed) }
    });
}

/// Code for iptr.
struct Memory(Vec<Code>);

#[derive(Debug)]
struct Unmapped;

impl std::fmt::Display for Unmapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no code there")
    }
}

impl std::error::Error for Unmapped {}

impl ReadMemory for Memory {
    type Error = Unmapped;

    fn at_decode_begin(&mut self) -> Result<(), Unmapped> {
        Ok(())
    }

    fn read_memory<T>(
        &mut self,
        address: u64,
        size: usize,
        callback: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Unmapped> {
        let after = self.0.partition_point(|code| code.address <= address);
        let code = after.checked_sub(1).map(|index| &self.0[index]).ok_or(Unmapped)?;
        let rest = code.bytes.get((address - code.address) as usize..).ok_or(Unmapped)?;
        Ok(callback(&rest[..size.min(rest.len())]))
    }
}

fn iptr_edges(traces: &[Mapped], code: Vec<Code>) {
    let handler = FuzzBitmapControlFlowHandler::new(vec![0u8; COVERAGE], None);
    let mut analyzer = EdgeAnalyzer::new(handler, Memory(code));
    measure(traces, |trace| {
        let failed = decode(trace, DecodeOptions::default(), &mut analyzer).is_err();
        Count { items: 0, errors: u64::from(failed) }
    });
}

fn ptcov(traces: &[Mapped], code: &[Code]) {
    let images: Vec<PtImage> = code.iter().map(|code| PtImage::new(&code.bytes, code.address)).collect();
    let mut decoder = PtCoverageDecoderBuilder::new().images(&images).build();
    let mut map = vec![0u8; COVERAGE];
    measure(traces, |trace| {
        let failed = decoder.coverage(trace, &mut map).is_err();
        Count { items: 0, errors: u64::from(failed) }
    });
}

/// Our decoder, segment by segment, with one memo.
fn hodo_edges<'m>(traces: &[Mapped], code: &[Code], edges: impl FnOnce(&'m mut [u8]) -> EdgeMap<'m>) {
    let mut space = AddressSpace::new();
    for code in code {
        let content = Content { bytes: &code.bytes, origin: Origin { module: 0, offset: code.address } };
        space.map(code.address..code.address + code.bytes.len() as u64, content, 0);
    }
    let mut programs = [Program::new(&space, &NoLabels)];
    let mut memos = Memos::default();
    let mut edges = edges(Box::leak(vec![0u8; COVERAGE].into_boxed_slice()));
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let config = Config::default();
    measure(traces, |trace| {
        let next = |from: usize| Some(from + find_psb(trace.get(from..)?)?);
        let mut begin = next(0);
        while let Some(start) = begin {
            begin = next(start + PSB.len());
            let decoder = Decoder::new(trace, start..begin.unwrap_or(trace.len()), &config, &schedule);
            decoder.decode_with_memo(&mut programs, &mut memos, &mut edges);
        }
        Count::default()
    });
}

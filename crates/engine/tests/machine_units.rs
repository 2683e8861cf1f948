//! Recordings of machines with Arm's and RISC-V's trace units: each CPU's trace contains kernel and programs, and the records of
//! switches, with the times in the trace, say which thread runs.

use std::{fs::File, io::Cursor, path::Path};

use hodo_clock::{Nanos, PerfClock};
use hodo_code::{Isa, Step, Terminator};
use hodo_engine::{Chunks, Files, Input, Options, Reading, StreamSink, Trace, decode_all};
use hodo_etm::{encoder::Encoder as Etm, frames::frames_of, packet::Context};
use hodo_etrace::{
    Configuration,
    encoder::{Encoder as ETrace, Retired, Taken},
    packet::Options as ETraceOptions,
    transport::{Kind, Unit as Carried},
};
use hodo_flow::{Event, Executed, Sink};
use hodo_formats::{
    perf::{
        layout::{CodeEntry, HodoscopeSection},
        write::{Setup, Source, TraceUnit, Writer},
    },
    recording::{KeptCode, Mapping, RecorderNotes, Sideband, SidebandKind, Thread},
};
use hodo_isa::riscv;

const KERNEL: u64 = 0xffff_8000_0800_0000;
const USER: u64 = 0x1000;
/// Two that run on the first CPU, and two on the second.
const THREADS: [Thread; 4] = [
    Thread { pid: 7, tid: 7 },
    Thread { pid: 8, tid: 8 },
    Thread { pid: 8, tid: 9 },
    Thread { pid: 7, tid: 10 },
];
const CPUS: [u32; 2] = [0, 1];

/// Instructions of an architecture, each of four bytes.
struct Words {
    isa: Isa,
    nop: u32,
    call_system: u32,
    exception_return: u32,
    jump: fn(i64) -> u32,
    call: fn(i64) -> u32,
    ret: u32,
    /// The function of the kernel that implements the system call.
    function: &'static str,
}

const ARM: Words = Words {
    isa: Isa::A64,
    nop: 0xd503_201f,
    call_system: 0xd400_0001,
    exception_return: 0xd69f_03e0,
    jump: |offset| 0x1400_0000 | (offset >> 2) as u32 & 0x3ff_ffff,
    call: |offset| 0x9400_0000 | (offset >> 2) as u32 & 0x3ff_ffff,
    ret: 0xd65f_03c0,
    function: "__arm64_sys_wait",
};

const RISCV: Words = Words {
    isa: Isa::RV64,
    nop: 0x13,
    call_system: 0x73,
    exception_return: 0x1020_0073,
    jump: |offset| jal(0, offset),
    call: |offset| jal(1, offset),
    ret: 0x8067,
    function: "__riscv_sys_wait",
};

fn jal(link: u32, offset: i64) -> u32 {
    let offset = offset as u32;
    0x6f | link << 7
        | (offset >> 20 & 1) << 31
        | (offset >> 1 & 0x3ff) << 21
        | (offset >> 11 & 1) << 20
        | (offset >> 12 & 0xff) << 12
}

/// The kernel's functions: offset and name.
const FUNCTIONS: [(u64, &str); 7] = [
    (0x0, "_text"),
    (0x40, "entry"),
    (0x80, "SYSTEM_CALL"),
    (0xc0, "ret_to_user"),
    (0x100, "__switch_to"),
    (0x140, "cpu_switch_to"),
    (0x200, "_etext"),
];
const CPU_SWITCH_TO: u64 = KERNEL + 0x140;

impl Words {
    /// A system call waits: another thread runs.
    fn kernel(&self) -> Vec<u8> {
        let mut code = vec![self.nop; 0x200 / 4];
        let mut put = |at: u64, words: &[u32]| code[at as usize / 4..][..words.len()].copy_from_slice(words);
        put(0x0, &[(self.jump)(0x40)]);
        put(0x40, &[self.nop, (self.call)(0x80 - 0x44), (self.jump)(0xc0 - 0x48)]);
        put(0x80, &[self.nop, (self.call)(0x100 - 0x84), self.nop, self.ret]);
        put(0xc0, &[self.nop, self.exception_return]);
        put(0x100, &[(self.call)(0x140 - 0x100), self.nop, self.ret]);
        put(0x140, &[self.nop, self.ret]);
        code.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    /// A loop: as many instructions, then a system call.
    fn program(&self, before: usize) -> Vec<u8> {
        let mut code = vec![self.nop; before];
        code.extend([self.call_system, self.nop, (self.jump)(-4 * (before as i64 + 2))]);
        code.into_iter().flat_map(u32::to_le_bytes).collect()
    }
}

/// An instruction that a CPU executed.
struct Instruction<'c> {
    address: u64,
    bytes: &'c [u8],
    step: Step,
}

/// The trace unit of a CPU.
trait Unit {
    fn begin(&mut self, address: u64, thread: Thread, now: u64);
    /// Returns whether the instruction is in the trace.
    fn executed(&mut self, executed: &Instruction<'_>, next: u64, now: u64) -> bool;
    /// The instruction at an address calls the kernel.
    fn system_call(&mut self, address: u64, thread: Thread);
    /// Another thread runs from this address on.
    fn switch(&mut self, address: u64, to: Thread, now: u64);
    fn finish(self) -> Vec<u8>;
}

struct Arm {
    encoder: Etm,
    thread: Thread,
    trace_id: u8,
}

fn level(address: u64) -> u8 {
    (address >> 63) as u8
}

impl Arm {
    fn context(&self, address: u64) -> Context {
        let level = level(address);
        let context_id = Some(self.thread.tid);
        Context { level, is_64: true, is_non_secure: true, context_id, ..Context::default() }
    }
}

impl Unit for Arm {
    fn begin(&mut self, address: u64, thread: Thread, now: u64) {
        self.thread = thread;
        self.encoder.pass_time(now);
        self.encoder.begin(address, self.context(address));
    }

    fn executed(
        &mut self,
        &Instruction { address, step, .. }: &Instruction<'_>,
        next: u64,
        now: u64,
    ) -> bool {
        self.encoder.pass_time(now);
        self.encoder.executed(address, &step, next);
        if level(address) != level(next) && step.terminator == Terminator::Far {
            self.encoder.context(self.context(next), next);
        }
        true
    }

    fn system_call(&mut self, address: u64, thread: Thread) {
        self.thread = thread;
        self.encoder.exception(2, address + 4);
        self.encoder.handler(KERNEL, self.context(KERNEL));
    }

    fn switch(&mut self, address: u64, to: Thread, now: u64) {
        self.thread = to;
        self.encoder.timestamp(now);
        self.encoder.context(self.context(address), address);
    }

    fn finish(self) -> Vec<u8> {
        frames_of(self.trace_id, &self.encoder.finish())
    }
}

/// An Arm unit whose contexts do not change at a switch, as those of a kernel without IDs in them.
struct ArmByTime(Arm);

impl Unit for ArmByTime {
    fn begin(&mut self, address: u64, thread: Thread, now: u64) {
        self.0.begin(address, thread, now);
    }

    fn executed(&mut self, executed: &Instruction<'_>, next: u64, now: u64) -> bool {
        self.0.executed(executed, next, now)
    }

    fn system_call(&mut self, address: u64, thread: Thread) {
        self.0.system_call(address, thread);
    }

    fn switch(&mut self, _address: u64, _to: Thread, now: u64) {
        self.0.encoder.timestamp(now);
    }

    fn finish(self) -> Vec<u8> {
        self.0.finish()
    }
}

const SETTINGS: &str = "carrier_time = true\n[transport]\nkind = \"encapsulation\"\ntime_bytes = 6\n\
                        [parameters]\ntime_width = 48\n";

struct Hart {
    configuration: Configuration,
    encoder: ETrace,
    stream: Vec<u8>,
    /// The time of the packets that follow.
    now: u64,
}

impl Hart {
    fn write(&mut self) {
        for packet in self.encoder.take() {
            let payload = packet.encode(&self.configuration.parameters, self.encoder.options());
            let (time, kind) = (Some(self.now), Kind::Instruction);
            let unit = Carried { at: 0, source: 0, time, kind, payload: &payload, skip: 0 };
            self.configuration.transport.write(&unit, &mut self.stream);
        }
    }
}

impl Unit for Hart {
    fn begin(&mut self, _address: u64, _thread: Thread, now: u64) {
        self.now = now;
        self.encoder.set_time(now);
    }

    fn executed(&mut self, executed: &Instruction<'_>, _next: u64, now: u64) -> bool {
        if executed.step.terminator == Terminator::Trap {
            return false;
        }
        let address = executed.address;
        let instruction = riscv::decode(executed.bytes, address, riscv::Set::RV64GC).unwrap();
        let privilege = level(address);
        self.encoder.retire(&Retired { address, instruction, privilege, notify: false });
        // They are about the instruction before.
        self.write();
        self.now = now;
        self.encoder.set_time(now);
        true
    }

    fn system_call(&mut self, address: u64, _thread: Thread) {
        self.encoder.trap(&Taken { cause: 8, is_interrupt: false, value: 0, address });
        self.write();
    }

    fn switch(&mut self, _address: u64, _to: Thread, _now: u64) {
        self.encoder.synchronize_next();
    }

    fn finish(mut self) -> Vec<u8> {
        self.encoder.end(None);
        self.write();
        self.stream
    }
}

/// What a CPU ran.
struct Ran<U> {
    unit: U,
    /// Each instruction in the trace, and its thread's ID.
    account: Vec<(u32, u64)>,
    /// Times of switches, and the threads before and after.
    switches: Vec<(u64, Thread, Thread)>,
}

/// Runs the threads on a CPU, one after another. A tick passes with each instruction.
fn run<U: Unit>(words: &Words, programs: [&[u8]; 2], unit: U, threads: &[usize; 2], rounds: usize) -> Ran<U> {
    let kernel = words.kernel();
    let mut ran = Ran { unit, account: Vec::new(), switches: Vec::new() };
    // Of each thread: where it goes on, where the kernel returns to, and its calls in the kernel. All but the first wait.
    let program = |thread: usize| programs[usize::from(THREADS[thread].pid == 8)];
    let waiting = |thread: usize| {
        let back = USER + program(thread).len() as u64 - 8;
        (KERNEL + 0x104, back, vec![KERNEL + 0x48, KERNEL + 0x88])
    };
    let mut states: Vec<(u64, u64, Vec<u64>)> = (0..THREADS.len()).map(waiting).collect();
    let (mut order, mut now) = (threads.iter().cycle(), 1000);
    let mut current = *order.next().unwrap();
    states[current] = (USER, 0, Vec::new());
    ran.unit.begin(USER, THREADS[current], now);
    for _ in 0..rounds {
        let ip = states[current].0;
        let (code, base) = if ip >= KERNEL { (&kernel[..], KERNEL) } else { (program(current), USER) };
        let bytes = &code[(ip - base) as usize..];
        let step = words.isa.instruction(bytes, ip).unwrap().step();
        let (_, user, calls) = &mut states[current];
        let next = match step.terminator {
            Terminator::Call => {
                calls.push(ip + 4);
                step.target
            }
            Terminator::Jump => step.target,
            Terminator::Return => calls.pop().unwrap(),
            Terminator::Far => *user,
            Terminator::Trap => {
                *user = ip + 4;
                KERNEL
            }
            _ => ip + 4,
        };
        states[current].0 = next;
        let (before, switches) =
            (THREADS[current], ip >= CPU_SWITCH_TO && step.terminator == Terminator::Return);
        let mut to = next;
        if switches {
            current = *order.next().unwrap();
            to = states[current].0;
        }
        if ran.unit.executed(&Instruction { address: ip, bytes, step }, to, now) {
            ran.account.push((before.tid, ip));
        }
        now += 1;
        if step.terminator == Terminator::Trap {
            ran.unit.system_call(ip, before);
        }
        if switches {
            ran.unit.switch(to, THREADS[current], now);
            ran.switches.push((now, before, THREADS[current]));
        }
    }
    ran
}

/// Writes a recording of what the CPUs ran.
fn write(file: &Path, unit: TraceUnit<'_>, words: &Words, programs: [&[u8]; 2], cpus: Vec<Ran<impl Unit>>) {
    let setup = Setup {
        unit,
        config: 0,
        clock: PerfClock::NANOSECONDS,
        tsc_ctc_ratio: (1, 1),
        max_nonturbo_ratio: 1,
        snapshot: false,
        filter: "",
        event: "trace//",
        command: &[],
        version: "test",
        host: "",
    };
    let sources = CPUS.map(Source::Cpu).to_vec();
    let mut writer = Writer::new(File::create(file).unwrap(), setup, sources).unwrap();
    let kernel = words.kernel();
    let map = Mapping {
        address: KERNEL,
        length: kernel.len() as u64,
        file_offset: KERNEL,
        name: b"[kernel.kallsyms]_text",
        build_id: &[],
        kernel: true,
    };
    let of_kernel = Thread { pid: KeptCode::KERNEL, tid: 0 };
    let mut records = vec![(500, None, of_kernel, SidebandKind::Map(map))];
    for (cpu, ran) in CPUS.iter().zip(&cpus) {
        for &(time, from, to) in &ran.switches {
            records.push((
                time,
                Some(*cpu),
                from,
                SidebandKind::SwitchOut { preempted: false, next: Some(to) },
            ));
            records.push((time, Some(*cpu), to, SidebandKind::SwitchIn));
        }
    }
    records.sort_by_key(|record| record.0);
    for (time, cpu, thread, kind) in records {
        writer.sideband(&Sideband { time: Some(Nanos(time)), cpu, thread, guest: None, kind }).unwrap();
    }
    for (index, ran) in cpus.into_iter().enumerate() {
        let trace = ran.unit.finish();
        writer.trace(index, Nanos(9000), trace.len() as u64, &trace[..]).unwrap();
    }
    let code = [(KeptCode::KERNEL, KERNEL, &kernel[..]), (7, USER, programs[0]), (8, USER, programs[1])];
    let entry = |&(pid, address, bytes): &(u32, u64, &[u8])| CodeEntry {
        pid,
        guest: None,
        time_ns: 500,
        found_ns: None,
        address,
        length: bytes.len() as u64,
    };
    let symbol = |(at, name): &(u64, &str)| {
        format!("{:016x} T {}\n", KERNEL + at, name.replace("SYSTEM_CALL", words.function))
    };
    let kallsyms: String = FUNCTIONS.iter().map(symbol).collect();
    let section = HodoscopeSection {
        notes: RecorderNotes { engine: "test".into(), frequency: 1_000_000_000, ..RecorderNotes::default() },
        code: code.iter().map(entry).collect(),
        kallsyms: kallsyms.len() as u64,
    };
    let bytes = code.map(|(_, _, bytes)| bytes).concat();
    writer.finish(&section, Cursor::new([&bytes[..], kallsyms.as_bytes()].concat())).unwrap();
}

/// The instructions of a stream with their threads, as contexts.
#[derive(Default)]
struct Lines {
    lines: Vec<(u32, u64)>,
    context: u32,
    first: u32,
    gaps: Vec<String>,
}

impl Sink for Lines {
    fn executed(&mut self, executed: Executed<'_>) {
        self.lines.extend(executed.addresses().map(|address| (self.context, address)));
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Switch(context) => self.context = context,
            Event::Gap(gap) => self.gaps.push(format!("{gap:x?}")),
            _ => {}
        }
    }
}

impl StreamSink for Lines {
    fn begin_segment(&mut self) {
        self.context = self.first;
    }
}

/// Checks that each stream shows what its CPU ran, however it is cut.
fn check(file: &Path, accounts: &[Vec<(u32, u64)>]) {
    let files = Files::default();
    let input = Input::File(file.to_owned());
    let trace = Trace::open(&files, &input, &Options::default()).unwrap();
    let names: Vec<_> = trace.streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, ["cpu 0", "cpu 1"]);
    for bytes in [u64::MAX, 1] {
        let reading = Reading { memo: false, ..Reading::new(2, Chunks::Bytes(bytes)) };
        let mut shown = vec![Vec::new(); accounts.len()];
        let start = |chunk: &hodo_engine::Chunk, ()| {
            let first = trace.streams[chunk.stream].schedule[0].context;
            Lines { first, ..Lines::default() }
        };
        let consume = |chunk: &hodo_engine::Chunk, more: Lines| {
            assert_eq!(more.gaps, [""; 0]);
            let tid = |context: u32| trace.threads[context as usize].tid;
            shown[chunk.stream].extend(more.lines.into_iter().map(|(context, at)| (tid(context), at)));
            true
        };
        decode_all(&trace, reading, start, |sink: Lines| (sink, ()), consume, |_| true);
        for (shown, account) in shown.iter().zip(accounts) {
            let differs = shown.iter().zip(account).position(|(one, other)| one != other);
            assert_eq!(differs, None, "{:x?}", differs.map(|at| (shown[at], account[at])));
            // What follows the last branch is not in the trace.
            assert!(shown.len() <= account.len() && shown.len() + 20 > account.len());
        }
    }
}

const ROUNDS: usize = 20_000;

/// The programs of both processes.
fn programs(words: &Words) -> [Vec<u8>; 2] {
    [words.program(2), words.program(5)]
}

fn arm(cpu: usize, context_ids: bool) -> (TraceUnit<'static>, Arm) {
    let settings = hodo_etm::encoder::Settings {
        return_stack: true,
        context_ids,
        synchronization: 500,
        ..hodo_etm::encoder::Settings::default()
    };
    let unit = TraceUnit::CoreSight(settings.registers());
    let trace_id = unit.trace_id(CPUS[cpu]).unwrap();
    (unit, Arm { encoder: Etm::new(settings), thread: THREADS[0], trace_id })
}

fn holds<U: Unit>(words: &Words, unit: TraceUnit<'_>, make: impl Fn(usize) -> U) {
    let programs = programs(words);
    let programs = programs.each_ref().map(|program| &program[..]);
    let threads = [[0, 1], [2, 3]];
    let ran: Vec<_> = (0..2).map(|cpu| run(words, programs, make(cpu), &threads[cpu], ROUNDS)).collect();
    let accounts: Vec<_> = ran.iter().map(|ran| ran.account.clone()).collect();
    assert!(ran.iter().all(|ran| ran.switches.len() > 100));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    write(&file, unit, words, programs, ran);
    check(&file, &accounts);
}

#[test]
fn arms_threads_change_at_the_times_of_switches() {
    let context_ids = false;
    holds(&ARM, arm(0, context_ids).0, |cpu| ArmByTime(arm(cpu, context_ids).1));
}

#[test]
fn arms_threads_change_with_the_context_ids() {
    let context_ids = true;
    holds(&ARM, arm(0, context_ids).0, |cpu| arm(cpu, context_ids).1);
}

#[test]
fn riscvs_threads_change_at_synchronizations_with_times_of_switches() {
    holds(&RISCV, TraceUnit::RiscV(SETTINGS), |_| {
        let configuration = Configuration::parse(SETTINGS).unwrap();
        let encoder = ETrace::new(&configuration.parameters, ETraceOptions::default(), 50);
        Hart { configuration, encoder, stream: Vec::new(), now: 0 }
    });
}

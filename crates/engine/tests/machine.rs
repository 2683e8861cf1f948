//! A recording of a whole machine: one stream per CPU, kernel code in the recording, and context switches in traced
//! kernel code.

mod setup;

use std::{
    fs::File,
    io::{BufWriter, Cursor, Seek, Write},
};

use hodo_clock::Nanos;
use hodo_engine::{Chunks, Files, Input, Options, Reading, StreamSink, Trace, decode_all};
use hodo_formats::{
    perf::{
        layout::{CodeEntry, HodoscopeSection},
        write::{Source, Writer},
    },
    recording::{KeptCode, Mapping, RecorderNotes, Sideband, SidebandKind, Thread},
};
use hodo_intel_pt::{
    encoder::{Encoder, Settings, Timing},
    flow::{Event, Executed, Sink},
};

use self::setup::setup;

const KERNEL: u64 = 0xffff_ffff_8100_0000;
const USER: u64 = 0x1000;
const FIRST: Thread = Thread { pid: 7, tid: 7 };
const SECOND: Thread = Thread { pid: 8, tid: 8 };

/// Both programs have the same address: a NOP and SYSCALL, and two NOPs and SYSCALL. The kernel is a NOP and SYSRET;
/// later, two NOPs and SYSRET.
const CODE: [Code; 4] = [
    Code { pid: KeptCode::KERNEL, time_ns: 1000, address: KERNEL, bytes: &[0x90, 0x48, 0x0f, 0x07] },
    Code { pid: FIRST.pid, time_ns: 1000, address: USER, bytes: &[0x90, 0x0f, 0x05] },
    Code { pid: SECOND.pid, time_ns: 1000, address: USER, bytes: &[0x90, 0x90, 0x0f, 0x05] },
    Code { pid: KeptCode::KERNEL, time_ns: 5000, address: KERNEL, bytes: &[0x90, 0x90, 0x48, 0x0f, 0x07] },
];

struct Code {
    pid: u32,
    time_ns: u64,
    address: u64,
    bytes: &'static [u8],
}

fn trace() -> Vec<u8> {
    let timing = Timing { tsc: true, mtc_period: None, cyc_threshold: None };
    let mut encoder = Encoder::new(Settings { return_compression: true, timing }, 1000);
    let mut bytes = Vec::new();
    let out = &mut bytes;
    // The address space before tracing begins: no packet of it is written.
    encoder.set_cr3(0x5000, 1000, &mut Vec::new());
    encoder.synchronize(None, 1000, out);
    encoder.enable(USER, 1000, out);
    // SYSCALL of the first program. The kernel switches to the second program and returns to user space.
    encoder.indirect(KERNEL, 1000, out);
    encoder.set_clock(2500, out);
    encoder.set_cr3(0x6000, 2500, out);
    encoder.indirect(USER, 2500, out);
    // SYSCALL of the second program, after the kernel's code changed.
    encoder.set_clock(5500, out);
    encoder.indirect(KERNEL, 5500, out);
    encoder.indirect(USER, 5500, out);
    encoder.interrupt_to(USER + 1, KERNEL, 5500, out);
    encoder.interrupt(KERNEL, 5500, out);
    bytes
}

fn write(out: impl Write + Seek) {
    let map = Mapping {
        address: KERNEL,
        length: 0x1000,
        file_offset: KERNEL,
        name: b"[kernel.kallsyms]_text",
        build_id: &[],
        kernel: true,
    };
    let nobody = Thread { pid: KeptCode::KERNEL, tid: 0 };
    let records = [
        (1000, nobody, SidebandKind::Map(map)),
        (2000, FIRST, SidebandKind::SwitchOut { preempted: false, next: Some(SECOND) }),
        (2001, SECOND, SidebandKind::SwitchIn),
    ];
    let mut writer = Writer::new(out, setup(), vec![Source::Cpu(3)]).unwrap();
    for (time, thread, kind) in records {
        let record = Sideband { time: Some(Nanos(time)), cpu: Some(3), thread, guest: None, kind };
        writer.sideband(&record).unwrap();
    }
    let trace = trace();
    writer.trace(0, Nanos(9000), trace.len() as u64, &trace[..]).unwrap();
    let entry = |&Code { pid, time_ns, address, bytes }: &Code| CodeEntry {
        pid,
        guest: None,
        time_ns,
        found_ns: None,
        address,
        length: bytes.len() as u64,
    };
    let kallsyms = format!("{KERNEL:016x} T _text\n");
    let section = HodoscopeSection {
        notes: RecorderNotes { engine: "test".into(), frequency: 1_000_000_000, ..RecorderNotes::default() },
        code: CODE.iter().map(entry).collect(),
        kallsyms: kallsyms.len() as u64,
    };
    let code = CODE.map(|code| code.bytes).concat();
    writer.finish(&section, Cursor::new([&code[..], kallsyms.as_bytes()].concat())).unwrap();
}

#[derive(Default)]
struct Lines(Vec<String>);

impl Sink for Lines {
    fn executed(&mut self, executed: Executed<'_>) {
        self.0.extend(executed.addresses().map(|address| format!("{address:x}")));
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Switch(context) => self.0.push(format!("switch {context}")),
            Event::Gap(gap) => self.0.push(format!("gap {gap:?}")),
            _ => {}
        }
    }
}

impl StreamSink for Lines {
    fn begin_segment(&mut self) {}
}

#[test]
fn threads_change_while_the_kernel_is_traced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    write(BufWriter::new(File::create(&path).unwrap()));
    let files = Files::default();
    let input = Input::File(path);
    let trace = Trace::open(&files, &input, &Options::default()).unwrap();
    assert_eq!(trace.streams[0].name, "cpu 3");
    let whole = Chunks::Bytes(u64::MAX);
    let reading = Reading { memo: false, ..Reading::new(1, whole) };
    let mut lines = Vec::new();
    let start = |_: &_, ()| Lines::default();
    let consume = |_: &_, more: Vec<String>| {
        lines.extend(more);
        true
    };
    decode_all(&trace, reading, start, |sink: Lines| (sink.0, ()), consume, |_| true);
    let kernel = |offset| format!("{:x}", KERNEL + offset);
    let user = |offset| format!("{:x}", USER + offset);
    let expected = [
        vec![user(0), user(1), "switch 1".to_owned(), kernel(0), kernel(1)],
        vec![user(0), user(1), user(2), kernel(0), kernel(1), kernel(2), user(0)],
    ];
    assert_eq!(lines, expected.concat());
}

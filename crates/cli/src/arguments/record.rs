//! Arguments of `hodo record`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};

use crate::quantities;

/// The source of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Intel PT if this processor has it, else native
    Auto,
    /// This processor's Intel PT, through `perf record`
    Perf,
    /// The program's own processor, without Intel PT: it runs translated, in real time, 2 to 7 times slower
    Native,
    /// An emulated processor: QEMU's user-mode emulation, with virtual time
    Emulate,
    /// A whole emulated machine: the kernel and all processes of a small guest
    Machine,
    /// The kernel's own tracer: events of the whole system while the command runs (needs root)
    Ftrace,
    /// An emulated board: slaves in QEMU and a master, each with its own clock; the argument is the folder to write
    Board,
}

/// The processor of the recorded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Architecture {
    /// The program's own
    Auto,
    /// 64-bit x86
    #[value(name = "x86_64")]
    X86_64,
    /// 64-bit Arm: the trace of an ETMv4
    Aarch64,
    /// 64-bit RISC-V: E-Trace
    Riscv64,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo record -- ./prog arg
  hodo record --pid 1234 --for 10s         record a running process for ten seconds, then let it go on
  hodo record --after 5s --for 10s -- ./server       leave out how it starts
  hodo record --threads 'worker*' -- ./server        threads with these names, wherever they come from
  hodo record -e intel_pt/cyc,psb_period=0/u -o prog.data -- ./prog
  hodo record --filter 'filter main @ ./prog' -- ./prog
  hodo record --snapshot=1M -- ./prog      keep the last megabyte of each thread
  hodo record --engine machine -- ls -l /usr         the kernel and every process of a small machine
  hodo record --engine machine --with ftrace -- ls   the same, and events of its kernel
  hodo record --engine machine --filter 'filter vfs_read' --process=cat -- sh -c 'cat /etc/passwd | wc'
  hodo record --snapshot --trigger 'serve > 5ms' -- ./server     what led to each slow execution of a function
  hodo record --engine machine --snapshot --trigger 'latency(syscall:read) > 200us' -- ./prog
  hodo record --engine ftrace -e sched -e irq -e syscalls -o trace.dat -- ./prog
  hodo record ./arm-program                an ELF file for 64-bit Arm or RISC-V, under QEMU
  hodo record --engine machine ./arm-program         the same, with the kernel of a machine for it
  hodo record --engine board --board slaves=8,time=60s traces/     a board with eight slaves")]
pub struct Record {
    /// Source of the trace
    #[arg(long, value_enum, default_value = "auto")]
    pub engine: Engine,
    /// The processor that the program must be for, or that the machine has. Programs for another one than this machine's are
    /// recorded by --engine emulate, or by --engine machine with their kernel
    #[arg(long, value_enum, default_value = "auto")]
    pub arch: Architecture,
    /// The folder with the libraries of a program for another processor [default: QEMU_LD_PREFIX, or
    /// /usr/aarch64-linux-gnu, /usr/riscv64-linux-gnu]
    #[arg(short = 'L', long, value_name = "FOLDER")]
    pub sysroot: Option<PathBuf>,
    /// Event in perf's syntax: intel_pt/tsc,mtc,mtc_period=N,cyc,cyc_thresh=N,psb_period=N,noretcomp/u; for ftrace,
    /// systems or events such as sched or sched:sched_switch (repeatable)
    #[arg(short, long, value_name = "EVENT")]
    pub event: Vec<String>,
    /// ftrace: trace calls of these kernel functions, such as 'vfs_*'
    #[arg(long, value_name = "FILTER")]
    pub function: Option<String>,
    /// ftrace: buffer size per CPU [default: 8M; of --with: 16M]
    #[arg(long, value_name = "SIZE")]
    pub buffer_size: Option<String>,
    /// Trace only some addresses, in perf's syntax: 'filter FUNC @ FILE', 'filter ADDRESS/SIZE @ FILE'; machine: also
    /// 'filter FUNC' of the kernel (repeatable)
    #[arg(long, value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Keep only the last bytes of the trace of each thread, or of each processor of a machine (default size: 4M)
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "4M")]
    pub snapshot: Option<String>,
    /// native, machine: with --snapshot, write them whenever a latency is too long, instead of at the end. 'FUNCTION > TIME' or
    /// 'FUNCTION@FILE > TIME' of the program (native) or the kernel, or 'latency(syscall:NAME) > TIME'; machine also: 'latency(WHAT) > TIME' with WHAT one of function:NAME of the kernel, function:NAME@FILE, interrupts-off, wakeup,
    /// wakeup:NAME; TIME in ns, us, ms, s or instructions (repeatable)
    #[arg(long, value_name = "CONDITION", value_parser = hodo_recorder::parse_trigger, requires = "snapshot")]
    pub trigger: Vec<hodo_recorder::Trigger>,
    /// native, perf: record the running process PID and its threads, until it ends, Ctrl-C, or --for
    #[arg(short, long, conflicts_with = "command")]
    pub pid: Option<u32>,
    /// native, perf with --pid: end the recording after this time from its begin, such as 10s; the programs go on, unrecorded
    #[arg(long = "for", value_name = "TIME", value_parser = quantities::interval)]
    pub duration: Option<std::time::Duration>,
    /// native: begin the recording after this time, such as 5s; until then the program runs unrecorded
    #[arg(long, value_name = "TIME", value_parser = quantities::interval)]
    pub after: Option<std::time::Duration>,
    /// native: record these threads only: numbers (TIDs), and names as in /proc/PID/comm, in which * stands for any
    /// characters; a thread is recorded while it has such a name (repeatable)
    #[arg(long, value_name = "TID|NAME,…", value_delimiter = ',')]
    pub threads: Vec<String>,
    /// native: memory for translated code in each process [default: 512M]
    #[arg(long, value_name = "SIZE")]
    pub native_memory: Option<String>,
    /// native: exits of superblocks between two recorded times, 16 to 32768. System calls are always timed; 0: nothing else
    /// is [default: 4096; 64 with --trigger]
    #[arg(long, value_name = "COUNT")]
    pub time_every: Option<u32>,
    /// native: times count instructions (one is one nanosecond), so that equal executions have equal times
    #[arg(long)]
    pub deterministic: bool,
    /// Lose the packets of these instructions of each thread, as if the buffer had overflowed: number of the first
    /// instruction, and of the one after the last (emulated processor only)
    #[arg(long, value_name = "FROM..TO", value_parser = quantities::instructions)]
    pub overflow: Option<std::ops::Range<u64>>,
    /// machine: trace the kernel only
    #[arg(long, conflicts_with = "user")]
    pub kernel: bool,
    /// machine: trace user space only
    #[arg(long)]
    pub user: bool,
    /// machine: trace one process only, as by its CR3, with the kernel's code that runs for it: the command's own, or
    /// those that execute a program called NAME
    // `Some(None)`: the option without a name.
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, value_parser = quantities::program)]
    pub process: Option<Option<String>>,
    /// machine: also count instructions one by one, to verify the trace's count
    #[arg(long)]
    pub witness: bool,
    /// machine: one processor, with a clock that counts instructions: one is one nanosecond
    #[arg(long)]
    pub icount: bool,
    /// machine: the machine has KVM, and its guests are recorded too, with each entry and exit
    #[arg(long)]
    pub nested: bool,
    /// machine: also record software events inside it, at the same time and on the same clock, into a file (lttng: a folder)
    /// beside the recording (repeatable)
    #[arg(long, value_enum, value_name = "TRACER", value_delimiter = ',')]
    pub with: Vec<crate::record::TracerName>,
    /// machine: systems or events of --with, such as sched,irq:irq_handler_entry
    /// [default: sched,irq,raw_syscalls,signal,block,timer]
    #[arg(long, value_name = "EVENT,…", value_delimiter = ',', requires = "with")]
    pub with_events: Vec<String>,
    /// board: settings such as slaves=8,protocol=polling,time=60s,wander=5ppm/20s; also cortex-m3, exchanges, period,
    /// tick, drift, step, work, urgent (see docs/boards.md)
    #[arg(long, value_name = "SETTINGS")]
    pub board: Option<hodo_recorder::BoardSettings>,
    /// File to write
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "perf.data",
        default_value_if("engine", "ftrace", "trace.dat")
    )]
    pub output: PathBuf,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
    /// The command and its arguments
    #[arg(
        required_unless_present = "pid",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

"""The options of each command, from `hodo help --json`. test_types.py writes this file: `UPDATE=1 cargo xtask test python`."""

from collections.abc import Sequence
from os import PathLike
from typing import Literal

from typing_extensions import TypedDict

ReportKind = Literal["functions", "tree", "paths", "lines", "blocks", "coverage", "branches", "mnemonics", "models", "threads", "guests", "resolution", "latency", "count", "periods", "cpu", "syscalls", "irq", "sched", "io", "processes", "signals", "lost", "states", "queue", "irqoff", "memory", "net", "wakers", "locks", "waits", "critical-path", "callstack", "messages", "tasks", "all"]
By = Literal["all", "block", "branch", "cache", "call", "caller", "cause", "change", "cpu", "descriptor", "device", "event", "executions", "file", "folded", "function", "group", "handler", "histogram", "inlined", "instructions", "interval", "line", "lock", "longest", "machine", "measure", "message", "operation", "pair", "path", "piece", "process", "reason", "signal", "slowest", "stream", "stretch", "switch", "task", "thread", "time", "tree", "wait", "wakeup"]

class InputOptions(TypedDict, total=False):
    buildid_dir: str | PathLike[str] | None
    call: str | None
    chunk_size: str | int | None
    clock_frequency: str | int | None
    code: str | Sequence[str] | None
    comm: str | Sequence[str] | None
    cpu: str | None
    cpuid_0x15: str | None
    elf: str | Sequence[str] | None
    etm: str | PathLike[str] | None
    etm_config: str | PathLike[str] | None
    etrace: str | PathLike[str] | None
    etrace_config: str | PathLike[str] | None
    filter: str | Sequence[str] | None
    guest_code: str | Sequence[str] | None
    guest_elf: str | Sequence[str] | None
    guestkallsyms: str | PathLike[str] | None
    guestmount: str | PathLike[str] | None
    guestvmlinux: str | PathLike[str] | None
    host_code: str | Sequence[str] | None
    host_elf: str | Sequence[str] | None
    jobs: str | int | None
    kallsyms: str | PathLike[str] | None
    kcore: str | PathLike[str] | None
    mtc_freq: str | int | None
    nom_freq: str | int | None
    offset: str | Sequence[str] | None
    pid: str | int | Sequence[str | int] | None
    pt: str | PathLike[str] | None
    symfs: str | PathLike[str] | None
    tid: str | int | Sequence[str | int] | None
    time: str | None
    vmlinux: str | PathLike[str] | None
    without_recorder: bool | None

class ReportOptions(InputOptions, total=False):
    begin: str | None
    by: Literal["all", "block", "branch", "cache", "call", "caller", "cause", "change", "cpu", "descriptor", "device", "event", "executions", "file", "folded", "function", "group", "handler", "histogram", "inlined", "instructions", "interval", "line", "lock", "longest", "machine", "measure", "message", "operation", "pair", "path", "piece", "process", "reason", "signal", "slowest", "stream", "stretch", "switch", "task", "thread", "time", "tree", "wait", "wakeup"] | None
    cpu_list: str | int | Sequence[str | int] | None
    end: str | None
    event: str | Sequence[str] | None
    every: str | None
    function: str | None
    group: str | Sequence[str] | None
    icache: str | None
    match: str | Sequence[str] | None
    syscall: str | None
    where: str | None

class LatencyOptions(InputOptions, total=False):
    bins: Literal["linear", "log"] | None
    by: Literal["thread", "caller", "cpu", "time", "executions"] | None
    compare: bool | None
    from_: str | None
    function: str | None
    functions: bool | None
    irq: str | int | None
    match: str | Sequence[str] | None
    nesting: Literal["nested", "first", "last"] | None
    nth: str | int | None
    outliers: str | int | None
    pair: str | None
    pairs: str | PathLike[str] | None
    period: str | None
    state: Literal["running", "runnable", "blocked", "interruptible", "uninterruptible", "idle", "stopped"] | None
    syscall: str | None
    to: str | None
    worst_by: Literal["time", "instructions"] | None

class SqlOptions(InputOptions, total=False):
    begin: str | None
    cpu_list: str | int | Sequence[str | int] | None
    end: str | None
    event: str | Sequence[str] | None
    every: str | None
    file: str | PathLike[str] | Sequence[str | PathLike[str]] | None
    function: str | None
    group: str | Sequence[str] | None
    match: str | Sequence[str] | None
    no_cache: bool | None
    store: str | PathLike[str] | None
    syscall: str | None
    tables: bool | None
    where: str | None

class DiffOptions(InputOptions, total=False):
    a_time: str | None
    b_time: str | None
    begin: str | None
    by: Literal["function", "path"] | None
    divergence: bool | None
    end: str | None
    function: str | None
    group: str | Sequence[str] | None
    match: str | Sequence[str] | None
    nth: str | None
    per: str | None

class EventsOptions(InputOptions, total=False):
    cpu_list: str | int | Sequence[str | int] | None
    event: str | Sequence[str] | None
    where: str | None

class StoreOptions(InputOptions, total=False):
    pass

class PlanOptions(InputOptions, total=False):
    begin: str | None
    by: Literal["all", "block", "branch", "cache", "call", "caller", "cause", "change", "cpu", "descriptor", "device", "event", "executions", "file", "folded", "function", "group", "handler", "histogram", "inlined", "instructions", "interval", "line", "lock", "longest", "machine", "measure", "message", "operation", "pair", "path", "piece", "process", "reason", "signal", "slowest", "stream", "stretch", "switch", "task", "thread", "time", "tree", "wait", "wakeup"] | None
    end: str | None
    every: str | None
    from_: str | None
    function: str | None
    functions: bool | None
    group: str | Sequence[str] | None
    icache: str | None
    irq: str | int | None
    match: str | Sequence[str] | None
    nesting: Literal["nested", "first", "last"] | None
    pair: str | None
    pairs: str | PathLike[str] | None
    period: str | None
    state: Literal["running", "runnable", "blocked", "interruptible", "uninterruptible", "idle", "stopped"] | None
    syscall: str | None
    to: str | None

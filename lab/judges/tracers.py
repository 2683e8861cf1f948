#!/usr/bin/python3
"""Like `kernel.py`, for a trace.dat (from the output of `trace-cmd report`) and a perf.data (from `perf script`).

usage: tracers.py FILE

Event and field names are converted to those of LTTng, which `kernel.py` expects. Names of system calls come from the
C library's headers.
"""

import json
import os
import re
import subprocess
import sys

import kernel

CALLS = {}
for line in open("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"):
    if match := re.match(r"#define __NR_(\w+) (\d+)", line):
        CALLS[int(match[2])] = match[1]
EVENTS = {"softirq_entry", "softirq_exit", "softirq_raise"}
FIELDS = {"prev_tid": "prev_pid", "next_tid": "next_pid", "tid": "pid", "child_tid": "child_pid", "parent_tid": "parent_pid"}
NO_FIELDS = {"child_pid", "parent_pid"}
ARGUMENTS = {"fd": 0, "fildes": 0, "oldfd": 0, "newfd": 1, "fd_in": 0, "fd_out": 2, "in_fd": 1, "out_fd": 0, "cmd": 1, "arg": 2}
FLAGS = {"openat": 2, "accept4": 3, "dup3": 2, "perf_event_open": 4, "signalfd4": 3}


def signed(value):
    return value - 2**64 if value >= 2**63 else value


def see(trace, time, cpu, name, raw):
    """Applies an event with the tracer's own names; `raw` has its fields."""
    trace.counts[name] += 1
    counts, trace.counts = trace.counts, kernel.defaultdict(int)
    name = name.split(":")[-1]
    call = None
    if name in ("sys_enter", "sys_exit"):
        call = CALLS.get(raw["id"], "unknown")
    elif name.startswith(("sys_enter_", "sys_exit_")):
        call = name.split("_", 2)[2]
    if call is not None:
        name = f"syscall_{'entry' if name.startswith('sys_enter') else 'exit'}_{call}"
    elif name in EVENTS:
        name = "irq_" + name
    named = dict(raw)
    if "rwbs" in named:
        named["rwbs"] = int("W" in named["rwbs"])

    def field(name_):
        if name_ in NO_FIELDS:
            return None
        own = FIELDS.get(name_, name_)
        if own in named:
            return named[own]
        if call is not None and "args" in named:
            place = FLAGS.get(call, 1) if name_ in ("flags", "type") else ARGUMENTS.get(name_)
            return None if place is None else signed(named["args"][place])
        return None

    tid = raw.get("common_pid", raw.get("sample tid"))
    kernel.see(trace, time, cpu, name, field, tid if tid is not None and tid >= 0 else None)
    if name == "sched_switch":
        kernel.belongs(trace, raw["prev_pid"], raw.get("sample pid"))
    trace.counts = counts


def perf(path):
    script = os.path.join(os.path.dirname(__file__), "perf_samples.py")
    lines = subprocess.Popen(["perf", "script", "-i", path, "-s", script], stdout=subprocess.PIPE, text=True).stdout
    for line in lines:
        if not line.startswith("["):
            continue
        name, time, cpu, pid, tid, _, _, fields = json.loads(line)
        # At the last switch of a thread that has ended, the kernel knows its process no longer, and writes -1.
        pid = None if pid == 0xFFFFFFFF else pid
        fields = {key: clean(value) for key, value in fields.items()} | {"sample pid": pid, "sample tid": tid}
        if "args" in fields:
            data = bytes(fields["args"])
            fields["args"] = [int.from_bytes(data[at:at + 8], "little") for at in range(0, 48, 8)]
        yield time, cpu, name, fields


def clean(value):
    return value.split("\0")[0] if isinstance(value, str) else value


def trace_cmd(path):
    lines = subprocess.Popen(["trace-cmd", "report", "-R", "-t", "-i", path], stdout=subprocess.PIPE, text=True, errors="replace").stdout
    for line in lines:
        match = re.match(r".*-(\d+) +\[(\d+)\] +(\d+)\.(\d{9}): (\w+): *(.*)$", line.rstrip("\n"))
        if match:
            tid, cpu, seconds, nanos, name, rest = match.groups()
            fields = fields_of(rest) | {"common_pid": int(tid)}
            yield int(seconds) * 10**9 + int(nanos), int(cpu), name, fields


def fields_of(text):
    """Parses `name=value …`, where values may contain spaces."""
    found = {}
    for part in re.split(r" (?=\w+=)", text.strip()):
        key, _, value = part.partition("=")
        if key == "args":
            data = bytes(int(each, 16) for each in re.findall(r"\b[0-9a-f]{2}\b", value))
            value = [int.from_bytes(data[at:at + 8], "little") for at in range(0, 48, 8)]
        elif re.fullmatch(r"0x[0-9a-fA-F]+", value):
            value = signed(int(value, 16))
        elif re.fullmatch(r"-?\d+", value):
            value = int(value)
        found[key] = value
    return found


def main():
    path = sys.argv[1]
    trace = kernel.Trace()
    for time, cpu, name, fields in (trace_cmd if path.endswith(".dat") else perf)(path):
        see(trace, time, cpu, name, fields)
    told = kernel.told(trace)
    # These need information that only LTTng records.
    for kind in ("processes", "signals", "periods"):
        del told["tables"][kind]
    told["tables"]["count"] = {"": [{"event": name, "count": count} for name, count in trace.counts.items()]}
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()

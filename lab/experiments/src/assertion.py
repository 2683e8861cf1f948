"""From the assertion of the local timer's interrupt to the first instruction of its handler.

usage: python3 assertion.py RECORDING EVENTS [HODO]

RECORDING is Intel PT of an emulated machine, recorded with --icount and cyc; EVENTS are those of timer:* that ftrace recorded
in the same run. The kernel programs the timer for the earliest expiry of its hrtimers, which the events tell by
CLOCK_MONOTONIC. The instruction that reads the counter for that clock is in RECORDING, which gives the offset between both.
"""

import bisect
import json
import statistics
import subprocess
import sys

ENTRY = "asm_sysvec_apic_timer_interrupt"
# Reads the clock at the begin of an interrupt's work, by a call of READ.
CLOCK = "ktime_get_update_offsets_now"
READ = "read_tsc"


def executions(hodo, inputs, function):
    """Begin of each execution of a function in nanoseconds, in order."""
    ran = [hodo, "latency", "-q", "--function", function, "--by", "executions", "--format", "json", *inputs]
    table = json.loads(subprocess.run(ran, check=True, capture_output=True).stdout)
    names = [column["name"] for column in table["columns"]]
    begin = names.index("begin_ns")
    return sorted(row[begin] for row in table["rows"] if row[begin] is not None)


def events(hodo, inputs):
    ran = [hodo, "script", "-q", "--events", "--event", "*hrtimer_*", "--format", "jsonl", *inputs]
    lines = subprocess.run(ran, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def percentile(values, share):
    """By nearest rank; `values` are in order."""
    return values[max(0, -(-len(values) * share // 100) - 1)]


def main(recording, trace, hodo="hodo"):
    inputs = [recording, trace]
    entries = executions(hodo, inputs, ENTRY)
    every = executions(hodo, inputs, READ)
    clocks = [bisect.bisect(every, begin) for begin in executions(hodo, inputs, CLOCK)]
    reads = [every[at] for at in clocks if at < len(every)]
    timers = events(hodo, inputs)
    # `now` of an expiry was read at the begin of its interrupt's work.
    offsets = []
    for event in timers:
        if event["name"].endswith("hrtimer_expire_entry"):
            at = bisect.bisect(reads, event["ts"])
            if at:
                offsets.append(reads[at - 1] - event["fields"]["now"])
    offset = statistics.mode(offsets)
    same = sum(found == offset for found in offsets)
    print(f"clock: {same} of {len(offsets)} expiries have the offset {offset} ns; range {min(offsets) - offset} to "
          f"{max(offsets) - offset}")
    armed, latencies, unknown, at = {}, [], 0, 0
    for entry in entries:
        while at < len(timers) and timers[at]["ts"] < entry:
            event, at = timers[at], at + 1
            timer = event["fields"]["hrtimer"]
            if event["name"].endswith("hrtimer_start"):
                armed[timer] = event["fields"]["expires"]
            elif event["name"].endswith(("hrtimer_cancel", "hrtimer_expire_entry")):
                armed.pop(timer, None)
        due = [expiry for expiry in armed.values() if expiry + offset <= entry]
        if due:
            latencies.append(entry - min(due) - offset)
        else:
            unknown += 1
    latencies.sort()
    print(f"interrupts: {len(entries)}, of which {unknown} have no timer that was due")
    shares = [(f"p{share}", percentile(latencies, share)) for share in (50, 90, 99)]
    for name, value in [("min", latencies[0]), *shares, ("max", latencies[-1])]:
        print(f"{name:>4} {value:>10,} ns")
    low = 1
    while low <= latencies[-1]:
        count = sum(low <= value < 2 * low for value in latencies)
        print(f"{low:>10,} to {2 * low:>10,} ns {count:>7,}")
        low *= 2


if __name__ == "__main__":
    main(*sys.argv[1:])

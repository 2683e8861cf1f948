#!/usr/bin/python3
"""Computes most reports of a kernel trace from their definitions in docs/analyses.md, with babeltrace2's Python
module: event by event, with lists instead of histograms.

usage: kernel.py FOLDER BEGIN_NS END_NS

Writes one JSON object: tables by report and view, each a list of rows (objects).
"""

import json
import sys
from collections import defaultdict

import descriptors
import lives
import states

READ = {"read", "pread64", "readv", "preadv", "preadv2", "recv", "recvfrom", "recvmsg"}
WRITE = {"write", "pwrite64", "writev", "pwritev", "pwritev2", "send", "sendto", "sendmsg"}
COPY = {"splice", "tee", "vmsplice", "sendfile", "sendfile64", "copy_file_range"}
OPERATIONS = {
    **{name: "read" for name in READ | {"recvmmsg"}},
    **{name: "write" for name in WRITE | {"sendmmsg"}},
    **{name: "copy" for name in COPY},
    **{name: "open" for name in ("open", "openat", "openat2", "creat")},
    "close": "close",
    **{name: "sync" for name in ("sync", "fsync", "fdatasync", "syncfs", "sync_file_range", "msync")},
}
SCHEDULED = {"sched_wakeup", "sched_wakeup_new", "sched_migrate_task"}
WIDTH = 2_000_000_000
SOFT = "HI TIMER NET_TX NET_RX BLOCK IRQ_POLL TASKLET SCHED HRTIMER RCU".split()


def figures(lengths):
    """Returns the statistics of a list of durations; percentiles by nearest rank."""
    if not lengths:
        return {name: None for name in ("average_ns", "max_ns", "p50_ns", "p95_ns", "p99_ns", "min_ns")} | {"total_ns": 0}
    ordered = sorted(lengths)

    def percentile(part):
        return ordered[max(1, -(-len(ordered) * part // 100)) - 1]

    return {
        "total_ns": sum(ordered),
        "average_ns": sum(ordered) // len(ordered),
        "max_ns": ordered[-1],
        "p50_ns": percentile(50),
        "p95_ns": percentile(95),
        "p99_ns": percentile(99),
        "min_ns": ordered[0],
    }


class Trace:
    """The state after some events."""

    def __init__(self):
        self.begin = self.end = None
        self.counts = defaultdict(int)
        self.comm = {}
        self.pid = {}
        # Intervals in which a CPU ran a thread; the thread before the first switch is filled in later.
        self.intervals = []
        self.switch_time = {}
        # The first switch that names each thread.
        self.named = {}
        self.now = {}
        self.priority = {}
        self.switched = defaultdict(int)
        # An unknown thread is represented by a list, into which its id is put once it is known.
        self.unknown = {}
        # Open system calls by CPU, and by thread that does not run.
        self.inside, self.waiting = {}, {}
        # The next thread of the last switch of each CPU; a switch is missing if another thread leaves.
        self.came = {}
        # Who runs on each CPU, also by events that contain their thread.
        self.runs = {}
        self.unknown_time = defaultdict(int)
        self.calls = []
        self.unmatched = self.unfinished = 0
        self.hard, self.soft, self.raised = {}, {}, {}
        self.handled = []
        self.irq_names = {}
        self.irq_unmatched = self.irq_unfinished = 0
        self.woken = {}
        self.woken_for = []
        self.preempted, self.migrated = defaultdict(int), defaultdict(int)
        self.issued = {}
        self.requests = []
        self.requests_unmatched = self.requests_unfinished = 0
        self.disks = {}
        self.by_stream = defaultdict(list)
        self.by_time = defaultdict(int)
        # Lifetimes by thread; signal events in order.
        self.lives = defaultdict(list)
        self.signals = []
        self.period_begun = {}
        self.periods = []
        self.periods_unmatched = self.periods_unfinished = 0
        # Descriptor tables by process: name, and whether exec closes it.
        self.files = {}
        self.process = {}
        self.address = defaultdict(set)
        self.used = []
        # State of each thread, and its begin; None if it began before the trace.
        self.state = {}
        self.in_call = {}
        self.spent = []
        # The first event of each thread; threads that ran since before the trace; lifetimes that are over.
        self.born = {}
        self.older = set()
        self.lifetime = defaultdict(int)
        # CPU, begin and end of each wait, and whether the end is known; the CPUs that have a queue.
        self.waits = []
        self.queues = set()
        self.first_switch = {}

    def running(self, cpu):
        if cpu not in self.now:
            self.now[cpu] = self.unknown.setdefault(cpu, [None])
        return self.now[cpu]


def who(thread):
    """Returns the thread; for one that was unknown, the id that was found later."""
    return thread[0] if isinstance(thread, list) else thread


def idle(tid, cpu):
    """Identifies a thread; idle threads all have id 0, so their CPU is added."""
    return ("idle", cpu) if tid == 0 else tid


def see(trace, time, cpu, name, field, tid=None):
    """Applies an event; `field` reads one of its fields, and `tid` is its thread if it contains that."""
    if tid is not None:
        trace.now[cpu] = idle(tid, cpu)
        if name in SCHEDULED or name.startswith("syscall_entry_"):
            states.runs(trace, time, cpu, tid)
            trace.woken.pop(tid, None)
    trace.begin = time if trace.begin is None else trace.begin
    trace.end = time
    trace.counts[name] += 1
    trace.by_stream[cpu].append((time, name))
    trace.by_time[time // WIDTH * WIDTH] += 1
    lives.live(trace, time, name, field)
    lives.sign(trace, time, cpu, name, field)
    period(trace, time, name, field)
    if name == "sched_switch":
        switch(trace, time, cpu, field)
    elif name in ("sched_wakeup", "sched_wakeup_new"):
        trace.woken.setdefault(int(field("tid")), (time, "wakeup"))
        if trace.state.get(int(field("tid")), ("",))[0] not in ("running", "runnable"):
            states.become(trace, int(field("tid")), ("runnable", int(field("target_cpu"))), time)
    elif name == "sched_migrate_task":
        trace.migrated[int(field("tid")), cpu] += 1
        state, to = trace.state.get(int(field("tid"))), ("runnable", int(field("dest_cpu")))
        if state and state[0] == "runnable" and state[:2] != to:
            states.become(trace, int(field("tid")), to, time)
    elif name == "sched_process_fork":
        tid = int(field("child_tid"))
        trace.comm[tid] = str(field("child_comm"))
        fork(trace, tid, field)
    elif name == "lttng_statedump_process_state":
        tid = int(field("tid"))
        if tid:
            trace.comm[tid], trace.pid[tid] = str(field("name")), int(field("pid"))
            trace.process[tid] = int(field("pid"))
            if int(field("file_table_address")):
                trace.address[int(field("file_table_address"))].add(int(field("pid")))
    elif name == "lttng_statedump_file_descriptor":
        for pid in trace.address[int(field("file_table_address"))]:
            closes = bool(int(field("flags")) & descriptors.CLOSE_ON_EXEC)
            trace.files.setdefault(pid, {})[int(field("fd"))] = (str(field("filename")), closes)
    elif name == "lttng_statedump_block_device":
        trace.disks[int(field("dev"))] = str(field("diskname"))
    elif name.startswith("syscall_entry_"):
        trace.unfinished += cpu in trace.inside
        call = name[len("syscall_entry_"):]
        trace.inside[cpu] = (call, time, descriptors.arguments(call, field))
        trace.in_call[cpu] = call
    elif name.startswith("syscall_exit_"):
        leave(trace, time, cpu, name[len("syscall_exit_"):], int(field("ret")), field)
        trace.in_call[cpu] = None
    elif name.startswith("irq_"):
        interrupt(trace, time, cpu, name, field)
    elif name == "block_rq_issue":
        request = int(field("dev")), int(field("sector"))
        trace.requests_unfinished += request in trace.issued
        trace.issued[request] = time
    elif name == "block_rq_complete":
        request = int(field("dev")), int(field("sector"))
        if request in trace.issued:
            operation = "write" if int(field("rwbs")) & 1 else "read"
            length = time - trace.issued.pop(request)
            trace.requests.append((request[0], operation, length, int(field("nr_sector")) * 512, int(field("error")) != 0))
        else:
            trace.requests_unmatched += 1


def period(trace, time, name, field):
    """Records periods from block_rq_issue to block_rq_complete of the same device and sector, by device."""
    if name == "block_rq_issue":
        key = int(field("dev")), int(field("sector"))
        trace.periods_unfinished += key in trace.period_begun
        trace.period_begun[key] = time
    elif name == "block_rq_complete":
        key = int(field("dev")), int(field("sector"))
        if key in trace.period_begun:
            begin = trace.period_begun.pop(key)
            trace.periods.append((str(key[0]), f"{key[0]}, {key[1]}", time - begin, begin))
        else:
            trace.periods_unmatched += 1


def switch(trace, time, cpu, field):
    prev, next_ = idle(int(field("prev_tid")), cpu), idle(int(field("next_tid")), cpu)
    trace.comm[prev] = str(field("prev_comm"))
    trace.comm[next_] = str(field("next_comm"))
    states.change_states(trace, time, cpu, int(field("prev_tid")), int(field("next_tid")), int(field("prev_state")))
    ran = trace.running(cpu)
    if isinstance(ran, list):
        ran[0] = prev
    # The open call of the CPU moves to the leaving thread; that of the next thread moves to the CPU.
    if prev in trace.waiting:
        trace.unfinished += 1
        del trace.waiting[prev]
    for into, key, of, other in ((trace.waiting, prev, trace.inside, cpu), (trace.inside, cpu, trace.waiting, next_)):
        if other in of:
            into[key] = of.pop(other)
    since = trace.switch_time.get(cpu, trace.begin)
    # A thread that another CPU's switch named before was not here since the begin.
    is_late = cpu not in trace.came and trace.named.get(prev, time) < time
    trace.named.setdefault(prev, time)
    trace.named.setdefault(next_, time)
    if trace.came.get(cpu, prev) == prev and not is_late:
        trace.intervals.append((cpu, prev, since, time))
    else:
        trace.unknown_time[cpu] += time - since
    trace.came[cpu] = next_
    trace.switch_time[cpu] = time
    trace.now[cpu] = next_
    trace.switched[next_, cpu] += 1
    trace.priority[next_] = int(field("next_prio"))
    state = int(field("prev_state"))
    if prev != ("idle", cpu):
        is_runnable = state == 0 or bool(state & 256)
        trace.preempted[prev, cpu] += is_runnable
        trace.woken.pop(prev, None)
        if is_runnable:
            trace.woken[prev] = time, "preemption"
    if next_ in trace.woken:
        begin, after = trace.woken.pop(next_)
        trace.woken_for.append((next_, cpu, time - begin, begin, after))


def belongs(trace, tid, pid):
    """Records the process of a thread that leaves its CPU, if the tracer adds it to events."""
    if tid and pid is not None and pid > 0:
        trace.pid[tid] = trace.process[tid] = pid


def fork(trace, tid, field):
    child, parent = field("child_pid"), field("parent_pid")
    if child is None:
        # The tracer does not record processes.
        trace.process.pop(tid, None)
        return
    child, parent = int(child), int(parent)
    trace.pid[tid] = trace.process[tid] = child
    trace.process[int(field("parent_tid"))] = parent
    if child != parent:
        trace.files[child] = dict(trace.files.get(parent, {}))


def leave(trace, time, cpu, call, result, field):
    thread = trace.running(cpu)
    entry = trace.inside.pop(cpu, None)
    if entry is None:
        trace.unmatched += 1
    elif entry[0] != call:
        trace.unmatched += 1
        trace.unfinished += 1
    else:
        trace.calls.append((thread, call, entry[1], time - entry[1], result))
        descriptors.use_file(trace, thread, call, entry[1], time - entry[1], result, entry[2], field)


def interrupt(trace, time, cpu, name, field):
    if name == "irq_handler_entry":
        number = int(field("irq"))
        trace.irq_names[number] = str(field("name"))
        trace.irq_unfinished += (cpu, number) in trace.hard
        trace.hard[cpu, number] = time
    elif name == "irq_handler_exit":
        end(trace, "hard", trace.hard, cpu, int(field("irq")), time)
    elif name == "irq_softirq_raise":
        trace.raised.setdefault((cpu, int(field("vec"))), time)
    elif name == "irq_softirq_entry":
        vector = int(field("vec"))
        trace.irq_unfinished += (cpu, vector) in trace.soft
        trace.soft[cpu, vector] = time
        if (cpu, vector) in trace.raised:
            begin = trace.raised.pop((cpu, vector))
            trace.handled.append(("raise", vector, cpu, time - begin, begin))
    elif name == "irq_softirq_exit":
        end(trace, "soft", trace.soft, cpu, int(field("vec")), time)


def end(trace, kind, begun, cpu, number, time):
    if (cpu, number) in begun:
        begin = begun.pop((cpu, number))
        trace.handled.append((kind, number, cpu, time - begin, begin))
    else:
        trace.irq_unmatched += 1


def person(trace, thread):
    tid = 0 if isinstance(thread, tuple) else thread
    return {"comm": trace.comm.get(thread), "tid": tid, "pid": trace.pid.get(thread)}


def grouped(items, by):
    groups = defaultdict(list)
    for item in items:
        groups[by(item)].append(item)
    return groups


def cpu_tables(trace):
    used = defaultdict(int)
    for cpu, thread, begin, finish in trace.intervals:
        used[who(thread), cpu] += finish - begin
    for cpu, begin in trace.switch_time.items():
        used[trace.came[cpu], cpu] += trace.end - begin
    threads = {thread for thread, _ in [*used, *trace.switched] if not isinstance(thread, tuple)}
    processes = defaultdict(int)
    sums, cpus = defaultdict(int), defaultdict(set)
    for (thread, cpu), length in used.items():
        sums[thread] += length
        cpus[thread].add(cpu)
    switches = defaultdict(int)
    for (thread, cpu), count in trace.switched.items():
        switches[thread] += count
        cpus[thread].add(cpu)
    by_thread = []
    for thread in threads:
        by_thread.append(person(trace, thread) | {
            "time_ns": sums[thread],
            "switches": switches[thread],
            "priority": trace.priority.get(thread),
            "cpus": len(cpus[thread]),
        })
        processes[trace.pid.get(thread, thread)] += sums[thread]
    by_cpu = []
    for cpu in sorted(trace.switch_time):
        busy = sum(length for (thread, on), length in used.items() if on == cpu and not isinstance(thread, tuple))
        count = sum(count for (_, on), count in trace.switched.items() if on == cpu)
        unknown = trace.unknown_time[cpu]
        idle_time = trace.end - trace.begin - busy - unknown
        by_cpu.append({"cpu": cpu, "busy_ns": busy, "idle_ns": idle_time, "unknown_ns": unknown, "switches": count})
    by_process = [{"comm": trace.comm.get(pid), "pid": trace.pid.get(pid), "time_ns": time} for pid, time in processes.items()]
    return {"thread": by_thread, "process": by_process, "cpu": by_cpu}


def is_error(result):
    return -4095 <= result < 0


def syscall_tables(trace):
    def row(calls):
        return {"count": len(calls), "errors": sum(is_error(call[4]) for call in calls)} | figures([call[3] for call in calls])

    by_call = [{"call": name} | row(calls) for name, calls in grouped(trace.calls, lambda call: call[1]).items()]
    threads = grouped(trace.calls, lambda call: who(call[0]))
    by_thread = [person(trace, thread) | row(calls) for thread, calls in threads.items()]
    slowest = sorted(trace.calls, key=lambda call: (-call[3], call[2]))[:100]
    slowest = [{"call": call[1], "duration_ns": call[3], "begin_ns": call[2], "result": call[4]} | person(trace, who(call[0])) for call in slowest]
    return {"call": by_call, "thread": by_thread, "slowest": slowest}


def irq_tables(trace):
    def named(kind, number):
        name = trace.irq_names.get(number) if kind == "hard" else SOFT[number]
        return {"kind": kind, "number": number, "name": name}

    def row(handled):
        return {"count": len(handled)} | figures([one[3] for one in handled])

    by_handler = [named(*of) | row(list_) for of, list_ in grouped(trace.handled, lambda one: one[:2]).items()]
    by_cpu = [named(*of[:2]) | {"cpu": of[2]} | row(list_) for of, list_ in grouped(trace.handled, lambda one: one[:3]).items()]
    order = {"hard": 0, "soft": 1, "raise": 2}
    slowest = sorted(trace.handled, key=lambda one: (-one[3], one[4], order[one[0]], one[1], one[2]))[:100]
    slowest = [named(*one[:2]) | {"duration_ns": one[3], "begin_ns": one[4], "cpu": one[2]} for one in slowest]
    return {"handler": by_handler, "cpu": by_cpu, "slowest": slowest}


def sched_tables(trace):
    def rows(place, tell):
        lengths, preemptions = defaultdict(list), defaultdict(list)
        switches, preempted, migrated = defaultdict(int), defaultdict(int), defaultdict(int)
        for thread, cpu, length, _, after in trace.woken_for:
            (lengths if after == "wakeup" else preemptions)[place(thread, cpu)].append(length)
        for counts, into in ((trace.switched, switches), (trace.preempted, preempted), (trace.migrated, migrated)):
            for (thread, cpu), count in counts.items():
                if not isinstance(thread, tuple) and count:
                    into[place(thread, cpu)] += count
        every = set(lengths) | set(switches) | set(preempted) | set(migrated)
        return [
            tell(of) | {
                "waits": len(lengths[of]) + len(preemptions[of]),
                "queued_ns": sum(lengths[of]) + sum(preemptions[of]),
                "preempted_ns": sum(preemptions[of]),
                "wakeups": len(lengths[of]),
            } | figures(lengths[of])
            | {"switches": switches[of], "preemptions": preempted[of], "migrations": migrated[of]}
            for of in every
        ]

    slowest = sorted(trace.woken_for, key=lambda one: (-one[2], one[3], one[0], one[1], one[4] == "preemption"))[:100]
    slowest = [
        person(trace, one[0]) | {"latency_ns": one[2], "begin_ns": one[3], "cpu": one[1], "after": one[4]}
        for one in slowest
    ]
    return {
        "thread": rows(lambda thread, _: thread, lambda thread: person(trace, thread)),
        "cpu": rows(lambda _, cpu: cpu, lambda cpu: {"cpu": cpu}),
        "slowest": slowest,
    }


def io_tables(trace):
    def moved(call, kinds):
        return 0 if is_error(call[4]) or call[1] not in kinds else call[4]

    done = [call for call in trace.calls if call[1] in OPERATIONS]

    def row(calls):
        return {
            "read_bytes": sum(moved(call, READ | COPY) for call in calls),
            "written_bytes": sum(moved(call, WRITE | COPY) for call in calls),
            "operations": len(calls),
            "errors": sum(is_error(call[4]) for call in calls),
            "total_ns": sum(call[3] for call in calls),
        }

    by_thread = [person(trace, of) | row(calls) for of, calls in grouped(done, lambda call: who(call[0])).items()]
    processes = grouped(done, lambda call: trace.pid.get(who(call[0]), who(call[0])))
    by_process = [{"comm": trace.comm.get(pid), "pid": trace.pid.get(pid)} | row(calls) for pid, calls in processes.items()]
    by_operation = [
        {
            "operation": operation,
            "count": len(calls),
            "errors": sum(is_error(call[4]) for call in calls),
            "bytes": sum(moved(call, READ | WRITE | COPY) for call in calls),
        } | figures([call[3] for call in calls])
        for operation, calls in grouped(done, lambda call: OPERATIONS[call[1]]).items()
    ]
    by_device = [
        {
            "device": trace.disks.get(device, f"{device >> 20}:{device & 0xfffff}"),
            "operation": operation,
            "count": len(requests),
            "errors": sum(request[4] for request in requests),
            "bytes": sum(request[3] for request in requests),
        } | figures([request[2] for request in requests])
        for (device, operation), requests in grouped(trace.requests, lambda request: request[:2]).items()
    ]
    return {"thread": by_thread, "process": by_process, "operation": by_operation, "device": by_device} | descriptors.file_tables(trace)


def told(trace):
    """Returns everything that is compared, as JSON."""
    signals, signals_left = lives.signal_tables(trace)
    tables = {
        "count": count_tables(trace),
        "cpu": cpu_tables(trace),
        "syscalls": syscall_tables(trace),
        "irq": irq_tables(trace),
        "sched": sched_tables(trace),
        "io": io_tables(trace),
        "states": states.state_tables(trace),
        "queue": states.queue_tables(trace),
        "processes": lives.process_tables(trace),
        "signals": signals,
        "periods": period_tables(trace),
    }
    left = {
        "syscalls": {"unmatched": trace.unmatched, "unfinished": trace.unfinished + len(trace.inside) + len(trace.waiting)},
        "signals": signals_left,
        "periods": {
            "unmatched": trace.periods_unmatched,
            "unfinished": trace.periods_unfinished + len(trace.period_begun),
        },
        "irq": {
            "unmatched": trace.irq_unmatched,
            "unfinished": trace.irq_unfinished + len(trace.hard) + len(trace.soft),
        },
    }
    requests = {
        "requests_unmatched": trace.requests_unmatched,
        "requests_unfinished": trace.requests_unfinished + len(trace.issued),
    }
    left |= {f"io {view}": requests for view in ("thread", "process", "operation", "device")}
    return {
        "tables": tables, "summaries": left, "events": sum(trace.counts.values()),
        "begin": trace.begin, "end": trace.end,
    }


def value(field):
    """Returns a field; for an empty text, the module returns the previous text, so an empty one is returned here."""
    from bt2 import native_bt

    is_text = type(field).__name__ == "_StringFieldConst"
    return "" if is_text and native_bt.field_string_get_length(field._ptr) == 0 else field


def count_tables(trace):
    def rate(count, length):
        return (count * 1_000_000_000 + length // 2) // length if length else None

    by_stream = []
    for events in trace.by_stream.values():
        begin, end = events[0][0], events[-1][0]
        names = len({name for _, name in events})
        of = {"count": len(events), "per_second": rate(len(events), end - begin), "names": names}
        by_stream.append(of | {"begin_ns": begin, "end_ns": end})
    bins = range(min(trace.by_time), max(trace.by_time) + 1, WIDTH)
    by_time = [{"begin_ns": at, "count": trace.by_time.get(at, 0), "per_second": rate(trace.by_time.get(at, 0), WIDTH)} for at in bins]
    by_event = [{"event": name, "count": count} for name, count in trace.counts.items()]
    return {"": by_event, "stream": by_stream, "time": by_time}


def period_tables(trace):
    by_group = [
        {"group": group, "count": len(of)} | figures([one[2] for one in of])
        for group, of in grouped(trace.periods, lambda one: one[0]).items()
    ]
    slowest = sorted(trace.periods, key=lambda one: (-one[2], one[3], one[0], one[1]))[:100]
    slowest = [{"group": one[0], "match": one[1], "duration_ns": one[2], "begin_ns": one[3]} for one in slowest]
    return {"group": by_group, "slowest": slowest}


def context(event, name):
    """Returns a number of the event's context, if the tracer records it."""
    for of in (event.specific_context_field, event.common_context_field):
        if of is not None and name in of:
            return int(of[name])
    return None


def main():
    import bt2

    folder, begin, finish = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    trace = Trace()
    for message in bt2.TraceCollectionMessageIterator(folder):
        if type(message) is not bt2._EventMessageConst:
            continue
        time = message.default_clock_snapshot.ns_from_origin
        if time >= finish:
            break
        if time >= begin:
            event = message.event
            payload = event.payload_field
            cpu, tid = int(event.packet.context_field["cpu_id"]), context(event, "tid")
            see(trace, time, cpu, event.name, lambda name: value(payload.get(name)), tid)
            if event.name == "sched_switch":
                belongs(trace, int(payload["prev_tid"]), context(event, "pid"))
    json.dump(told(trace), sys.stdout)


if __name__ == "__main__":
    main()

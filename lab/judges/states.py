"""The part of `kernel.py` for the states of threads, and the lengths of run queues."""

import kernel


def change_states(trace, time, cpu, prev, next_, state):
    came = trace.came.get(cpu)
    is_whole = came is None or came == kernel.idle(prev, cpu)
    if trace.runs.get(cpu, prev) != prev:
        # A switch is missing.
        stops(trace, time, cpu, trace.runs[cpu])
    trace.runs[cpu] = next_
    call = trace.in_call.pop(cpu, ...)
    if prev:
        if call is not ...:
            trace.in_call["thread", prev] = call
        if state == 0 or state & 256:
            now = ("runnable", cpu)
        elif state & 0x30:
            now = None
        else:
            waits = ((0x4c, "stopped"), (0x80, "idle"), (2, "uninterruptible"), (0, "interruptible"))
            how = next(name for bits, name in waits if state & bits or not bits)
            now = (how, trace.in_call.get(("thread", prev)))
        before = trace.state.get(prev, (None, None))
        is_elsewhere = is_whole and before[0] == "running" and before[1] != cpu
        if not is_elsewhere:
            if before[:2] != ("running", cpu):
                forget(trace, prev, time)
            become(trace, prev, now, time)
    if next_:
        become(trace, next_, ("running", cpu), time)


def runs(trace, time, cpu, tid):
    """An event contains the thread that runs on a CPU. If that is another one than before, a switch is missing."""
    other = trace.runs.get(cpu)
    trace.runs[cpu] = tid
    if other == tid or cpu not in trace.came:
        return
    call = trace.in_call.pop(cpu, ...)
    if other is not None:
        stops(trace, time, cpu, other)
        if call is not ...:
            trace.in_call["thread", other] = call
    if tid:
        forget(trace, tid, time)
        become(trace, tid, ("running", cpu), time)


def stops(trace, time, cpu, tid):
    """A thread does not run on a CPU any more, and its state is unknown."""
    if trace.state.get(tid, (None, None))[:2] == ("running", cpu):
        forget(trace, tid, time)


def become(trace, tid, now, time):
    """Ends the state of a thread; begins a new one unless `now` is None."""
    before = trace.state.pop(tid, None)
    if before:
        kind, of, since = before
        # Running times are computed from the switches of each CPU.
        if kind != "running":
            trace.spent.append((tid, kind, of, since, time))
        if kind == "runnable":
            lasts(trace, of, time)
            trace.length[of] -= 1
    if now:
        if now[0] in ("runnable", "running"):
            lasts(trace, now[1], time)
        trace.length[now[1]] += now[0] == "runnable"
        trace.state[tid] = (*now, time)


def forget(trace, tid, time):
    """Marks the state of a thread as unknown."""
    state = trace.state.pop(tid, None)
    if state and state[0] == "runnable":
        lasts(trace, state[1], time)
        trace.length[state[1]] -= 1


def lasts(trace, cpu, time):
    """Records that the queue of a CPU had its present length since the last change."""
    since = trace.since.get(cpu, time)
    trace.since[cpu] = time
    if since < time and trace.length[cpu]:
        trace.lasted.append((cpu, trace.length[cpu], since, time))


def state_tables(trace):
    spent = trace.spent + [(tid, *state, trace.end) for tid, state in trace.state.items() if state[0] != "running"]
    ends = [(cpu, trace.came[cpu], begin, trace.end) for cpu, begin in trace.switch_time.items()]
    ran = [(cpu, kernel.who(thread), since, until) for cpu, thread, since, until in trace.intervals + ends]
    spent += [(tid, "running", cpu, since, until) for cpu, tid, since, until in ran if not isinstance(tid, tuple)]

    def total(rows, *kinds):
        return sum(row[4] - row[3] for row in rows if row[1] in kinds)

    by_thread = [
        kernel.person(trace, tid) | {
            "running_ns": total(rows, "running"),
            "runnable_ns": total(rows, "runnable"),
            "interruptible_ns": total(rows, "interruptible", "idle"),
            "uninterruptible_ns": total(rows, "uninterruptible"),
            "stopped_ns": total(rows, "stopped"),
        } for tid, rows in kernel.grouped(spent, lambda row: row[0]).items()
    ]
    waits = [row for row in spent if row[1] != "running"]
    by_wait = [
        kernel.person(trace, tid) | {"wait": kind, "call": call, "count": len(rows)} | kernel.figures([row[4] - row[3] for row in rows])
        for (tid, kind, call), rows in
        kernel.grouped(waits, lambda row: (row[0], row[1], None if row[1] == "runnable" else row[2])).items()
    ]
    by_interval = [
        kernel.person(trace, tid) | {
            "begin_ns": since,
            "duration_ns": until - since,
            "state": kind,
            "cpu": of if kind in ("running", "runnable") else None,
            "call": None if kind in ("running", "runnable") else of,
        } for tid, kind, of, since, until in spent
    ]
    return {"thread": by_thread, "wait": by_wait, "interval": by_interval}


def queue_tables(trace):
    for cpu in list(trace.since):
        lasts(trace, cpu, trace.end)
    rows = []
    for cpu in sorted(trace.since):
        lasted = [row for row in trace.lasted if row[0] == cpu]
        most = max((row[1] for row in lasted), default=0)
        rows.append({
            "cpu": cpu,
            "max": most,
            "at_ns": next((row[2] for row in lasted if row[1] == most), None),
            "waited_ns": sum(row[1] * (row[3] - row[2]) for row in lasted),
        })
    return {"cpu": rows}

"""The part of `kernel.py` for the states of threads, and the lengths of run queues."""

import kernel


def change_states(trace, time, cpu, prev, next_, state):
    came = trace.came.get(cpu)
    is_late = came is None and trace.named.get(prev, time) < time
    is_whole = came == kernel.idle(prev, cpu) or came is None and not is_late
    if trace.runs.get(cpu, prev) != prev:
        # A switch is missing.
        stops(trace, time, cpu, trace.runs[cpu])
    trace.runs[cpu] = next_
    call = trace.in_call.pop(cpu, ...)
    if came is None:
        trace.first_switch[cpu] = time
        if prev and not is_late:
            is_older(trace, time, cpu, prev)
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


def is_older(trace, time, cpu, tid):
    """A thread ran on a CPU before the first switch there. If its first event was a wake-up there, it did not wait."""
    state = trace.state.get(tid)
    if state and state[:2] == ("runnable", cpu) and state[2] == trace.born.get(tid) and tid not in trace.older:
        del trace.state[tid]
    trace.born.setdefault(tid, time)
    trace.older.add(tid)


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
    """Ends the state of a thread; begins a new one unless `now` is None: then the thread has ended."""
    before = trace.state.pop(tid, None)
    trace.born.setdefault(tid, time)
    if before:
        kind, of, since = before
        # Running times are computed from the switches of each CPU.
        if kind != "running":
            trace.spent.append((tid, kind, of, since, time))
        if kind == "runnable":
            trace.waits.append((of, since, time, True))
    if now:
        if now[0] in ("runnable", "running"):
            trace.queues.add(now[1])
        trace.state[tid] = (*now, time)
    else:
        dies(trace, tid, time)


def dies(trace, tid, time):
    begin = trace.begin if tid in trace.older else trace.born[tid]
    trace.lifetime[tid] += time - begin
    trace.older.discard(tid)
    del trace.born[tid]


def forget(trace, tid, time):
    """Marks the state of a thread as unknown."""
    state = trace.state.pop(tid, None)
    if state and state[0] == "runnable":
        trace.waits.append((state[1], state[2], time, False))


def state_tables(trace):
    lifetime = trace.lifetime.copy()
    for tid, born in trace.born.items():
        lifetime[tid] += trace.end - (trace.begin if tid in trace.older else born)
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
            "lifetime_ns": lifetime[tid],
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
    waits = trace.waits + [(of[1], of[2], trace.end, True) for of in trace.state.values() if of[0] == "runnable"]
    rows = []
    for cpu in sorted(trace.queues):
        own = [wait for wait in waits if wait[0] == cpu]
        lost = [wait for wait in own if not wait[3]]
        # A wait whose end is unknown has no length. After the first switch of the CPU it counts until it was noticed.
        first = trace.first_switch.get(cpu, trace.end)
        counted = [wait for wait in own if wait[3] or wait[2] > first]
        changes = sorted([(wait[1], 1) for wait in counted] + [(wait[2], -1) for wait in counted])
        most, at, length = 0, None, 0
        for index, (time, by) in enumerate(changes):
            length += by
            lasts = index + 1 < len(changes) and changes[index + 1][0] > time
            if lasts and length > most:
                most, at = length, time
        rows.append({
            "cpu": cpu,
            "max": most,
            "at_ns": at,
            "waited_ns": sum(wait[2] - wait[1] for wait in own if wait[3]),
            "unknown_ns": sum(wait[2] - wait[1] for wait in lost),
        })
    return {"cpu": rows}

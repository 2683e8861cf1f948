"""The part of `kernel.py` for the lifetimes of threads, and the signals that they received."""

from collections import defaultdict

import kernel

def life(trace, tid):
    if not trace.lives[tid]:
        trace.lives[tid].append(new_life())
    return trace.lives[tid][-1]


def new_life(**known):
    return {"born": None, "died": None, "pid": None, "parent": None, "comm": None, "program": None, "programs": 0} | known


def live(trace, time, name, field):
    """Applies an event to the lifetimes of threads."""
    if name == "sched_switch":
        for side in ("prev", "next"):
            if int(field(side + "_tid")):
                life(trace, int(field(side + "_tid")))["comm"] = str(field(side + "_comm"))
    elif name == "sched_process_fork" and field("child_pid") is not None:
        known = {"pid": int(field("child_pid")), "parent": int(field("parent_pid")), "comm": str(field("child_comm"))}
        trace.lives[int(field("child_tid"))].append(new_life(born=time, **known))
    elif name == "sched_process_exec":
        of = life(trace, int(field("tid")))
        of["program"], of["programs"] = str(field("filename")), of["programs"] + 1
    elif name == "sched_process_exit":
        life(trace, int(field("tid")))["died"] = time
    elif name == "lttng_statedump_process_state" and int(field("tid")):
        of = life(trace, int(field("tid")))
        of["pid"], of["comm"] = int(field("pid")), str(field("name"))
        of["parent"] = of["parent"] or int(field("ppid")) or None


def process_tables(trace):
    """Returns the rows of the trees of processes and of threads, unordered, each with its depth."""
    for id_ in {id_ for lives in trace.lives.values() for of in lives for id_ in (of["pid"], of["parent"]) if id_}:
        life(trace, id_)

    def at(tid, time):
        """Returns the index of the thread's lifetime at a time: a thread id may be reused."""
        begun = [index for index, of in enumerate(trace.lives.get(tid, [])) if (of["born"] or 0) <= time]
        return (tid, begun[-1] if begun else 0) if tid in trace.lives else None

    def of(place):
        return trace.lives[place[0]][place[1]]

    def process(place, time):
        pid = of(place)["pid"]
        return place if pid is None or pid == place[0] else at(pid, time)

    places = [(tid, index) for tid, lives in trace.lives.items() for index in range(len(lives))]
    above, threads = {}, defaultdict(lambda: 1)
    for place in places:
        time = of(place)["born"] or 0
        own = process(place, time)
        maker = at(of(place)["parent"], time) if of(place)["parent"] else None
        maker = maker and process(maker, time)
        if own != place:
            threads[own] += 1
        up = own if own != place else maker
        above[place] = up if up and up[0] != place[0] else None

    def row(place):
        depth, up = 0, above[place]
        while up:
            depth, up = depth + 1, above[up]
        known = of(place)
        length = (known["died"] or trace.end) - (known["born"] or trace.begin)
        return {
            "comm": known["comm"], "depth": depth, "tid": place[0], "pid": known["pid"] or place[0],
            "begin_ns": known["born"], "duration_ns": max(length, 0), "threads": threads[place],
            "program": known["program"], "end_ns": known["died"], "programs": known["programs"],
        }

    processes = [place for place in places if of(place)["pid"] in (None, place[0])]
    return {"process": [row(place) for place in processes], "thread": [row(place) for place in places]}


SIGNALS = (
    "0 HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG "
    "XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
).split()


def sign(trace, time, cpu, name, field):
    """Records a signal event. The receiver of a signal is known at the next switch of its CPU."""
    if name == "signal_generate":
        trace.signals.append(["sent", time, int(field("sig")), int(field("pid")), int(field("result")) == 0])
    elif name == "signal_deliver":
        trace.signals.append(["taken", time, int(field("sig")), None, cpu])
    elif name == "sched_switch":
        for one in reversed(trace.signals):
            # All earlier signals have a receiver.
            if one[0] == "taken" and one[4] == cpu:
                if one[3] is not None:
                    break
                one[3] = int(field("prev_tid"))


def signal_tables(trace):
    """Returns the tables, and the number of unmatched and unfinished signals."""
    sent, dropped, taken, waited = defaultdict(int), defaultdict(int), defaultdict(int), []
    waiting, unmatched = {}, 0
    for one in trace.signals:
        kind, time, signal = one[:3]
        tid = one[3] if one[3] is not None else trace.now.get(one[4], 0)
        tid = tid if isinstance(tid, int) else 0
        who_ = tid, signal
        if kind == "sent":
            sent[who_] += 1
            dropped[who_] += not one[4]
            if one[4]:
                waiting.setdefault(who_, time)
        else:
            taken[who_] += 1
            if who_ in waiting:
                begin = waiting.pop(who_)
                waited.append((who_, time - begin, begin))
            else:
                unmatched += 1

    def name(signal):
        return {"signal": SIGNALS[signal] if signal < len(SIGNALS) else f"RT {signal}", "number": signal}

    def rows(group, tell):
        groups = {group(who_) for who_ in list(sent) + list(taken)}
        total = lambda counts, of: sum(count for who_, count in counts.items() if group(who_) == of)
        return [
            tell(of) | {"sent": total(sent, of), "dropped": total(dropped, of), "taken": total(taken, of)}
            | kernel.figures([one[1] for one in waited if group(one[0]) == of])
            for of in groups
        ]

    def told(who_):
        return kernel.person(trace, who_[0]) | name(who_[1])

    slowest = sorted(waited, key=lambda one: (-one[1], one[2], one[0]))[:100]
    tables = {
        "signal": rows(lambda who_: who_[1], name),
        "thread": rows(lambda who_: who_, told),
        "slowest": [told(one[0]) | {"latency_ns": one[1], "begin_ns": one[2]} for one in slowest],
    }
    return tables, {"unmatched": unmatched, "unfinished": len(waiting)}

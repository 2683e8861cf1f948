"""The part of `kernel.py` that maps file descriptors to files, and counts file operations."""

import kernel

# Calls that return a descriptor of something other than a named file, and what it is.
MAKE = {
    "socket": "socket", "accept": "socket", "accept4": "socket", "eventfd": "eventfd", "eventfd2": "eventfd",
    "epoll_create": "epoll", "epoll_create1": "epoll", "timerfd_create": "timerfd", "signalfd": "signalfd",
    "signalfd4": "signalfd", "inotify_init": "inotify", "inotify_init1": "inotify", "memfd_create": "memfd",
    "perf_event_open": "perf_event", "pidfd_open": "pidfd", "io_uring_setup": "io_uring",
}
PAIRS = {"pipe": "pipe", "pipe2": "pipe", "socketpair": "socket"}
TABLES = {"dup", "dup2", "dup3", "fcntl", "execve", "execveat", *MAKE, *PAIRS}
FROM = {"dup": "fildes", "dup2": "oldfd", "dup3": "oldfd", "splice": "fd_in", "tee": "fdin", "sendfile64": "in_fd",
        "copy_file_range": "fd_in"}
TO = {"dup2": "newfd", "dup3": "newfd", "splice": "fd_out", "tee": "fdout", "sendfile64": "out_fd",
      "copy_file_range": "fd_out"}
CLOSE_ON_EXEC = 0o2000000


def arguments(call, field):
    """Returns the arguments of a call that concern descriptors; they have the kernel's names."""
    if call not in kernel.OPERATIONS and call not in TABLES:
        return None
    if call in ("sync", "msync"):
        # These calls have no descriptor.
        return {"fd": None}

    def number(name):
        value = field(name)
        return None if value is None else (int(value) + 2**31) % 2**32 - 2**31

    flags = {"socket": "type", "socketpair": "type"}.get(call, "flags")
    needs_flags = call in ("open", "openat", "dup3") or call in PAIRS or call in MAKE
    flags = int(field(flags) or 0) if needs_flags and call not in ("pipe", "accept", "pidfd_open", "io_uring_setup") else 0
    bit = {"memfd_create": 1, "perf_event_open": 8}.get(call, CLOSE_ON_EXEC)
    closes = bool(flags & bit) or call in ("pidfd_open", "io_uring_setup")
    if call in ("open", "openat", "openat2", "creat"):
        name = field("pathname" if call == "creat" else "filename")
        return {"name": str(name) if name and not isinstance(name, int) else None, "closes": closes}
    if call in MAKE or call in PAIRS or call in ("execve", "execveat"):
        return {"closes": closes}
    found = {"fd": number(FROM.get(call, "fd")), "to": number(TO[call]) if call in TO else None, "closes": closes}
    if call == "fcntl":
        found |= {"command": int(field("cmd")), "value": int(field("arg"))}
    return found


def use_file(trace, thread, call, begin, length, result, found, field):
    """Applies a completed call to its process's descriptor table, and counts it as an operation on a file."""
    if found is None:
        return
    pid = trace.process.get(thread) if not isinstance(thread, (list, tuple)) else None
    table = trace.files.setdefault(pid, {}) if pid is not None else {}
    failed = kernel.is_error(result)

    def used(fd, name, read=0, written=0, opens=0):
        trace.used.append((thread, fd, name, read, written, opens, failed, length))

    name = table.get(found.get("fd"), (None, False))[0]
    moved = 0 if failed else result
    if call in kernel.COPY:
        used(found["fd"], name, read=moved)
        used(found["to"], table.get(found["to"], (None,))[0], written=moved)
    elif kernel.OPERATIONS.get(call) == "open":
        used(None if failed else result, found["name"], opens=not failed)
        if not failed:
            table.pop(result, None)
            if found["name"] is not None:
                table[result] = (found["name"], found["closes"])
    elif call in kernel.OPERATIONS:
        used(found["fd"], name, read=moved if call in kernel.READ else 0, written=moved if call in kernel.WRITE else 0)
        if call == "close" and result != -9:
            table.pop(found["fd"], None)
    elif failed:
        return
    elif call in MAKE:
        table[result] = (MAKE[call], found["closes"])
    elif call in PAIRS:
        made = field("fildes") if call != "socketpair" else None
        for fd in made or ():
            table[int(fd)] = (PAIRS[call], found["closes"])
    elif call in ("execve", "execveat"):
        for fd in [fd for fd, slot in table.items() if slot[1]]:
            del table[fd]
    elif call == "fcntl":
        if found["command"] in (0, 1030):
            duplicate(table, found["fd"], result, found["command"] == 1030)
        elif found["command"] == 2:
            duplicate(table, found["fd"], found["fd"], bool(found["value"] & 1))
    elif call == "dup":
        duplicate(table, found["fd"], result, False)
    elif found["fd"] != result:
        duplicate(table, found["fd"], result, found["closes"])


def duplicate(table, old, new, closes):
    if old in table:
        table[new] = (table[old][0], closes)
    else:
        table.pop(new, None)


def file_tables(trace):
    def process(thread):
        return trace.pid.get(kernel.who(thread), kernel.who(thread))

    def row(uses):
        return {
            "read_bytes": sum(use[3] for use in uses),
            "written_bytes": sum(use[4] for use in uses),
            "operations": len(uses),
            "opens": sum(use[5] for use in uses),
            "errors": sum(use[6] for use in uses),
            "total_ns": sum(use[7] for use in uses),
        }

    files = kernel.grouped(trace.used, lambda use: use[2])
    by_file = [
        {"file": name} | row(uses) | {"processes": len({process(use[0]) for use in uses})} for name, uses in files.items()
    ]
    by_descriptor = [
        {"comm": trace.comm.get(of), "pid": of, "fd": fd, "file": name} | row(uses)
        for (of, fd, name), uses in kernel.grouped(trace.used, lambda use: (process(use[0]), use[1], use[2])).items()
    ]
    return {"file": by_file, "descriptor": by_descriptor}

"""Reports by many processes or machines: the tasks of `hodo plan` as a graph of Dask.

Workers fold the tasks and merge neighbours as a tree; the scheduler holds no part. The inputs lie at the same paths for
every worker, or at addresses that fsspec knows, of which each machine gets a copy. Every worker has this build of
hodoscope: parts of different commits may not fit, though their versions are equal.
"""

import os
import tempfile
import uuid

from . import _copies, _native
from ._trace import Trace, path

# Parts that one task of the tree merges.
WIDTH = 4


def _checked(build):
    if build != _native.build:
        raise RuntimeError(f"the client has hodoscope {build}, but a worker has {_native.build}: install the same build")


def _fold(task, build, copies=(), plan=None):
    _checked(build)
    for address, place in copies:
        _copies.fetch(address, place)
    return _native.fold(task, plan)


def _merge(*parts):
    return _native.merge(list(parts))


def report(client, inputs, kind, *, parts=None, copies=None, **given):
    """Makes the tables of a report on the workers of a `distributed.Client`, equal to those of one machine.

    `parts` is the number of tasks; without it there is one for each 64 MB of trace, or for each thread of the workers if
    those are more. Folds of workers that are lost run again elsewhere. Raises what a worker raised.

    An input, or `symfs`, may be an address that fsspec knows, such as `https://host/trace`. Client and workers copy it into
    `copies`, a folder of the same name on each machine (without it, one in the folder of temporary files), where it stays.
    """
    inputs = [inputs] if isinstance(inputs, (str, bytes, os.PathLike)) else inputs
    folder = os.path.abspath(copies or os.path.join(tempfile.gettempdir(), f"hodoscope-{os.getuid()}"))
    remote = []

    def local(value):
        if not _copies.is_remote(value):
            # Workers may run in another folder.
            return os.path.abspath(path(value))
        remote.append((value, _copies.place(value, folder)))
        _copies.fetch(*remote[-1])
        return remote[-1][1]

    trace = Trace(*map(local, inputs))
    if not isinstance(kind, str):
        raise TypeError(f"a report is a name, not {type(kind).__name__}")
    if _copies.is_remote(given.get("symfs")):
        given["symfs"] = local(given["symfs"])
    tasks = _native.plan(trace.arguments("plan", kind, parts=parts, **given))
    threads = sum(client.nthreads().values())
    if parts is None and len(tasks) < threads:
        tasks = _native.plan(trace.arguments("plan", kind, parts=threads, **given))
    # What a worker keeps open is used for this report only: files may change before the next.
    same = {"build": _native.build, "copies": remote, "plan": uuid.uuid4().hex}
    level = client.map(_fold, tasks, **same, pure=False)
    while len(level) > 1:
        level = [
            client.submit(_merge, *level[start : start + WIDTH], pure=False)
            for start in range(0, len(level), WIDTH)
        ]
    return _native.finish(level[0].result())

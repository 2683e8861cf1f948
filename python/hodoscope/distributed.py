"""Reports by many processes or machines: the tasks of `hodo plan`, folded and merged anywhere.

`report` does so on a cluster of Dask. Others, such as Ray and Spark, call `plan`, then `fold` for each task, `merge` for neighbours, in
any grouping, and `finish` for what is left. The inputs lie at the same paths for every worker, or at addresses that fsspec
knows, of which each machine gets a copy. Every worker has this build of hodoscope: parts of different commits may not fit, though
their versions are equal.
"""

import os
import tempfile
import uuid
from typing import NamedTuple

from . import _copies, _native
from ._trace import Trace, path

# Parts that one task of the tree merges.
WIDTH = 4


class Task(NamedTuple):
    """A portion of a report. It can be pickled."""

    text: str
    build: str
    # Addresses of inputs, and where their copies lie.
    copies: list
    # A name of this plan: what a worker keeps open is used for it only, as files may change before the next.
    plan: str


def _checked(build):
    if build != _native.build:
        raise RuntimeError(f"the client has hodoscope {build}, but a worker has {_native.build}: install the same build")


def _planned(inputs, kind, parts, copies, given):
    """Returns a function that divides the report into tasks: at least so many of them, if that is given."""
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
    name = uuid.uuid4().hex

    def planned(least=None):
        texts = _native.plan(trace.arguments("plan", kind, parts=parts or least, **given))
        return [Task(text, _native.build, remote, name) for text in texts]

    return planned


def plan(inputs, kind, *, parts=None, copies=None, **given):
    """Divides a report into tasks, in their order.

    `parts` is the number of tasks; without it there is one for each 64 MB of trace. For addresses as inputs see `report`.
    """
    return _planned(inputs, kind, parts, copies, given)()


def fold(task):
    """Folds a task into a part, as bytes. Raises `RuntimeError` if the task is of another build."""
    _checked(task.build)
    for address, place in task.copies:
        _copies.fetch(address, place)
    return _native.fold(task.text, task.plan)


def merge(*parts):
    """Merges the parts of neighbours, in the order of their tasks, into one."""
    return _native.merge(list(parts))


def finish(part):
    """Makes the tables of the part that all parts were merged into."""
    return _native.finish(part)


def report(client, inputs, kind, *, parts=None, copies=None, **given):
    """Makes the tables of a report on the workers of a `distributed.Client`, equal to those of one machine.

    `parts` is the number of tasks; without it there is one for each 64 MB of trace, or for each thread of the workers if
    those are more. Folds of workers that are lost run again elsewhere. Raises what a worker raised.

    An input, or `symfs`, may be an address that fsspec knows, such as `https://host/trace`. Client and workers copy it into
    `copies`, a folder of the same name on each machine (without it, one in the folder of temporary files), where it stays.
    """
    planned = _planned(inputs, kind, parts, copies, given)
    tasks = planned()
    threads = sum(client.nthreads().values())
    if parts is None and len(tasks) < threads:
        tasks = planned(least=threads)
    level = client.map(fold, tasks, pure=False)
    while len(level) > 1:
        level = [
            client.submit(merge, *level[start : start + WIDTH], pure=False)
            for start in range(0, len(level), WIDTH)
        ]
    return finish(level[0].result())

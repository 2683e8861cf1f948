"""Reports by many processes or machines: the tasks of `hodo plan` as a graph of Dask.

Workers fold the tasks and merge neighbours as a tree; the scheduler holds no part. The inputs lie at the same paths for
every worker, and every worker has this version of hodoscope.
"""

import os

from . import _native
from ._trace import Trace, path

# Parts that one task of the tree merges.
WIDTH = 4


def _checked(version):
    if version != _native.version:
        raise RuntimeError(f"the client has hodoscope {version}, but a worker has {_native.version}")


def _fold(task, version):
    _checked(version)
    return _native.fold(task)


def _merge(*parts):
    return _native.merge(list(parts))


def report(client, inputs, kind, *, parts=None, **given):
    """Makes the tables of a report on the workers of a `distributed.Client`, equal to those of one machine.

    `parts` is the number of tasks; without it there is one for each 64 MB of trace. Folds of workers that are lost run
    again elsewhere. Raises what a worker raised.
    """
    inputs = [inputs] if isinstance(inputs, (str, bytes, os.PathLike)) else inputs
    # Workers may run in another folder.
    trace = Trace(*(os.path.abspath(path(one)) for one in inputs))
    if not isinstance(kind, str):
        raise TypeError(f"a report is a name, not {type(kind).__name__}")
    plan = trace.arguments("plan", analysis=kind, parts=parts, **given)
    level = client.map(_fold, _native.plan(plan), version=_native.version, pure=False)
    while len(level) > 1:
        level = [
            client.submit(_merge, *level[start : start + WIDTH], pure=False)
            for start in range(0, len(level), WIDTH)
        ]
    return _native.finish(level[0].result())

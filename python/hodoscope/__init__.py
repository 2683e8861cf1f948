"""Exact execution traces: which functions a program ran, how often and for how long, and kernel and software events.

>>> trace = hodoscope.open("perf.data")
>>> frame = polars.DataFrame(trace.report("functions"))

Options are those of the command line, with `_` for `-`: `trace.report("syscalls", time="10%-20%", tid=[42])` is
`hodo report syscalls --time 10%-20% --tid 42`. A name that Python reserves gets a `_` at its end: `from_`.
"""

from ._native import Events, InputError, Plot, Store, Table, UsageError
from ._native import build as __build__
from ._native import version as __version__
from ._trace import Trace, open, reports, sql

__all__ = ["Events", "InputError", "Plot", "Store", "Table", "Trace", "UsageError", "__build__", "__version__", "open", "reports", "sql"]

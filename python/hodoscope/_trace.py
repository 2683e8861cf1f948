"""Inputs, and the commands that make tables of them."""

import os
import sys

from . import _native

# Options about output, which is a table here.
OUTPUT = {"color", "format", "limit", "list", "output", "quiet", "refresh", "strict", "top"}


def option(name, value):
    """Returns the arguments that give an option of the command line this value."""
    name = name.rstrip("_").replace("_", "-")
    if name in OUTPUT:
        raise TypeError(f"{name} is about output, and a Table is a value")
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    if isinstance(value, (str, int, float, os.PathLike)):
        return [f"--{name}={os.fspath(value) if isinstance(value, os.PathLike) else value}"]
    if isinstance(value, (list, tuple, range)):
        return [argument for one in value for argument in option(name, one)]
    raise TypeError(f"{name}: expected text, a number, True or a list of them, not {type(value).__name__}")


def options(values):
    """Returns the arguments that give options their values."""
    return [argument for name, value in values.items() for argument in option(name, value)]


def path(value):
    """Returns an input as text; bytes are decoded as the file system's names are."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"an input is a path, not {type(value).__name__}")
    return os.fsdecode(value)


class Bar:
    """Draws progress on standard error, in terminals and in notebooks."""

    def __init__(self):
        self._shown = -1

    def __call__(self, done, total):
        percent = done * 100 // total
        if percent != self._shown:
            self._shown = percent
            end = "\n" if done >= total else ""
            print(f"\r{'#' * (percent * 30 // 100):<30} {percent:3} %", end=end, file=sys.stderr, flush=True)


def made(arguments, progress):
    """Makes the tables of a command."""
    return _native.make(arguments, Bar() if progress is True else progress)


def sql(query, *inputs, **given):
    """Runs a statement over inputs: `Trace.sql` of `open(*inputs)`."""
    return open(*inputs).sql(query, **given)


def reports():
    """Returns the reports: name, what it shows, the kinds of its rows (`by`), the usual one first."""
    # A report with one kind of rows has no name for it.
    return [(name, about, [view for view in views if view]) for name, about, views in _native.reports()]


def open(*inputs, **given):
    """Opens inputs together, as one experiment, with options such as `symfs` and `offset` for all that is asked of it.

    Raises `InputError` if an input does not exist or has no known format.
    """
    trace = Trace(*inputs, **given)
    _native.check(trace.arguments("info"))
    return trace


class Trace:
    """Inputs that are read together. It holds no file open, so it can be pickled."""

    def __init__(self, *inputs, **given):
        if not inputs:
            raise TypeError("open() needs an input")
        self.inputs = tuple(path(one) for one in inputs)
        self._given = given
        options(given)

    def __repr__(self):
        return f"hodoscope.open({', '.join(map(repr, self.inputs))})"

    def arguments(self, command, *first, **given):
        """Returns the arguments of a command on these inputs."""
        return [command, *options({**self._given, **given}), "--quiet", "--", *first, *self.inputs]

    def info(self):
        """Describes the inputs: what `hodo info --format json` prints."""
        # A third of the time of importing this package, and rarely used.
        import json

        return json.loads(_native.describe(self.arguments("info")))

    def report(self, kind, *, progress=None, **given):
        """Makes the one table of a report. `progress(done, total)` is called with bytes of trace while it works; `True` draws a bar."""
        tables = self.reports(kind, progress=progress, **given)
        if len(tables) != 1:
            raise ValueError(f"{kind} makes {len(tables)} tables of these inputs; reports() returns all")
        return tables[0]

    def reports(self, kind, *, progress=None, **given):
        """Makes all tables of a report: one for each recording of control flow, and `all` makes many."""
        if not isinstance(kind, str):
            raise TypeError(f"a report is a name, not {type(kind).__name__}")
        return made(self.arguments("report", kind, **given), progress)

    def latency(self, *, progress=None, **given):
        """Measures how long from one marker to another: the distribution of `hodo latency`, or its rows `by`."""
        # Its text and its JSON show single executions too, and this format the table alone.
        first, *rest = self.arguments("latency", **given)
        [table] = made([first, "--format=csv", *rest], progress)
        return table

    def sql(self, query, *, progress=None, **given):
        """Runs statements over the tables that docs/sql.md describes, with options such as `time` and `tid`; the result of the last one."""
        if not isinstance(query, str):
            raise TypeError(f"a query is text, not {type(query).__name__}")
        [table] = made([*self.arguments("sql", **given), query], progress)
        return table

    def diff(self, other, *, progress=None, **given):
        """Compares these inputs, the baseline, with another trace or path: the tables of `hodo diff`."""
        other = other if isinstance(other, Trace) else Trace(other)
        sides = {"a": list(self.inputs), "b": list(other.inputs)}
        options_ = options({**self._given, **given, **sides})
        return made(["diff", "--format=json", *options_, "--quiet"], progress)

    def events(self, name=None, **given):
        """Reads the events of one name, with a column for each field; without a name all, with their fields as JSON.

        `where`, `time`, `tid` and the other options of `hodo script` select. The result is an iterator of tables, one for
        each batch, and a stream of Arrow batches; it reads while it is taken, and stops when it is closed or dropped.
        """
        if not (name is None or isinstance(name, str)):
            raise TypeError(f"events have a name, not {type(name).__name__}")
        return _native.read_events(self.arguments("script", events=True, **given), name)

    def store(self, folder=None, **given):
        """Opens the store of these inputs, whose records of any span are read quickly; builds it if there is none.

        `folder` is its place, or one in the user's cache. It stays on disk, for `hodo view` too.
        """
        return _native.open_store(self.arguments("index", store=folder, **given))

    def analyse(self, analysis, name=None, **given):
        """Computes an analysis of your own over events.

        `analysis.fold(table)` makes a partial state of a batch of events, `analysis.merge(earlier, later)` one of two
        neighbours, and `analysis.finish(state)` the result. However the events are cut into batches, the result must be
        the same: `chunk_size` cuts them differently. With no events, `fold` gets a table without rows.
        """
        state, is_first = None, True
        with self.events(name, **given) as batches:
            for batch in batches:
                partial = analysis.fold(batch)
                state = partial if is_first else analysis.merge(state, partial)
                is_first = False
            return analysis.finish(analysis.fold(batches.empty) if is_first else state)

"""Every table is that of the command line, whoever reads it."""

import json

import duckdb
import pandas
import polars
import pyarrow
import pytest
from conftest import EVENTS, FLOW, FTRACE, SYMFS, printed, run

import hodoscope

# A report that needs more than its name, and what it is given.
NEEDS = {"periods": {"begin": "sched_switch", "end": "sched_switch"}, "latency": None}
INPUTS = {"flow": (FLOW, {"symfs": SYMFS}), "events": (EVENTS, {}), "ftrace": (FTRACE, {})}


def arguments(options):
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def rows(table):
    """Returns the rows as pyarrow reads them."""
    return [list(row.values()) for row in pyarrow.table(table).to_pylist()]


@pytest.mark.parametrize("where", INPUTS)
@pytest.mark.parametrize("kind", [name for name, _, _ in hodoscope.reports()])
def test_each_report_is_the_command_lines(kind, where):
    path, options = INPUTS[where]
    needs = NEEDS.get(kind, {})
    if needs is None:
        pytest.skip("`hodo latency` makes it")
    expected = run("report", kind, path, *arguments({**options, **needs}), "--format", "json")
    trace = hodoscope.open(path, **options)
    if expected.returncode != 0:
        with pytest.raises((hodoscope.UsageError, hodoscope.InputError)) as raised:
            trace.report(kind, **needs)
        # The command line's names of options have other signs.
        def signless(text):
            return text.replace("-", "").replace("_", "")

        assert signless(str(raised.value)) in signless(expected.stderr)
        return
    table = trace.report(kind, **needs)
    wanted = json.loads(expected.stdout)
    assert table.to_json() == expected.stdout
    assert table.name == wanted["table"]
    assert table.summary == wanted["summary"]
    assert table.loss == wanted["loss"]
    assert table.columns == [column["name"] for column in wanted["columns"]]
    assert rows(table) == wanted["rows"]
    assert [list(row.values()) for row in table] == wanted["rows"]
    assert len(table) == len(wanted["rows"])


def test_options_mean_the_same():
    for kind, options in [("syscalls", {"time": "10%-50%"}), ("syscalls", {"by": "thread"}), ("count", {"cpu_list": "0"})]:
        [expected] = printed("report", kind, EVENTS, *arguments(options))
        assert json.loads(hodoscope.open(EVENTS).report(kind, **options).to_json()) == expected


def test_latency_is_the_command_lines():
    [expected] = printed("latency", "--function", "fib", FLOW, "--symfs", SYMFS, "--by", "thread")
    assert expected["rows"]
    assert rows(hodoscope.open(FLOW, symfs=SYMFS).latency(function="fib", by="thread")) == expected["rows"]


def test_all_makes_many():
    expected = printed("report", "all", EVENTS)
    tables = hodoscope.open(EVENTS).reports("all")
    assert [table.name for table in tables] == [table["table"] for table in expected]
    with pytest.raises(ValueError, match="reports"):
        hodoscope.open(EVENTS).report("all")


def test_info_is_the_command_lines():
    assert hodoscope.open(EVENTS).info() == json.loads(run("info", EVENTS, "--format", "json").stdout)


def test_readers_take_the_capsule():
    table = hodoscope.open(FLOW, symfs=SYMFS).report("functions")
    wanted = pyarrow.table(table)
    column = wanted["self_instructions"].to_pylist()
    assert sum(column) == table.summary["instructions"] > 0
    assert polars.DataFrame(table)["self_instructions"].to_list() == column
    assert pandas.DataFrame.from_arrow(table)["self_instructions"].to_list() == column
    found = duckdb.sql("select self_instructions from wanted").fetchall()
    assert [value for (value,) in found] == column
    assert wanted.schema.field("total_time_ns").metadata[b"hodo.unit"]


def test_a_notebook_shows_the_first_rows():
    html = hodoscope.open(EVENTS).report("syscalls")._repr_html_()
    assert html.startswith("<div><strong>syscalls</strong>") and "<script" not in html
    assert html.count("<tr>") > 2 and " µs</td>" in html


def test_plots_are_pictures(tmp_path):
    functions = hodoscope.open(FLOW, symfs=SYMFS).report("functions")
    plot = functions.plot()
    assert plot.svg == plot._repr_svg_() and plot.svg.startswith("<svg ")
    assert plot.svg == run("report", "functions", FLOW, "--symfs", SYMFS, "--format", "svg").stdout
    assert "functions: calls" in functions.plot("calls").svg
    plot.save(tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text() == plot.svg
    with pytest.raises(hodoscope.UsageError, match="no column of numbers is called module"):
        functions.plot("module")


def test_a_store_has_the_intervals_of_reports(tmp_path):
    trace = hodoscope.open(EVENTS)
    store = trace.store(tmp_path / "store")
    assert str(store.folder) == str(tmp_path / "store")
    counts = {name: records for name, _, records in store.tables()}
    calls = polars.DataFrame(trace.report("syscalls", by="interval"))
    stored = store.records("syscalls")
    assert len(stored) == counts["syscalls"] == len(calls) and stored.summary["whole"]
    stored = polars.DataFrame(stored)
    assert sorted(stored["begin_ns"]) == sorted(calls["begin_ns"])
    assert (stored["end_ns"] - stored["begin_ns"]).sum() == calls["duration_ns"].sum()
    begin, end = stored["begin_ns"].min(), stored["begin_ns"].median()
    some = polars.DataFrame(store.records("syscalls", begin, int(end)))
    assert len(some) == len(stored.filter(polars.col("begin_ns") < int(end)))
    first = store.records("syscalls", limit=3)
    assert len(first) == 3 and not first.summary["whole"]
    # It is opened again, not built.
    assert trace.store(tmp_path / "store").tables() == store.tables()
    links = store.records("wakers")
    assert any(name.startswith("to_") for name in links.columns)
    for wrong in [lambda: store.records("nothing"), lambda: store.records("syscalls", 5, 5)]:
        with pytest.raises(hodoscope.UsageError):
            wrong()
    with pytest.raises(hodoscope.UsageError):
        trace.store(tmp_path / "other", tid=1)


def test_frames_and_rows():
    table = hodoscope.open(FLOW, symfs=SYMFS).report("functions")
    assert table.to_polars().equals(polars.DataFrame(table))
    assert table.to_pandas().equals(pyarrow.table(table).to_pandas())
    assert isinstance(table.to_pandas(), pandas.DataFrame)
    rows = iter(table)
    first = next(rows)
    assert list(first) == table.columns and first == table.to_polars().row(0, named=True)
    assert len(list(rows)) == len(table) - 1 and next(rows, None) is None
    assert max(table, key=lambda row: row["calls"])["function"] == "fib"

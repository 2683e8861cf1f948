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
        assert str(raised.value) in expected.stderr
        return
    table = trace.report(kind, **needs)
    wanted = json.loads(expected.stdout)
    assert table.to_json() == expected.stdout
    assert table.name == wanted["table"]
    assert table.summary == wanted["summary"]
    assert table.loss == wanted["loss"]
    assert table.columns == [column["name"] for column in wanted["columns"]]
    assert rows(table) == wanted["rows"]
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
    assert html.startswith("<table><caption>syscalls") and "<script" not in html
    assert html.count("<tr>") > 2

"""Events are those of `hodo script`, whoever takes them, and an analysis over them does not depend on their batches."""

import json
import pickle

import polars
import pyarrow
import pytest
from conftest import EVENTS, FLOW, FTRACE, SYMFS, printed, run

import hodoscope


def script(path, *arguments):
    lines = run("script", "--events", "--format", "jsonl", path, *arguments).stdout.splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("path", [EVENTS, FTRACE])
def test_every_event_and_field(path):
    expected = script(path)
    assert len(expected) > 100
    names = sorted({event["name"] for event in expected})
    for name in names:
        mine = [event for event in expected if event["name"] == name]
        table = pyarrow.table(hodoscope.open(path).events(name))
        assert table["time_ns"].to_pylist() == [event["ts"] for event in mine], name
        for field in mine[0]["fields"]:
            column = f"field_{field}" if f"field_{field}" in table.column_names else field
            for cell, event in zip(table[column].to_pylist(), mine, strict=True):
                value = event["fields"][field]
                if isinstance(value, (dict, list)):
                    cell = json.loads(cell)
                assert cell == value, (name, field)
    everything = pyarrow.table(hodoscope.open(path).events())
    assert everything["event"].to_pylist() == [event["name"] for event in expected]
    assert [json.loads(fields) for fields in everything["fields"].to_pylist()] == [event["fields"] for event in expected]


def test_selections():
    trace = hodoscope.open(EVENTS)
    for options, arguments in [
        ({"where": "next_tid == 0"}, ["--where", "next_tid == 0"]),
        ({"time": "10%-50%"}, ["--time", "10%-50%"]),
        ({"cpu_list": 1}, ["--cpu-list", "1"]),
    ]:
        expected = script(EVENTS, "--event", "sched_switch", *arguments)
        assert 0 < len(expected) == sum(map(len, trace.events("sched_switch", **options)))


class Bytes:
    def fold(self, table):
        return polars.DataFrame(table).cast({"comm": polars.String}).group_by("comm").agg(polars.col("runtime").sum())

    def merge(self, earlier, later):
        return polars.concat([earlier, later]).group_by("comm").agg(polars.col("runtime").sum())

    def finish(self, state):
        return dict(state.sort("comm").iter_rows())


def test_an_analysis_does_not_depend_on_batches():
    expected = {}
    for event in script(EVENTS, "--event", "sched_stat_runtime"):
        fields = event["fields"]
        expected[fields["comm"]] = expected.get(fields["comm"], 0) + fields["runtime"]
    trace = hodoscope.open(EVENTS)
    for options in [{}, {"chunk_size": "4K"}, {"chunk_size": "0.01s"}, {"jobs": 1}]:
        assert trace.analyse(Bytes(), "sched_stat_runtime", **options) == expected
    assert len(list(trace.events("sched_stat_runtime", chunk_size="4K"))) > 3
    assert trace.analyse(Bytes(), "sched_stat_runtime", where="runtime < 0") == {}


def test_misuse():
    trace = hodoscope.open(EVENTS)
    with pytest.raises(hodoscope.UsageError, match="nothing_like_it"):
        trace.events("nothing_like_it")
    with pytest.raises(TypeError, match="a name"):
        trace.events(5)
    with pytest.raises(TypeError, match="text"):
        trace.sql(5)
    with trace.events("sched_switch") as events:
        assert next(events).name == "sched_switch"
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(events)
    with pytest.raises(ValueError, match="closed"):
        next(events)
    taken = trace.events("sched_switch")
    assert pyarrow.table(taken).num_rows > 0
    with pytest.raises(ValueError, match="already"):
        pyarrow.table(taken)


def test_diff_is_the_command_lines():
    [expected] = printed("diff", FLOW, FLOW, "--symfs", SYMFS)
    [table] = hodoscope.open(FLOW, symfs=SYMFS).diff(FLOW)
    assert json.loads(table.to_json()) == expected

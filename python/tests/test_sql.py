"""The queries of docs/sql.md give what DuckDB computes of exported files."""

import json
import math
import re
import struct

import duckdb
import pandas
import pytest
from conftest import EVENTS, FIXTURES, FLOW, ROOT, SYMFS, run

import hodoscope

QUERIES = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/sql.md").read_text(), re.S)


def tables(query):
    """Returns the names of the tables that a query reads, but those that it makes itself."""
    return set(re.findall(r"(?:from|join) (\w+)", query)) - set(re.findall(r"with (\w+) as", query))


TIMED_FLOW = str(FIXTURES / "perf/tiny-exact-time.data")
TINY = 30179
METADATA = """/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 32; signed = true; } := i32;
typealias integer { size = 64; signed = true; } := i64;
trace { major = 1; minor = 8; byte_order = le; };
env { hostname = "host"; domain = "kernel"; tracer_name = "lttng-modules"; };
clock { name = "monotonic"; freq = 1000000000; };
typealias integer { size = 64; map = clock.monotonic.value; } := time;
stream { packet.context := struct { i32 cpu_id; }; event.header := struct { u8 id; time t; }; };
event { id = 1; name = "sched_switch"; fields := struct {
    string _prev_comm; i32 _prev_tid; i32 _prev_prio; i64 _prev_state;
    string _next_comm; i32 _next_tid; i32 _next_prio; }; };
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A kernel trace in which the thread of `tiny-exact-time.data` loses its CPU twice; it runs from 1 s for 20.7 us."""
    folder = tmp_path_factory.mktemp("inputs") / "kernel"
    folder.mkdir()
    (folder / "metadata").write_text(METADATA)
    events = struct.pack("<i", 0)
    switches = [(0, 0, 0, TINY), (5_000, TINY, 0, 7), (8_000, 7, 1, TINY), (12_000, TINY, 1, 0), (13_000, 0, 0, TINY),
                (30_000, TINY, 1, 0)]
    name = {0: b"swapper/0\0", 7: b"other\0", TINY: b"tiny\0"}
    for time, before, state, after in switches:
        events += struct.pack("<BQ", 1, 1_000_000_000 + time) + name[before] + struct.pack("<iiq", before, 120, state)
        events += name[after] + struct.pack("<ii", after, 120)
    (folder / "channel0_0").write_bytes(events)
    return str(folder)


def source(query, kernel):
    """Returns the inputs of a query, and options."""
    names = tables(query)
    if {"calls", "states_interval"} <= names:
        return [TIMED_FLOW, kernel], {"symfs": SYMFS, "offset": f"{kernel}=+0s"}
    flow = {"functions", "functions_thread", "calls"} & names
    return ([FLOW], {"symfs": SYMFS}) if flow else ([EVENTS], {})


def arguments(options):
    return [f"--{name}={value}" for name, value in options.items()]


REPORTS = {name if place == 0 else f"{name}_{view}": (name, view)
           for name, _, views in hodoscope.reports() for place, view in enumerate(views or [""])}


def events(inputs, options):
    """Returns the events of inputs by name, from lines of JSON."""
    rows = {}
    for line in run("script", "--events", "--format", "jsonl", *arguments(options), *inputs).stdout.splitlines():
        event = json.loads(line)
        row = {"time_ns": event["ts"], "stream": event["stream"], "cpu": event["context"].get("cpu_id")}
        rows.setdefault(event["name"], []).append({**row, **event["fields"]})
    return rows


def calls(recording):
    """Returns the calls of a recording, from lines of JSON. They are in order of their ends: a call's caller is the next one
    of its thread that has one frame less."""
    lines = run("script", "--calls", "--format", "jsonl", f"--symfs={SYMFS}", recording).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    for place, call in enumerate(found):
        outer = (other for other in found[place + 1:]
                 if other["tid"] == call["tid"] and other["depth"] == call["depth"] - 1)
        call["caller"] = next(outer, {}).get("function")
        call["begin_ns"] = call.pop("time_ns")
    return found


@pytest.fixture(scope="module")
def database(tmp_path_factory, kernel):
    """Returns a database of the tables that a query names: reports through Parquet, events and calls through lines of JSON."""
    folder = tmp_path_factory.mktemp("exported")
    known = {}

    def of(query):
        inputs, options = source(query, kernel)
        database = known.setdefault(tuple(inputs), duckdb.connect())
        present = {name for name, in database.execute("select table_name from information_schema.tables").fetchall()}
        for name in sorted(tables(query) - present):
            if name == "calls":
                frame = pandas.DataFrame(calls(inputs[0]))
                database.register(name, frame)
                continue
            if name not in REPORTS:
                frame = pandas.DataFrame(events(inputs, options)[name])
                database.register(name, frame)
                continue
            report, view = REPORTS[name]
            file = folder / f"{len(known)}-{name}.parquet"
            by = ["--by", view] if view else []
            done = run("report", report, *inputs, *by, *arguments(options), "--format", "parquet", "-o", file)
            assert done.returncode == 0, done.stderr
            columns = [column for column, *_ in database.execute(f"describe select * from '{file}'").fetchall()]
            is_interval = {"begin_ns", "duration_ns"} <= set(columns) and "end_ns" not in columns
            end = ", begin_ns + duration_ns as end_ns" if is_interval else ""
            database.execute(f"create view {name} as select *{end} from '{file}'")
        return database

    for query in QUERIES:
        database = known.setdefault(tuple(source(query, kernel)[0]), duckdb.connect())
        database.execute("create or replace macro percentile(x, p) as quantile_disc(x, p / 100.0)")
    return of


def test_the_page_has_twenty_five_queries():
    assert len(QUERIES) == 25


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: re.sub(r"\W+", " ", query)[:60])
def test_a_query_of_the_page(query, database, kernel):
    inputs, options = source(query, kernel)
    # The second time, tables come from files.
    for _ in range(2):
        done = run("sql", *arguments(options), *inputs, query, "--format", "json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        answer = database(query).execute(query)
        expected = answer.fetchall()
        assert expected and len(found["rows"]) == len(expected)
        for row, other in zip(found["rows"], expected):
            for cell, value in zip(row, other, strict=True):
                assert math.isclose(cell, value) if isinstance(cell, float) else cell == value, (row, other)
        assert [column["name"] for column in found["columns"]] == [name for name, *_ in answer.description]
    table = hodoscope.sql(query, *inputs, **options)
    assert json.loads(table.to_json()) == found


def test_units_and_exact_integers():
    table = hodoscope.sql("select begin_ns, duration_ns from syscalls_interval limit 1", EVENTS)
    assert table.units == {"begin_ns": "ns", "duration_ns": "ns"}
    addresses = hodoscope.sql("select file_table_address from lttng_statedump_process_state limit 1", EVENTS)
    [[address]] = json.loads(addresses.to_json())["rows"]
    assert address > 2**63
    hexadecimal = f"select count(*) as n from lttng_statedump_process_state where file_table_address = {address:#x}"
    assert json.loads(hodoscope.sql(hexadecimal, EVENTS).to_json())["rows"][0][0] > 0


def test_tables_are_listed():
    listed = json.loads(run("sql", "--tables", EVENTS, "--format", "json").stdout)["rows"]
    assert ["syscalls_interval", "end_ns", "integer", "ns"] in listed
    assert ["sched_switch", "prev_comm", "text", None] in listed
    assert not any(table == "functions" for table, *_ in listed)
    described = json.loads(run("sql", EVENTS, "describe sched_switch", "--format", "json").stdout)["rows"]
    assert described == [row for row in listed if row[0] == "sched_switch"]


def test_selections_are_pushed_down():
    query = "select count(*) as n from {}"
    count = lambda table, **options: json.loads(hodoscope.sql(query.format(table), EVENTS, **options).to_json())["rows"][0][0]
    assert 0 < count("sched_switch", time="10%-50%") < count("sched_switch")
    assert count("sched_switch", where="next_tid == 0") == count("sched_switch where next_tid = 0")
    tid = json.loads(hodoscope.sql("select tid from states_interval limit 1", EVENTS).to_json())["rows"][0][0]
    assert count("states_interval", tid=tid) == count(f"states_interval where tid = {tid}") > 0


@pytest.mark.parametrize("query, message", [
    ("select nix from cpu", r"no such column: nix, at line 1, character 8"),
    ("select * from functions", "no such table"),
    ("select * from nowhere", "tables` lists the tables"),
    ("delete from sched_switch", "traces are never written"),
    ("create table x (y)", "CREATETABLE is refused"),
    ("select", "last argument is the query|incomplete input"),
])
def test_errors(query, message):
    done = run("sql", EVENTS, query)
    assert done.returncode == 2 and re.search(message, done.stderr), done.stderr
    with pytest.raises(hodoscope.UsageError, match=message):
        hodoscope.sql(query, EVENTS)

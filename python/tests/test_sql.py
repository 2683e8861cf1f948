"""The queries of docs/sql.md give what DuckDB computes of exported files."""

import json
import math
import re

import duckdb
import pandas
import pytest
from conftest import EVENTS, FLOW, ROOT, SYMFS, run

import hodoscope

QUERIES = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/sql.md").read_text(), re.S)


def tables(query):
    """Returns the names of the tables that a query reads."""
    return set(re.findall(r"(?:from|join) (\w+)", query))


def source(query):
    return (FLOW, {"symfs": SYMFS}) if "functions" in tables(query) else (EVENTS, {})


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A database of every table that the queries name: reports through Parquet, events through lines of JSON."""
    folder = tmp_path_factory.mktemp("exported")
    database = duckdb.connect()
    database.execute("create macro percentile(x, p) as quantile_disc(x, p / 100.0)")
    views = {name if place == 0 else f"{name}_{view}": (name, view)
             for name, _, views in hodoscope.reports() for place, view in enumerate(views or [""])}
    rows = {}
    for line in run("script", "--events", "--format", "jsonl", EVENTS).stdout.splitlines():
        event = json.loads(line)
        row = {"time_ns": event["ts"], "stream": event["stream"], "cpu": event["context"].get("cpu_id")}
        rows.setdefault(event["name"], []).append({**row, **event["fields"]})
    for name in sorted({name for query in QUERIES for name in tables(query)}):
        if name not in views:
            frame = pandas.DataFrame(rows[name])
            database.register(name, frame)
            continue
        report, view = views[name]
        path, options = source(f"from {name}")
        by = ["--by", view] if view else []
        file = folder / f"{name}.parquet"
        options = [f"--{option}={value}" for option, value in options.items()]
        done = run("report", report, path, *by, *options, "--format", "parquet", "-o", file)
        assert done.returncode == 0, done.stderr
        columns = [column for column, *_ in database.execute(f"describe select * from '{file}'").fetchall()]
        is_interval = {"begin_ns", "duration_ns"} <= set(columns) and "end_ns" not in columns
        end = ", begin_ns + duration_ns as end_ns" if is_interval else ""
        database.execute(f"create view {name} as select *{end} from '{file}'")
    return database


def test_the_page_has_twenty_queries():
    assert len(QUERIES) == 20


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: re.sub(r"\W+", " ", query)[:60])
def test_a_query_of_the_page(query, exported):
    path, options = source(query)
    arguments = [f"--{name}={value}" for name, value in options.items()]
    done = run("sql", *arguments, path, query, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    expected = exported.execute(query).fetchall()
    assert expected and len(found["rows"]) == len(expected)
    for row, other in zip(found["rows"], expected):
        for cell, value in zip(row, other, strict=True):
            assert math.isclose(cell, value) if isinstance(cell, float) else cell == value, (row, other)
    assert [column["name"] for column in found["columns"]] == [name for name, *_ in exported.description]
    table = hodoscope.sql(query, path, **options)
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
    ("select * from nowhere", "--tables"),
    ("delete from sched_switch", "only one SELECT"),
    ("create table x (y)", "CREATETABLE is refused|only one SELECT"),
    ("select 1; select 2", "more than one statement"),
    ("select", "last argument is the query|incomplete input"),
])
def test_errors(query, message):
    done = run("sql", EVENTS, query)
    assert done.returncode == 2 and re.search(message, done.stderr), done.stderr
    with pytest.raises(hodoscope.UsageError, match=message):
        hodoscope.sql(query, EVENTS)

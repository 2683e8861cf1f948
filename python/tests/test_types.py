"""The stubs know every option: a misspelt one is refused by mypy."""

import json
import keyword
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import EVENTS, ROOT, run

import hodoscope
from hodoscope._trace import OUTPUT

STUB = ROOT / "python/hodoscope/_options.pyi"
# The methods with options: the name of their type, the command, and options that the method gives itself.
METHODS = [
    ("ReportOptions", "report", []),
    ("LatencyOptions", "latency", []),
    ("SqlOptions", "sql", ["shell"]),
    ("DiffOptions", "diff", ["a", "b", "fail-over"]),
    ("EventsOptions", "script", ["packets", "insns", "calls", "sideband", "events", "marks", "ptwrite", "power", "at", "fields"]),
    ("StoreOptions", "index", ["store"]),
    ("PlanOptions", "plan", ["parts"]),
]
# What stands for a number or a path in the help.
NUMBERS = {"N", "K", "HZ", "NUMBER", "THREADS", "SIZE", "TID,…", "PID,…", "CPU,…"}
PATHS = {"FILE", "DIR"}
HEAD = '''"""The options of each command, from `hodo help --json`. test_types.py writes this file: `UPDATE=1 cargo xtask test python`."""

from collections.abc import Sequence
from os import PathLike
from typing import Literal

from typing_extensions import TypedDict
'''


def literal(values):
    return f"Literal[{', '.join(json.dumps(value) for value in values)}]"


def kind(argument, views):
    """Returns the type of an option's value."""
    if argument["value"] is None:
        return "bool | None"
    values = [value["name"] for value in argument["values"]]
    if argument["name"] == "by":
        one = literal(values or views)
    elif values:
        one = literal(values)
    elif argument["value"] in NUMBERS:
        one = "str | int"
    elif argument["value"] in PATHS:
        one = "str | PathLike[str]"
    else:
        one = "str"
    return f"{one} | Sequence[{one}] | None" if argument["repeatable"] else f"{one} | None"


def generated():
    about = json.loads(run("help", "--json").stdout)
    views = sorted({view for _, _, views in hodoscope.reports() for view in views})

    def arguments_of(command):
        [arguments] = [known["arguments"] for known in about["commands"] if known["name"] == command]
        return arguments

    [kinds] = [argument["values"] for argument in arguments_of("report") if argument["name"] == "kind"]
    options = {}
    for name, command, own in METHODS:
        arguments = arguments_of(command)
        named = [argument for argument in arguments if argument["long"] not in [None, "help", *own]]
        named = [argument for argument in named if argument["long"] not in OUTPUT]
        options[name] = {
            argument["long"].replace("-", "_") + "_" * keyword.iskeyword(argument["long"]): kind(argument, views)
            for argument in named
        }
    common = dict(set.intersection(*(set(known.items()) for known in options.values())))
    text = HEAD + f"\nReportKind = {literal(value['name'] for value in kinds)}\nBy = {literal(views)}\n"

    def typed(name, base, fields):
        lines = [f"    {field}: {value}" for field, value in sorted(fields.items())]
        return f"\nclass {name}({base}, total=False):\n" + "\n".join(lines or ["    pass"]) + "\n"

    text += typed("InputOptions", "TypedDict", common)
    for name, known in options.items():
        text += typed(name, "InputOptions", {field: known[field] for field in known.keys() - common.keys()})
    return text


def test_the_options_are_those_of_the_commands():
    text = generated()
    if os.environ.get("UPDATE"):
        STUB.write_text(text)
    assert STUB.read_text() == text, "write it again with UPDATE=1"


def mypy(folder, line):
    """Returns what mypy says about a line."""
    program = folder / "program.py"
    program.write_text(f"import hodoscope\nimport hodoscope.distributed\n\ntrace = hodoscope.open('x')\n{line}\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(folder.parent / "mypy")]
    return subprocess.run([*command, str(program)], capture_output=True, text=True).stdout


RIGHT = """
print(trace.report("syscalls", time="10%-20%", tid=[42, 43], by="thread").summary)
print(trace.latency(from_="a", to="b", by="executions"), trace.sql("select 1", time="1,2"), trace.diff("y", divergence=True))
print([row["function"] for row in trace.report("functions")], trace.report("functions").to_polars(), trace.info())
for table in trace.events("sched_switch", where="prev_tid == 3"):
    print(table.columns)
print(trace.store("folder").tables(), trace.report("count", symfs=None))
for name, about, views in hodoscope.reports():
    print(trace.reports(name, jobs=2), about, views)
print(hodoscope.distributed.report(None, "x", "functions", function="f"), hodoscope.open("x", symfs="/"))
"""


def test_right_options_pass(tmp_path):
    assert mypy(tmp_path, RIGHT) == ""


@pytest.mark.parametrize(
    "line, word",
    [
        ("trace.report('syscalls', tdi=[1])", "tdi"),
        ("trace.report('syscals')", "syscals"),
        ("trace.report('syscalls', by='thred')", "thred"),
        ("trace.report('syscalls', time=5)", "time"),
        ("trace.report('syscalls', format='csv')", "format"),
        ("trace.latency(form='a')", "form"),
        ("trace.sql('select 1', jbos=3)", "jbos"),
        ("trace.diff('y', divergance=True)", "divergance"),
        ("trace.events('a', were='x')", "were"),
        ("trace.store(None, chunksize='4K')", "chunksize"),
        ("hodoscope.open('x', symsf='/')", "symsf"),
        ("hodoscope.distributed.report(None, 'x', 'functions', functoin='f')", "functoin"),
    ],
)
def test_wrong_options_are_refused(tmp_path, line, word):
    said = mypy(tmp_path, line)
    assert "error:" in said and word in said, said


def test_the_stub_names_what_the_package_has():
    for name in hodoscope.__all__:
        assert hasattr(hodoscope, name)
    stub = pathlib.Path(STUB.with_name("__init__.pyi")).read_text()
    for kind_ in [hodoscope.Table, hodoscope.Events, hodoscope.Trace, hodoscope.Plot, hodoscope.Store]:
        for name in vars(kind_):
            assert name.startswith("_") or f" {name}" in stub, f"{kind_.__name__}.{name}"
    assert hodoscope.open(EVENTS).inputs == (EVENTS,)

"""What the tests share: fixtures of the repository, and the command `hodo` of the wheel."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
FLOW = str(FIXTURES / "perf/tiny.data")
EVENTS = str(FIXTURES / "ctf/lttng2.13-kernel")
FTRACE = str(FIXTURES / "ftrace/small-6.dat")
SYMFS = str(FIXTURES / "perf/symfs")


def run(*arguments):
    """Runs the `hodo` that the wheel installed beside this Python."""
    hodo = pathlib.Path(sys.executable).with_name("hodo")
    return subprocess.run([hodo, *arguments], capture_output=True, text=True)


def printed(*arguments):
    """Returns the tables that `hodo ... --format json` prints."""
    done = run(*arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    tables = json.loads(done.stdout)
    return tables if isinstance(tables, list) else [tables]


@pytest.fixture(scope="session")
def hodo():
    return printed

"""Reports by a cluster equal those of one process."""

import os
import pathlib
import signal
import threading
import time

import pytest
from conftest import EVENTS, FLOW, SYMFS
from distributed import Client, LocalCluster

import hodoscope
import hodoscope.distributed


@pytest.fixture(scope="module")
def client():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            yield client


def test_tables_equal_those_of_one_process(client):
    for path, kind, options in [
        (EVENTS, "syscalls", {}),
        (EVENTS, "states", {}),
        (EVENTS, "cpu", {}),
        (EVENTS, "syscalls", {"time": "10%-60%"}),
        (FLOW, "functions", {"symfs": SYMFS}),
        (FLOW, "paths", {"symfs": SYMFS}),
    ]:
        [table] = hodoscope.distributed.report(client, path, kind, parts=7, **options)
        assert table.to_json() == hodoscope.open(path).report(kind, **options).to_json()


def test_a_killed_worker(client):
    [before] = hodoscope.distributed.report(client, EVENTS, "syscalls", parts=40)
    victim = next(iter(client.run(os.getpid).values()))
    killer = threading.Timer(0.05, os.kill, (victim, signal.SIGKILL))
    killer.start()
    [after] = hodoscope.distributed.report(client, EVENTS, "syscalls", parts=40)
    killer.join()
    assert after.to_json() == before.to_json()


def test_what_workers_raise(client, tmp_path):
    copy = tmp_path / "copy.data"
    copy.write_bytes(open(FLOW, "rb").read())
    [task, *_] = hodoscope._native.plan(hodoscope.Trace(copy, symfs=SYMFS).arguments("plan", analysis="functions"))
    copy.write_bytes(pathlib.Path(FLOW).with_name("tiny-exact-time.data").read_bytes())
    with pytest.raises(hodoscope.InputError, match=r"changed.*copy.data"):
        client.submit(hodoscope.distributed._fold, task, version=hodoscope.__version__).result()
    with pytest.raises(RuntimeError, match="another.version|client has hodoscope 0.0.0"):
        client.submit(hodoscope.distributed._fold, task, version="0.0.0").result()
    with pytest.raises(hodoscope.InputError, match="absent"):
        hodoscope.distributed.report(client, tmp_path / "absent", "functions")

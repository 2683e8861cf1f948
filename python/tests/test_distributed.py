"""Reports by a cluster equal those of one process."""

import functools
import http.server
import os
import pathlib
import pickle
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


def test_parts_merge_without_a_cluster():
    tasks = hodoscope.distributed.plan(EVENTS, "syscalls", parts=5, time="10%-60%")
    assert len(tasks) == 5
    first, *rest = [hodoscope.distributed.fold(pickle.loads(pickle.dumps(task))) for task in tasks]
    [table] = hodoscope.distributed.finish(hodoscope.distributed.merge(first, hodoscope.distributed.merge(*rest)))
    assert table.to_json() == hodoscope.open(EVENTS).report("syscalls", time="10%-60%").to_json()
    with pytest.raises(hodoscope.UsageError):
        hodoscope.distributed.finish(first)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def addresses():
    """The folders of both inputs, served over HTTP on the loopback."""
    servers = []

    def serve(path):
        handler = functools.partial(Quiet, directory=os.path.dirname(path))
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/{os.path.basename(path)}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_inputs_at_addresses_of_http(client, addresses, tmp_path):
    copies = tmp_path / "copies"
    for path, kind, options in [(EVENTS, "syscalls", {}), (FLOW, "functions", {"symfs": SYMFS})]:
        path = os.path.abspath(path)
        remote = {name: addresses(os.path.abspath(value)) for name, value in options.items()}
        [table] = hodoscope.distributed.report(
            client, addresses(path), kind, parts=5, copies=copies, **remote
        )
        assert table.to_json() == hodoscope.open(path).report(kind, **options).to_json()
    assert len(list(copies.iterdir())) == 3
    # Workers do not read the client's copy: each machine makes its own.
    address = addresses(os.path.abspath(FLOW))
    place = hodoscope._copies.place(address, tmp_path / "elsewhere")
    client.submit(hodoscope._copies.fetch, address, place, pure=False).result()
    assert pathlib.Path(place).read_bytes() == pathlib.Path(FLOW).read_bytes()
    with pytest.raises(FileNotFoundError):
        hodoscope.distributed.report(client, address + ".absent", "functions", copies=copies)


def test_an_input_in_memory(tmp_path):
    import fsspec

    with fsspec.open("memory://recordings/tiny.data", "wb") as file:
        file.write(pathlib.Path(FLOW).read_bytes())
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        [table] = hodoscope.distributed.report(
            client, "memory://recordings/tiny.data", "functions", parts=2, copies=tmp_path, symfs=SYMFS
        )
    assert table.to_json() == hodoscope.open(FLOW).report("functions", symfs=SYMFS).to_json()


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
    [task, *_] = hodoscope.distributed.plan(copy, "functions", symfs=SYMFS)
    copy.write_bytes(pathlib.Path(FLOW).with_name("tiny-exact-time.data").read_bytes())
    with pytest.raises(hodoscope.InputError, match=r"changed.*copy.data"):
        client.submit(hodoscope.distributed.fold, task).result()
    # Builds of two commits have one version.
    other = f"{hodoscope.__version__}+0123456789ab"
    assert hodoscope.__build__.startswith(f"{hodoscope.__version__}+") and hodoscope.__build__ != other
    with pytest.raises(RuntimeError, match=r"client has hodoscope 0\.1\.0\+0123456789ab, but a worker has"):
        client.submit(hodoscope.distributed.fold, task._replace(build=other)).result()
    with pytest.raises(hodoscope.InputError, match="absent"):
        hodoscope.distributed.report(client, tmp_path / "absent", "functions")

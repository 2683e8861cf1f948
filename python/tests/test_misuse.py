"""Wrong use raises exceptions that say what is wrong; nothing ends the interpreter."""

import os
import pickle
import random
import signal
import threading
import time

import pytest
from conftest import EVENTS, FLOW, SYMFS

import hodoscope


def test_wrong_types():
    for wrong in [1, None, object(), ["a"]]:
        with pytest.raises(TypeError, match="a path"):
            hodoscope.open(wrong)
        with pytest.raises(TypeError, match="a name"):
            hodoscope.open(EVENTS).report(wrong)
    with pytest.raises(TypeError, match="tid"):
        hodoscope.open(EVENTS).report("syscalls", tid={1})
    with pytest.raises(TypeError, match="output"):
        hodoscope.open(EVENTS).report("syscalls", format="csv")
    with pytest.raises(TypeError, match="input"):
        hodoscope.open()


def test_wrong_arguments():
    trace = hodoscope.open(EVENTS)
    for kind, options in [("nothing", {}), ("syscalls", {"tid": "x"}), ("syscalls", {"nonsense": 1}),
                          ("syscalls", {"time": "5"}), ("syscalls", {"where": "ret <"})]:
        with pytest.raises(hodoscope.UsageError) as raised:
            trace.report(kind, **options)
        for word in ["Usage:", "--", "error:", "hodo report"]:
            assert word not in str(raised.value)


def test_an_error_names_options_as_python_does():
    trace = hodoscope.open(EVENTS)
    with pytest.raises(hodoscope.UsageError, match="^unexpected argument 'nonsense' found$"):
        trace.report("syscalls", nonsense=1)
    with pytest.raises(hodoscope.UsageError, match="a similar argument exists: 'chunk_size'"):
        trace.report("syscalls", chunk_sze="4K")
    with pytest.raises(hodoscope.UsageError, match="a similar argument exists: 'from_'"):
        trace.latency(form="x")
    with pytest.raises(hodoscope.UsageError, match="^invalid value 'x' for 'tid': "):
        trace.report("syscalls", tid="x")


def test_unreadable_inputs(tmp_path):
    with pytest.raises(hodoscope.InputError, match="absent.data"):
        hodoscope.open(tmp_path / "absent.data")
    noise = tmp_path / "noise.data"
    noise.write_bytes(b"no trace at all")
    with pytest.raises(hodoscope.InputError, match="noise.data"):
        hodoscope.open(noise)
    cut = tmp_path / "cut.data"
    cut.write_bytes(open(FLOW, "rb").read()[:90])
    with pytest.raises(hodoscope.InputError, match=r"cut.data.*(offset|byte|0x)"):
        hodoscope.open(cut).report("functions")


def test_an_input_that_vanished(tmp_path):
    copy = tmp_path / "copy.data"
    copy.write_bytes(open(FLOW, "rb").read())
    trace = hodoscope.open(copy, symfs=SYMFS)
    copy.unlink()
    with pytest.raises(hodoscope.InputError, match="copy.data"):
        trace.report("functions")


def test_pickling():
    trace = pickle.loads(pickle.dumps(hodoscope.open(FLOW, symfs=SYMFS)))
    table = trace.report("functions")
    assert len(table) > 0
    with pytest.raises(TypeError, match="pyarrow"):
        pickle.dumps(table)


def test_fork():
    trace = hodoscope.open(EVENTS)
    assert len(trace.report("syscalls")) > 0
    child = os.fork()
    if child == 0:
        try:
            trace.report("syscalls")
        except RuntimeError as error:
            os._exit(0 if "fork" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_progress_and_its_exceptions():
    class Enough(Exception):
        pass

    def stop(done, total):
        raise Enough

    seen = []
    hodoscope.open(FLOW, symfs=SYMFS).report("functions", progress=lambda done, total: seen.append((done, total)))
    assert seen and all(done <= total for done, total in seen)
    with pytest.raises(Enough):
        hodoscope.open(FLOW, symfs=SYMFS).report("functions", progress=stop)


def test_a_bar(capsys):
    hodoscope.open(FLOW, symfs=SYMFS).report("functions", progress=True)
    assert "%" in capsys.readouterr().err


def test_signals_are_handled_while_it_works():
    def interrupt():
        time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    # A shell ignores the signal in what it runs in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=interrupt).start()
        for _ in range(10_000):
            hodoscope.open(EVENTS).reports("all")
    signal.signal(signal.SIGINT, before)


def test_the_gil_is_released():
    counted, ended = 0, threading.Event()

    def work():
        for _ in range(3):
            hodoscope.open(EVENTS).reports("all")
        ended.set()

    worker = threading.Thread(target=work)
    worker.start()
    while not ended.is_set():
        counted += 1
        time.sleep(0.001)
    worker.join()
    assert counted > 3


def test_random_arguments_never_end_the_interpreter():
    chance = random.Random(1)
    kinds = [name for name, _, _ in hodoscope.reports()] + ["", "--help", "\0", "é" * 100]
    names = ["time", "tid", "by", "where", "event", "call", "every", "chunk_size", "jobs", "a b", "function"]
    values = ["", "1", "-1", "0%-1%", "\0", "x" * 5000, "\udc80", 2**70, -1.5, True, [], [1, "b"], ",", "%%", "::"]
    fine = 0
    for _ in range(300):
        options = {chance.choice(names): chance.choice(values) for _ in range(chance.randrange(3))}
        try:
            hodoscope.open(chance.choice([EVENTS, FLOW]), symfs=SYMFS).reports(chance.choice(kinds), **options)
            fine += 1
        except (hodoscope.UsageError, hodoscope.InputError, TypeError, ValueError):
            pass
    assert 0 < fine < 300

"""Callbacks of submitted work: errors, limits, interrupts, forks, threads, the end of the
process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fnx
from fnx.core.scope import callbacks
from fnx.core.support.config import override
from fnx.core.support.errors import CallbackError, DeviceError
from tests.transforms.test_effects import Log

X = np.arange(3, dtype=np.float32)
double = fnx.jit(lambda x: x * 2)


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with override(device="cpu"):
        yield
        fnx.effects_barrier()


def slow(x: Any) -> Any:
    time.sleep(0.03)
    return np.asarray(x) + 1


later = fnx.jit(lambda x: fnx.pure_callback(slow, X, x))


def test_ten_thousand_effects_in_a_scan() -> None:
    log = Log()
    count = fnx.jit(lambda x: fnx.lax.scan(
        lambda c, i: ((fnx.debug.callback(log, i), c + 1)[1], None), x,
        fnx.numpy.arange(10_000))[0])
    assert count(0.0) == 10_000
    assert log.taken() == [(i,) for i in range(10_000)]


def test_submissions_in_flight_wait_for_each_other() -> None:
    a = later(X)
    b = later(a)
    c = double(later(b))
    np.testing.assert_array_equal(c, 2 * (X + 3))
    np.testing.assert_array_equal(a, X + 1)


def test_an_error_ends_what_is_queued_behind_and_is_raised_once() -> None:
    called = []

    def fail(x: Any) -> None:
        time.sleep(0.05)
        raise ValueError("as it should")

    bad = fnx.jit(lambda x: (fnx.debug.callback(fail, x), x + 1)[1])
    y = bad(X)
    behind = fnx.jit(lambda x: (fnx.debug.callback(called.append, x), x + 1)[1])(y)
    with pytest.raises(CallbackError, match="as it should"):
        behind.block_until_ready()
    for x in (y, behind):
        with pytest.raises(DeviceError, match="ended when a callback raised"):
            x.block_until_ready()
    with pytest.raises(DeviceError, match="ended when a callback raised"):
        double(y)
    assert not called
    np.testing.assert_array_equal(double(X), 2 * X)


def test_an_error_that_nobody_waits_for_is_raised_by_the_next_call() -> None:
    fnx.jit(lambda x: fnx.debug.callback(lambda v: 1 / 0, x))(X)
    with pytest.raises(CallbackError, match="ZeroDivisionError"):
        for _ in range(2000):
            time.sleep(0.01)
            double(X)
    double(X)


def test_a_callback_that_does_not_return_meets_the_time_limit() -> None:
    release = threading.Event()

    def never(x: Any) -> Any:
        release.wait(20)
        return np.asarray(x)

    with override(time_limit=0.3):
        y = fnx.jit(lambda x: fnx.pure_callback(never, X, x))(X)
        with pytest.raises(DeviceError, match=r"the time limit, for .*never \(test_callbacks.py:"):
            y.block_until_ready()
    np.testing.assert_array_equal(later(X), X + 1)  # on other threads
    release.set()
    time.sleep(0.05)
    np.testing.assert_array_equal(later(X), X + 1)


def test_a_callback_may_wait_for_what_is_before_it_and_for_nothing_behind() -> None:
    box: dict[str, Any] = {}

    def reads(x: Any) -> Any:
        time.sleep(0.05)
        return np.asarray(box["z"]) + np.asarray(x)

    f = fnx.jit(lambda x: fnx.pure_callback(reads, X, x))
    y = f(X)
    box["z"] = later(X)
    with pytest.raises(CallbackError, match="a callback waits for work that is queued behind it"):
        y.block_until_ready()
    box["z"] = later(X)
    np.testing.assert_array_equal(f(X), 2 * X + 1)


def test_a_callback_that_fails_inside_a_callback() -> None:
    inner = fnx.jit(lambda x: fnx.pure_callback(lambda v: [][1], X, x) + 1)

    def outer(x: Any) -> Any:
        try:
            inner(x).block_until_ready()
        except CallbackError as error:
            return np.full(3, "IndexError" in str(error), np.float32)

    np.testing.assert_array_equal(fnx.jit(lambda x: fnx.pure_callback(outer, X, x))(X), [1, 1, 1])


def test_work_of_many_chunks_in_a_callback() -> None:
    def heavy(x: Any) -> Any:
        a = fnx.numpy.ones((400, 400))
        return np.asarray(x) + np.asarray((a @ a)[0, :3])

    np.testing.assert_array_equal(fnx.jit(lambda x: fnx.pure_callback(heavy, X, x))(X), X + 400)


def test_donated_arguments() -> None:
    log = Log()
    f = fnx.jit(lambda x: (fnx.debug.callback(log, x), x * 2)[1], donate_argnums=0)
    x = fnx.numpy.asarray(X)
    np.testing.assert_array_equal(f(x), 2 * X)
    assert log.taken() == [(X.tolist(),)] and x.is_deleted()


def test_threads() -> None:
    f = fnx.jit(lambda x: fnx.pure_callback(lambda v: np.asarray(v) * 2, X, x) + 1)
    wrong = []

    def work(i: int) -> None:
        for _ in range(20):
            if not np.array_equal(f(X + i), (X + i) * 2 + 1):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(300)
    assert not wrong and not any(t.is_alive() for t in threads)


class Held:
    """An object that a callback references."""


def test_a_callback_dies_with_its_function() -> None:
    def make() -> weakref.ref[Held]:
        held = Held()
        f = fnx.jit(lambda x: (fnx.debug.callback(lambda v: held, x), x + 1)[1])
        f(X)
        fnx.effects_barrier()
        fnx.grad(lambda x: (fnx.debug.callback(lambda v: held, x), x * x)[1])(2.0)
        fnx.effects_barrier()
        return weakref.ref(held)

    before = callbacks.live_handle_count()
    refs = [make() for _ in range(20)]
    double(X)
    gc.collect()
    assert sum(r() is not None for r in refs) <= 1  # the last submission may still be alive
    assert callbacks.live_handle_count() <= before + 2


def script(code: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    before = """
        import os, signal, threading, time
        import numpy as np
        import fnx
        X = np.arange(3, dtype=np.float32)
        """
    whole = textwrap.dedent(before) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-X", "faulthandler", "-c", whole],
                          capture_output=True, text=True, timeout=timeout, env=dict(os.environ))


def test_effects_take_place_before_the_process_ends() -> None:
    done = script("""
        def slow(x):
            time.sleep(0.1)
            return np.asarray(x)
        fnx.jit(lambda x: fnx.debug.print("x is {}", fnx.pure_callback(slow, X, x)))(X)
        """)
    assert done.stdout == "x is [0. 1. 2.]\n" and done.returncode == 0, done.stderr


def test_an_error_is_told_when_the_process_ends() -> None:
    done = script("""
        fnx.jit(lambda x: fnx.debug.callback(lambda v: 1 / 0, x))(X)
        """)
    assert "ZeroDivisionError" in done.stderr and "debug.callback" in done.stderr


def test_ctrl_c_while_a_callback_runs() -> None:
    done = script("""
        release = threading.Event()
        def never(x):
            release.wait()
            return np.asarray(x)
        f = fnx.jit(lambda x: fnx.pure_callback(never, X, x))
        y = f(X)
        for i in range(2):
            try:
                threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                y.block_until_ready()
            except KeyboardInterrupt:
                print("interrupted")
        print(fnx.jit(lambda x: x + 1)(X))
        """)
    assert done.stdout == "interrupted\ninterrupted\n[1. 2. 3.]\n", done.stderr
    assert done.returncode == 0


def test_a_fork_while_a_callback_runs_and_in_one() -> None:
    done = script("""
        def slow(x):
            time.sleep(0.1)
            return np.asarray(x) + 1
        def forks(x):
            pid = os.fork()
            if not pid:
                os._exit(0)
            return np.asarray(x) + os.waitpid(pid, 0)[1]
        from fnx.core.support import process
        process.FORK_TIMEOUT = 100  # seconds for what is in flight
        f = fnx.jit(lambda x: fnx.pure_callback(slow, X, x))
        y = f(X)
        pid = os.fork()
        if not pid:
            print(y, f(X), flush=True)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print(y, fnx.jit(lambda x: fnx.pure_callback(forks, X, x))(X), flush=True)
        """)
    assert done.stdout == "[1. 2. 3.] [1. 2. 3.]\n[1. 2. 3.] [0. 1. 2.]\n", done.stderr

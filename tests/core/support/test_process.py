"""Locks, modules and the collector around a fork; traces that Ctrl-C interrupts."""

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir.cache import cached_property
from fnx.core.ir.uop import current_loc
from fnx.core.scope import scope
from fnx.core.support.process import fork_safe_lock
from fnx.core.tracing.trace import with_gc_disabled

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")


def in_child(check: Callable[[], bool]) -> int:
    """Return the exit code of a forked child: 0 if ``check`` holds, a negative signal number if it
    hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(150)  # wall-clock time: a machine may be busy or suspended
        code = 1
        try:
            code = 0 if check() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_a_thread(work: Callable[[threading.Event, threading.Event], None]) -> Callable[[], None]:
    """Run ``work(begun, end)`` on a thread until the returned function is called."""
    begun, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=work, args=(begun, end))
    thread.start()
    begun.wait(200)

    def stop() -> None:
        end.set()
        thread.join()

    return stop


def test_a_lock_that_another_thread_holds_is_open_in_a_child() -> None:
    lock, mine = fork_safe_lock(), fork_safe_lock()

    def hold(begun: threading.Event, end: threading.Event) -> None:
        with lock:
            begun.set()
            end.wait(200)

    def free() -> bool:
        with lock, mine:
            pass
        return bool(lock.acquire(timeout=1)) and not mine.release()

    stop = in_a_thread(hold)
    with mine:
        code = in_child(free)
    stop()
    assert code == 0


def test_a_property_that_another_thread_computes_is_computed_in_a_child() -> None:
    class Slow:
        def __init__(self, wait: Callable[[], object]) -> None:
            self.wait = wait

        @cached_property
        def value(self) -> int:
            self.wait()
            return 3

    def compute(begun: threading.Event, end: threading.Event) -> None:
        assert Slow(lambda: (begun.set(), end.wait(200))).value == 3

    stop = in_a_thread(compute)
    code = in_child(lambda: Slow(lambda: None).value == 3)
    stop()
    assert code == 0


def test_a_child_forked_during_a_trace_has_its_collector_and_no_open_trace() -> None:
    def tracing(begun: threading.Event, end: threading.Event) -> None:
        def f(x: fnx.Array) -> fnx.Array:
            begun.set()
            end.wait(200)
            return x

        fnx.jit(f)(1.0)

    stop = in_a_thread(tracing)
    off = not gc.isenabled()
    code = in_child(lambda: gc.isenabled() and not scope.is_open()
                    and float(fnx.jit(lambda x: x + 1)(1.0)) == 2)
    stop()
    assert off and code == 0 and gc.isenabled()


def test_a_fork_inside_a_trace() -> None:
    codes = []

    def f(x: fnx.Array) -> fnx.Array:
        codes.append(in_child(lambda: float(jnp.ones(3).sum() + 1) == 4 or True))
        return x * 2

    assert float(fnx.jit(f)(2.0)) == 4 and codes == [0] and gc.isenabled()


def test_modules_that_load_during_a_fork_are_whole_in_the_child(tmp_path: object,
                                                                monkeypatch: pytest.MonkeyPatch
                                                                ) -> None:
    from pathlib import Path

    from fnx.core.support.process import load

    name = "slow_module_of_a_test"
    Path(str(tmp_path), f"{name}.py").write_text("import time\ntime.sleep(0.5)\nvalue = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    threading.Thread(target=load, args=(name,)).start()
    time.sleep(0.1)
    assert in_child(lambda: bool(load(name).value == 3)) == 0
    del sys.modules[name]


@pytest.mark.parametrize("where", range(40))
def test_a_trace_cut_off_anywhere_leaves_nothing_open(where: int) -> None:
    """An exception at the n-th call or return in fnx's own code, as from Ctrl-C."""
    left = [where * 3]

    def cut(frame: object, event: str, argument: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        if event in ("call", "return") and "/fnx/core/array/" in code.co_filename:
            left[0] -= 1
            if left[0] == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    x = jnp.ones(3)
    sys.setprofile(cut)
    try:
        fnx.grad(lambda w: (w * x).sum())(x)
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    assert not scope.is_open() and current_loc.loc is None and gc.isenabled()
    assert str(x + 1) == "[2. 2. 2.]"


def test_with_gc_disabled_restores_what_was_before() -> None:
    def leaves_all_open() -> None:
        scope.Scope("one").__enter__()
        current_loc.loc = ("file", 1)
        scope.Scope("two").__enter__()
        raise KeyboardInterrupt

    with scope.Scope("outer") as outer:
        with pytest.raises(KeyboardInterrupt):
            with_gc_disabled(leaves_all_open)
        assert scope.open_scopes() == [outer] and current_loc.loc is None


def test_threads_that_fork_at_once_do_so_one_after_another() -> None:
    codes: list[int] = []
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def forks() -> None:
        for _ in range(5):
            codes.append(in_child(lambda: float(jnp.ones(3).sum()) == 3
                                  and signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked))

    threads = [threading.Thread(target=forks) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 15

"""Native calls of jitted functions: what they compute, what they leave to Python, and that no
memory or reference is lost or freed twice, for any arguments."""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.backends.cpu import native_call
from fnx.backends.cpu.native_call import NativeCallFactory
from fnx.backends.device.allocator import BlockOwner
from fnx.backends.device.base import get_device
from fnx.backends.device.hcq import HostStorage
from fnx.core.array import eager_cache
from fnx.core.support.config import config, override
from fnx.transforms.jit import Jitted

COMPILED = True


@pytest.fixture(autouse=True)
def unplaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls as in a process that has placed no array on another device, whatever ran before."""
    monkeypatch.setitem(config.__dict__, "placing", False)
    monkeypatch.setattr(eager_cache, "_placement_active", False)

GLOBAL: Any = 2.0


def _called(f: Any, *args: Any) -> Any:
    """Return the result of a call that takes the native path."""
    for _ in range(4):
        f(*args)
    assert f._native_calls
    return f(*args)


NO_PYTHON = """
import sys
import fnx, fnx.numpy as jnp
f = fnx.jit(lambda x, y: (x + y, x > y))
x, y = jnp.arange(6.0), jnp.ones(6)
for _ in range(4):
    f(x, y)
seen, before = [], f.cache_info().hits
sys.setprofile(lambda frame, event, arg: seen.append(frame) if event == "call" else None)
total, more = f(x, y)
sys.setprofile(None)
print(len(seen), f.cache_info().hits - before, f._native_hits[0] > 0, total.tolist(), more.dtype)
"""


def test_calls_of_arrays_run_no_python() -> None:
    """Not even the class's method runs, so a profiler sees no frame. In a process of its own, since
    an aborted computation would disable native calls."""
    ran = subprocess.run([sys.executable, "-c", NO_PYTHON], capture_output=True, text=True)
    assert ran.stdout == "0 1 True [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] bool\n", ran.stderr


@pytest.mark.parametrize("call", [
    lambda f, x: f(x), lambda f, x: f.__call__(x), lambda f, x: type(f).__call__(f, x),
    lambda f, x: functools.partial(f, x)(), lambda f, x: f(*[x], **dict[str, Any]()),
    lambda f, x: f(x=x), lambda f, x: [*map(f, [x])][0]])
def test_every_spelling_of_a_call(call: Callable[[Any, Any], Any]) -> None:
    f = fnx.jit(lambda x: x * 3)
    x = jnp.arange(4.0)
    _called(f, x)
    np.testing.assert_array_equal(call(f, x), np.arange(4.0) * 3)


def test_methods_of_classes() -> None:
    class Scaled:
        def __init__(self, by: float) -> None:
            self.by = by

        @functools.partial(fnx.jit, static_argnums=0)
        def of(self, x: Any) -> Any:
            return x * self.by
    s = Scaled(3.0)
    for _ in range(5):
        np.testing.assert_array_equal(s.of(jnp.ones(2)), [3.0, 3.0])


def test_another_object_than_its_own_is_refused() -> None:
    _called(fnx.jit(lambda x: x + 1), jnp.ones(2))
    with pytest.raises(TypeError):
        Jitted.__call__(3, jnp.ones(2))  # type: ignore[arg-type]
    bare = Jitted.__new__(Jitted)  # has no native calls, nor any other attribute
    with pytest.raises(AttributeError):
        bare(jnp.ones(2))


OPERANDS: dict[str, Callable[[], Any]] = {
    "same": lambda: jnp.arange(3.0), "equal shape": lambda: jnp.ones((3, 1)).reshape(3),
    "other shape": lambda: jnp.arange(4.0), "column": lambda: jnp.ones((3, 1)),
    "integers": lambda: jnp.arange(3), "number": lambda: 2.5, "true": lambda: True,
    "NumPy": lambda: np.arange(3, dtype=np.float32), "scalar": lambda: np.float32(2),
    "weak": lambda: jnp.asarray(1.5), "none": lambda: None, "text": lambda: "x",
    "list": lambda: [jnp.ones(3)], "object": object, "donated": lambda: _donated(),
    "borrowed": lambda: jnp.asarray(np.asarray(jnp.arange(3.0)))}


def _donated() -> Any:
    x = jnp.ones(3)
    fnx.jit(lambda a: a + 1, donate_argnums=0)(x)
    return x


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*OPERANDS]), st.sampled_from([*OPERANDS])),
                min_size=1, max_size=12))
def test_it_answers_as_python_does(pairs: list[tuple[str, str]]) -> None:
    """The same result, type and error for any operands, after any others; the reference is the
    method written in Python, which runs when there are no native calls."""
    f = fnx.jit(lambda x, y: jnp.where(x > 1, x, y))
    _called(f, jnp.arange(3.0), jnp.ones(3))
    for names in pairs:
        answers = []
        for records in ((), f._native_calls):
            f._native_calls = records
            try:
                out = f(*[OPERANDS[n]() for n in names])
                answers.append((np.asarray(out).tolist(), out.dtype, out.shape, out.weak_type))
            except Exception as error:
                answers.append((type(error), str(error).partition(" at 0x")[0]))
        assert answers[0] == answers[1], names


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_outside_is_looked_at() -> None:
    global GLOBAL
    cell: Any = jnp.asarray([1.0, 2.0])
    number = 5
    f = fnx.jit(lambda x: x * GLOBAL + cell + number)
    x = jnp.ones(2)
    try:
        for GLOBAL in (2.0, 3.0, 2.0, jnp.asarray(4.0), jnp.asarray(5.0)):
            for cell in (jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, 4.0])):
                for number in (5, 7):
                    for _ in range(4):
                        np.testing.assert_allclose(
                            f(x), float(GLOBAL) + np.asarray(cell) + number)
    finally:
        GLOBAL = 2.0


def test_a_variable_that_is_gone() -> None:
    there = 5

    def forget() -> None:
        nonlocal there
        del there
    f = fnx.jit(lambda x: x * there)
    np.testing.assert_array_equal(_called(f, jnp.ones(2)), [5.0, 5.0])
    forget()
    with pytest.raises(NameError):
        f(jnp.ones(2))


def test_traces_see_a_call() -> None:
    f = fnx.jit(lambda x: x * x)
    x = jnp.asarray(3.0)
    _called(f, x)
    assert float(fnx.grad(f)(x)) == 6.0
    assert float(fnx.grad(lambda y: f(y) * f(x))(x)) == 54.0
    np.testing.assert_array_equal(fnx.vmap(f)(jnp.arange(3.0)), [0, 1, 4])


@pytest.mark.parametrize(("length", "direct_calls"), [(500, True), (50_000, False)])
def test_temporary_memory_is_of_the_stack_where_it_is_small(length: int, direct_calls: bool
                                                            ) -> None:
    """Two sorts need an intermediate of 4 bytes an element. The test checks that native calls
    exist, not their hits: after an earlier test aborted work, calls go through Python."""
    f = fnx.jit(lambda x: jnp.sort(jnp.sort(x)[::-1] * 3.0 % 7.0))
    x = np.arange(length, dtype="float32")
    made = fnx.jit(f).lower(x).compile()
    assert made.memory_analysis().temp_size_in_bytes >= 4 * length
    y = jnp.asarray(x)
    for _ in range(4):
        np.testing.assert_array_equal(f(y), np.sort(x * 3 % 7))
    assert bool(f._native_calls) is direct_calls


def test_settings_are_looked_at() -> None:
    f = fnx.jit(lambda x: jnp.log(x))
    x = jnp.asarray([-1.0])
    _called(f, x)
    with override(check="nan"), pytest.raises(fnx.errors.FnxError):
        f(x)
    assert np.isnan(f(x)[0])


def _counts(objects: list[Any]) -> list[int]:
    gc.collect()
    return [sys.getrefcount(o) for o in objects]


def test_nothing_is_lost_and_nothing_freed_twice() -> None:
    """In a process of its own: the reference counts of types and of ``False`` are process-wide."""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", "from tests.backends.cpu import "
                          "test_native_call as t; print(t.count_references())"],
                         capture_output=True, text=True)
    assert ran.stdout == "True\n", ran.stderr


def count_references() -> bool:
    """Print the changes of reference counts of all objects and memory that a call uses, after many
    calls that match, that do not match, and that raise an error."""
    f = fnx.jit(lambda x, y: (x + y, x * y))
    x, y = jnp.arange(5.0), jnp.ones(5)
    out = _called(f, x, y)
    other = jnp.ones(7)
    f(other, other)
    own = [x, y, x._storage, y._storage, x._shape, out[0]._shape, f, f._native_calls, other]
    shared = [x._dtype, HostStorage, type(x), BlockOwner, *f._native_calls[0][2]]

    def some() -> None:
        for i in range(300):
            f(x, y)
            f(other, other)
            if not i % 30:
                with pytest.raises(fnx.errors.FnxError):
                    f(x, other)
    some()
    before, held, alive = _counts(own + shared), get_device("cpu").stats()["held"], len(
        gc.get_objects())
    for _ in range(10):
        some()
    changes = [abs(a - b) for a, b in zip(_counts(own + shared), before)]
    assert max(changes[:len(own)]) <= 40, changes  # free lists, block owners
    assert get_device("cpu").stats()["held"] == held
    # There were 6,000 calls; meanwhile a thread may have loaded a module that refers to False.
    assert max(max(changes), len(gc.get_objects()) - alive) < 2000, changes
    return True


def test_results_have_memory_of_their_own() -> None:
    """More results are alive than a slab has blocks: the native call then falls back to Python."""
    f = fnx.jit(lambda x: x + 1)
    x = jnp.zeros(700)
    x = _called(f, x) * 0
    kept = []
    for _ in range(500):
        x = f(x)
        kept.append(x)
    assert len({k._storage.ptr for k in kept}) == 500
    for i, k in enumerate(kept):
        assert float(k[0]) == i + 1 == float(k[-1])


def test_threads_call_one_function() -> None:
    f = fnx.jit(lambda x, y: x @ y + 1)
    x = jnp.ones((60, 60))
    _called(f, x, x)
    wrong: list[Any] = []

    def work(k: int) -> None:
        mine = jnp.full((60, 60), float(k))
        for i in range(200):
            if not np.array_equal(np.asarray(f(mine, x))[::13, ::7], np.full((5, 9), 60.0 * k + 1)):
                wrong.append(k)
            if i % 50 == k:
                f.clear_cache()  # removes the native calls that other threads are in
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_another_python_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A free-threaded build, or slots at unexpected offsets."""
    made = NativeCallFactory({})
    monkeypatch.setattr(sys, "abiflags", "t")
    assert made.native_method(Jitted, "_native_calls", Jitted.__call__) is None
    monkeypatch.undo()
    monkeypatch.setattr(native_call, "_slot_offset", lambda *_: 0)
    assert made.native_method(Jitted, "_native_calls", Jitted.__call__) is None


def test_offsets_of_slots() -> None:
    class Slotted:
        __slots__ = ("a", "b")
    a, b = native_call._slot_offset(Slotted, "a"), native_call._slot_offset(Slotted, "b")
    assert a and b and a != b
    one = Slotted()
    one.a = one.b = object()
    assert native_call._slot_offset(Slotted, "a") == a

"""Ctrl-C at every instant of a call: always KeyboardInterrupt, nothing lost, nothing leaks.

    python -m tests.attack.instants --count 20000 --seed 1
    python -m tests.attack.instants dispatch donation --seconds 600

A signal arrives before the n-th bytecode of a call, and Python raises KeyboardInterrupt at its next
check: for every n of short calls, at random ones of long calls (traces, compilations). Unlike a
timer, this is reproducible and reaches every check point. Afterwards no trace may be open, locks
must be free for another thread, existing arrays must have their values, and the same call must be
right. An array that reports that it was donated must have been overwritten.
"""

from __future__ import annotations

import _thread
import argparse
import dis
import faulthandler
import gc
import os
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.backends.device.base import get_device
from fnx.core.ir.cache import clear_caches
from fnx.core.ir.uop import current_loc
from fnx.core.scope import scope
from fnx.core.support.config import config, override
from fnx.core.support.errors import DonatedError
from fnx.core.tracing import trace

HANG = 300.0  # seconds without an answer
SHORT = 3000  # calls with at most this many check points are interrupted at each

Array = Any


class Work(NamedTuple):
    """A call to interrupt.

    ``make`` returns the arrays that it reads, ``call`` is interrupted, ``right`` is its result.
    ``donated``: indices of the arrays that it may consume.
    """

    make: Callable[[], list[Array]]
    call: Callable[[list[Array]], Any]
    right: Any
    donated: tuple[int, ...] = ()


class Counts(NamedTuple):
    """The findings; ``wrong`` has a line for each fault."""

    interrupts: dict[str, int]
    whole: list[str]
    wrong: list[str]

    def __str__(self) -> str:
        each = ", ".join(f"{name} {n:,}{' (all)' * (name in self.whole)}"
                         for name, n in self.interrupts.items())
        return "\n".join([f"{sum(self.interrupts.values()):,} interrupts, {len(self.wrong)} wrong, "
                          f"0 hangs: {each}", *[f"  {text}" for text in self.wrong[:40]]])


# ---- a signal at the n-th point where Python checks for one --------------------------------------

_LOOK = frozenset([dis.opmap[name] for name in (
    "RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD") if name in dis.opmap])


class _Trip(dict[int, None]):
    """``trip[number]`` sends a signal. It is not a call, after which Python would check for
    signals."""

    __missing__ = staticmethod(_thread.interrupt_main)


class Instant:
    """Run a call in which a signal arrives at the n-th point where Python checks for one.

    Attributes:
        count: how often it checked.
        where: the line where KeyboardInterrupt was raised.
    """

    def __init__(self, n: int) -> None:
        self.n, self.count, self.where = n, 0, ""

    def run(self, call: Callable[..., Any], *args: Any) -> tuple[str, Any]:
        """Return the exception (empty if none) and the result."""
        n, count, trip, number = self.n, 0, _Trip(), signal.SIGINT
        texts: dict[int, bytes] = {}
        codes: list[Any] = []

        def inside(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal count
            if event == "opcode" and texts[id(frame.f_code)][frame.f_lasti] in _LOOK:
                count += 1
                if count == n:
                    self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                    trip[number]
            return inside

        def entered(frame: FrameType, *_: Any) -> Any:
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            code = frame.f_code
            if id(code) not in texts:
                texts[id(code)] = code.co_code
                codes.append(code)
            return inside
        out, kind = None, ""
        tracing, handler = sys.gettrace(), signal.signal(number, signal.default_int_handler)
        try:
            sys.settrace(entered)
            try:
                out = call(*args)
            finally:
                sys.settrace(tracing)
        except KeyboardInterrupt:
            kind = "KeyboardInterrupt"
        except BaseException as error:
            kind = f"{type(error).__name__}: {error}"
        signal.signal(number, handler)
        self.count = count
        return kind, out


# ---- calls to interrupt -------------------------------------------------------------------------

_x = np.arange(6, dtype=np.float32) + 1
_long = np.linspace(0, 1, 400_000, dtype=np.float32)


def _works() -> dict[str, Work]:
    """Return all calls, each with its prerequisites made."""
    step = fnx.jit(lambda w, x: w * 2 + x)
    nested = fnx.jit(lambda t: {"a": t["a"] + t["b"][0], "c": t["b"][1] * 2})
    taken = fnx.jit(lambda w: w * 2 + 1, donate_argnums=0)
    pair = fnx.jit(lambda w, v: (w + v, v * 2), donate_argnums=(0, 1))
    slow = fnx.jit(lambda w: jnp.sin(w) + 1, donate_argnums=0)
    flight = fnx.jit(lambda w: jnp.tanh(jnp.sin(w) + jnp.cos(w)))
    until = fnx.jit(lambda w: lax.while_loop(lambda c: c[0] < 40.0, lambda c: c * 2 + 1, w),
                    donate_argnums=0)
    odd = [0]

    def number() -> float:
        odd[0] += 1
        return 1 + odd[0] * 2.0 ** -18

    def anew(f: Callable[[Array], Array]) -> Callable[[list[Array]], Any]:
        return lambda s: fnx.jit(lambda x: f(x))(s[0])

    def some() -> list[Array]:
        return [jnp.asarray(_x), jnp.asarray(_x + 1)]

    def large() -> list[Array]:
        return [jnp.asarray(_long)]

    def compiled(s: list[Array]) -> Any:
        c = number()
        with override(cache_dir=""):
            return fnx.jit(lambda x: jnp.sin(x * c) / c)(s[0]) * 0 + 1

    def loops(s: list[Array]) -> Any:
        return fnx.jit(lambda x: lax.scan(lambda c, y: (c + y, c * y), x[0], x)[0])(s[0])

    def written(s: list[Array]) -> Any:
        return s[0].at[1].set(5.0)

    def cleared(s: list[Array]) -> Any:
        clear_caches()
        return s[0] + 1

    def waited(s: list[Array]) -> Any:
        y = flight(s[0])
        return np.asarray(y)[:3]

    return {
        "dispatch": Work(some, lambda s: step(s[0], s[1]), _x * 3 + 1),
        "tree": Work(some, lambda s: nested({"a": s[0], "b": [s[0], s[1]]})["c"], _x * 2 + 2),
        "numpy arguments": Work(some, lambda s: step(_x, s[1]), _x * 3 + 1),
        "donation": Work(some, lambda s: taken(s[0]), _x * 2 + 1, (0,)),
        "two donated": Work(some, lambda s: pair(s[0], s[1])[1], _x * 2 + 2, (0, 1)),
        "long donation": Work(large, lambda s: slow(s[0])[:1], np.ones(1), (0,)),
        "donation in flight": Work(large, lambda s: slow(flight(s[0])) * 0, _long * 0),
        "donated to a loop": Work(some, lambda s: until(s[0]),
                                  _x * 32 + 31, (0,)),
        "eager": Work(some, lambda s: s[0] + 1, _x + 1),
        "eager of two": Work(some, lambda s: jnp.maximum(s[0], s[1]), _x + 1),
        "eager number": Work(some, lambda s: s[0] * number() * 0 + 1, _x * 0 + 1),
        "index": Work(some, lambda s: s[0][odd[0] % 6] * 0 + 2, 2),
        "write": Work(some, written, np.array([1, 5, 3, 4, 5, 6])),
        "sum": Work(some, lambda s: float(s[0].sum()), 21),
        "wait": Work(large, waited, np.tanh(np.sin(_long) + np.cos(_long))[:3]),
        "convert": Work(some, lambda _: jnp.asarray(_x), _x),
        "list": Work(some, lambda s: jnp.stack([s[0], s[1]])[1], _x + 1),
        "trace": Work(some, anew(lambda x: jnp.sum(jnp.tanh(x) * 0 + x)), 21),
        "gradient": Work(some, lambda s: fnx.grad(lambda x: (x * x).sum())(s[0]), _x * 2),
        "lanes": Work(some, lambda s: fnx.vmap(lambda x: x * 2)(s[0]), _x * 2),
        "scan": Work(some, loops, 22),
        "cond": Work(some, lambda s: lax.cond(s[0][0] > 0, lambda x: x, jnp.negative, s[1]),
                     _x + 1),
        "print": Work(some, lambda s: _printed(s), _x),
        "random": Work(some, lambda s: fnx.random.normal(fnx.random.key(1), (3,)) * 0, np.zeros(3)),
        "override": Work(some, _overridden, _x + 1),
        "jvp": Work(some, lambda s: fnx.jvp(lambda x: x * x, (s[0],), (s[1],))[1],
                    2 * _x * (_x + 1)),
        "rule": Work(some, lambda s: fnx.grad(_ruled())(s[0]), _x * 2),
        "pullback": Work(some, lambda s: fnx.grad(_pulled())(s[0]), _x * 2),
        "rule for lanes": Work(some, lambda s: fnx.vmap(_mapped())(s[0]), _x * 2),
        "checkpoint": Work(
            some, lambda s: fnx.grad(lambda x: fnx.checkpoint(lambda y: (y * y).sum())(x))(s[0]),
            _x * 2),
        "while": Work(some, lambda s: lax.while_loop(lambda c: c[0] < 9, lambda c: c * 2, s[0]),
                      _x * 16),
        "prefixes": Work(some, lambda s: lax.associative_scan(lambda a, b: a + b, s[0]),
                         np.cumsum(_x)),
        "named": Work(some, _named, _x + 7),
        "nans": Work(some, _no_nan, _x + 1),
        "effect in jit": Work(some, lambda s: _effect(s), _x + 1),
        "compile": Work(some, compiled, _x * 0 + 1),
        "clear": Work(some, cleared, _x + 1),
    }


def _printed(s: list[Array]) -> Any:
    found: list[Any] = []
    fnx.debug.callback(found.append, s[0])
    fnx.effects_barrier()
    return found[0]


def _ruled() -> Any:
    f = fnx.custom_jvp(lambda x: x * x)
    f.defjvp(lambda primals, tangents: (f(*primals), 2 * primals[0] * tangents[0]))
    return lambda x: f(x).sum()


def _pulled() -> Any:
    f = fnx.custom_vjp(lambda x: x * x)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (2 * x * ct,))
    return lambda x: f(x).sum()


def _mapped() -> Any:
    f = fnx.custom_batching.custom_vmap(lambda x: x * 2)
    f.def_vmap(lambda size, batched, x: (x * 2, batched[0]))
    return f


def _named(s: list[Array]) -> Any:
    def f(x: Array) -> Array:
        with fnx.named_scope("part"), fnx.ensure_compile_time_eval():
            n = int(jnp.sum(jnp.arange(4))) + 1
        return x + n
    return fnx.jit(f)(s[0])


def _no_nan(s: list[Array]) -> Any:
    with fnx.debug_nans():
        return fnx.jit(lambda x: x + 1)(s[0])


def _effect(s: list[Array]) -> Any:
    def f(x: Array) -> Array:
        fnx.debug.callback(lambda _: None, x)
        return fnx.pure_callback(lambda v: np.asarray(v) + 1, x, x)
    return fnx.jit(f)(s[0])


def _overridden(s: list[Array]) -> Any:
    with override(check_index=True), fnx.enable_x64():
        return (s[0] + 1)[jnp.arange(6)]


# ---- invariants ---------------------------------------------------------------------------------


class _OtherThread:
    """Another thread, which makes the calls it is asked for."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            try:
                self._answers.put(call())
            except BaseException as error:
                self._answers.put(error)

    def ask(self, call: Callable[[], Any]) -> Any:
        """Return its answer, or what it raised."""
        self._calls.put(call)
        try:
            return self._answers.get(timeout=HANG)
        except queue.Empty:
            faulthandler.dump_traceback()
            return TimeoutError("no answer")


def _left() -> str:
    """Return what is left behind."""
    if scope.is_open():
        return "a trace is open"
    if current_loc.loc is not None:
        return "a line is set"
    if not gc.isenabled() or trace._gc_disabled_threads:
        return "the collector is off"
    return ""


def _heal() -> None:
    """Reset the state, so that a fault is counted once."""
    del scope.open_scopes()[:]
    current_loc.loc = None
    trace._gc_disabled_threads.clear()
    gc.enable()


def _same(found: Any, right: Any) -> bool:
    return bool(np.allclose(np.asarray(found), right, rtol=1e-5))


def _lost(arrays: Sequence[Array], work: Work, before: Sequence[np.ndarray[Any, Any]],
          memory: Sequence[Any]) -> str:
    """Return which existing array has another value, or was donated without being overwritten."""
    for i, (x, value, storage) in enumerate(zip(arrays, before, memory)):
        try:
            if not np.array_equal(np.asarray(x), value):
                return f"array {i} has another value"
        except DonatedError:
            get_device("cpu").synchronize()
            now = np.frombuffer(storage.window(), value.dtype, value.size).reshape(value.shape)
            if i not in work.donated:
                return f"array {i} says that it was donated"
            if np.array_equal(now, value):
                return f"array {i} was taken, and nothing was done with it"
    return ""


def strike(work: Work, n: int, other_thread: _OtherThread, lost: list[Any]) -> tuple[Instant, str]:
    """Interrupt a call at check point n; return where it was, and what is wrong afterwards."""
    arrays = work.make()
    before = [np.array(x) for x in work.make()]
    memory = [x._storage for x in arrays]
    settings = config.key()
    instant = Instant(n)
    kind, _ = instant.run(work.call, arrays)
    fault = _left()
    if config.key() != settings:
        fault = "a setting is another one"
    if kind != "KeyboardInterrupt" and n <= instant.count:
        fault = kind or "the interrupt was lost"
    if lost:
        fault = f"lost in {lost[0].object}: {lost[0].exc_value!r}"  # in a finalizer
        lost.clear()
    fault = fault or _lost(arrays, work, before, memory)
    if not fault:
        again = other_thread.ask(lambda: work.call(work.make()))
        if isinstance(again, BaseException) or not _same(again, work.right):
            fault = f"another thread then gets {again!r}"
    if not fault and not _same(again := work.call(work.make()), work.right):
        fault = f"then {again!r}"
    return instant, fault


def attack(names: Sequence[str], seed: int, count: int | None, seconds: float | None) -> Counts:
    """Interrupt until ``count`` or the time is reached."""
    rng, works, other_thread = random.Random(seed), _works(), _OtherThread()
    lost: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, lost.append
    lengths, following = {}, {}
    for name in names:
        for _ in range(3):  # until it runs in its steady state
            instant = Instant(0)
            kind, out = instant.run(works[name].call, works[name].make())
            assert not kind and _same(out, works[name].right), f"{name}: {kind or out}"
        lengths[name], following[name] = instant.count, 1
    done = dict.fromkeys(names, 0)
    whole: list[str] = []
    wrong: list[str] = []
    until = time.monotonic() + (float("inf") if seconds is None else seconds)
    while (sum(done.values()) != count and time.monotonic() < until
           and set(names) - set(whole)):
        name = rng.choice([n for n in names if n not in whole])
        short = lengths[name] <= SHORT
        n = following[name] if short else rng.randint(1, lengths[name])
        faulthandler.dump_traceback_later(HANG, exit=True)
        instant, fault = strike(works[name], n, other_thread, lost)
        done[name] += 1
        if fault:
            if "no answer" in fault:
                print(Counts(done, whole, [*wrong, f"{name}, place {n}, {instant.where}: {fault}"]))
                os._exit(1)
            _heal()
            wrong.append(f"{name}, place {n}, {instant.where}: {fault}")
        if short:
            following[name] = n + 1
            if n > instant.count:
                whole.append(name)
    faulthandler.cancel_dump_traceback_later()
    sys.unraisablehook = hook
    return Counts(done, whole, wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("works", nargs="*", default=[*_works()])
    parser.add_argument("--count", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="1/1", help="2/4: the second fourth of the calls")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    seconds = 60.0 if given.count is None and given.seconds is None else given.seconds
    counts = attack(given.works[part - 1::parts], given.seed, given.count, seconds)
    print(counts)
    sys.exit(bool(counts.wrong))


if __name__ == "__main__":
    main()

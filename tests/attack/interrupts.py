"""Ctrl-C at random instants: always KeyboardInterrupt, everything works afterwards, nothing leaks.

    python -m tests.attack.interrupts --count 10000 --seed 1
    python -m tests.attack.interrupts --seconds 600

Loops train (with and without donation), trace, compile and compute eagerly, until a timer's signal
raises KeyboardInterrupt wherever Python is. Afterwards no trace may be open, the collector must be
on, a computation must be right, and the previous state must be bitwise that of its step (donated
arguments may report that they were donated). At the end, the memory of the pool, threads and open
files are counted.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx.backends.cpu import queue
from fnx.backends.device.base import get_device
from fnx.core.ir.cache import WeakMemo, clear_caches
from fnx.core.ir.uop import current_loc, live_nodes
from fnx.core.scope import scope
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError, DonatedError
from tests.attack.seeds import parse_limits

STEPS = 200  # of a training run, which then restarts
HANG = 120.0  # seconds without progress


class Counts(NamedTuple):
    """The findings; ``wrong`` has a line for each fault."""

    interrupts: int
    wrong: list[str]
    lost: int
    leaks: list[str]

    def __str__(self) -> str:
        faults = [f"  {text}" for text in (*self.wrong[:20], *self.leaks)]
        return "\n".join([f"{self.interrupts} interrupts, {len(self.wrong)} wrong, "
                          f"{self.lost} lost, 0 hangs, {len(self.leaks)} leaks", *faults])


class Training:
    """A jitted training step; the state is (number of steps, weights)."""

    def __init__(self, size: int, donate: bool) -> None:
        rng = np.random.default_rng(size)
        x = jnp.asarray(rng.standard_normal((64, size)).astype(np.float32))
        y = jnp.asarray(rng.standard_normal((64,)).astype(np.float32))

        def loss(w: Any) -> Any:
            return jnp.mean((jnp.tanh(x @ w) - y) ** 2)

        def step(w: Any) -> Any:
            return w - 0.1 * fnx.grad(loss)(w)

        self.start = np.zeros(size, np.float32)
        self.step = fnx.jit(step, donate_argnums=0 if donate else ())
        self.donate = donate
        self.path = [self.start]
        for _ in range(STEPS):
            self.path.append(np.array(self.step(jnp.asarray(self.path[-1]))))
        self.restart()

    def restart(self) -> None:
        self.state = 0, jnp.asarray(self.start)

    def work(self) -> None:
        number, w = self.state
        if number == STEPS:
            self.restart()
        else:
            self.state = number + 1, self.step(w)
        if number % 7 == 0:
            float(self.state[1][0])

    def fault(self, aborted: bool) -> str:
        """Return what is wrong with the state, if anything."""
        number, w = self.state
        try:
            right = np.array_equal(np.asarray(w), self.path[number])
        except DonatedError:
            self.restart()
            return "" if self.donate else "says it was donated"
        except DeviceError as e:
            self.restart()
            return "" if aborted else f"lost: {e}"
        return "" if right else f"step {number} has another value"


_x = jnp.arange(1000) * 0.001
_kinds: list[Callable[[Any, float], Any]] = [
    lambda x, c: jnp.sum(jnp.sin(x * c)), lambda x, c: jnp.max(x * c) + jnp.mean(x),
    lambda x, c: (jnp.exp(-x) * c).sum()]


def _trace() -> None:
    kind, number = random.choice(_kinds), random.random()
    fnx.grad(lambda x: kind(x, number))(_x)


def _compile() -> None:
    kind, a, b = random.choice(_kinds), random.random(), random.random()
    with override(cache_dir=""):
        fnx.jit(lambda x: kind(x * a, b) * a + kind(x, a * b) * b)(_x[:random.randint(1, 900)])


def _eager() -> None:
    y = _x
    for _ in range(10):
        y = y * 0.5 + 1.0
    float(y[3])


def _fault(trainings: list[Training], aborted: bool) -> str:
    if scope.is_open():
        return "a trace is open"
    if current_loc.loc is not None:
        return "a line is set"
    if not gc.isenabled():
        return "the collector is off"
    if float(jnp.sum(jnp.arange(5)) + 1) != 11:
        return "a sum is wrong"
    return next((f for t in trainings if (f := t.fault(aborted))), "")


def _leaks(before: dict[str, int]) -> list[str]:
    after = _counted()
    return [f"{name}: {before[name]}, then {after[name]}" for name in after
            if after[name] > before[name] + 4]


def _counted() -> dict[str, int]:
    """Count what is alive after clearing the caches."""
    device = get_device("cpu")
    device.synchronize()
    clear_caches()
    nodes, pool = _live_nodes(), device.pool
    free = sum(len(free.blocks) for free in pool._classes.values())
    held = sum(holding() is not None for holding in pool.owners.values())
    return {"nodes": nodes, "threads": threading.active_count(),
            "files": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
            "blocks of nobody": len(pool.owners) - free - held}


def _live_nodes() -> int:
    """Count live nodes. Weak tables drop dead entries on access, which kills more nodes."""
    before, nodes = -1, live_nodes()
    while nodes != before:
        gc.collect()
        for memo in gc.get_objects():
            if type(memo) is WeakMemo:
                len(memo)
        before, nodes = nodes, live_nodes()
    return nodes


def attack(seed: int, count: int | None, seconds: float | None) -> Counts:
    """Interrupt until ``count`` or the time is reached."""
    random.seed(seed)
    trainings = [Training(10, False), Training(300, True), Training(6000, False)]
    works = [*[(t.work, 0.003) for t in trainings], (_trace, 0.02), (_compile, 0.1),
             (_eager, 0.004)]
    sent, lost = [0], []

    def interrupt(*_: Any) -> None:
        sent[0] += 1
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    sys.unraisablehook = lost.append
    for work, _ in works:
        work()
    before, wrong, done, again = _counted(), [], 0, queue._INTERRUPT_WINDOW
    end = time.monotonic() + (float("inf") if seconds is None else seconds)
    while done != count and time.monotonic() < end:
        faulthandler.dump_traceback_later(HANG, exit=True)
        work, longest = random.choice(works)
        # a quick second one aborts submitted work
        aborted = random.random() < 0.1
        queue._INTERRUPT_WINDOW = again if aborted else 0.0
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, longest))
            while True:
                work()
        except KeyboardInterrupt:
            done += 1
        except Exception as e:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if not (aborted and isinstance(e, DeviceError | DonatedError)):
                wrong.append(f"{done}: {type(e).__name__}: {e}")
            for training in trainings:
                training.restart()
        fault = _fault(trainings, aborted)
        if fault:
            wrong.append(f"{done}: {fault}")
    faulthandler.cancel_dump_traceback_later()
    queue._INTERRUPT_WINDOW = again
    return Counts(sent[0], wrong, sent[0] - done + len(lost), _leaks(before))


def main() -> None:
    counts = attack(*parse_limits(__doc__))
    print(counts)
    sys.exit(bool(counts.wrong or counts.lost or counts.leaks))


if __name__ == "__main__":
    main()

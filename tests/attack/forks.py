"""Forks under load: a child computes correctly or reports that it cannot, and never hangs.

    python -m tests.attack.forks --count 1000 --seed 1
    python -m tests.attack.forks --seconds 600

Threads trace, compile, run and submit long work, while the process forks, now and then from several
threads at once, with a pending Ctrl-C, or with Ctrl-C for the child microseconds after it starts,
and with varying timeouts for work in flight. Each child reads what was computed before and what was
in flight (its value or DeviceError), and computes, traces and compiles anew. An alarm kills one
that hangs; then the stacks of its threads are printed, with the processor time it used: next to
none on a busy machine may be starvation rather than a lock. The parent's values must be right
afterwards.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx.core.scope import scope
from fnx.core.support import process
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError
from tests.attack.seeds import parse_limits

_CODES = {10: "(a trace is open)", 11: "(a value of before)", 12: "(a value in flight)",
          16: "(Ctrl-C got lost)", 17: "(Ctrl-C of nobody)"}
_HANG = 60  # seconds a child may take, on a busy machine


class Counts(NamedTuple):
    """The findings; ``wrong`` has a line for each fault, ``hangs`` the stacks of each child."""

    forks: int
    refused: int
    wrong: list[str]
    lost: int
    hangs: list[str]

    def __str__(self) -> str:
        return "\n".join([f"{self.forks} forks, {len(self.wrong)} wrong, {self.lost} lost "
                          f"interrupts, {len(self.hangs)} hangs "
                          f"({self.refused} times a child was refused what was unfinished)",
                          *[f"  {text}" for text in (*self.wrong[:20], *self.hangs)]])


_long = fnx.jit(lambda x: jnp.sum(jnp.sin(x) * jnp.cos(x) + jnp.tanh(x)))
_short = fnx.jit(lambda x: x * 2 + 1)


def _load(seed: int, end: threading.Event) -> None:
    rng, x = random.Random(seed), jnp.ones(200)
    while not end.is_set():
        a, b = rng.random(), rng.random()
        with override(cache_dir="" if rng.random() < 0.5 else None):
            fnx.jit(lambda x: jnp.sin(x * a) + b)(x[:rng.randint(1, 199)])
        fnx.grad(lambda x: jnp.sum(jnp.tanh(x) * a))(x)
        _long(jnp.ones(2_000_000))
        time.sleep(0.002)


def _child(number: int, done: Any, flight: Any, want: float) -> int:
    """Return 0: right; 3: rejected, as it may be; anything else is a fault."""
    if scope.is_open() or not gc.isenabled():
        return 10
    if not np.array_equal(np.asarray(done), np.arange(100) * 2.0 + 1):
        return 11
    code = 0
    try:
        if float(flight) != want:
            return 12
    except DeviceError:
        code = 3
    if not np.array_equal(np.asarray(_short(jnp.arange(100))), np.arange(100) * 2 + 1):
        return 13
    if number % 3 == 0 and float(_long(jnp.zeros(300_000))) != 0:
        return 14
    if number % 4 == 0:
        made = fnx.jit(lambda x: x * float(number) + 1)(jnp.ones(number % 50 + 1))
        if float(made[0]) != number + 1:
            return 15
    return code


def attack(seed: int, count: int | None, seconds: float | None) -> Counts:
    """Fork until ``count`` or the time is reached."""
    rng, end = random.Random(seed), threading.Event()
    x = jnp.ones(2_000_000)
    want = float(_long(x))
    threads = [threading.Thread(target=_load, args=(seed * 10 + i, end), daemon=True)
               for i in range(3)]
    for thread in threads:
        thread.start()
    forks = refused = lost = 0
    wrong: list[str] = []
    hangs: list[str] = []
    patience = process.FORK_TIMEOUT
    until = time.monotonic() + (float("inf") if seconds is None else seconds)
    while (count is None or forks < count) and time.monotonic() < until:
        process.FORK_TIMEOUT, flights = ((0.0, 30), (patience, 1),
                                         (rng.uniform(0, 0.1), rng.randint(1, 30)))[forks % 3]
        done = _short(jnp.arange(100) * 1.0)
        np.asarray(done)
        flight = [_long(x) for _ in range(flights)][-1]  # executed in order
        helpers = [threading.Thread(target=_fork, args=(forks + 1 + i, done, flight, want))
                  for i in range(2 * (forks % 4 == 0))]
        after = rng.uniform(1e-5, 10 ** rng.uniform(-4, -2)) if rng.random() < 0.25 else None
        for thread in helpers:
            thread.start()
        lost += _fork(forks, done, flight, want, after, rng.random() < 0.25)
        for thread in helpers:
            thread.join()
        forks += 1 + len(helpers)
        for code, stacks in _reaped():
            refused += code == 3
            if code == -signal.SIGALRM:
                hangs.append(f"fork {forks}: {stacks}")
            elif code not in (0, 3):
                wrong.append(f"fork {forks}: child ended with {code} "
                             f"{_CODES.get(code, stacks)}")
        if float(flight) != want:
            wrong.append(f"fork {forks}: the parent has another value")
    process.FORK_TIMEOUT = patience
    end.set()
    for thread in threads:
        thread.join()
    return Counts(forks, refused, wrong, lost, hangs)


def _fork(number: int, done: Any, flight: Any, want: float, after: float | None = None,
          struck: bool = False) -> bool:
    """Fork; return whether a Ctrl-C that came after so many seconds got lost. With ``struck``
    another one comes to the child as soon as there is one."""
    parent = os.getpid()
    try:
        if after is not None:
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, after)
        child = os.fork()
        if child == 0:
            _be_child(number, done, flight, want, struck)
        if struck:
            os.kill(child, signal.SIGINT)
        if after is not None:
            time.sleep(20)  # it may come a little later
        return after is not None
    except KeyboardInterrupt:
        if os.getpid() != parent:
            _be_child(number, done, flight, want, False)
        return False


def _be_child(number: int, done: Any, flight: Any, want: float, struck: bool) -> None:
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_HANG)
        with _stacks(os.getpid()).open("w") as file:
            faulthandler.dump_traceback_later(0.9 * _HANG, file=file)
            code = _child(number, done, flight, want)
        if struck:
            time.sleep(20)
            code = 16  # it got lost
    except KeyboardInterrupt:
        code = _child(number, done, flight, want) if struck else 17
    except BaseException:
        _stacks(os.getpid()).write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _stacks(child: int) -> Path:
    """Return the file where a hanging child dumps its stacks."""
    return Path(tempfile.gettempdir(), f"fnx-stacks-{child}.txt")


def _reaped() -> Iterator[tuple[int, str]]:
    """Yield the exit code of each child, once it has ended, and its processor time and stacks."""
    while True:
        try:
            child, status, used = os.wait4(-1, 0)
        except ChildProcessError:
            return
        code, file = os.waitstatus_to_exitcode(status), _stacks(child)
        stacks = file.read_text() if file.exists() else ""
        file.unlink(missing_ok=True)
        yield code, f"{used.ru_utime + used.ru_stime:.1f} s of processor time\n{stacks}"


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs may ignore it
    counts = attack(*parse_limits(__doc__))
    print(counts)
    sys.exit(bool(counts.wrong or counts.lost or counts.hangs))


if __name__ == "__main__":
    main()

"""Odd values for every argument of every public function: accepted or rejected, never a bare error,
a hang or a crash.

    python -m tests.attack.values --count 20000 --seed 1

A function is called with valid arguments, one of which is replaced: by a number that is huge,
negative, not finite or of another type, by a ragged list, a string, a shape of 2**40, an array
where a number belongs. It must return a result or raise an fnx error with the user's line, within
seconds and within the memory there is. Only a user's function may raise anything.
"""

from __future__ import annotations

import inspect
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx.core.support.config import override
from tests.attack.agreement import Wrong
from tests.attack.programs import within
from tests.attack.seeds import parse_limits
from tests.public import test_arguments as surface

VALUES: tuple[Any, ...] = (
    2**31, 2**63, -2**70, 10**400, -1, 0, float("nan"), float("inf"), 1e30, True, None, (), [], {},
    "", b"x", [[1], [1, 2]], 2j, (2**40,), slice(None), np.float32(3), np.datetime64("2020"),
    object(), jnp.asarray(2.5), jnp.asarray(4_000_000_000, "uint32"), jnp.zeros((0, 3)))
WORK, WAIT = 20.0, 200.0  # seconds of a call: processor time, wall-clock time
# Functions that call the user's function with these arguments.
CALLERS = {"fnx.numpy.fromfunction": ("shape",)}


def places(name: str) -> list[tuple[str, int]]:
    """Return the arguments of a callable: keywords (at -1), and required ones, by position."""
    f = surface.CALLABLES[name]
    parameters = list(inspect.signature(f).parameters.values())[len(surface.receiver(name)):]
    needed = [(parameters[min(i, len(parameters) - 1)].name, i)
              for i in range(len(surface.arguments(name, f)))]
    return [*[(k, -1) for k in surface.keywords(name)], *needed]


def trial(rng: random.Random) -> tuple[str, str, int, Any]:
    """Draw a callable, one of its arguments and its odd value."""
    while True:
        name = rng.choice(sorted(surface.CALLABLES))
        found = [p for p in places(name) if p[0] not in CALLERS.get(name, ())]
        if found and name not in surface.PLAIN:
            return name, *rng.choice(found), rng.choice(VALUES)


def check(name: str, parameter: str, at: int, value: Any) -> str:
    """Make one call and return whether the value was taken or refused.

    Raises:
        Wrong: neither.
    """
    args = surface.arguments(name, surface.CALLABLES[name])
    extra = {parameter: value} if at < 0 else {}
    if at >= 0:
        args = [*args[:at], value, *args[at + 1:]]
    try:
        with within(WORK, WAIT), override(cache_dir=""):
            surface.call(name, extra, args)
        return "taken"
    except fnx.FnxError as e:
        if e.loc is None:
            raise Wrong(f"without the user's line: {e}") from e
        return "refused"
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        if last.filename == surface.__file__ and last.name == "<lambda>":
            return "taken"  # raised by the user's function
        raise Wrong(f"{type(e).__name__}: {e}") from e


def trials(seed: int, count: int | None, seconds: float | None
           ) -> Iterator[tuple[str, str, int, Any]]:
    rng, start, done = random.Random(seed), time.monotonic(), 0
    while (count is None or done < count) and \
            (seconds is None or time.monotonic() - start < seconds):
        yield trial(rng)
        done += 1


def attack(seed: int, count: int | None, seconds: float | None) -> tuple[Counter[str], list[str]]:
    """Make this many calls; return counts of outcomes, and those that were wrong."""
    counts: Counter[str] = Counter()
    wrong = []
    for name, parameter, at, value in trials(seed, count, seconds):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                counts[check(name, parameter, at, value)] += 1
        except Wrong as e:
            counts["wrong"] += 1
            wrong.append(f"{name}({parameter}={str(value)[:40]}): {str(e)[:200]}")
            print(wrong[-1], flush=True)
    return counts, wrong


def main() -> None:
    counts, wrong = attack(*parse_limits(__doc__, gigabytes=6))
    hangs = sum("not done in" in line for line in wrong)
    print(f"{sum(counts.values())} calls: {counts['taken']} taken, {counts['refused']} refused, "
          f"{len(wrong) - hangs} wrong, {hangs} hangs")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

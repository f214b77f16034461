"""Random nests of ranges, carried loops and conditions that add to outputs.

The expected values come from Python's own loops. Both devices agree, and derivatives agree with
finite differences.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
from fnx.core.support.config import override
from tests.laws.device import MACHINE
from tests.transforms.kernel_lang.test_kernel_prints import Env, Program, Statement

PLACES, ROWS = 5, 4
SCHEDULES: tuple[Any, ...] = (
    None, [k.vectorize("row")], [k.unroll("row")], [k.split("row", 2), k.vectorize("rowi")],
    [k.split("row", 2), k.unroll("rowi")], [k.parallel("row")])
if MACHINE != "cpu":  # groups and threads instead of workers and lanes
    SCHEDULES = (
        None, [k.grid("row")], [k.split("row", 2), k.grid("rowo"), k.unroll("rowi")],
        [k.split("row", 2), k.grid("rowo"), k.thread("rowi")])


class Row:
    """A row of an argument of a kernel: that of an iteration of its outermost range."""

    def __init__(self, array: Any, row: Any) -> None:
        self.array, self.row = array, row

    def __getitem__(self, i: Any) -> Any:
        return self.array[self.row, i]

    def combine(self, monoid: str, at: Any, value: Any) -> None:
        self.array.combine(monoid, (self.row, at), value)


class Adder(Program):
    """Add up what would be printed, at indices that loops or carried values determine."""

    def __init__(self, x: Any, out: Any, in_kernel: bool) -> None:
        super().__init__(x, self.add, in_kernel)
        self.out = out

    def add(self, number: int, at: Any, value: Any) -> None:
        if self.in_kernel:
            self.out[number].combine("add", at, value)
        else:
            self.out[number][int(at)] += value


class Numbered(random.Random):
    """A random generator that counts the adding statements."""

    adds = 0


def block(rng: Numbered, depth: int) -> Statement:
    parts = [statement(rng, depth) for _ in range(rng.randint(1, 3 if depth > 1 else 2))]

    def run(p: Any, env: Env) -> None:
        for part in parts:
            part(p, env)
    return run


def statement(rng: Numbered, depth: int) -> Statement:
    kind, n, label = rng.randrange(4) if depth else 0, rng.choice((1, 2, 3)), rng.randrange(99)
    if kind == 0:
        number, rng.adds = rng.adds, rng.adds + 1

        def add(p: Any, env: Env) -> None:
            numbers = [v for name, v in env.items() if name[0] != "s"]
            values = [v for name, v in env.items() if name[0] == "s"]
            at = sum(numbers, start=label) % PLACES
            p.say(number, at, sum(values[-2:], start=1.0) * p.x[(at + 1) % 3])
        return add
    inner = block(rng, depth - 1)
    if kind == 1:
        return lambda p, env: p.loop(n, lambda i: inner(p, {**env, f"i{depth}": i}))
    if kind == 2:
        def carried(p: Any, env: Env) -> None:
            def step(t: Any, s: Any) -> Any:
                inner(p, {**env, f"t{depth}": t, f"s{depth}": s})
                return s * 0.5 + p.x[(t + label) % 3] * s
            start = [v for name, v in env.items() if name[0] == "s"]
            p.carried(n, step, start[-1] if start and label % 2 else p.x[label % 3])
        return carried

    def when(p: Any, env: Env) -> None:
        numbers = [v for name, v in env.items() if name[0] != "s"]
        if numbers:
            p.when(sum(numbers, start=label) % 2 == 1, lambda: inner(p, env))
        else:
            inner(p, env)
    return when


def check(seed: int) -> None:
    rng = Numbered(seed)
    run = block(rng, 3)
    x = np.random.default_rng(seed).uniform(0.5, 1.5, (ROWS, 3))

    @fnx.call(out=lambda x: (fnx.ShapeDtypeStruct((ROWS, PLACES), "float64"),) * rng.adds,
              schedule=SCHEDULES[seed % len(SCHEDULES)])
    def several(x: Any, *outs: Any) -> None:
        row = k.range(ROWS, "row")
        run(Adder(Row(x, row), [Row(out, row) for out in outs], True), {})

    def kernel(x: Any) -> Any:
        return fnx.numpy.stack(several(x))

    def plain(x: Any) -> Any:
        out = np.zeros((ROWS, rng.adds, PLACES))
        for row in range(ROWS):
            run(Adder(x[row], out[row], False), {})
        return out.swapaxes(0, 1)

    want = plain(x)
    if not want.any():
        return
    with override(x64=True):
        for device in ("interp", MACHINE):
            with override(device=device):
                np.testing.assert_allclose(kernel(x), want, rtol=1e-12, err_msg=device)
        direction, step = np.random.default_rng(seed + 1).standard_normal(x.shape), 1e-6
        slope = (plain(x + step * direction) - plain(x - step * direction)) / (2 * step)
        tangent = np.asarray(fnx.jvp(kernel, (x,), (direction,))[1])
        np.testing.assert_allclose(tangent, slope, rtol=1e-5, atol=1e-6)
        ct = np.random.default_rng(seed).standard_normal(want.shape)
        gradient = fnx.grad(lambda x: (kernel(x) * ct).sum())(x)
        np.testing.assert_allclose((np.asarray(gradient) * direction).sum(), (tangent * ct).sum(),
                                   rtol=1e-9)


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(8))
def test_devices_and_derivatives_agree_with_python(seed: int) -> None:
    check(seed)

"""Random user-written kernels: compiled code agrees with the interpreter, or the trace rejects
them.

A kernel is rejected where it is written (with the user's line), never at link time. An accepted
kernel has the same results on every device, for any data.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.kernel as k
from fnx.core.support.config import override
from fnx.core.support.errors import SpecError
from tests.laws.device import MACHINE

Array = np.ndarray[Any, Any]
SIZES = (1, 2, 3, 4, 5, 7, 16, 33)


class Writer:
    """The body of one random kernel, which makes the same calls in each trace."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        large = rng.random() < 0.06  # enough work for several workers
        self.seed = seed
        self.rows, self.columns = (300, 301) if large else (rng.choice(SIZES), rng.choice(SIZES))
        self.dtype = rng.choice(("int32", "float32"))
        self.two_dimensional = rng.random() < 0.5
        self.outputs = rng.choice((1, 1, 1, 2))

    def out(self, *inputs: Any) -> Any:
        shape = (self.rows, self.columns) if self.two_dimensional else (self.rows,)
        made = tuple(fnx.ShapeDtypeStruct(shape, self.dtype) for _ in range(self.outputs))
        return made[0] if len(made) == 1 else made

    def inputs(self) -> list[Array]:
        rng = np.random.default_rng(self.seed)
        x = rng.integers(-4, 5, (self.rows, self.columns)).astype(self.dtype)
        y = rng.integers(-4, 5, self.rows).astype(self.dtype)
        at = rng.integers(-3, self.rows + 3, self.rows).astype(np.int32)
        if rng.random() < 0.3:
            at[rng.integers(0, self.rows)] = rng.choice((-2**31, 2**31 - 1, 10**6))
        return [x, y, at]

    def __call__(self, x: Any, y: Any, at: Any, *outputs: Any) -> None:
        rng = random.Random(self.seed + 1)
        self.rng, self.x, self.y, self.at = rng, x, y, at
        self.i = [k.range(self.rows) for _ in range(rng.choice((1, 1, 2)))]
        self.j = [k.range(self.columns) for _ in range(rng.choice((1, 1, 2)))]
        if rng.random() < 0.05:
            self.j.append(k.range(self.i[0] + 1))
        for o in outputs:
            for _ in range(rng.choice((1, 1, 1, 2))):
                self.store(o, rng.choice(self.i), rng.choice(self.j))

    def store(self, o: Any, i: Any, j: Any) -> None:
        rng = self.rng
        at = self.row(i, rng.random() < 0.05, written=True)
        index = (at, self.column(j, written=True)) if o.ndim == 2 else at
        value = self.value(2, i, j) if o.ndim == 2 else self.folded(i)
        if rng.random() < 0.04:
            value = value + o[index]
        valid = self.condition(i, j) if rng.random() < 0.3 else None
        if valid is not None and o.ndim == 1 and rng.random() < 0.97:
            valid = self.condition(i, None)
        how = rng.random()
        if how < 0.3:
            monoid = rng.choice(("add", "min", "max", "set"))
            index = self.row(i, True) if o.ndim == 1 else (self.row(i, True), j)
            o.combine(monoid, index, value, valid=valid)
        elif valid is None:
            o[index] = value
        else:
            o.store(*(index if o.ndim == 2 else (index,)), value=value, valid=valid)

    def row(self, i: Any, data: bool = False, written: bool = False) -> Any:
        n = self.rows
        if data:
            return self.at[i]
        if self.rng.random() < 0.03:
            return self.rng.choice((i + 1, i * 2, i - 1))
        return self.rng.choice((i, i, n - 1 - i)) if written and self.rng.random() < 0.9 else \
            self.rng.choice((i, i, n - 1 - i, i // 2, 0, i % 3 if n > 2 else 0))

    def column(self, j: Any, written: bool = False) -> Any:
        last = self.columns - 1
        if self.rng.random() < 0.02:
            return j + 1
        return self.rng.choice((j, j, last - j) if written and self.rng.random() < 0.9 else
                               (j, j, last - j, 0, last, j // 2))

    def condition(self, i: Any, j: Any | None) -> Any:
        kind = self.rng.randrange(5)
        if kind == 0:
            return i > 0
        if kind == 1:
            return self.y[i] > 0
        if kind == 2 and j is not None:
            return (j < self.columns - 1) & (i < self.rows - 1)
        if kind == 3:
            return (self.at[i] >= 0) & (self.at[i] < self.rows)
        return i % 2 == 0

    def read(self, i: Any, j: Any) -> Any:
        kind = self.rng.randrange(8)
        if kind == 0:
            return self.y[i]
        if kind == 1:
            return self.x[self.at[i], j]
        if kind == 2:
            return self.x.load(i - 1, j, valid=i > 0)
        if kind == 3:
            return self.y.load(self.at[i], valid=self.condition(i, j))
        if kind == 4:
            return self.x.load(i, j + 1, valid=(j < self.columns - 1) & self.condition(i, j))
        return self.x[self.row(i), self.column(j)]

    def value(self, depth: int, i: Any, j: Any) -> Any:
        kind = self.rng.randrange(6)
        if depth == 0 or kind == 0:
            return self.read(i, j)
        if kind == 1:
            return k.cast(i + j, self.dtype)
        if kind == 2:
            return k.where(self.condition(i, j), self.value(depth - 1, i, j), 3)
        if kind == 3:
            c = k.range(self.columns)
            return k.max(self.value(depth - 1, i, c), over=c)
        if kind == 4:
            c, d = k.range(self.columns), k.range(self.columns)
            kept = k.local(self.value(depth - 1, i, c), over=c)
            return k.sum(kept[self.column(d)], over=d) + kept[j]
        return self.value(depth - 1, i, j) - self.value(depth - 1, i, j)

    def folded(self, i: Any) -> Any:
        j = k.range(self.columns)
        forgotten = self.rng.random() < 0.06
        value = self.value(2, i, j)
        return value if forgotten else k.sum(value, over=j)


def run(writer: Writer, device: str) -> Any:
    with override(device=device):
        f = fnx.call(writer, name="generated", out=writer.out)
        out = f(*writer.inputs())
        return [np.asarray(o) for o in (out if isinstance(out, tuple) else (out,))]


def check(seed: int) -> bool:
    """Return whether the kernel of a seed ran (otherwise it was rejected)."""
    writer = Writer(seed)
    try:
        want = run(writer, "interp")
    except fnx.FnxError as refused:
        assert not isinstance(refused, SpecError), refused
        assert refused.loc is not None and refused.loc[0] == __file__, refused
        with pytest.raises(type(refused)) as again:
            run(writer, MACHINE)
        assert again.value.message == refused.message
        assert "two iterations write" not in refused.message  # an interpreter error
        return False
    for got, expected in zip(run(writer, MACHINE), want):
        np.testing.assert_allclose(got, expected, rtol=1e-6)  # sums past 2**24 round
    return True


@settings(max_examples=120)
@given(st.integers(0, 2**32))
def test_the_machine_agrees_with_the_interpreter_or_the_trace_refuses(seed: int) -> None:
    check(seed)


def test_many_are_run_and_many_refused() -> None:
    ran = sum(check(seed) for seed in range(60))
    assert 15 <= ran <= 50

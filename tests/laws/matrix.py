"""The transform matrix: every public differentiable function under every composition of transforms.

    grad vmap jit (f):  jit first, then vmap, then grad

A composition is checked against its prefix without the last transform: jit against the prefix
itself, vmap against the stacked loop of it, jvp and grad against its finite differences along a
direction. So a composition all of whose prefixes pass is right within the accuracy of float64
differences.

    python -m tests.laws.matrix                     all functions, compositions up to length 3
    python -m tests.laws.matrix tanh beta.cdf       some of them
    python -m tests.laws.matrix --device cpu        up to length 2 and a tenth of length 3
    python -m tests.laws.matrix --part 1/4          the first quarter of the functions
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import fnx
from fnx.core.array import tree
from fnx.core.levels import interp
from fnx.core.support.config import GPUS
from fnx.core.tracing.trace import trace
from tests.laws.matrix_cases import Case, public_cases, structural_cases
from tests.laws.matrix_science import complex_functions, science
from tests.laws.matrix_statistics import distributions

Values = list[np.ndarray[Any, Any]]
Word = tuple[str, ...]
Function = Callable[[Any], Any]  # tuple of arrays -> tuple of arrays

TRANSFORMS = ("jit", "grad", "jvp", "vmap")


def words(length: int) -> list[Word]:
    """Return all compositions of a length; the first transform is applied first."""
    return list(itertools.product(TRANSFORMS, repeat=length))


def _wave(shape: tuple[int, ...], speed: float, start: float) -> Any:
    n = math.prod(shape)
    return np.sin(speed * np.arange(n) + start).reshape(shape)


def direction(xs: Sequence[Any]) -> tuple[Any, ...]:
    """Return a fixed direction in the space of some arrays."""
    return tuple([_wave(x.shape, 1.3, i + 0.7) for i, x in enumerate(xs)])


def weighted(ys: Sequence[Any]) -> Any:
    """Return a fixed linear function of some arrays."""
    return sum([(y * fnx.numpy.asarray(_wave(y.shape, 0.9, i + 1.1), y.dtype)).sum()
                for i, y in enumerate(ys)], fnx.numpy.asarray(0.0, ys[0].dtype))


def _jvp(f: Function) -> Function:
    def along(xs: Any) -> Any:
        ts = tuple([fnx.numpy.asarray(t, x.dtype) for x, t in zip(xs, direction(xs))])
        return fnx.jvp(f, (xs,), (ts,))[1]
    return along


APPLY: dict[str, Callable[[Function], Function]] = {
    "jit": fnx.jit,
    "vmap": fnx.vmap,
    "grad": lambda f: fnx.grad(lambda xs: weighted(f(xs))),
    "jvp": _jvp,
}


Program = Callable[[Values], Values]


def at(case: Case, word: Word) -> Values:
    """Return the point of evaluation; each vmap adds a batch axis of length 2."""
    xs = [np.asarray(x) for x in case.xs]
    for _ in range(word.count("vmap")):
        xs = [np.stack([x, x * 1.015 + 0.004]) for x in xs]
    return xs


class Matrix:
    """Programs of one function, cached. For devices with their own memory, the programs run on the
    interpreter; matrix_devices.py batches the device's own."""

    def __init__(self, case: Case, device: str) -> None:
        self.case, self.device = case, "interp" if device in GPUS else device
        self._programs: dict[tuple[Word, Any], Program] = {}

    def program(self, word: Word, dtype: Any = np.float64) -> Program:
        found = self._programs.get((word, dtype))
        if found is None:
            found = self._programs[word, dtype] = self._make(word, dtype)
        return found

    def _make(self, word: Word, dtype: Any) -> Program:
        f = self.case.f
        for transform in word:
            f = APPLY[transform](f)
        given = tuple([fnx.numpy.asarray(x, dtype) for x in at(self.case, word)])
        if self.device != "interp":
            run = fnx.jit(f, device=self.device)
            return lambda xs: [np.asarray(y) for y in run(
                tuple([fnx.numpy.asarray(x, dtype) for x in xs]))]
        leaves, in_tree = tree.flatten(((given,), {}))
        closed = trace(f, [x._aval for x in leaves], in_tree, transform="matrix", name="f").close()
        captured = [np.asarray(fnx.Array(c)) for c in closed.captures]
        return lambda xs: interp.apply(closed.function, [*xs, *captured])[:len(closed.outs)]

    def check(self, word: Word) -> None:
        """Compare a composition with its prefix.

        Raises:
            AssertionError: they differ.
        """
        last, shorter = word[-1], self.program(word[:-1])
        xs = at(self.case, word)
        got = self.program(word)(xs)
        if last == "jit":
            close(got, shorter(xs), 1e-9, 0.0)
        elif last == "vmap":
            lanes = [shorter([x[i] for x in xs]) for i in range(2)]
            close(got, [np.stack(ys) for ys in zip(*lanes)], 1e-9, 0.0)
        else:
            ts = direction(xs)
            want, doubt = slope(shorter, xs, ts)
            if last == "grad":
                got = [np.asarray(sum(np.sum(g * t) for g, t in zip(got, ts)))]
                want = [np.asarray(_sum(want))]
            close(got, want, 2e-5, 20 * doubt)


def _sum(ys: Values) -> float:
    return float(sum(np.sum(y * _wave(y.shape, 0.9, i + 1.1)) for i, y in enumerate(ys)))


def slope(f: Program, xs: Values, ts: Sequence[Any]) -> tuple[Values, float]:
    """Return central differences, extrapolated once, and the size of that correction."""
    def central(h: float) -> Values:
        above = f([x + h * t for x, t in zip(xs, ts)])
        below = f([x - h * t for x, t in zip(xs, ts)])
        return [(a - b) / (2 * h) for a, b in zip(above, below)]

    far, near = central(2e-3), central(1e-3)
    found = [(4 * n - f) / 3 for n, f in zip(near, far)]
    moved = [float(np.abs(n - f).max(initial=0.0)) / 3 for n, f in zip(near, far)]
    return found, max(moved, default=0.0)


def close(got: Values, want: Values, rtol: float, atol: float) -> None:
    assert len(got) == len(want), (len(got), len(want))
    for g, w in zip(got, want):
        assert g.shape == w.shape, (g.shape, w.shape)
        scale = max(1.0, float(np.abs(w).max(initial=0.0)))
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol + rtol * scale)


# ---- the whole matrix ---------------------------------------------------------------------------


def chosen(case: Case, word: Word, device: str) -> bool:
    """Select compositions: all on the interpreter; elsewhere a tenth of the longest, another tenth
    for each function. On devices with their own memory only those that end in jit."""
    if device in GPUS and (not word or word[-1] != "jit"):
        return False
    return device == "interp" or len(word) < 3 or \
        zlib.crc32(f"{case.name} {word}".encode()) % 10 == 0


def cells(cases: Sequence[Case], device: str) -> Iterator[tuple[Matrix, Word]]:
    for case in cases:
        matrix = Matrix(case, device)
        for length in range(1, case.longest + 1):
            for word in words(length):
                if chosen(case, word, device):
                    yield matrix, word


def everything() -> tuple[list[Case], list[str]]:
    """Return all cases, and the names of public functions that have no derivative."""
    public, left_out = public_cases()
    cases = [*public, *distributions(), *structural_cases(), *science(), *complex_functions(public)]
    return cases, [name for name in left_out if name not in {case.name for case in cases}]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="interp", choices=("interp", "cpu"))
    parser.add_argument("--part", default="1/1")
    options = parser.parse_args()
    cases, left_out = everything()
    if options.names:
        ends = tuple([f".{n}" for n in options.names])
        cases = [c for c in cases if c.name.removesuffix(" complex").endswith(ends)]
    i, n = map(int, options.part.split("/"))
    cases = cases[(i - 1) * len(cases) // n:i * len(cases) // n]
    done, wrong = 0, []
    for matrix, word in cells(cases, options.device):
        done += 1
        try:
            matrix.check(word)
        except Exception as e:
            wrong.append((matrix.case.name, word))
            print(f"{matrix.case.name} under {' '.join(word)}: {type(e).__name__}: "
                  f"{str(e).strip()[:600]}", flush=True)
    print(f"{len(cases)} functions, {done} words on {options.device}: {len(wrong)} wrong; "
          f"{len(left_out)} public functions have no derivative")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

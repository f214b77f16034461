"""The transform matrix on devices with their own memory, many compositions per program.

A device compiles some 20 kernels a second, and a program costs more than a kernel. So `TOGETHER`
compositions are computed by one program, and those that evaluate a function at the same point share
inputs. If something is wrong, the program is bisected down to one composition.

    python -m tests.laws.matrix_devices opencl --part 3/40
    python -m tests.laws.matrix_devices webgpu tanh beta.cdf

A device without float64 computes in float32. Its result may differ from the interpreter's float64
result by `DOUBT` times the error of the interpreter's float32 result.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import fnx
from fnx.core.support.config import GPUS
from fnx.core.support.errors import DTypeError
from tests.laws.matrix import APPLY, Matrix, Values, Word, at, cells, close, everything

TOGETHER = 24
DOUBT = 50.0  # float32 errors are random; the interpreter's may be small by chance
NARROW = ("webgpu",)  # devices without float64
SINGLE = {"fnx.nn.dot_product_attention": "its scores are of float32, as JAX's are"}

Cell = tuple[Matrix, Word]


def computed(chosen: Sequence[Cell], device: str) -> list[Values]:
    """Compute the results of some compositions on a device, by one program."""
    dtype = np.float32 if device in NARROW else np.float64
    places: dict[Any, tuple[Any, ...]] = {}
    functions = []
    for matrix, word in chosen:
        place = matrix.case.name, word.count("vmap")
        places.setdefault(place, tuple(at(matrix.case, word)))
        f = matrix.case.f
        for transform in word:
            f = APPLY[transform](f)
        functions.append((f, place))

    def all_of(given: Any) -> Any:
        return [f(given[list(places).index(place)]) for f, place in functions]

    run = fnx.jit(all_of, device=device)
    found = run([tuple([fnx.numpy.asarray(x, dtype) for x in xs]) for xs in places.values()])
    return [[np.asarray(y) for y in fnx.tree.leaves(ys)] for ys in found]


def judge(cell: Cell, got: Values, device: str) -> None:
    """Compare a result with the interpreter's.

    Raises:
        AssertionError: they differ.
    """
    matrix, word = cell
    xs = at(matrix.case, word)
    if device not in NARROW:
        rtol = 3e-6 if matrix.case.name in SINGLE else 1e-9
        close(got, matrix.program(word[:-1])(xs), rtol, 0.0)
        return
    xs = [x.astype(np.float32) for x in xs]
    want = matrix.program(word[:-1])([x.astype(np.float64) for x in xs])
    with np.errstate(all="ignore"):
        near = matrix.program(word[:-1], np.float32)(xs)
    for g, w, n in zip(got, want, near, strict=True):
        assert g.dtype == n.dtype, (g.dtype, n.dtype)
        known = np.isfinite(n)  # skip values that float32 cannot represent
        doubt = float(np.abs(w - n, where=known, out=np.zeros(w.shape)).max(initial=0.0))
        close([np.where(known, g, 0)], [np.where(known, w, 0)], 2e-5, DOUBT * doubt)


def looked_at(chosen: Sequence[Cell], device: str) -> Iterator[tuple[Cell, Exception | None]]:
    """Yield each composition with its error, if any."""
    try:
        found = computed(chosen, device)
    except Exception as error:
        if len(chosen) == 1:
            yield chosen[0], error
            return
        half = len(chosen) // 2
        yield from looked_at(chosen[:half], device)
        yield from looked_at(chosen[half:], device)
        return
    for cell, got in zip(chosen, found, strict=True):
        try:
            judge(cell, got, device)
            yield cell, None
        except AssertionError as error:
            yield cell, error


def is_refused(error: Exception | None, device: str) -> bool:
    """Return whether a composition was rejected for types that the device lacks."""
    return device in NARROW and isinstance(error, DTypeError) and \
        error.message.startswith(f"{device}: expected ")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("device", choices=GPUS)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--part", default="1/1")
    options = parser.parse_args()
    cases = everything()[0]
    if options.names:
        cases = [c for c in cases if c.name.endswith(tuple([f".{n}" for n in options.names]))]
    i, n = map(int, options.part.split("/"))
    cases = cases[(i - 1) * len(cases) // n:i * len(cases) // n]
    chosen = list(cells(cases, options.device))
    wrong, refused = 0, Counter[str]()
    for start in range(0, len(chosen), TOGETHER):
        for (matrix, word), error in looked_at(chosen[start:start + TOGETHER], options.device):
            if is_refused(error, options.device):
                refused[matrix.case.name] += 1
            elif error is not None:
                wrong += 1
                print(f"{matrix.case.name} under {' '.join(word)}: {type(error).__name__}: "
                      f"{str(error).strip()[:600]}", flush=True)
    for name, count in refused.items():
        print(f"refused, as what it needs has 64 bits: {name}, {count} words")
    print(f"{len(cases)} functions, {len(chosen)} words on {options.device}: {wrong} wrong, "
          f"{refused.total()} refused")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

"""Hand-written kernels: saxpy, matrix product, row softmax. What is computed, then how to tile it.

    python examples/kernels.py

Each kernel says what every place of its result is; the schedule beside it is a list of loop
transforms. The same source runs on the interpreter, and under another schedule at other tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fnx
import fnx.kernel as k
from fnx import ShapeDtypeStruct

Schedule = list[Any]


@fnx.call(out=lambda a, x, y: x)
def saxpy(a: k.Reference, x: k.Reference, y: k.Reference, o: k.Reference) -> None:
    """a * x + y; the compiler chooses the schedule."""
    i = k.range(o.shape[0], "i")
    o[i] = a[()] * x[i] + y[i]


def _product(x: k.Reference, w: k.Reference, o: k.Reference) -> None:
    m, n = k.range(o.shape[0], "m"), k.range(o.shape[1], "n")
    kk = k.range(x.shape[1], "k")
    o[m, n] = k.sum(x[m, kk] * w[kk, n], over=kk)


def _product_shape(x: Any, w: Any) -> ShapeDtypeStruct:
    return ShapeDtypeStruct((x.shape[0], w.shape[1]), x.dtype)


def gemm_schedule(rows: int = 14, columns: int = 32, lanes: int = 16, block: int = 4
                  ) -> Schedule:
    """Register tiles of rows x columns; ``block`` of them packed together for the L2 cache.

    m = io (workers) . ir . i     n = jr . j . l (lanes)     k stays one loop
    """
    return [
        k.split("m", rows * block, "io", "it"), k.split("it", rows, "ir", "i"),
        k.split("n", columns, "jr", "jt"), k.split("jt", lanes, "j", "l"),
        k.order("io", "jr", "ir", "k", "i", "j", "l"),
        k.parallel("io"), k.unroll("i"), k.unroll("j"), k.vectorize("l"),
        k.stage("x", at="io"), k.stage("w", space="GLOBAL"),
    ]


def matmul(schedule: Schedule | None = None) -> Callable[[Any, Any], fnx.Array]:
    """x @ w under a schedule; without one the compiler's own choice."""
    made: Callable[[Any, Any], fnx.Array] = fnx.call(
        _product, name="matmul", out=_product_shape, schedule=schedule)
    return made


@fnx.call(out=lambda x: x)
def softmax(x: k.Reference, o: k.Reference) -> None:
    """Rows stay in the cache: their maximum, the exponentials and their sum, the quotients."""
    row = k.range(x.shape[0], "row")
    c0, c1, c2 = (k.range(x.shape[1], f"c{i}") for i in range(3))
    largest = k.max(x[row, c0], over=c0)
    e = k.exp(x[row, c1] - largest)
    kept = k.local(e, over=c1)
    o[row, c2] = kept[c2] / k.sum(e, over=c1)


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, 999)).astype("float32")
    w = rng.standard_normal((999, 1001)).astype("float32")
    want = x @ w
    for name, schedule in (("the compiler's choice", None), ("14 x 32", gemm_schedule()),
                           ("8 x 32", gemm_schedule(rows=8))):
        got = np.asarray(matmul(schedule)(x, w))
        print(f"matmul 1000 x 999 x 1001, {name}: "
              f"largest error {np.abs(got - want).max():.1e}")
    e = np.exp(x - x.max(1, keepdims=True))
    print(f"softmax: {np.abs(np.asarray(softmax(x)) - e / e.sum(1, keepdims=True)).max():.1e}")
    print(f"saxpy: {np.abs(np.asarray(saxpy(2.0, x[0], x[1])) - (2 * x[0] + x[1])).max():.1e}")


if __name__ == "__main__":
    main()

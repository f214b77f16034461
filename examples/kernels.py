"""User-written kernels, from saxpy to attention: first what is computed, then how to tile it.

    python examples/kernels.py

Each kernel defines every element of its result; its schedule is a list of loop transforms. The same
source also runs on the interpreter, and with other schedules.
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
    """Register tiles of rows x columns; ``block`` of them are packed together for the L2 cache.

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
    """x @ w under a schedule; the default is the compiler's own choice."""
    made: Callable[[Any, Any], fnx.Array] = fnx.call(
        _product, name="matmul", out=_product_shape, schedule=schedule)
    return made


@fnx.call(out=lambda x: x)
def softmax(x: k.Reference, o: k.Reference) -> None:
    """Softmax of rows that stay in the cache: the maximum, the exponentials and their sum, the
    division."""
    row = k.range(x.shape[0], "row")
    c0, c1, c2 = (k.range(x.shape[1], f"c{i}") for i in range(3))
    largest = k.max(x[row, c0], over=c0)
    e = k.exp(x[row, c1] - largest)
    kept = k.local(e, over=c1)
    o[row, c2] = kept[c2] / k.sum(e, over=c1)


@fnx.call(out=lambda x: x)
def prefix_sum(x: k.Reference, o: k.Reference) -> None:
    """Cumulative sums along rows: the loop stores its carried value in each iteration."""
    row = k.range(x.shape[0], "row")

    def step(i: k.Value, total: k.Value) -> k.Value:
        total = total + x[row, i]
        o[row, i] = total
        return total

    k.loop(x.shape[1], step, 0)


@fnx.call(out=lambda x, edges: ShapeDtypeStruct((edges.shape[0] - 1,), "int32"))
def histogram(x: k.Reference, edges: k.Reference, o: k.Reference) -> None:
    """How many values lie in each of equally wide bins, the last one closed, as np.histogram.

    The bins of a block of values are computed in vectors and staged; then they are counted in
    order.
    """
    n, bins, block = x.shape[0], edges.shape[0] - 1, 256
    b, j, jj = k.range(-(-n // block), "b"), k.range(block, "j"), k.range(block, "jj")
    low, high, i = edges[0], edges[bins], b * block + j
    v = x.load(i, valid=i < n)
    at = k.cast(k.minimum((v - low) * (bins / (high - low)), bins - 1), "int32")
    kept = k.local(k.where((v >= low) & (v <= high) & (i < n), at, bins), over=j)
    o.combine("add", kept[jj], 1, valid=kept[jj] < bins, checked=False)


@fnx.call(out=lambda p, radius: ShapeDtypeStruct((p.shape[1],), "int32"))
def pair_counts(p: k.Reference, radius: k.Reference, o: k.Reference) -> None:
    """How many points, including itself, lie within a radius of each point; p is (3, n)."""
    n = p.shape[1]
    i, j = k.range(n, "i"), k.range(n, "j")
    far = [k.square(p[axis, i] - p[axis, j]) for axis in range(3)]
    near = far[0] + far[1] + far[2] <= k.square(radius[()])
    o[i] = k.sum(k.cast(near, "int32"), over=j)


@fnx.call(out=lambda x: x)
def stencil(x: k.Reference, o: k.Reference) -> None:
    """A step of the heat equation on a plane with cold surroundings: three points along each
    axis."""
    rows, columns = x.shape
    i, j = k.range(rows, "i"), k.range(columns, "j")
    above, below = x.load(i - 1, j, valid=i > 0), x.load(i + 1, j, valid=i < rows - 1)
    left, right = x.load(i, j - 1, valid=j > 0), x.load(i, j + 1, valid=j < columns - 1)
    o[i, j] = x[i, j] + 0.2 * (above + below + left + right - 4 * x[i, j])


def mandelbrot(limit: int = 200) -> Callable[[Any, Any], fnx.Array]:
    """How many steps of z*z + c stay within a circle of radius 2, at most ``limit``.

    Adjacent pixels are lanes of one vector: the loop ends when all of them have ended.
    """
    def kernel(re: k.Reference, im: k.Reference, o: k.Reference) -> None:
        y, x = k.range(o.shape[0], "y"), k.range(o.shape[1], "x")
        a, b = re[x], im[y]

        def step(t: k.Value, u: k.Value, v: k.Value, count: k.Value) -> tuple[k.Value, ...]:
            return u * u - v * v + a, 2 * u * v + b, count + 1

        *_, o[y, x] = k.loop(limit, step, 0.0, 0.0, 0,
                             until=lambda t, u, v, count: u * u + v * v > 4)

    def shape(re: Any, im: Any) -> ShapeDtypeStruct:
        return ShapeDtypeStruct((im.shape[0], re.shape[0]), "int32")

    made: Callable[[Any, Any], fnx.Array] = fnx.call(kernel, name="mandelbrot", out=shape)
    return made


def flash_attention(causal: bool = False, keys: int = 64, rows: int = 4
                    ) -> Callable[[Any, Any, Any], fnx.Array]:
    """softmax(q @ k.T) @ v of each head without storing the scores: (q, k, v) -> like q, [h, n, d].

    A loop goes over blocks of keys. It carries the largest score of a row so far, the sum of the
    exponentials and their products with v, which are rescaled when a larger score comes. ``rows``
    rows of q share the loads of a block; they and a row of the result stay in registers.
    ``causal``: a row attends to the keys up to its own, and its loop ends there.
    """
    def kernel(q: k.Reference, key: k.Reference, v: k.Reference, o: k.Reference) -> None:
        heads, n, d = q.shape
        h, i, c = k.range(heads, "h"), k.range(n, "i"), k.range(d, "c")
        j, cc, jj = k.range(keys, "j"), k.range(d, "cc"), k.range(keys, "jj")

        def block(b: k.Value, top: k.Value, total: k.Value, out: k.Value) -> tuple[k.Value, ...]:
            scores = k.sum(q[h, i, cc] * key[h, b * keys + j, cc], over=cc)
            if causal:
                scores = k.where(b * keys + j <= i, scores, -np.inf)
            largest = k.maximum(top, k.max(scores, over=j))
            e = k.exp(scores - largest)
            kept, scale = k.local(e, over=j), k.exp(top - largest)
            return (largest, total * scale + k.sum(e, over=j),
                    out * scale + k.sum(kept[jj] * v[h, b * keys + jj, c], over=jj))

        past = (lambda b, *carried: b * keys > i) if causal else None
        _, total, out = k.loop(key.shape[1] // keys, block, -np.inf, 0.0, 0.0, until=past, name="b")
        o[h, i, c] = out / total

    made: Callable[[Any, Any, Any], fnx.Array] = fnx.call(
        kernel, name="flash_attention", out=lambda q, key, v: q, schedule=[
            k.split("i", rows, "io", "ii"), k.split("c", 16, "cu", "cl"),
            k.split("j", 16, "ju", "jl"),
            k.order("h", "io", "b", "cc", "jj", "ii", "ju", "cu", "jl", "cl"), k.parallel("h"),
            k.unroll("ii"), k.unroll("ju"), k.unroll("cu"), k.vectorize("jl"), k.vectorize("cl"),
            k.stage("key", space="GLOBAL")])
    return made


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
    print(f"prefix sum: {np.abs(np.asarray(prefix_sum(x)) - np.cumsum(x, 1)).max():.1e}")
    print(f"saxpy: {np.abs(np.asarray(saxpy(2.0, x[0], x[1])) - (2 * x[0] + x[1])).max():.1e}")
    print("random walks, each row one:")
    print(fnx.debug.visualize(prefix_sum(x[:8, :48])))


if __name__ == "__main__":
    main()

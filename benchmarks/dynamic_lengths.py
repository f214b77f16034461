"""Processor time of ``jit(dynamic=)`` at a length, beside ``jit`` for this length alone.

    python benchmarks/dynamic_lengths.py
    python benchmarks/dynamic_lengths.py --only attention --lengths 100,500

Both sides in turn, the median of nine rounds. ``new kernels`` are those that the first call with
dynamic lengths compiled. The results of both are compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx import lax, nn
from fnx.backends.device.base import get_device

ROUNDS, SECONDS = 9, 0.05  # rounds, and about the time of each
T = fnx.dim("T", 1, 4096)
Case = tuple[Callable[..., Any], list[tuple[int, ...]], list[tuple[int, ...]]]


def attention(q: Any, k: Any, v: Any) -> Any:
    causal = jnp.tril(jnp.ones((q.shape[0], k.shape[0]), bool))
    return nn.softmax(jnp.where(causal, q @ k.T / 8.0, -jnp.inf), -1) @ v


def layer_norm(x: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered / jnp.sqrt((centered ** 2).mean(-1, keepdims=True) + 1e-5)


def convolution(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x.T[None], w, (1,), "SAME")[0]


def recurrent(x: Any, wx: Any, wh: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        new = jnp.tanh(h @ wh + row @ wx)
        return new, new
    return lax.scan(step, jnp.zeros(wh.shape[0]), x)[1]


def segment_sums(x: Any) -> Any:
    return jnp.zeros((32, x.shape[1])).at[jnp.arange(x.shape[0]) % 32].add(x)


def mlp_gradient(x: Any, a: Any, b: Any) -> Any:
    return fnx.grad(lambda w: jnp.mean((nn.relu(x @ w[0]) @ w[1]) ** 2))((a, b))


# function, rows of each argument with a dynamic length, shapes of the others
CASES: dict[str, Case] = {
    "attention": (attention, [(64,)] * 3, []),
    "mlp": (lambda x, a, b: nn.relu(x @ a) @ b, [(256,)], [(256, 512), (512, 256)]),
    "mlp_gradient": (mlp_gradient, [(256,)], [(256, 512), (512, 256)]),
    "layer_norm": (layer_norm, [(512,)], []),
    "convolution": (convolution, [(64,)], [(64, 64, 5)]),
    "recurrent": (recurrent, [(64,)], [(64, 128), (128, 128)]),
    "segment_sums": (segment_sums, [(64,)], []),
    "softmax_of_columns": (lambda x: nn.softmax(x, 0), [(512,)], []),
}


def compiled() -> int:
    return int(get_device("cpu").stats()["compiled"])


def seconds(f: Callable[[], Any], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        f()
    return (time.process_time() - start) / count


def measure(case: Case, length: int, dynamic: Any, fixed: Any) -> str:
    """Return the ratio at a length, the time of the fixed program, and new kernels."""
    draw = np.random.default_rng(0)
    args = [jnp.asarray(draw.standard_normal(shape).astype("float32") / 8)
            for shape in [*[(length, *row) for row in case[1]], *case[2]]]
    before = compiled()
    results = fnx.block_until_ready(dynamic(*args))
    kernels = compiled() - before
    for got, want in zip(fnx.tree.leaves(results), fnx.tree.leaves(fixed(*args)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    sides = [lambda f=f: fnx.block_until_ready(f(*args)) for f in (dynamic, fixed)]
    for side in sides:
        seconds(side, 5)
    count = max(3, int(SECONDS / seconds(sides[1], 3)))
    times = [[seconds(side, count) for side in sides] for _ in range(ROUNDS)]
    ours, theirs = map(statistics.median, zip(*times))
    return f"{ours / theirs:6.2f}   {theirs * 1e6:9.1f} us   {kernels} new kernels"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of a name")
    parser.add_argument("--lengths", default="100,250,500,1000,1500")
    options = parser.parse_args()
    for name, case in CASES.items():
        if options.only in name:
            dynamic = fnx.jit(case[0], dynamic={i: {0: T} for i in range(len(case[1]))})
            for length in map(int, options.lengths.split(",")):
                found = measure(case, length, dynamic, fnx.jit(case[0]))
                print(f"{name:20}{length:6}{found}", flush=True)


if __name__ == "__main__":
    main()

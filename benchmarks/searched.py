"""Measure the gain of schedule search over the heuristic schedule.

    python -m benchmarks.searched --seconds 4 matmul softmax

Each case is jitted twice, with and without ``config.search``; then both are timed in turn, medians
of rounds. Without names, all cases run.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.config import override

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]


def conv(stride: int, groups: int = 1) -> Callable[..., Any]:
    """A convolution with zero padding."""
    return lambda x, w: lax.conv_general_dilated(x, w, (stride, stride), "SAME",
                                                 feature_group_count=groups)


CASES: dict[str, Case] = {
    "matmul 791x1024 @ 1024x38": (lambda x, w: x @ w, ((791, 1024), (1024, 38))),
    "matmul 333x517 @ 517x211": (lambda x, w: x @ w, ((333, 517), (517, 211))),
    "matmul 64x4037 @ 4037x16": (lambda x, w: x @ w, ((64, 4037), (4037, 16))),
    "matmul.T 162x71 @ 162x128": (lambda x, w: x.T @ w, ((162, 71), (162, 128))),
    "layer tanh(128x300 @ 300x500)": (lambda x, w: jnp.tanh(x @ w), ((128, 300), (300, 500))),
    "conv 14x5x16x16 with 30x5x3x3": (conv(1), ((14, 5, 16, 16), (30, 5, 3, 3))),
    "conv 24x32x64x64 with 23x32x3x3 / 2": (conv(2), ((24, 32, 64, 64), (23, 32, 3, 3))),
    "conv 4x64x8x8 with 14x64x7x7": (conv(1), ((4, 64, 8, 8), (14, 64, 7, 7))),
    "softmax 2000x777": (lambda x: jnp.exp(x - x.max(1, keepdims=True)) / jnp.exp(
        x - x.max(1, keepdims=True)).sum(1, keepdims=True), ((2000, 777),)),
    "log_softmax 360x22": (lambda x: x - jnp.log(jnp.exp(x).sum(1, keepdims=True)), ((360, 22),)),
    "sum of rows 4096x300": (lambda x: x.sum(1), ((4096, 300),)),
    "sum of columns 3000x401": (lambda x: x.sum(0), ((3000, 401),)),
    "transpose 1999x1001 + y": (lambda x, y: x.T + y, ((1999, 1001), (1001, 1999))),
    "permute 17x177x87": (lambda x: x.transpose(2, 0, 1) * 2, ((17, 177, 87),)),
    "matmul 512x512 @ 512x512": (lambda x, w: x @ w, ((512, 512), (512, 512))),
    "matmul 64x64 @ 64x20000": (lambda x, w: x @ w, ((64, 64), (64, 20000))),
    "matmul 32x2048 @ 2048x2048": (lambda x, w: x @ w, ((32, 2048), (2048, 2048))),
    "matmul 100x100 @ 100x100": (lambda x, w: x @ w, ((100, 100), (100, 100))),
    "gram x @ x.T 300x400": (lambda x: x @ x.T, ((300, 400),)),
    "gram x.T @ x 700x200": (lambda x: x.T @ x, ((700, 200),)),
    "batch 32x128x32 @ 32x32x128": (lambda x, w: x @ w, ((32, 128, 32), (32, 32, 128))),
    "matvec 1024x4096 @ 4096": (lambda x, w: x @ w, ((1024, 4096), (4096,))),
    "depthwise 4x32x28x28 3x3": (conv(1, 32), ((4, 32, 28, 28), (32, 1, 3, 3))),
    "gradient of tanh(x @ w)": (fnx.grad(lambda x, w: jnp.tanh(x @ w).sum(), argnums=(0, 1)),
                                ((128, 300), (300, 200))),
    "layer norm 1000x512": (lambda x: (x - x.mean(1, keepdims=True)) / jnp.sqrt(
        x.var(1, keepdims=True) + 1e-5), ((1000, 512),)),
    "norm over axis 1 of 60x40x50": (lambda x: x / jnp.sqrt((x * x).sum(1, keepdims=True)),
                                     ((60, 40, 50),)),
    "max over axis 0 of 500x1000": (lambda x: x.max(0), ((500, 1000),)),
    "argmax over axis 1 of 2000x50": (lambda x: x.argmax(1), ((2000, 50),)),
    "gelu of 300000": (lambda x: x * 0.5 * (1 + jnp.tanh(0.797 * (x + 0.0447 * x ** 3))),
                       ((300000,),)),
    "outer 700 x 900": (lambda x, y: x[:, None] * y[None], ((700,), (900,))),
    "max pool 2x2 of 32x64x64": (lambda x: x.reshape(32, 32, 2, 32, 2).max((2, 4)),
                                 ((32, 64, 64),)),
    "grey of 500x500x3": (lambda x: (x * jnp.asarray([0.3, 0.6, 0.1])).sum(2), ((500, 500, 3),)),
    "four neighbours 512x512": (lambda x: x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2],
                                ((512, 512),)),
    "variance of 8x50000": (lambda x: x.var(1), ((8, 50000),)),
}


def microseconds(f: Callable[..., Any], args: list[Any], seconds: float = 0.004) -> float:
    """Return the time per call, over calls that take about that long together."""
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        fnx.block_until_ready(f(*args))
        count += 1
    return spent / count * 1e6


def gain(name: str, seconds: float, rounds: int) -> float:
    """Return the speedup over the heuristic schedule."""
    f, shapes = CASES[name]
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.uniform(0.1, 1, s).astype("f4")) for s in shapes]
    model, searched = fnx.jit(lambda *args: f(*args)), fnx.jit(lambda *args: f(*args))
    own_commands = model.lower(*args).commands
    began = time.perf_counter()
    with override(search=seconds):
        fnx.block_until_ready(searched(*args))
        spent = time.perf_counter() - began
        times: tuple[list[float], list[float]] = [], []
        same = searched.lower(*args).commands is own_commands
    for _ in range(0 if same else rounds):
        times[0].append(microseconds(model, args))
        with override(search=seconds):
            times[1].append(microseconds(searched, args))
    if same:
        print(f"{name:38} the model's schedules in {spent:.1f} s", flush=True)
        return 1.0
    own, found = (statistics.median(t) for t in times)
    print(f"{name:38} {own:9.1f} us {found:9.1f} us {own / found:6.2f}x  in {spent:.1f} s",
          flush=True)
    return own / found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    names = [name for name in CASES if not given.names or any(n in name for n in given.names)]
    gains = [gain(name, given.seconds, given.rounds) for name in names]
    print(f"geometric mean {math.exp(sum(map(math.log, gains)) / len(gains)):.3f}x of {len(gains)}")


if __name__ == "__main__":
    main()

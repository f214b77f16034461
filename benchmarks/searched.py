"""What a search gains over the model: times of functions under schedules that were searched for.

    python -m benchmarks.searched --seconds 4 matmul softmax

Each case is jitted twice, with and without ``config.search``; then both are timed in turns, medians
of rounds. Without names all cases are.
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
from fnx.core.config import override

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]


def conv(stride: int, groups: int = 1) -> Callable[..., Any]:
    """A convolution whose borders are zeros."""
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
}


def microseconds(f: Callable[..., Any], args: list[Any], seconds: float = 0.004) -> float:
    """A call, of as many as take that long."""
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        f(*args).block_until_ready()
        count += 1
    return spent / count * 1e6


def gain(name: str, seconds: float, rounds: int) -> float:
    """Times the model's speed."""
    f, shapes = CASES[name]
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.uniform(0.1, 1, s).astype("f4")) for s in shapes]
    model, searched = fnx.jit(lambda *args: f(*args)), fnx.jit(lambda *args: f(*args))
    own_commands = model.lower(*args).commands
    began = time.perf_counter()
    with override(search=seconds):
        searched(*args).block_until_ready()
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

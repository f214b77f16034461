"""Time Fourier transforms beside JAX's, in one process and in turn.

    taskset -c 1 python benchmarks/fft.py             complex64, one and two axes
    taskset -c 1 python benchmarks/fft.py --double    complex128
    taskset -c 1 python benchmarks/fft.py rfft 65536 1000x64     one function, some shapes

A shape of two equal lengths is transformed along both axes, any other one along the last. First
calls compile; later ones are the best of several rounds. A shape is that of the real array if there
is one. Errors are root mean squares relative to pocketfft in long double, in units of those of
pocketfft of the same type (scipy.fft).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy
import numpy as np
import scipy.fft

import fnx
import fnx.numpy

SHAPES = ((64,), (256,), (1024,), (4096,), (16384,), (65536,), (1 << 18,), (1 << 20,), (1 << 22,),
          (1000,), (1009,), (10000,), (100000,), (1000000,), (64, 64), (256, 256), (1024, 1024),
          (1000, 64), (10000, 16), (100, 1000))


def timed(f: Callable[[Any], Any], x: Any) -> float:
    start = time.perf_counter()
    f(x).block_until_ready()
    return time.perf_counter() - start


def steady(functions: list[tuple[Callable[[Any], Any], Any]], size: int) -> list[float]:
    """Return the best time of each function; they take turns."""
    best = [math.inf] * len(functions)
    calls = max(3, min(300, 2_000_000 // size))
    for _ in range(8):
        for i, (f, x) in enumerate(functions):
            start = time.perf_counter()
            for _ in range(calls):
                out = f(x)
            out.block_until_ready()
            best[i] = min(best[i], (time.perf_counter() - start) / calls)
    return best


def main(name: str, shapes: tuple[tuple[int, ...], ...], double: bool) -> None:
    rng = np.random.default_rng(0)
    for library, array in ((jax, jax.numpy.ones(8)), (fnx, fnx.numpy.ones(8))):
        timed(library.jit(lambda x: x * 2), array)  # loads the compilers
    print(f"{name:14} first, ms: JAX     fnx ratio     then, us: JAX       fnx ratio    error")
    for shape in shapes:
        lengths = (*shape[:-1], shape[-1] // 2 + 1) if name in ("irfft", "hfft") else shape
        z = rng.standard_normal(lengths) + 1j * rng.standard_normal(lengths)
        x = (z.real if name in ("rfft", "ihfft") else z).astype(
            ("float" if name in ("rfft", "ihfft") else "complex")
            + str(64 * (1 + double) // (1 + (name in ("rfft", "ihfft")))))
        which = name + "2" if len(set(shape)) < len(shape) and name in ("fft", "ifft", "rfft") \
            else name
        theirs = jax.jit(getattr(jax.numpy.fft, which))
        ours = fnx.jit(getattr(fnx.numpy.fft, which))
        a, b = jax.numpy.asarray(x), fnx.numpy.asarray(x)
        first = [timed(theirs, a), timed(ours, b)]
        then = steady([(theirs, a), (ours, b)], math.prod(shape))
        exact = getattr(scipy.fft, which)(x.astype(
            np.clongdouble if x.dtype.kind == "c" else np.longdouble))
        errors = [np.linalg.norm((np.asarray(y) - exact).ravel())
                  for y in (getattr(scipy.fft, which)(x), ours(b))]
        print(f"{'x'.join(map(str, shape)):14} {first[0] * 1e3:13.1f} {first[1] * 1e3:7.1f} "
              f"{first[1] / first[0]:5.2f} {then[0] * 1e6:18.1f} {then[1] * 1e6:9.1f} "
              f"{then[1] / then[0]:5.2f} {errors[1] / max(errors[0], 1e-300):8.2f}", flush=True)


if __name__ == "__main__":
    words = [w for w in sys.argv[1:] if w != "--double"]
    wide = "--double" in sys.argv
    jax.config.update("jax_enable_x64", wide)
    with fnx.enable_x64(wide):
        main(words[0] if words else "fft",
             tuple(tuple(map(int, w.split("x"))) for w in words[1:]) or SHAPES, wide)

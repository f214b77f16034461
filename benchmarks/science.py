"""Complex numbers, linear algebra and Fourier transforms beside JAX, in one process and in turn.

    python benchmarks/science.py                    all cases
    python benchmarks/science.py fft "solve 10000"  cases whose names contain one of these texts

Each case prints microseconds of a call of both (medians of rounds), their ratio, and the ratio of
the first calls. Pin the process to one processor to compare the kernels rather than the threads.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy
import numpy as np

import fnx
import fnx.numpy

ROUNDS, LEAST = 5, 0.02  # seconds of a round


class Case(NamedTuple):
    """A function of (jax or fnx, arrays), and its arrays."""

    name: str
    f: Callable[..., Any]
    args: tuple[Any, ...]


def real(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def complex_(*shape: int) -> Any:
    rng = np.random.default_rng(1)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)


def definite(*shape: int) -> Any:
    a = real(*shape)
    return a @ np.swapaxes(a, -1, -2) + 4 * shape[-1] * np.eye(shape[-1], dtype=np.float32)


def schroedinger(ns: Any, h: Any, psi: Any) -> Any:
    """One hundred Runge-Kutta steps."""
    def step(psi: Any, _: Any) -> Any:
        k1 = -1j * (h @ psi)
        k2 = -1j * (h @ (psi + 0.005 * k1))
        k3 = -1j * (h @ (psi + 0.005 * k2))
        k4 = -1j * (h @ (psi + 0.01 * k3))
        return psi + (0.01 / 6) * (k1 + 2 * k2 + 2 * k3 + k4), abs(psi[0]) ** 2
    return ns.lax.scan(step, psi, None, length=100)


def mandelbrot(ns: Any, c: Any) -> Any:
    return ns.lax.fori_loop(0, 50, lambda i, z: ns.numpy.where(abs(z) < 2, z * z + c, z), 0 * c)


def convolution(ns: Any, a: Any, b: Any) -> Any:
    fft = ns.numpy.fft
    return fft.irfft(fft.rfft(a) * fft.rfft(b))


def _of(path: str) -> Callable[..., Any]:
    """Return a function of ``numpy`` by its path."""
    def call(ns: Any, *xs: Any) -> Any:
        f = ns.numpy
        for part in path.split("."):
            f = getattr(f, part)
        return f(*xs)
    return call


def cases() -> Iterator[Case]:
    """Yield all cases."""
    z, w, x = complex_(1000, 1000), complex_(1000, 1000)[::-1].copy(), real(1000, 1000)
    yield Case("complex z * w", lambda ns, a, b: a * b, (z, w))
    yield Case("complex z / w", lambda ns, a, b: a / b, (z, w))
    yield Case("complex exp(1j * x)", lambda ns, x: ns.numpy.exp(1j * x), (x,))
    for name in ("abs", "exp", "log", "sqrt", "sin", "tanh", "sum"):
        yield Case(f"complex {name}", _of(name), (z,))
    yield Case("complex vdot", _of("vdot"), (z.ravel(), w.ravel()))
    for n in (256, 1000):
        yield Case(f"complex matmul {n}", _of("matmul"), (z[:n, :n].copy(), w[:n, :n].copy()))
    yield Case("complex matrix @ vector", _of("matmul"), (z, w[0].copy()))
    yield Case("complex grad of |z|**2", lambda ns, z: ns.grad(
        lambda z: (z * z.conj()).real.sum())(z), (z,))
    h = complex_(64, 64)
    yield Case("complex Schroedinger", schroedinger, (h + h.conj().T, complex_(64)))
    yield Case("complex Mandelbrot", mandelbrot, (complex_(300, 300),))
    for n in (64, 256, 1000, 1009, 4096, 65536, 1 << 20):
        yield Case(f"fft {max(1, 65536 // n)} x {n}", _of("fft.fft"),
                   (complex_(max(1, 65536 // n), n),))
    yield Case("fft rfft 64 x 1024", _of("fft.rfft"), (real(64, 1024),))
    yield Case("fft fft2 512 x 512", _of("fft.fft2"), (complex_(512, 512),))
    yield Case("fft convolution 64 x 1024", convolution, (real(64, 1024), real(64, 1024)))
    for count, n in ((10000, 3), (10000, 4), (10000, 8), (2000, 32), (0, 16), (0, 64), (0, 256),
                     (0, 1000)):
        a = definite(count, n, n) if count else definite(n, n)
        b = real(*a.shape[:-1], 1)
        size = f"{count} x {n} x {n}" if count else f"{n} x {n}"
        yield Case(f"linalg solve {size}", _of("linalg.solve"), (a, b))
        for name in ("cholesky", "inv", "det", "qr", *(("eigh", "svd") if n < 1000 else ())):
            yield Case(f"linalg {name} {size}", _of(f"linalg.{name}"), (a,))


def seconds(f: Callable[..., Any], args: Any, block: Callable[[Any], Any]) -> float:
    """Return the time of a call, from as many calls as fill a round."""
    n = 1
    while True:
        start = time.perf_counter()
        for _ in range(n):
            out = f(*args)
        block(out)
        elapsed = time.perf_counter() - start
        if elapsed > LEAST:
            return elapsed / n
        n *= 3


def compare(case: Case) -> str:
    """Return the line of a case."""
    sides = []
    for ns, transforms in ((jax, jax), (fnx, fnx)):
        f = transforms.jit(lambda *xs, ns=ns: case.f(ns, *xs))
        args = [ns.numpy.asarray(x) for x in case.args]
        start = time.perf_counter()
        transforms.block_until_ready(f(*args))
        sides.append((f, args, transforms.block_until_ready, time.perf_counter() - start))
    rounds = [[seconds(*side[:3]) for side in sides] for _ in range(ROUNDS)]
    theirs, ours = (statistics.median(times) * 1e6 for times in zip(*rounds))
    return f"{case.name:34} {theirs:10.1f} {ours:10.1f} {ours / theirs:6.2f} " \
        f"{sides[1][3] / sides[0][3]:8.2f}"


def main() -> None:
    print(f"{'':34} {'JAX us':>10} {'fnx us':>10} {'ratio':>6} {'first':>8}")
    for case in cases():
        if not sys.argv[1:] or any(text in case.name for text in sys.argv[1:]):
            print(compare(case), flush=True)


if __name__ == "__main__":
    main()

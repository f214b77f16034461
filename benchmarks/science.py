"""Complex numbers, linear algebra and Fourier transforms beside JAX, in one process and in turn.

    python benchmarks/science.py                    all cases
    python benchmarks/science.py fft "solve 10000"  cases whose names contain one of these texts
    python benchmarks/science.py --sizes svd "512"  factorizations by size and type, instead

Each case prints microseconds of a call of both (medians of rounds), their ratio, and the ratio of
the first calls. Pin the process to one processor to compare the kernels rather than the threads.
With ``--processor-time`` it is the least time that a round takes of all processors, which other
processes hardly change.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.experimental.sparse
import jax.lax.linalg
import jax.numpy
import jax.scipy.linalg
import numpy as np

import fnx
import fnx.experimental.sparse
import fnx.lax.linalg
import fnx.numpy
import fnx.scipy.linalg
from fnx.core.support.config import override

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


def sparse_product(count: int, n: int, is_sorted: bool, columns: int = 0) -> Case:
    """Return the product of a matrix of so many entries and a vector, or a few columns."""
    flat = np.random.default_rng(2).choice(n * n, count, replace=False)
    flat = np.sort(flat) if is_sorted else flat
    indices = np.stack([flat // n, flat % n], -1).astype(np.int32)

    def product(ns: Any, data: Any, indices: Any, right: Any) -> Any:
        return ns.experimental.sparse.BCOO((data, indices), shape=(n, n), unique_indices=True,
                                           indices_sorted=is_sorted) @ right
    name = f"sparse {'sorted' if is_sorted else 'random'} {count} of {n} x {n} @ {columns or 1}"
    return Case(name, product, (real(count), indices, real(n, columns) if columns else real(n)))


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
    for n in (10_000, 100_000):
        for is_sorted in (False, True):
            yield sparse_product(1_000_000, n, is_sorted)
    yield sparse_product(1_000_000, 10_000, True, 8)
    for count, n in ((10000, 3), (10000, 4), (10000, 8), (2000, 32), (0, 16), (0, 64), (0, 256),
                     (0, 1000)):
        a = definite(count, n, n) if count else definite(n, n)
        b = real(*a.shape[:-1], 1)
        size = f"{count} x {n} x {n}" if count else f"{n} x {n}"
        yield Case(f"linalg solve {size}", _of("linalg.solve"), (a, b))
        for name in ("cholesky", "inv", "det", "qr", *(("eigh", "svd") if n < 1000 else ())):
            yield Case(f"linalg {name} {size}", _of(f"linalg.{name}"), (a,))


def cases_of_sizes() -> Iterator[Case]:
    """Yield factorizations of one matrix and of a few, by size and type."""
    for n in (65, 96, 128, 200, 256, 384, 512, 750, 1024, 1536, 2048):
        for dtype in ("float32", "float64", "complex64", "complex128"):
            a = real(n, n).astype(dtype)
            if dtype.startswith("complex"):
                a += (1j * real(n, n)[::-1]).astype(dtype)
            p = (a @ a.conj().T / n + np.eye(n)).astype(dtype)
            b, tall = a[:, :8].copy(), np.concatenate((a, a[::-1]), 0)[:, :n // 2].copy()
            for name, args in (("cholesky", (p,)), ("solve", (a, b)), ("inv", (a,)), ("det", (a,)),
                               ("slogdet", (a,)), ("qr", (a,)), ("eigh", (p,)), ("eigvalsh", (p,)),
                               ("svd", (a,)), ("svdvals", (a,)), ("eig", (a,)), ("eigvals", (a,)),
                               ("lstsq", (tall, tall[:, :2].copy())), ("pinv", (tall,))):
                yield Case(f"{name} {dtype} {n}", _of(f"linalg.{name}"), args)
            yield Case(f"qr of tall {dtype} {n}", _of("linalg.qr"), (tall,))
            yield Case(f"lu {dtype} {n}", lambda ns, a: ns.lax.linalg.lu(a), (a,))
            yield Case(f"triangular_solve {dtype} {n}", lambda ns, a, b:
                       ns.lax.linalg.triangular_solve(a, b, left_side=True, lower=True), (p, b))
            yield Case(f"cho_solve {dtype} {n}", lambda ns, p, b: ns.scipy.linalg.cho_solve(
                ns.scipy.linalg.cho_factor(p), b), (p, b))


def seconds(f: Callable[..., Any], args: Any, block: Callable[[Any], Any],
            clock: Callable[[], float]) -> float:
    """Return the time of a call, from as many calls as fill a round."""
    n = 1
    while True:
        start = clock()
        for _ in range(n):
            out = f(*args)
        block(out)
        elapsed = clock() - start
        if elapsed > LEAST:
            return elapsed / n
        n *= 3


def compare(case: Case, processor_time: bool) -> str:
    """Return the line of a case."""
    clock = time.process_time if processor_time else time.perf_counter
    sides = []
    for ns, transforms in ((jax, jax), (fnx, fnx)):
        f = transforms.jit(lambda *xs, ns=ns: case.f(ns, *xs))
        args = [ns.numpy.asarray(x) for x in case.args]
        start = time.perf_counter()
        transforms.block_until_ready(f(*args))
        sides.append((f, args, transforms.block_until_ready, time.perf_counter() - start))
    count = ROUNDS if sides[0][3] < 2 else 2
    rounds = [[seconds(*side[:3], clock) for side in sides] for _ in range(count)]
    choose = min if processor_time else statistics.median
    theirs, ours = (choose(times) * 1e6 for times in zip(*rounds))
    return f"{case.name:34} {theirs:10.1f} {ours:10.1f} {ours / theirs:6.2f} " \
        f"{sides[1][3] / sides[0][3]:8.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--x64", action="store_true", help="with 64-bit types")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", given.x64 or given.sizes)
    print(f"{'':34} {'JAX us':>10} {'fnx us':>10} {'ratio':>6} {'first':>8}")
    with override(x64=given.x64 or given.sizes):
        for case in cases_of_sizes() if given.sizes else cases():
            if not given.names or any(text in case.name for text in given.names):
                print(compare(case, given.processor_time), flush=True)


if __name__ == "__main__":
    main()

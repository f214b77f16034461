"""Compare user-written kernels with the same loops under numba, and tiled attention with plain one.

    python -m benchmarks.handwritten_loops

Both sides run in turn, once in each round; ratios are of the least times, both of the processor
(all threads together) and of the wall clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from examples.kernels import flash_attention, histogram, pair_counts, stencil

Array = np.ndarray[Any, Any]
ROUNDS = 9


def least(f: Callable[[], Any], g: Callable[[], Any]) -> tuple[list[float], list[float]]:
    """Return the least (processor, wall) milliseconds of both, run in turn."""
    times: tuple[list[Any], list[Any]] = ([], [])
    for _ in range(ROUNDS):
        for run, found in zip((f, g), times):
            used, start = time.process_time(), time.perf_counter()
            run()
            found.append((time.process_time() - used, time.perf_counter() - start))
    ours, theirs = ([1e3 * min(column) for column in zip(*found)] for found in times)
    return ours, theirs


def line(name: str, ours: list[float], theirs: list[float], what: str) -> str:
    ratios = " and ".join(f"{a / b:.2f}x" for a, b in zip(ours, theirs))
    return (f"{name}: {ours[0]:.2f} ms of the processor, {ours[1]:.2f} ms; "
            f"{ratios} of {what} ({theirs[0]:.2f}, {theirs[1]:.2f})")


# ---- numba ------------------------------------------------------------------------------------


def _pairs(p: Array, radius: float, o: Array) -> None:
    n, most = p.shape[1], radius * radius
    for i in range(n):
        count = 0
        for j in range(n):
            far = (p[0, i] - p[0, j])**2 + (p[1, i] - p[1, j])**2 + (p[2, i] - p[2, j])**2
            if far <= most:
                count += 1
        o[i] = count


def _histogram(x: Array, edges: Array, o: Array) -> None:
    bins = edges.shape[0] - 1
    low, high = edges[0], edges[bins]
    scale, last = np.float32(bins) / (high - low), np.float32(bins - 1)
    o[:] = 0
    for i in range(x.shape[0]):
        if low <= x[i] <= high:
            o[np.int32(min((x[i] - low) * scale, last))] += 1


def _stencil(x: Array, o: Array) -> None:
    rows, columns = x.shape
    zero, part, four = np.float32(0), np.float32(0.2), np.float32(4)
    for i in range(rows):
        for j in range(columns):
            above = x[i - 1, j] if i > 0 else zero
            below = x[i + 1, j] if i < rows - 1 else zero
            left = x[i, j - 1] if j > 0 else zero
            right = x[i, j + 1] if j < columns - 1 else zero
            o[i, j] = x[i, j] + part * (above + below + left + right - four * x[i, j])


def beside_numba() -> None:
    import numba

    rng = np.random.default_rng(0)
    points = rng.random((3, 4000)).astype("float32")
    values, edges = rng.standard_normal(2_000_000), np.linspace(-3, 3, 101)
    plane = rng.standard_normal((2000, 2000)).astype("float32")
    jobs: list[tuple[str, Any, Any, tuple[Any, ...], Array]] = [
        ("pair counts of 4,000", pair_counts, _pairs, (points, np.float32(0.1)),
         np.zeros(4000, "int32")),
        ("histogram of 2,000,000", histogram, _histogram,
         (values.astype("float32"), edges.astype("float32")), np.zeros(100, "int32")),
        ("stencil on 2000 x 2000", stencil, _stencil, (plane,), np.zeros_like(plane))]
    for name, kernel, loops, given, out in jobs:
        ours, theirs = fnx.jit(kernel), numba.njit(loops)
        args = [jnp.asarray(a) for a in given]
        theirs(*given, out)
        np.testing.assert_allclose(ours(*args), out, rtol=1e-5, atol=1e-5)
        print(line(name, *least(lambda f=ours, a=args: f(*a).block_until_ready(),
                                lambda f=theirs, a=given, o=out: f(*a, o)), "numba"), flush=True)


# ---- attention --------------------------------------------------------------------------------


def attention(causal: bool, heads: int = 8, n: int = 2048, d: int = 64) -> None:
    mask = jnp.tril(jnp.ones((n, n), bool))

    @fnx.jit
    def unfused(q: Any, key: Any, v: Any) -> Any:
        scores = q @ key.transpose(0, 2, 1)
        return fnx.nn.softmax(jnp.where(mask, scores, -jnp.inf) if causal else scores) @ v

    q, key, v = (jnp.asarray(a) for a in np.random.default_rng(0).standard_normal(
        (3, heads, n, d)).astype("float32") * np.float32(d**-0.25))
    flash = fnx.jit(flash_attention(causal))
    np.testing.assert_allclose(flash(q, key, v), unfused(q, key, v), rtol=1e-3, atol=1e-5)
    kind = "causal attention" if causal else "attention"
    print(line(f"{kind}, {heads} heads of {n} x {d}", *least(
        lambda: flash(q, key, v).block_until_ready(),
        lambda: unfused(q, key, v).block_until_ready()), "the unfused one"), flush=True)


def products_per_second(steps: int = 400_000, workers: int = 8, chains: int = 12) -> float:
    """Return the multiply-adds per second of all cores, in registers."""
    def kernel(x: k.Reference, o: k.Reference) -> None:
        w, lane = k.range(workers, "w"), k.range(16, "lane")
        a, b = x[w, lane], x[w, 15 - lane]
        sums = k.loop(steps, lambda t, *sums: tuple([s * a + b for s in sums]),
                      *[0.1 * i for i in range(chains)], name="t")
        o[w, lane] = sum(sums[1:], sums[0])

    run = fnx.jit(fnx.call(kernel, out=lambda x: x, schedule=[
        k.order("w", "t", "lane"), k.parallel("w"), k.vectorize("lane")]))
    x = jnp.full((workers, 16), 0.5)
    run(x).block_until_ready()
    least_of = min([_seconds(lambda: run(x).block_until_ready()) for _ in range(ROUNDS)])
    return workers * 16 * chains * steps / least_of


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def attention_profile(heads: int = 8, n: int = 2048, d: int = 64) -> None:
    """Print where the time of attention without a mask goes, against the cores' peak rate."""
    q, key, v = (jnp.asarray(a) for a in np.random.default_rng(0).standard_normal(
        (3, heads, n, d)).astype("float32") * np.float32(d**-0.25))
    parts: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "unfused": (lambda q, key, v: fnx.nn.softmax(q @ key.transpose(0, 2, 1)) @ v, (q, key, v)),
        "both products alone": (lambda q, key, v: (q @ key.transpose(0, 2, 1)) @ v, (q, key, v)),
        "exponentials alone": (lambda s: jnp.exp(s).sum(-1), (jnp.zeros((heads, n, n)),)),
        "flash": (flash_attention(False), (q, key, v))}
    runs = {name: (fnx.jit(f), args) for name, (f, args) in parts.items()}
    times = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, (f, args) in runs.items():
            spent = _seconds(lambda f=f, args=args: f(*args).block_until_ready())
            times[name] = min(times[name], spent)
    rate = products_per_second()
    times["its products at the rate of the cores"] = 2 * heads * n * n * d / rate
    print(f"{rate / 1e9:.1f} billion multiplications and additions a second; attention, {heads} "
          f"heads of {n} x {d}:")
    for name, spent in times.items():
        print(f"  {name}: {1e3 * spent:.1f} ms, {spent / times['unfused']:.2f} of the unfused")


def main() -> None:
    beside_numba()
    for causal in (False, True):
        attention(causal)
    attention_profile()


if __name__ == "__main__":
    main()

"""The largest error of each elementary function, in units of the last place of the true value.

    python scripts/ulp_table.py [function...]           10 million samples and special values
    python scripts/ulp_table.py --samples 100000        fewer
    python scripts/ulp_table.py --dtypes float32 --all --state FILE
                                                        all float32 numbers; goes on where FILE ends

float32 and shorter types are held against float64, float64 against NumPy's long double; special
functions against mpmath, at a few numbers of each exponent. Of float16
all numbers are taken.
What is allowed more than 2 says so in ``ALLOWED``; the exit status says whether something is above.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import fnx  # noqa: E402
import fnx.numpy as jnp  # noqa: E402
from fnx.core.config import override  # noqa: E402
from fnx.scipy import special  # noqa: E402

CHUNK = 1 << 21
BOUND = 2.0
# Functions whose error is larger by their nature, and how large it may be.
ALLOWED: dict[tuple[str, str], float] = {
    # products of two exponentials, so that they are finite wherever the result is
    **{(name, t): 4.0 for name in ("sinh", "cosh") for t in ("float32", "float64")},
    ("arccosh", "float32"): 2.5, ("log10", "float64"): 3.0,
    # a quotient of sine and cosine; near multiples of pi / 2 what a reduced argument has lost
    ("tan", "float32"): 3.0, ("tan", "float64"): 128.0,
    ("sin", "float64"): 128.0, ("cos", "float64"): 128.0,
    # formulas of several steps (32 bits compute arcsin and arccos in 64)
    ("arcsin", "float64"): 3.0, ("arccos", "float64"): 3.5, ("erfinv", "float32"): 3.0,
    ("erfinv", "float64"): 4.0,
    # exponentials of squares, logarithms near their zeros: relative errors grow with the argument
    ("erfc", "float32"): 64.0, ("erfc", "float64"): 128.0, ("gammaln", "float32"): 8.0,
    ("gammaln", "float64"): 1e5, ("gamma", "float32"): 256.0, ("gamma", "float64"): 1e6,
    ("digamma", "float64"): 1e3,
}


class Function(NamedTuple):
    """What is computed here and there, and between which numbers."""

    here: Callable[[Any], Any]
    there: Callable[[Any], Any]
    low: float = -np.inf
    high: float = np.inf
    exact: str = "numpy"      # what knows the true value


def _mpmath(name: str) -> Callable[[Any], Any]:
    def true(x: Any) -> Any:
        import mpmath

        with mpmath.workdps(40):
            return np.array([float(getattr(mpmath, name)(mpmath.mpf(float(v)))) for v in x])
    return true


FUNCTIONS: dict[str, Function] = {
    **{name: Function(getattr(jnp, name), getattr(np, name)) for name in (
        "exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arctan", "arcsinh",
        "cbrt")},
    **{name: Function(getattr(jnp, name), getattr(np, name), low) for name, low in (
        ("log", 0), ("log2", 0), ("log10", 0), ("log1p", -1), ("sqrt", 0), ("arccosh", 1))},
    **{name: Function(getattr(jnp, name), getattr(np, name), -1, 1) for name in (
        "arcsin", "arccos", "arctanh")},
    **{here: Function(getattr(special, here), _mpmath(there), low, high, "mpmath")
       for here, there, low, high in (
           ("erf", "erf", -6, 6), ("erfc", "erfc", -6, 9), ("gammaln", "loggamma", 0, 1e30),
           ("digamma", "digamma", 1e-30, 1e30), ("gamma", "gamma", 0, 30),
           ("erfinv", "erfinv", -1, 1))},
}
if not hasattr(jnp, "cbrt"):
    del FUNCTIONS["cbrt"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 2.0, np.pi, np.pi / 2, 1e-3]


def error(f: Function, x: Any) -> tuple[float, float]:
    """(the largest error in ulp, where) over numbers of one dtype."""
    t = x.dtype
    with np.errstate(all="ignore"):
        wide = np.longdouble if t == np.float64 else np.float64
        true = f.there(x.astype(np.float64 if f.exact == "mpmath" else wide))
        rounded = np.abs(true).astype(t)
        got = np.asarray(fnx.jit(f.here)(x))
        top = np.finfo(t).max
        unit = np.spacing(np.minimum(rounded, top)).astype(wide)
        off = np.abs(got.astype(wide) - true) / unit
        same = (got == true.astype(t)) | np.isnan(got) & np.isnan(true)
        # one past the largest number may be infinite, and the other way round
        edge = np.isinf(got) & (np.abs(true) > top * (1 - np.finfo(t).eps)) & \
            (np.signbit(got) == np.signbit(true))
        off = np.where(same | edge, np.where(np.isfinite(off), off, 0), np.where(
            np.isfinite(off), off, np.inf))
    worst = int(np.argmax(off))
    return float(off[worst]), float(x[worst])


def _inside(x: Any, f: Function) -> Any:
    return x[~(x < f.low) & ~(x > f.high)]


def samples(f: Function, t: Any, count: int, seed: int = 0) -> Iterator[Any]:
    """Numbers of all exponents, and as many near 1 and of moderate size; special values first."""
    rng = np.random.default_rng(seed)
    whole = np.uint64 if t.itemsize == 8 else np.uint32
    if f.exact == "mpmath":
        spread = np.logspace(-30, 30, 61)
        numbers = np.concatenate([spread, -spread, np.linspace(-9, 30, 400),
                                  rng.normal(size=300) * 3])
        yield _inside(numbers.astype(t), f)
        return
    yield _inside(np.array(SPECIAL, t), f)
    done = 0
    while done < count:
        n = min(CHUNK, count - done)
        bits = rng.integers(0, np.iinfo(whole).max, n // 2, whole, endpoint=True).view(t)
        near = (rng.normal(size=n // 4) * 4).astype(t), rng.uniform(-2, 2, n - n // 4 - n // 2)
        yield _inside(np.concatenate([bits[np.isfinite(bits)], near[0], near[1].astype(t)]), f)
        done += n


def every(f: Function, start: int) -> Iterator[tuple[int, Any]]:
    """All float32 numbers from a bit pattern on, in chunks, with where the next begins."""
    for low in range(start, 1 << 32, CHUNK):
        bits = np.arange(low, min(low + CHUNK, 1 << 32), dtype=np.uint64).astype(np.uint32)
        yield low + CHUNK, _inside(bits.view(np.float32), f)


def measured(name: str, dtype: str, given: argparse.Namespace, state: dict[str, Any]
             ) -> tuple[float, float]:
    f, worst = FUNCTIONS[name], (0.0, 0.0)
    if dtype == "float16":
        bits = np.arange(1 << 16, dtype=np.uint16)
        return error(f, _inside(bits.view(np.float16), f))
    if given.all and dtype == "float32" and f.exact == "numpy":
        kept = state.setdefault(name, {"next": 0, "worst": [0.0, 0.0]})
        for after, x in every(f, kept["next"]):
            if len(x):
                kept["worst"] = max(kept["worst"], [*error(f, x)])
            kept["next"] = after
            if given.state:
                given.state.write_text(json.dumps(state))
        return tuple(kept["worst"])  # type: ignore[return-value]
    for x in samples(f, np.dtype(dtype), given.samples):
        if len(x):
            worst = max(worst, error(f, x))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*")
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--dtypes", default="float16,float32,float64")
    parser.add_argument("--all", action="store_true", help="all numbers of float32")
    parser.add_argument("--state", type=Path, help="where an exhaustive run goes on")
    given = parser.parse_args()
    state = json.loads(given.state.read_text()) if given.state and given.state.exists() else {}
    above = 0
    print("| function | dtype | ulp | at | allowed |\n|---|---|---|---|---|")
    for name in given.functions or FUNCTIONS:
        for dtype in given.dtypes.split(","):
            if FUNCTIONS[name].exact == "mpmath" and dtype == "float16":
                continue
            with override(x64=True):
                ulp, at = measured(name, dtype, given, state)
            allowed = ALLOWED.get((name, dtype), BOUND)
            above += ulp > allowed
            print(f"| {name} | {dtype} | {ulp:.3f} | {at!r} | {allowed} |", flush=True)
    sys.exit(bool(above))


if __name__ == "__main__":
    main()

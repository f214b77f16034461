"""Measure the largest errors of elementary and special functions, in ulps of the exact value.

    python scripts/ulp_table.py [function...]        10 million values and special values
    python scripts/ulp_table.py --samples 300000     fewer
    python scripts/ulp_table.py --all --state FILE   all float32 values of elementary functions,
                                                     in 16 parts; resumes where FILE ends
    python scripts/ulp_table.py --all --state FILE --jobs 2 --seconds 600   in two processes; starts
                                                     no part after ten minutes
    python scripts/ulp_table.py --parts 1 --state FILE   one part: every 16th float32 value
    ... --wide           compare with fnx's own float64 functions, in the same kernel: all float32
                         values of one function take some minutes
    ... --write          renews the rows of docs/precision.md that the state has results for

float16 and bfloat16 are tested on all values. float32 and narrower dtypes are compared with float64
(special functions with SciPy's), float64 with NumPy's long double; special functions also with
mpmath, at some values of each exponent. The float32 values are those whose bits are equal modulo a
stride, which covers all exponents equally; the float64 values are random, partly over all exponents
and partly of moderate size. Functions that are allowed more than 2 ulps are listed in ``ALLOWED``;
the exit status says whether an error is above its limit.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from scipy import special as scipy_special

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import fnx  # noqa: E402
import fnx.numpy as jnp  # noqa: E402
from fnx import lax, nn  # noqa: E402
from fnx.core.support.config import override  # noqa: E402
from fnx.scipy import special  # noqa: E402

PAGE = ROOT / "docs" / "precision.md"
BEGIN, END = "<!-- written by ulp_table.py -->", "<!-- end of ulp_table.py -->"
CHUNK = 1 << 15           # fits in the cache
PARTS = 16                # of all float32 values
BLOCK = 1 << 20           # values per call that computes both widths
EACH = 2                  # values per exponent for mpmath
BOUND = 2.0
DTYPES = ("float16", "bfloat16", "float32", "float64")
# Functions whose error is inherently larger, and its limit.
ALLOWED: dict[tuple[str, str], float] = {
    # An exponential times a rounded number, so that they are finite wherever the result is.
    ("sinh", "float32"): 2.5, ("sinh", "float64"): 3.0, ("cosh", "float64"): 2.5,
    ("arccosh", "float32"): 2.5, ("arccosh", "float64"): 2.5, ("log10", "float64"): 3.0,
    # A difference of two rounded terms near 0.84.
    ("arcsin", "float32"): 2.1,
    # Half a log1p of a rounded quotient.
    ("arctanh", "float32"): 2.1,
    # Formulas of several steps.
    ("sigmoid", "float32"): 2.5, ("sigmoid", "float64"): 2.5,
    ("erfinv", "float32"): 4.0,
    ("erfinv", "float64"): 4.0,
    # Exponentials of squares: relative errors grow with the argument.
    ("erfc", "float32"): 80.0, ("erfc", "float64"): 128.0,
    # Products of several factors; sums of logarithms that cancel.
    ("gamma", "float32"): 6.0, ("gamma", "float64"): 6.0,
    ("gammaln", "float32"): 5.0, ("gammaln", "float64"): 5.0,
    # Near its zero at 1.46.
    ("digamma", "float64"): 1e4,
    # Exponentials of squares, and the difference of such ones left of 0.
    ("erfcx", "float32"): 32.0, ("erfcx", "float64"): 32.0,
    # A quadrature below 5 or 6.
    ("dawsn", "float32"): 16.0, ("dawsn", "float64"): 16.0,
    # A Chebyshev series (SciPy's float64 at 1 is 8 ulp off); expi near its zero at 0.37.
    ("exp1", "float32"): 6.0, ("exp1", "float64"): 8.0,
    ("expi", "float32"): 4e3, ("expi", "float64"): 4e3,
    # Series, and quotients of polynomials.
    ("spence", "float32"): 4.0, ("spence", "float64"): 12.0,
    ("i0e", "float32"): 8.0, ("i0e", "float64"): 8.0,
    ("i1e", "float32"): 12.0, ("i1e", "float64"): 12.0,
}


class Function(NamedTuple):
    """A function of fnx, its reference, and the interval of arguments."""

    here: Callable[[Any], Any]
    there: Callable[[Any], Any]      # in float64 or long double
    low: float = -np.inf
    high: float = np.inf
    exact: Callable[[Any], Any] | None = None    # of special functions: mpmath's


def _mpmath(name: str) -> Callable[[Any], Any]:
    """Return a function of mpmath, or an expression of x with its functions."""
    def true(x: Any) -> Any:
        import mpmath

        f = getattr(mpmath, name, None) or eval(f"lambda x: {name}", vars(mpmath).copy())
        with mpmath.workdps(40):
            return np.array([_number(f, mpmath.mpf(float(v))) for v in x])
    return true


def _number(f: Callable[[Any], Any], x: Any) -> Any:
    """Return a long double from two doubles."""
    try:
        value = f(x)
        first = float(value)
        rest = float(value - first) if np.isfinite(first) else 0.0
    except (ValueError, ZeroDivisionError, TypeError):  # a pole, or a complex number
        return np.longdouble(np.nan)
    return np.longdouble(first) + np.longdouble(rest)


def _scipy(name: str) -> Callable[[Any], Any]:
    f = getattr(scipy_special, name)
    return lambda x: f(x.astype(np.float64))


def _sigmoid(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return 1 / (1 + np.exp(-x))


def _softplus(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


FUNCTIONS: dict[str, Function] = {
    **{name: Function(getattr(jnp, name), getattr(np, name)) for name in (
        "exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arctan", "arcsinh",
        "cbrt")},
    **{name: Function(getattr(jnp, name), getattr(np, name), low) for name, low in (
        ("log", 0), ("log2", 0), ("log10", 0), ("log1p", -1), ("sqrt", 0), ("arccosh", 1))},
    **{name: Function(getattr(jnp, name), getattr(np, name), -1, 1) for name in (
        "arcsin", "arccos", "arctanh")},
    "sigmoid": Function(nn.sigmoid, _sigmoid),
    "softplus": Function(nn.softplus, _softplus),
    **{here: Function(getattr(special, here), _scipy(here), low, high,
                      _mpmath(there))
       for here, there, low, high in (
           ("erf", "erf", -6, 6), ("erfc", "erfc", -6, 9), ("gammaln", "loggamma", 0, 1e30),
           ("digamma", "digamma", 1e-30, 1e30), ("gamma", "gamma", -20, 30),
           ("erfinv", "erfinv", -1, 1), ("erfcx", "exp(x * x) * erfc(x)", -6, 20),
           ("dawsn", "sqrt(pi) / 2 * exp(-x * x) * erfi(x)", -20, 20), ("exp1", "e1", 0, 80),
           ("expi", "ei", 1e-30, 80), ("spence", "polylog(2, 1 - x).real", 0, 1e6),
           ("i0e", "exp(-fabs(x)) * besseli(0, x)", -100, 100),
           ("i1e", "exp(-fabs(x)) * besseli(1, x)", -100, 100))},
}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 2.0, np.pi, np.pi / 2, 1e-3]


_EXPONENT = np.int64(0x7ff) << 52        # position of the exponent in a float64


class Format(NamedTuple):
    """A float dtype: storage type, bits of mantissa, least normal and largest value."""

    np: Any
    mantissa: int
    least: float
    most: float


FORMATS = {name: Format(np.dtype(t), *found) for name, t, found in (
    ("float16", np.float16, (10, 2.0**-14, 65504.0)),
    ("bfloat16", ml_dtypes.bfloat16, (7, 2.0**-126, float(ml_dtypes.finfo("bfloat16").max))),
    ("float32", np.float32, (23, 2.0**-126, float(np.finfo(np.float32).max))),
    ("float64", np.float64, (52, 2.0**-1022, float(np.finfo(np.float64).max))))}


def error(f: Callable[[Any], Any], there: Callable[[Any], Any], x: Any, t: Format,
          known: float = -1.0) -> tuple[float, float]:
    """Return (the largest error in ulp, where) over values of one dtype; (-1, 0) if it is at most
    the known one."""
    wide = np.longdouble if t.mantissa > 50 else np.float64
    got = f(x)
    with np.errstate(all="ignore"):
        true = np.asarray(there(x.astype(wide)))
        if true.dtype == np.float64 and float(
                _largest(got, true, t.mantissa, t.least, t.most)) <= known:
            return -1.0, 0.0
        off = _off(np.asarray(got).astype(wide), true, t)
    worst = int(np.argmax(off))
    return float(off[worst]), float(x[worst])


@fnx.jit
def _largest(got: Any, true: Any, mantissa: Any, least: Any, most: Any, inside: Any = True
             ) -> Any:
    """Return the largest ``_off`` over the domain, in one kernel."""
    got = got.astype("float64")
    size = lax.bitcast_convert_type(jnp.clip(jnp.abs(true), least, most), "int64")
    power = lax.bitcast_convert_type(size & int(_EXPONENT), "float64")
    off = jnp.abs(got - true) / power * 2.0**mantissa
    top = most * (1 - 2.0**-mantissa)
    same = (got == true) | jnp.isnan(got) & jnp.isnan(true)
    edge = (jnp.abs(got) >= top) & (jnp.abs(true) >= top) & (
        jnp.signbit(got) == jnp.signbit(true))
    return jnp.max(jnp.where(jnp.isfinite(off) & inside, off, jnp.where(
        same | edge | ~jnp.asarray(inside), 0, jnp.inf)))


def _off(got: Any, true: Any, t: Format) -> Any:
    """Return the errors in ulp."""
    size = np.clip(np.abs(true), t.least, t.most).astype(np.float64)
    power = (size.view(np.int64) & _EXPONENT).view(np.float64)
    off = np.abs(got - true) / power * 2.0**t.mantissa
    odd = ~np.isfinite(off)
    if odd.any():
        off[odd] = _odd(got[odd], true[odd], t)
    return off


def _odd(got: Any, true: Any, t: Format) -> Any:
    """Return 0 or infinity where the result or the reference is NaN or infinite."""
    top = t.most * (1 - 2.0**-t.mantissa)
    same = (got == true) | np.isnan(got) & np.isnan(true)
    edge = (np.abs(got) >= top) & (np.abs(true) >= top) & (np.signbit(got) == np.signbit(true))
    return np.where(same | edge, 0.0, np.inf)


def _inside(x: Any, f: Function) -> Any:
    """Return the values in a function's domain, and NaNs."""
    if (f.low, f.high) == (-np.inf, np.inf):
        return x
    with np.errstate(invalid="ignore"):  # NaNs with other payloads
        least, most = np.fmin.reduce(x), np.fmax.reduce(x)
        if f.low <= least and most <= f.high:
            return x
        if (least > f.high or most < f.low) and not np.isnan(x).any():
            return x[:0]
        wide = x.astype(np.float64)
    return x[~(wide < f.low) & ~(wide > f.high)]


def short(t: Format) -> Any:
    """Return all 16-bit values."""
    return np.arange(1 << 16, dtype=np.uint16).view(t.np)


def strided(first: int, stride: int) -> Iterator[Any]:
    """Yield the float32 values whose bits are ``first`` modulo a stride, in chunks."""
    steps = np.arange(CHUNK, dtype=np.uint32) * np.uint32(stride)
    for low in range(first, 1 << 32, stride * CHUNK):
        bits = steps[:-(-((1 << 32) - low) // stride)] + np.uint32(low)
        yield bits.view(np.float32)


def doubles(count: int, seed: int = 0) -> Iterator[Any]:
    """Yield float64 values: half of them over all exponents, the others of moderate size."""
    rng = np.random.default_rng(seed)
    for done in range(0, count, CHUNK):
        n = min(CHUNK, count - done)
        bits = rng.integers(0, 1 << 64, n // 2, np.uint64).view(np.float64)
        yield np.concatenate([bits, rng.normal(size=n // 4) * 4,
                              rng.uniform(-2, 2, n - n // 4 - n // 2)])


def of_each_exponent(t: Format, seed: int = 0) -> Any:
    """Return some values of each exponent, and some of moderate size."""
    rng = np.random.default_rng(seed)
    least, most = np.log2(t.least), np.log2(t.most)
    powers = np.repeat(2.0**np.arange(least, most - 1), EACH)
    numbers = powers * rng.uniform(1, 2, len(powers))
    near = [np.linspace(-20, 30, 800), rng.normal(size=600) * 3, 1 + rng.normal(size=100) * 1e-3]
    return np.concatenate([numbers, -numbers, *near]).astype(t.np)


def in_one_kernel(f: Function, stride: int) -> Callable[[Any], Any]:
    """Return a function of ``first`` for the largest error in a block of float32 values with the
    bits ``first + i * stride``, compared with fnx's function in float64, whose own error is
    negligible here."""
    t = FORMATS["float32"]

    @fnx.jit
    def worst(first: Any) -> Any:
        bits = jnp.arange(BLOCK).astype("uint32") * np.uint32(stride) + first
        x = lax.bitcast_convert_type(bits, "float32")
        wide = x.astype("float64")
        inside = (wide >= f.low) & (wide <= f.high) | jnp.isnan(wide)
        return _largest(f.here(x), f.here(wide), t.mantissa, t.least, t.most, inside)
    return worst


class Measured:
    """The results for one function and dtype; saved in a file as they arrive."""

    def __init__(self, name: str, dtype: str, state: dict[str, Any]) -> None:
        self.f, self.t = FUNCTIONS[name], FORMATS[dtype]
        self.jitted = fnx.jit(self.f.here)
        self.key = f"{name} {dtype}"
        self.kept = state.setdefault(self.key, {"count": 0, "worst": [0.0, 0.0], "parts": []})

    def take(self, x: Any, there: Callable[[Any], Any] | None = None) -> None:
        x = _inside(x, self.f)
        if len(x):
            self.kept["count"] += len(x)
            worst = self.kept["worst"]
            self.kept["worst"] = max(worst, [*error(
                self.jitted, there or self.f.there, x, self.t, worst[0])])

    def take_blocks(self, part: int) -> None:
        """Measure a part of all float32 values against float64; a block with an error above the
        known one is measured again, exactly."""
        worst = in_one_kernel(self.f, PARTS)
        for low in range(part, 1 << 32, PARTS * BLOCK):
            if float(worst(np.uint32(low))) > self.kept["worst"][0]:
                steps = np.arange(BLOCK, dtype=np.uint32) * np.uint32(PARTS)
                self.take((steps + np.uint32(low)).view(np.float32))
            else:
                self.kept["count"] += BLOCK

    def run(self, given: argparse.Namespace) -> None:
        """Measure what is requested and missing."""
        done, f = self.kept["parts"], self.f
        if "few" not in done:
            with np.errstate(all="ignore"):
                self.take(np.array(SPECIAL).astype(self.t.np))
                if f.exact is not None:
                    self.take(of_each_exponent(self.t), f.exact)
            done.append("few")
        if self.t.np.itemsize == 2:
            if "all" not in done:
                self.take(short(self.t))
                done.append("all")
        elif self.t.mantissa == 52:
            if f.exact is None and given.samples not in done:  # SciPy's are not more accurate
                for x in doubles(given.samples):
                    self.take(x)
                done.append(given.samples)
        elif given.parts and f.exact is None:
            for part in range(given.parts):
                if f"part {part}" not in done:
                    if given.wide:
                        self.take_blocks(part)
                    for x in () if given.wide else strided(part, PARTS):
                        self.take(x)
                    done.append(f"part {part}")
                    return
        elif given.samples not in done:
            for x in strided(given.samples % 7, max(1, (1 << 32) // given.samples)):
                self.take(x)
            done.append(given.samples)

    def left(self, given: argparse.Namespace) -> bool:
        """Whether requested parts are missing."""
        return self.t.mantissa == 23 and self.f.exact is None and any(
            f"part {i}" not in self.kept["parts"] for i in range(given.parts))


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def save(path: Path, row: Measured) -> None:
    """Save the results of a row; other processes keep theirs."""
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        whole = Path(f"{path}.whole")
        whole.write_text(json.dumps(read(path) | {row.key: row.kept}))
        whole.replace(path)


def bound(name: str, dtype: str) -> float:
    return ALLOWED.get((name, dtype), BOUND)


def table(state: dict[str, Any], before: dict[str, str]) -> str:
    """Return the table: new results, and old rows where there are none."""
    lines = ["| function | dtype | ulp | at | numbers | allowed |", "|---|---|---|---|---|---|"]
    for name in FUNCTIONS:
        for dtype in DTYPES:
            kept = state.get(f"{name} {dtype}")
            if kept and kept["count"]:
                ulp, at = kept["worst"]
                every = "all" if "all" in kept["parts"] or all(
                    f"part {i}" in kept["parts"] for i in range(PARTS)) else f"{kept['count']:,}"
                lines.append(f"| {name} | {dtype} | {ulp:.3g} | {at!r} | {every} | "
                             f"{bound(name, dtype):g} |")
            elif row := before.get(f"{name} {dtype}"):
                lines.append(row)
    return "\n".join(lines)


def written() -> dict[str, str]:
    """Return the rows of the page, by function and dtype."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return {" ".join(row.split()[1:4:2]): row for row in rows}


def write(text: str) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*")
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--all", action="store_true", help="all numbers of float32")
    parser.add_argument("--parts", type=int, default=0, help="so many sixteenths of them")
    parser.add_argument("--wide", action="store_true", help="beside fnx's own float64")
    parser.add_argument("--state", type=Path, help="where what is measured is kept")
    parser.add_argument("--seconds", type=float, default=1e9, help="no part begins later")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the state")
    parser.add_argument("--job", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="renew docs/precision.md")
    given = parser.parse_args()
    given.parts = PARTS if given.all else given.parts
    begun = time.monotonic()
    state = read(given.state) if given.state else {}
    names = (given.functions or list(FUNCTIONS))[given.job::given.jobs]
    others = [] if given.job else [
        subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--job", str(job)])
        for job in range(1, given.jobs)]
    with override(x64=True):
        rows = [Measured(n, t, state) for n in names for t in given.dtypes.split(",")]
        while rows:  # a part of each at a time, so that an interrupted run covers all rows
            for row in rows:
                if time.monotonic() - begun < given.seconds:
                    row.run(given)
                    if given.state:
                        save(given.state, row)
            rows = [row for row in rows if row.left(given)
                    and time.monotonic() - begun < given.seconds]
    for other in others:
        other.wait()
    if given.job:
        return
    state = read(given.state) if given.state else state
    print(table(state, {}))
    if given.write:
        write(table(state, written()))
    sys.exit(any(kept["worst"][0] > bound(*key.split()) for key, kept in state.items()))


if __name__ == "__main__":
    main()

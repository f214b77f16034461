"""Measure the errors of Fourier transforms beside JAX's and pocketfft's; print a table.

    python scripts/fft_accuracy.py                  lengths to 2,048, and some longer ones
    python scripts/fft_accuracy.py --to 100         lengths to 100 only
    python scripts/fft_accuracy.py --no-jax         without JAX, which compiles each length
    python scripts/fft_accuracy.py --keep FILE      goes on from an earlier run, of any part

The error of a transform is the root of the mean square of its difference from pocketfft in long
double (scipy.fft), relative to that of the result, in units of eps of its type. A ratio is that
error over pocketfft's in the same type, or over a quarter of an ulp if that is more: a transform of
2 or 4 numbers may have no error at all. Both single rows and 17 at once are transformed, as these
are different programs: fft of rows for every length, the others for one of 7. A single row is some
of them in turn, 512 numbers in all, as the error of few numbers is a matter of chance. Lengths
come in random order, so a run that is ended early with ``--keep`` has measured a sample. The exit
status says whether a ratio exceeds 1.5.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft

import fnx
import fnx.numpy

LONG = (4096, 4099, 10000, 16384, 65536, 65537, 100000, 1 << 18, 1000000, 1000003, 1 << 20,
        1 << 22)
NAMES = ("fft", "ifft", "rfft", "irfft")
MANY, STEP, LEAST, MOST, NUMBERS = 17, 7, 0.25, 1.5, 512
Key = tuple[str, str, str]
Measured = dict[tuple[str, str, str, int, int], tuple[float, float]]  # errors: of it, pocketfft


def operand(name: str, n: int, rows: int, dtype: str) -> Any:
    """Return rows whose transform has length n."""
    rng = np.random.default_rng(n)
    z = rng.standard_normal((rows, n)) + 1j * rng.standard_normal((rows, n))
    if name == "rfft":
        return z.real.astype(dtype)
    if name == "irfft":
        z = np.fft.rfft(z.real)
    return z.astype("complex64" if dtype == "float32" else "complex128")


def lengths(name: str, rows: int, to: int) -> Iterator[int]:
    """Yield the lengths that a function is measured for."""
    every = name == "fft" and rows > 1
    yield from range(1 if every else 2, to + 1, 1 if every else STEP)
    if to >= 2048 and rows == 1:
        yield from LONG


class Worst:
    """The worst error and the worst ratio of a function, where they are, and the mean ratio."""

    def __init__(self) -> None:
        self.error, self.ratio = (0.0, 0), (0.0, 0)
        self.ratios: list[float] = []

    def add(self, n: int, error: float, pocket: float) -> None:
        ratio = error / max(pocket, LEAST)
        self.error, self.ratio = max(self.error, (error, n)), max(self.ratio, (ratio, n))
        self.ratios.append(ratio)

    def cells(self) -> str:
        mean = float(np.mean(self.ratios))
        return f"{self.error[0]:.2f} at {self.error[1]:,} | {self.ratio[0]:.2f} at " \
            f"{self.ratio[1]:,} | {mean:.2f}"


def error_of(found: Any, exact: Any, dtype: str) -> float:
    norm = float(np.linalg.norm(exact)) or 1.0
    return float(np.linalg.norm(np.asarray(found) - exact)) / norm / float(np.finfo(dtype).eps)


def measure(name: str, dtype: str, rows: int, n: int, library: str, module: Any
            ) -> tuple[float, float]:
    """Return the errors of a library and of pocketfft."""
    x = operand(name, n, rows if rows > 1 else max(1, NUMBERS // n), dtype)
    kw = {"n": n} if name == "irfft" else {}
    reference: Callable[..., Any] = getattr(scipy.fft, name)
    exact = reference(x.astype("clongdouble" if x.dtype.kind == "c" else "longdouble"), **kw)
    f = getattr(module.numpy.fft, name)
    found = np.stack([np.asarray(f(part, **kw)) for part in (x if rows == 1 else [x])])
    return (error_of(found.reshape(exact.shape), exact, dtype),
            error_of(reference(x, **kw), exact, dtype))


def read(keep: Path | None) -> Measured:
    """Return what earlier runs have measured."""
    lines = keep.read_text().splitlines() if keep is not None and keep.exists() else []
    return {tuple(key): tuple(errors) for key, errors in map(json.loads, lines)}


def measure_all(libraries: dict[str, Any], to: int, keep: Path | None) -> Measured:
    """Measure all lengths that earlier runs have not."""
    measured = read(keep)
    todo = [(library, name, dtype, rows, n) for dtype in ("float32", "float64") for name in NAMES
            for rows in (1, MANY) for n in lengths(name, rows, to) for library in libraries]
    random.Random(0).shuffle(todo)
    for key in todo:
        if key not in measured:
            library, name, dtype, rows, n = key
            measured[key] = measure(name, dtype, rows, n, library, libraries[library])
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps([key, measured[key]]) + "\n")
    return {key: measured[key] for key in todo}


def main() -> int:
    parser = argparse.ArgumentParser(description="errors of Fourier transforms")
    parser.add_argument("--to", type=int, default=2048)
    parser.add_argument("--no-jax", action="store_true")
    parser.add_argument("--keep", type=Path, help="a file of what is measured")
    args = parser.parse_args()
    libraries: dict[str, Any] = {"fnx": fnx}
    if not args.no_jax:
        import jax
        jax.config.update("jax_enable_x64", True)
        libraries["JAX"] = jax
    out: dict[Key, Worst] = {}
    with fnx.enable_x64(True):
        measured = measure_all(libraries, args.to, args.keep)
    for (library, name, dtype, rows, n), errors in measured.items():
        row = library, f"{name} {dtype}", "a row" if rows == 1 else f"{rows} rows"
        out.setdefault(row, Worst()).add(n, *errors)
    print("| function | rows | library | lengths | worst error, eps | worst ratio | mean ratio |")
    print("|---|---|---|---|---|---|---|")
    for (library, what, rows_), worst in sorted(out.items(), key=lambda item: item[0][1:]):
        print(f"| {what} | {rows_} | {library} | {len(worst.ratios)} | {worst.cells()} |")
    return any(worst.ratio[0] > MOST for key, worst in out.items() if key[0] == "fnx")


if __name__ == "__main__":
    sys.exit(main())

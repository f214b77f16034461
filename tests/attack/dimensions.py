"""Random programs with a dynamic length: ``jit(dynamic=)`` = the trace for each length.

    python -m tests.attack.dimensions --count 2000 --seed 1

A program of tests/attack/programs.py gets a dimension in the place of one of its lengths. It is
traced once and called with three lengths; each result must be that of the program at this length,
on the interpreter. A program that needs the length as a number is refused, with an error of fnx.
"""

from __future__ import annotations

import random
import sys
from functools import partial
from typing import Any

import numpy as np

import fnx
from fnx.core.support.config import override
from fnx.errors import InconclusiveDimensionError
from tests.attack.agreement import Array, Wrong, outcome
from tests.attack.programs import compare, program_of, run_lines
from tests.attack.seeds import attack

LONGEST = 12


def resized(x: Array, axes: list[int], n: int) -> Array:
    """Return an array with another length of some axes, filled by repetition."""
    for axis in axes:
        x = np.take(x, np.arange(n) % x.shape[axis], axis)
    return x


def check(seed: int) -> str:
    """Compare a program with a dimension with itself at three lengths.

    Returns:
        "equal", or why it has no such trace.

    Raises:
        Wrong: the results differ, or only the program for one length is refused.
    """
    program, choose = program_of(seed), random.Random(seed)
    lengths = sorted({n for x in program.inputs for n in x.shape if n})
    if not lengths:
        return "no axes"
    length = choose.choice(lengths)
    t = fnx.dim("T", 1, LONGEST)
    axes = {i: [axis for axis, n in enumerate(x.shape) if n == length]
            for i, x in enumerate(program.inputs)}
    f = fnx.jit(partial(run_lines, program),
                dynamic={i: dict.fromkeys(some, t) for i, some in axes.items() if some})
    kinds = set()
    for n in (length, choose.randint(1, LONGEST), choose.randint(1, LONGEST)):
        inputs = [resized(x, axes[i], n) for i, x in enumerate(program.inputs)]
        with override(device="interp"):
            got, want = (outcome(jitted, *inputs) for jitted in (
                f, fnx.jit(partial(run_lines, program))))
        kinds.add(compared(program, n, got, want))
    return "equal" if "equal" in kinds else min(kinds)


def compared(program: Any, n: int, got: Any, want: Any) -> str:
    """Compare the results at a length, or the errors."""
    if isinstance(got, InconclusiveDimensionError):
        return "needs a number"
    if isinstance(got, Exception):
        return "refused by both" if isinstance(want, Exception) else type(got).__name__
    if isinstance(want, Exception):
        raise Wrong(f"T = {n}: a result, where {type(want).__name__} is right: {want}")
    compare(program, f"T = {n}", got, want)
    return "equal"


def main() -> int:
    return attack(__doc__ or "", "programs", check, program_of)


if __name__ == "__main__":
    sys.exit(main())

"""Run programs in the style of JAX's documentation on fnx and on JAX, live.

    python scripts/compare_idioms.py --programs 400       values, dtypes, weak types, shapes
    python scripts/compare_idioms.py --seconds 600 --x64  as many as fit in a time, with 64 bits
    python scripts/compare_idioms.py --seed 1234 --programs 1 --verbose    one, with its text

tests/idioms generates the programs; deliberate differences are in tests/idioms/on_purpose.py. A
call that differs is run again in JAX with default options (jax_answers.py makes it compile
quickly), and the program is printed without the lines that do not matter. Counts are printed; the
exit status says whether something differs.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from typing import Any

import jax_answers  # sets how JAX compiles, so it comes before JAX
import numpy as np

from tests.idioms.on_purpose import on_purpose
from tests.idioms.programs import CALLS, program, run, shortest

difference = jax_answers.golden("differences").difference
described = jax_answers.golden("differences").described
RTOL = {"float16": 2e-2, "bfloat16": 1e-1}  # composites, each op rounded
LAST_BITS = {"bfloat16": 4e-3, "float16": 5e-4}  # of inputs near 1
PHASE = "+ 0.3"  # in the first line of a program, which computes its inputs
EAGER_JAX = 100  # programs between clearing JAX's caches


def answers(text: str, package: Any, call: int) -> Any:
    """Return the description of each array of a result, or the error."""
    leaves = importlib.import_module("jax").tree_util.tree_leaves
    try:
        out = run(text, package, call)
        return described(leaves(_plain(out, package), is_leaf=lambda x: hasattr(x, "__array__")))
    except Exception as error:
        return error


def _plain(out: Any, package: Any) -> Any:
    """Convert a result to Python containers; a ShapeDtypeStruct becomes zeros."""
    def one(x: Any) -> Any:
        return np.zeros(x.shape, np.float32 if x.dtype.kind == "V" else x.dtype) \
            if isinstance(x, package.ShapeDtypeStruct) else x
    leaves, structure = package.tree.flatten(out)
    return [str(structure), *map(one, leaves)]


def compared(text: str, call: int) -> str:
    """Describe how fnx and JAX differ in a call of a program; empty if they do not."""
    jax, fnx = (importlib.import_module(name) for name in ("jax", "fnx"))
    want, got = answers(text, jax, call), answers(text, fnx, call)
    if isinstance(want, Exception):
        return "" if isinstance(got, Exception) else \
            f"answers; JAX refuses: {type(want).__name__} {str(want)[:150]}"
    if isinstance(got, Exception):
        return f"refuses: {type(got).__name__} {str(got)[:300]}"
    narrow = [RTOL[t] for t in RTOL if any(x[0] == t for x in want) or repr(t) in text]
    if [x[0] for x in got] == [x[0] for x in want] and (narrow or "float32" in text):
        # An intermediate was rounded to fewer bits than the result has.
        got, want = ([("float32" if t == "float64" else t, *rest) for t, *rest in some]
                     for some in (got, want))
    tolerance = max(narrow, default=1e-4)
    found = str(difference(got, want, tolerance, True, 1.0))
    return "" if found and is_unstable(text, call, want, tolerance) else found


def is_unstable(text: str, call: int, want: Any, tolerance: float) -> bool:
    """Whether JAX's own answer moves by a tenth of the tolerance, or in 16 bits by half of it, when
    an input moves by about its last bits: such a value is dominated by rounding errors."""
    jax = importlib.import_module("jax")
    bit = next((bits for name, bits in LAST_BITS.items() if name in text), 3e-7)
    least = tolerance / (2 if bit in LAST_BITS.values() else 10)
    moved = (answers(text.replace(PHASE, f"+ {0.3 + b}"), jax, call) for b in (bit, -bit))
    return any(isinstance(m, list) and difference(m, want, least, True, 1.0)
               for m in moved) or is_rounded_away(text, call, want, tolerance)


def is_rounded_away(text: str, call: int, want: Any, tolerance: float) -> bool:
    """Whether JAX's answer is half a tolerance off its own answer in more bits: of 16 bits in 32,
    else in 64."""
    jax = importlib.import_module("jax")
    wide = functools.reduce(lambda t, name: t.replace(name, "float32"), LAST_BITS, text)
    if wide != text:
        exact = answers(wide, jax, call)
    elif jax.config.jax_enable_x64:
        return False
    else:
        with jax.enable_x64(True):
            exact = answers(text.replace("float32", "float64"), jax, call)
    if not isinstance(exact, list) or len(exact) != len(want):
        return False
    as_wanted = [(t, weak, *rest) for (t, weak, *_), (_, _, *rest) in zip(want, exact)]
    return bool(difference(as_wanted, want, tolerance / 2, True, 1.0))


def in_plain_jax(seed: int, given: argparse.Namespace) -> str:
    """Return the report on a program when JAX compiles with default options."""
    asked = subprocess.run(
        [sys.executable, __file__, "--seed", str(seed), "--programs", "1", "--again",
         *["--x64"] * given.x64], env={**os.environ, "XLA_FLAGS": ""}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return asked.stdout


def _kind(found: str) -> str:
    return found.partition(":")[0].split("[")[0][:40] if found.startswith(("ans", "ref")) else \
        "values or types"


def report(seed: int, call: int, found: str, given: argparse.Namespace) -> None:
    """Print the difference, and the shortest program that still shows it."""
    text = program(seed)
    print(f"program {seed}, call {call}: {found}", flush=True)
    if given.brief:
        return
    print(shortest(text, lambda t: _is_like(compared(t, call), found, t)), flush=True)


def _is_like(now: str, found: str, text: str) -> bool:
    """Whether a shorter program differs in the same way."""
    return bool(now) and _kind(now) == _kind(found) and not on_purpose(text, now)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--programs", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=1e9, help="no program begins later")
    parser.add_argument("--x64", action="store_true", help="with types of 64 bits")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--brief", action="store_true", help="without the texts of programs")
    parser.add_argument("--again", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    for package in ("jax", "fnx"):
        importlib.import_module(package).config.update("jax_enable_x64", given.x64)
    warnings.simplefilter("ignore")
    counts = Counter[str]()
    begun = time.monotonic()
    for seed in range(given.seed, given.seed + given.programs):
        if time.monotonic() - begun > given.seconds:
            break
        text = program(seed)
        if given.verbose:
            print(seed, text, sep="\n", flush=True)
        wrong = []
        for call in range(CALLS):
            found = compared(text, call)
            counts["on purpose" if found and on_purpose(text, found) else
                   "wrong" if found else "alike"] += 1
            if found and not on_purpose(text, found):
                wrong.append((call, found))
        counts["programs"] += 1
        if wrong and not given.again and os.environ.get("XLA_FLAGS") and \
                not in_plain_jax(seed, given):
            counts["wrong"] -= len(wrong)
            counts["alike"] += len(wrong)
            continue
        for call, found in wrong[:1]:  # the others are usually the same
            print(found) if given.again else report(seed, call, found, given)
        if counts["programs"] % EAGER_JAX == 0:
            importlib.import_module("jax").clear_caches()
    if not given.again:
        print(f"x64 {given.x64}: {counts['programs']} programs, {counts['alike']} calls alike, "
              f"{counts['on purpose']} differ on purpose, {counts['wrong']} otherwise")
    sys.exit(bool(counts["wrong"]))


if __name__ == "__main__":
    main()

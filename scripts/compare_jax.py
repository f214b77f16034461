"""Compare public functions with JAX: values, dtypes, weak types, shapes and gradients.

    python scripts/compare_jax.py [family...]      all calls, on both
    python scripts/compare_jax.py --record [family...]   write tests/golden/names.json (a sample)
    python scripts/compare_jax.py --record --part 1/40 [--x64] wide     and tests/golden/wide.json
    python scripts/compare_jax.py --answers FILE   keep JAX's answers in a file: it compiles each
    python scripts/compare_jax.py --x64            with 64-bit types
    python scripts/compare_jax.py --part 3/40 wide   the third of forty parts, of families so named

The calls are those of tests/golden/name_cases.py, and of wide_cases.py: every function over every
dtype and shape. What differs on purpose is listed in tests/golden/differences.py
and docs/differences.md. Counts are printed; the
exit status says whether something else differs.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import json
import pickle
import random
import re
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
GOLDEN = ROOT / "tests" / "golden"
SAMPLE = 3           # every so many calls are recorded
INPUTS = ["f", "m", "v", "x", "s", "w", "z", "unit", "pos", "wide", "mixed", "sorted", "nans"]


def answer(expression: str, seen: dict[str, Any]) -> Any:
    """(dtype, weak, shape, values) of each array of the result."""
    return golden("differences").answer(expression, seen, jax.tree_util.tree_leaves)


@functools.cache
def golden(name: str) -> Any:
    """A module of tests/golden, by path."""
    spec = importlib.util.spec_from_file_location(name, GOLDEN / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def names(package: str) -> dict[str, Any]:
    """What the expressions see, of JAX or fnx."""
    top, jnp, lax, nn, random = (importlib.import_module(f"{package}{sub}") for sub in (
        "", ".numpy", ".lax", ".nn", ".random"))
    importlib.import_module(f"{package}.image")
    found: dict[str, Any] = golden("inputs").names(top, jnp, lax, nn, random)
    special = importlib.import_module(f"{package}.scipy.special") if _has(package) else None
    stats = importlib.import_module(f"{package}.scipy.stats") if _has(package) else None
    x64 = bool(top.config.jax_enable_x64)
    probe = functools.partial(golden("differences").probe, top, jnp)
    return {**found, **golden("name_cases").more(jnp), **golden("wide_cases").operands(jnp, x64),
            "top": top, "special": special, "stats": stats, "probe": probe}


def _has(package: str) -> bool:
    return importlib.util.find_spec(f"{package}.scipy") is not None


def gradients(expression: str, result: Any) -> Iterator[str]:
    """The gradient of each float input that an expression names, where its result has floats."""
    if "grad(" in expression or not any(r[0] in golden("differences").LEAST for r in result):
        return
    for name in (*INPUTS, *golden("wide_cases").differentiable(expression)):
        if re.search(rf"(?<![\w.'=]){name}\b(?!\()", expression):
            yield f"grad(lambda {name}: probe({expression}))({name})"


class Answers:
    """What JAX answers to expressions, or what it says in refusal; kept in a file on request."""

    def __init__(self, path: Path | None) -> None:
        self.seen, self.path = names("jax"), path
        self.kept: dict[str, Any] = {}
        if path is not None and path.exists():
            self.kept = pickle.loads(path.read_bytes())
        self._unsaved = 0

    def __getitem__(self, expression: str) -> Any:
        key = f"x64: {expression}" if jax.config.jax_enable_x64 else expression
        if key not in self.kept:
            self.kept[key] = self._asked(expression)
            self._unsaved += 1
            if self._unsaved == 100:
                self.save()
        return self.kept[key]

    def _asked(self, expression: str) -> Any:
        """JAX's answer; a gradient under jit where it can be: eager ones compile each operation."""
        jitted = re.sub(r"^grad\((.*)\)\((\w+)\)$", r"top.jit(grad(\1))(\2)", expression)
        try:
            return answer(jitted, self.seen)
        except Exception as error:
            if jitted != expression and isinstance(error, jax.errors.JAXTypeError):
                try:
                    return answer(expression, self.seen)
                except Exception as other:
                    error = other
            return f"{type(error).__name__} {str(error)[:80]}"

    def save(self) -> None:
        self._unsaved = 0
        if self.path is not None:
            self.path.write_bytes(pickle.dumps(self.kept))

    def weak(self, expression: str) -> bool:
        """Whether weak types are compared, too."""
        return not any(name in expression for name in golden("name_cases").WITHOUT_WEAK)

    def refuses(self, expression: str) -> bool:
        return isinstance(self[expression], str)


def compare(expression: str, fnx: dict[str, Any], theirs: Answers, rtol: float) -> str:
    """In what the two answers to an expression differ."""
    if theirs.refuses(expression):
        if any(text in theirs[expression] for text in golden("differences").STRICTER):
            return ""
        try:
            answer(expression, fnx)
        except Exception:
            return ""
        return f"answers; JAX refuses: {theirs[expression]}"
    try:
        got = answer(expression, fnx)
    except Exception as error:
        return f"refuses: {type(error).__name__} {str(error)[:200]}"
    least = 1.0 if expression.startswith("grad(") else 1e-30
    found = golden("differences").difference(got, theirs[expression], rtol,
                                             theirs.weak(expression), least)
    return str(found)


def only_at_edges(expression: str, fnx: dict[str, Any], theirs: Answers, rtol: float) -> bool:
    """Whether gradients differ only where JAX's is no number, or the value of that element is none:
    outside of a domain, at its ends and at poles (docs/differences.md)."""
    if not expression.startswith("grad(") or theirs.refuses(expression):
        return False
    (t, w, shape, want), = theirs[expression]
    values = theirs[re.sub(r"^grad\(lambda \w+: probe\((.*)\)\)\(\w+\)$", r"\1", expression)]
    try:
        got = answer(expression, fnx)[0][3]
    except Exception:
        return False
    edge = ~np.isfinite(want)
    for _, _, size, value in [] if isinstance(values, str) else values:
        edge |= ~np.isfinite(value) if size == shape else False
    return not golden("differences").difference(
        [(t, w, shape, np.where(edge, 0, got))], [(t, w, shape, np.where(edge, 0, want))],
        rtol, False, 1.0)


def record(cases: Any, theirs: Answers, families: list[str]) -> None:
    """Write the sample of some families anew; the rest of names.json stays."""
    path = GOLDEN / "names.json"
    known = json.loads(path.read_text())
    rows = {}
    for family, calls in cases.FAMILIES.items():
        for e in calls[::cases.SAMPLES.get(family, SAMPLE)]:
            if family not in families:
                rows |= {e: known[e]} if e in known else {}
            elif not theirs.refuses(e):
                rows[e] = _plain(theirs[e])
    text = ",\n".join(f"{json.dumps(e)}: {json.dumps(a)}" for e, a in rows.items())
    path.write_text("{\n" + text + "\n}\n")
    print(len(rows), "calls recorded")


def record_wide(agreed: dict[str, Any], x64: bool) -> None:
    """Write what both answered of one mode; the other mode stays."""
    path = GOLDEN / "wide.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known["x64" if x64 else "x32"] = agreed
    rows = [f"{json.dumps(mode)}: {{\n" + ",\n".join(
        f"{json.dumps(e)}: {json.dumps(a)}" for e, a in found.items()) + "\n}"
        for mode, found in known.items()]
    path.write_text("{" + ",\n".join(rows) + "}\n")
    print(len(agreed), "calls recorded")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--no-gradients", action="store_true")
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--x64", action="store_true", help="with types of 64 bits")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--part", default="1/1",
                        help="I/N or I-J/N: the I-th of N parts of each family, or several")
    given = parser.parse_args()
    chosen, _, parts = given.part.partition("/")
    first, _, last = chosen.partition("-")
    for package in ("jax", "fnx"):
        importlib.import_module(package).config.update("jax_enable_x64", given.x64)
    warnings.simplefilter("ignore")
    cases, theirs = golden("name_cases"), Answers(given.answers)
    is_wide = any(name.startswith("wide") for name in given.families)
    agreed: dict[str, Any] = {}
    if given.record and not is_wide:
        record(cases, theirs, given.families or list(cases.FAMILIES))
        theirs.save()
        return
    ours, wrong, on_purpose, total = names("fnx"), 0, 0, 0
    families = cases.FAMILIES | golden("wide_cases").families(given.x64)
    for family, expressions in families.items():
        if given.families and not {family, family.partition(" ")[0]} & {*given.families}:
            continue
        mixed = random.Random(0).sample(expressions, len(expressions))
        expressions = [e for part in range(int(first), int(last or first) + 1)
                       for e in mixed[part - 1::int(parts)]]
        every = list(expressions)
        for e in expressions:
            if not given.no_gradients and not theirs.refuses(e):
                every += [g for g in gradients(e, theirs[e]) if not theirs.refuses(g)]
        for e in every:
            if given.verbose:
                print(time.perf_counter(), e, flush=True)
            rtol = cases.tolerance(e) * (10 if e.startswith("grad(") else 1)
            found = compare(e, ours, theirs, rtol)
            total += 1
            if not found and not theirs.refuses(e):
                agreed[e] = _plain(theirs[e])
            if found and (golden("differences").on_purpose(e, found)
                          or only_at_edges(e, ours, theirs, rtol)):
                on_purpose += 1
            elif found:
                wrong += 1
                print(f"{family}: {e}: {found}", flush=True)
    theirs.save()
    if given.record:
        record_wide(agreed, given.x64)
    print(f"x64 {given.x64}: {total} calls, {on_purpose} differ on purpose, {wrong} otherwise")
    sys.exit(bool(wrong))


def _plain(found: Any) -> list[Any]:
    return [[t, w, list(shape), np.asarray(x).ravel().tolist()] for t, w, shape, x in found]


if __name__ == "__main__":
    main()

"""Evaluate the expressions of tests/golden in JAX, many of them compiled together.

Almost all of the time is XLA's, which compiles each call, so optimization is off (``QUICK``: a
twentieth of the time) and a few dozen calls form one function. Expressions that cannot be traced
with others run alone: those that are refused, and those that read values. ``XLA_FLAGS=`` in the
environment restores JAX's defaults; ``scripts/compare_jax.py`` does so for calls that differ.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import pickle
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

QUICK = ("--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
         "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", QUICK)

import jax  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
GOLDEN = ROOT / "tests" / "golden"
TOGETHER = 24        # calls in one function


@functools.cache
def golden(name: str) -> Any:
    """Import a module of tests/golden, by path."""
    spec = importlib.util.spec_from_file_location(name, GOLDEN / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def names(package: str) -> dict[str, Any]:
    """Return the names that expressions use, for JAX or fnx."""
    top, jnp, lax, nn, random, _, special, stats = (
        importlib.import_module(f"{package}{sub}") for sub in (
            "", ".numpy", ".lax", ".nn", ".random", ".image", ".scipy.special", ".scipy.stats"))
    x64 = bool(top.config.jax_enable_x64)
    found: dict[str, Any] = golden("inputs").names(top, jnp, lax, nn, random)
    probe = functools.partial(golden("differences").probe, top, jnp)
    return {**found, **golden("name_cases").more(jnp),
            **golden("wide_cases").operands(jnp, x64),
            **golden("science_cases").operands(jnp, x64),
            **golden("science_cases").modules(package), package: top, "jax": top,
            "top": top, "special": special, "stats": stats, "probe": probe}


def answer(expression: str, seen: dict[str, Any]) -> Any:
    """Return (dtype, weak, shape, values) of each array of the result, from JAX or fnx."""
    return golden("differences").answer(expression, seen, jax.tree_util.tree_leaves)


class Answers:
    """JAX's answers to expressions, or its error messages; cached in a file on request."""

    def __init__(self, path: Path | None) -> None:
        self.seen, self.path = names("jax"), path
        self.kept: dict[str, Any] = {}
        if path is not None and path.exists():
            self.kept = pickle.loads(path.read_bytes())
        self._arrays = {n for n, v in self.seen.items() if isinstance(v, jax.Array)}

    def __getitem__(self, expression: str) -> Any:
        key = self._key(expression)
        if key not in self.kept:
            self.kept[key] = self._alone(expression)
        return self.kept[key]

    def _key(self, expression: str) -> str:
        return f"x64: {expression}" if jax.config.jax_enable_x64 else expression

    def prepare(self, expressions: Sequence[str]) -> None:
        """Evaluate many at once."""
        asked = [e for e in expressions if self._key(e) not in self.kept]
        for i in range(0, len(asked), TOGETHER):
            for e, found in self._together(asked[i:i + TOGETHER]).items():
                self.kept[self._key(e)] = found
        self.save()

    def _together(self, expressions: list[str]) -> dict[str, Any]:
        """Return the answers to those that can be traced, as one function of the arrays they
        name."""
        words = {word for e in expressions for word in re.findall(r"[a-z]\w*", e)}
        others = {n: v for n, v in self.seen.items() if n not in self._arrays}
        leaves: dict[str, list[Any]] = {}

        def traced(given: dict[str, Any]) -> dict[str, list[Any]]:
            for e in expressions:
                try:
                    leaves[e] = golden("differences").leaves(
                        e, {**others, **given}, jax.tree_util.tree_leaves)
                except Exception:  # refused, or it reads values: evaluate alone
                    continue
            return {e: [x for x in found if isinstance(x, jax.core.Tracer)]
                    for e, found in leaves.items()}
        try:
            arrays = jax.jit(traced)({n: self.seen[n] for n in words & self._arrays})
        except Exception:  # not implemented in XLA
            half = len(expressions) // 2
            return {**self._together(expressions[:half]),
                    **self._together(expressions[half:])} if half else {}
        found = {}
        for e, outs in arrays.items():
            rest = iter(outs)
            found[e] = golden("differences").described(
                [next(rest) if isinstance(x, jax.core.Tracer) else x for x in leaves[e]])
        return found

    def _alone(self, expression: str) -> Any:
        """Return JAX's answer; gradients are jitted if possible, as eager ones compile each
        operation."""
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
        if self.path is not None:
            self.path.write_bytes(pickle.dumps(self.kept))

    def forget(self) -> None:
        """Drop the answers that are not in a file."""
        if self.path is None:
            self.kept.clear()
            jax.clear_caches()

    def weak(self, expression: str) -> bool:
        """Whether weak types are compared, too."""
        return not any(name in expression for name in golden("name_cases").WITHOUT_WEAK)

    def refuses(self, expression: str) -> bool:
        return isinstance(self[expression], str)

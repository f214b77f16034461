"""When two ways to compute a program agree: bitwise, or within what rounding explains.

Two kinds of noise estimate rounding errors. Perturbing the inputs of a line by some ulps shows how
the line is conditioned. Perturbing the result of each operation in the interpreter shows
cancellation inside of a line: the gradient of a sum that does not depend on its operands is nothing
but rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx.core.ir import dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp
from fnx.core.support.config import override
from fnx.core.support.errors import ShapeError
from fnx.core.tracing.trace import trace
from tests.helpers import numbers, same_bits_each

Array = np.ndarray[Any, Any]


class Leaf(NamedTuple):
    """An array of a result: its numbers, in a type that NumPy computes in, and its own type."""

    dtype: dtypes.DType
    numbers: Array


def leaves(tree: Any) -> list[Leaf]:
    return [Leaf(dtypes.as_dtype(np.asarray(x).dtype), numbers(x)) for x in fnx.tree.leaves(tree)]


def flat(results: list[list[Leaf]]) -> list[Leaf]:
    return [leaf for line in results for leaf in line]


def outcome(f: Any, *args: Any) -> list[list[Leaf]] | fnx.FnxError:
    """Return the leaves of each result, or the error."""
    try:
        return [leaves(x) for x in f(*args)]
    except fnx.FnxError as e:
        return e


def meaning(f: Any, *args: Any) -> list[list[Leaf]] | fnx.FnxError:
    """Evaluate the graph of a function by the interpreter, as ``outcome``."""
    try:
        with override(device="interp"):
            xs = [jnp.asarray(x) for x in args]
            traced = trace(f, [x._aval for x in xs], fnx.tree.structure((tuple(xs), {})),
                           [x._node for x in xs], transform="meaning", name="program")
            held = [*args, *[np.zeros(0, bool)] * bool(traced.tokens)]
            env = dict(zip([*traced.leaves, *traced.tokens[:1]], held))
            made = interp.evaluate([x._node for x in traced.outs], env)
        return [leaves(x) for x in traced.out_tree.unflatten(made)]
    except fnx.FnxError as e:
        return e
    except ValueError as e:
        if "maximum supported dimension" not in str(e):
            raise
        return ShapeError(str(e))  # the error that other ways raise on reading the result


_ROUNDED = {ops.ADD, ops.SUB, ops.MUL, ops.DIV, ops.SQRT, ops.REDUCE, ops.FOLD,
            *[op for op in ops.ELEMENTWISE if not op.exact]}


def rounded_otherwise(seed: int, f: Any, *args: Any) -> list[list[Leaf]] | fnx.FnxError:
    """Return ``meaning`` with each float operation off by about an ulp."""
    rng, compute = np.random.default_rng(seed), interp._Run._compute

    def off(run: Any, node: UOp) -> Any:
        made = compute(run, node)
        if node.op not in _ROUNDED or not node.dtype.is_float or node.dtype.storage \
                or node in run.env:
            return made
        with np.errstate(all="ignore"):
            return (made * (1 + ulp(node.dtype) * rng.standard_normal(np.shape(made)))
                    ).astype(made.dtype)

    with mock.patch.object(interp._Run, "_compute", off):
        return meaning(f, *args)


class Wrong(AssertionError):
    """Two ways disagree."""


def ulp(t: dtypes.DType) -> float:
    """Return the relative uncertainty of a value's last bits."""
    return 2.0 ** -t.mantissa if t.is_float and t.storage is not None else 3e-7


def known_to(t: dtypes.DType, made: list[Leaf], exact: list[bool]) -> float:
    """Return the uncertainty of differences of earlier results: noise does not show it if it
    decides which of equal numbers is the largest."""
    sizes = [np.abs(x.numbers[np.isfinite(x.numbers)].astype("f8"))
             for x, is_exact in zip(made, exact) if x.dtype.is_float and not is_exact]
    return 2 * ulp(t) * max([size[size < 1e6].max(initial=0.0) for size in sizes], default=0.0)


def explained(g: Leaf, w: Leaf, noisy: list[Leaf], known: float = 0.0) -> bool:
    """Return whether noise in the last bits moves the values as much. Infinities and NaN must match
    unless noise decides them."""
    if not w.dtype.is_float or not noisy:
        return False
    got, want = g.numbers, w.numbers
    with np.errstate(all="ignore"):
        steady = np.all([same_bits_each(n.numbers, want) for n in noisy], axis=0)
        steady &= ~np.isfinite(want)
        spread = np.max([np.abs(n.numbers.astype("f8") - want) for n in noisy], axis=0)
        off = np.abs(got.astype("f8") - want)
        scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
        near = off <= 100 * spread + max(1e-5, 2 * ulp(w.dtype)) * scale + known
        near |= ~np.isfinite(spread)
        return bool(np.all(near & ~steady | same_bits_each(got, want)))


def huge(made: list[Leaf], inputs: list[Array]) -> bool:
    """Return whether there are numbers whose products overflow."""
    held = [x.numbers for x in made if x.dtype.is_float] + \
        [np.asarray(fnx.numpy.asarray(x).astype("float32")) for x in inputs]
    return any(bool(np.any((np.abs(x) > 1e10) & np.isfinite(x))) for x in held)


def fused(g: Leaf, w: Leaf, mild: Leaf) -> bool:
    """Return whether results differ only where one is NaN and the other equals the result of
    moderate numbers: a fused multiply-add does not overflow before it adds."""
    if not w.dtype.is_float:
        return False
    got, want = g.numbers, w.numbers
    infinite = np.where(np.isnan(got), want, got)
    either = (np.isnan(got) != np.isnan(want)) & np.isinf(infinite)
    return bool(np.all(same_bits_each(got, want) | either & same_bits_each(infinite, mild.numbers)))


def close(g: Leaf, w: Leaf, tolerance: float) -> bool:
    if not w.dtype.is_float:
        return False
    got, want = g.numbers, w.numbers
    with np.errstate(all="ignore"):
        scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
        near = np.abs(got.astype("f8") - want) <= max(tolerance, 2 * ulp(w.dtype)) \
            * np.abs(want) + 1e-7 * scale
    return bool(np.all(near | same_bits_each(got, want)))



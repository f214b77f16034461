"""Check what custom rules return against the types of their function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.abstract_values import FLOAT0
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.ir import build
from fnx.core.ir.dtypes import as_dtype
from fnx.core.ir.ops import Shape
from fnx.core.support.errors import FnxError, Location, RuleError, format_location
from fnx.core.tracing.trace import function_name
from fnx.transforms.autodiff.arguments import Float0, is_no_derivative


class SymbolicZero:
    """A tangent or cotangent that is known to be zero, whatever the values are.

    Rules that are defined with ``symbolic_zeros=True`` get it instead of an array.

    Args:
        aval: an object with ``shape`` and ``dtype``: the array that it stands for.

    >>> import fnx.numpy as jnp
    >>> SymbolicZero(jnp.zeros(3))
    SymbolicZero(shape=(3,), dtype=float32)
    """

    __slots__ = ("aval", "shape", "dtype")

    def __init__(self, aval: Any) -> None:
        self.aval = aval
        self.shape: Shape = tuple(aval.shape)
        self.dtype = aval.dtype

    @staticmethod
    def from_primal_value(val: Any) -> SymbolicZero:
        """Return the zero tangent of a value; for integers and bools it has dtype float0.

        Args:
            val: an Array, NumPy data or a number.

        Returns:
            A SymbolicZero of its shape.

        >>> SymbolicZero.from_primal_value(2.0)
        SymbolicZero(shape=(), dtype=float32)
        """
        x = asarray(val)
        return SymbolicZero(x if x._dtype.is_inexact else np.broadcast_to(np.zeros((), FLOAT0),
                                                                        x._shape))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        n = 1
        for length in self.shape:
            n *= length
        return n

    def __repr__(self) -> str:
        return f"SymbolicZero(shape={self.shape}, dtype={self.dtype})"


@public_api
def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """Return the zero tangents of a pytree of values, as rules get or return them.

    Args:
        val: a pytree of Arrays, NumPy data and numbers.
        symbolic_zeros: whether to return SymbolicZeros.

    Returns:
        Arrays of zeros like those in ``val`` (for integers and bools, NumPy data of dtype float0),
        or SymbolicZeros.

    >>> zero_from_primal((2.0, None))
    (Array(0., dtype=float32), None)
    """
    return tree.map(lambda x: _zero_tangent(x, symbolic_zeros), val)


def _zero_tangent(val: Any, symbolic_zeros: bool) -> Any:
    zero = SymbolicZero.from_primal_value(val)
    if symbolic_zeros or zero.dtype == FLOAT0:
        return zero if symbolic_zeros else np.zeros(zero.shape, FLOAT0)
    return Array(build.const(0, as_dtype(zero.dtype), zero.shape))


_SIGNATURE_HINTS = {
    "jvp": "write rule(primals, tangents), behind the arguments in nondiff_argnums",
    "fwd": "write fwd with the parameters of the function",
    "bwd": "write bwd(saved, ct), behind the arguments in nondiff_argnums",
    "gradient": "write it with the parameters of the function",
    "vmap": "write rule(axis_size, in_batched, *args)"}


class RuleInfo:
    """A rule with its description for messages: ``the jvp rule bad (m.py:4) of f``."""

    def __init__(self, rule: Callable[..., Any], kind: str, of: str) -> None:
        self.rule, self.kind = rule, kind
        self.text = f"the {kind} rule {function_name(rule)} of {of}"
        code = getattr(inspect.unwrap(rule), "__code__", None)
        self.loc: Location | None = None if code is None else \
            (code.co_filename, code.co_firstlineno)
        if self.loc is not None:
            self.text = f"the {kind} rule {function_name(rule)} " \
                f"({format_location(self.loc)}) of {of}"

    def call(self, *args: Any) -> Any:
        """Call the rule; raise if it does not take this many arguments."""
        try:
            inspect.signature(self.rule, follow_wrapped=False).bind(*args)
        except TypeError as e:
            raise RuleError(f"expected {self.text} to take {len(args)} arguments by position, got "
                            f"one that does not: {e}", hint=_SIGNATURE_HINTS[self.kind]) from None
        except ValueError:  # a callable without a signature
            pass
        return self.rule(*args)

    def error(self, expected: str, got: str, hint: str) -> RuleError:
        """Make the error for a wrong return value of the rule."""
        return RuleError(f"expected {self.text} to return {expected}, got {got}", hint=hint)


def check_pair(out: Any, info: RuleInfo, what: str) -> tuple[Any, Any]:
    """Check that a rule returned a pair, and return it."""
    if not isinstance(out, tuple | list) or len(out) != 2:
        length_text = f" of {len(out)}" if isinstance(out, tuple | list) else ""
        raise info.error(f"a pair {what}", f"{type(out).__name__}{length_text}",
                         f"end it with `return {what[1:-1]}`")
    return out[0], out[1]


def check_outs(out: Any, out_tree: tree.TreeDef, outs: Sequence[Aval],
               info: RuleInfo) -> list[Array]:
    """Check the rule's results against the structure and types of the function's results."""
    leaves, structure = tree.flatten(out)
    if structure != out_tree:
        raise info.error(f"results like the function, {out_tree}", f"{structure}",
                         f"{tree.first_difference(out_tree, structure)}: return what the function "
                         "returns")
    arrays = [_as_array(x, info, tree.keystr(path))
              for x, path in zip(leaves, tree.paths(out_tree))]
    for x, want, path in zip(arrays, outs, tree.paths(out_tree)):
        if x._aval[:2] != want[:2]:
            raise info.error(f"result{tree.keystr(path)} like the function, {_type_text(want)}",
                             _type_text(x._aval), "return what the function returns")
    return arrays


def check_tangents(out: Any, out_tree: tree.TreeDef, outs: Sequence[Aval],
                   info: RuleInfo) -> list[Array]:
    """Return the tangents of the float results; float0 stands for the others, and for a float0
    result."""
    leaves, structure = tree.flatten(out, _is_float0)
    expected, like = tree.flatten(out_tree.unflatten(outs), lambda x: isinstance(x, Aval | Float0))
    if structure != like:
        raise info.error(f"tangents like the results, {like}", f"{structure}",
                         f"{tree.first_difference(like, structure)}: return a tangent for each "
                         "array of the result")
    tangents = []
    for x, want, path in zip(leaves, expected, tree.paths(like)):
        if not _is_float0(want) and want.dtype.is_inexact:
            tangents.append(_check_like(x, want, info, f"tangent{tree.keystr(path)}", "result"))
    return tangents


def _is_float0(x: Any) -> bool:
    return isinstance(x, Float0)


def check_cotangents(out: Any, arguments: tree.TreeDef, avals: Sequence[Aval], info: RuleInfo
                     ) -> tuple[list[Array], tuple[int, ...]]:
    """Return the cotangents that are not zero, and for each argument the number of its
    cotangent, or -1."""
    n = len(arguments.subtrees)
    if not isinstance(out, tuple | list) or len(out) != n:
        got = f"{type(out).__name__} of {len(out)}" if isinstance(out, tuple | list) else \
            type(out).__name__
        raise info.error(f"a tuple of {n}, one for each argument that is differentiated", got,
                         "end it with `return (ct,)` if there is one argument; None means zero")
    cts: list[Array] = []
    ct_indices: list[int] = []
    remaining_avals = iter(avals)
    for i, (ct, structure) in enumerate(zip(out, arguments.subtrees)):
        _collect_cts(ct, structure, f"[{i}]", remaining_avals, info, cts, ct_indices)
    return cts, tuple(ct_indices)


def _collect_cts(ct: Any, structure: tree.TreeDef, path: str, avals: Any, info: RuleInfo,
                 cts: list[Array], ct_indices: list[int]) -> None:
    """Collect the cotangents of an argument, or of a part of it; None stands for zeros at any
    level."""
    if ct is None:
        for _ in range(structure.num_leaves):
            next(avals)
            ct_indices.append(-1)
    elif structure.pytree_type is None:
        want = next(avals)
        if isinstance(ct, SymbolicZero) or not want.dtype.is_inexact:
            ct_indices.append(-1)
            return
        ct_indices.append(len(cts))
        cts.append(_check_like(ct, want, info, f"cotangent{path}", "argument"))
    else:
        _collect_children(ct, structure, path, avals, info, cts, ct_indices)


def _collect_children(ct: Any, structure: tree.TreeDef, path: str, avals: Any, info: RuleInfo,
                      cts: list[Array], ct_indices: list[int]) -> None:
    container, data = structure.pytree_type, structure.data
    assert container is not None
    children: Sequence[Any] = ()
    fits = type(ct) is container.kind
    if fits:
        children, got_data = container.flatten(ct)
        fits = got_data == data and len(children) == len(structure.subtrees)
    if not fits:
        raise info.error(f"cotangent{path} like the argument, {structure}",
                         f"{tree.structure(ct)}",
                         "return a cotangent for each array of the argument; None means zero")
    for key, child, inner in zip(container.keys(data, len(children)), children, structure.subtrees):
        _collect_cts(child, inner, f"{path}{key}", avals, info, cts, ct_indices)


def _check_like(x: Any, want: Aval, info: RuleInfo, what: str, of: str) -> Array:
    """Return a tangent or cotangent as an Array, checked to have the type of its primal."""
    if isinstance(x, SymbolicZero) or is_no_derivative(x):
        return Array(build.const(0, want.dtype, want.shape), want.weak)
    array = _as_array(x, info, what)
    same = array._dtype is want.dtype or array.weak and (
        array._dtype.is_inexact or array._dtype.is_integer)
    if array._shape != want.shape or not same:
        raise info.error(f"{what} like the {of}, {_type_text(want)}", _type_text(array._aval),
                         "reduce or convert it: a derivative has the shape and dtype of its value")
    return Array(build.cast(array._node, want.dtype), want.weak)


def _as_array(x: Any, info: RuleInfo, where: str) -> Array:
    try:
        return asarray(x)
    except FnxError as e:
        raise info.error(f"an array as {where or 'its result'}", type(x).__name__,
                         e.hint or "return arrays") from None


def _type_text(aval: Aval) -> str:
    return f"{aval.dtype}{list(aval.shape)}"

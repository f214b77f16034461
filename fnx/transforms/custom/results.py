"""Check what custom rules return against the types of their function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import build
from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.array.public import asarray, public
from fnx.core.array.trace import name_of
from fnx.core.dtypes import as_dtype
from fnx.core.errors import FnxError, RuleError, Site, show_site
from fnx.core.ops import Shape
from fnx.transforms.ad.arguments import FLOAT0, Float0, is_nothing


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
        return SymbolicZero(x if x._dtype.is_float else np.broadcast_to(np.zeros((), FLOAT0),
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


@public
def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """Return a zero tangent of a value, as rules get or return it.

    Args:
        val: an Array, NumPy data or a number.
        symbolic_zeros: whether to return a SymbolicZero.

    Returns:
        An Array of zeros like ``val`` (for integers and bools, NumPy data of dtype float0), or a
        SymbolicZero.

    >>> zero_from_primal(2.0)
    Array(0., dtype=float32)
    """
    zero = SymbolicZero.from_primal_value(val)
    if symbolic_zeros or zero.dtype == FLOAT0:
        return zero if symbolic_zeros else np.zeros(zero.shape, FLOAT0)
    return Array(build.const(0, as_dtype(zero.dtype), zero.shape))


_TAKES = {
    "jvp": "write rule(primals, tangents), behind the arguments in nondiff_argnums",
    "fwd": "write fwd with the parameters of the function",
    "bwd": "write bwd(saved, ct), behind the arguments in nondiff_argnums",
    "gradient": "write it with the parameters of the function",
    "vmap": "write rule(axis_size, in_batched, *args)"}


class Told:
    """A rule with its description for messages: ``the jvp rule bad (m.py:4) of f``."""

    def __init__(self, rule: Callable[..., Any], kind: str, of: str) -> None:
        self.rule, self.kind = rule, kind
        self.text = f"the {kind} rule {name_of(rule)} of {of}"
        code = getattr(inspect.unwrap(rule), "__code__", None)
        self.site: Site | None = None if code is None else (code.co_filename, code.co_firstlineno)
        if self.site is not None:
            self.text = f"the {kind} rule {name_of(rule)} ({show_site(self.site)}) of {of}"

    def call(self, *args: Any) -> Any:
        """Call the rule; raise if it does not take this many arguments."""
        try:
            inspect.signature(self.rule, follow_wrapped=False).bind(*args)
        except TypeError as e:
            raise RuleError(f"expected {self.text} to take {len(args)} arguments by position, got "
                            f"one that does not: {e}", hint=_TAKES[self.kind]) from None
        except ValueError:  # a callable without a signature
            pass
        return self.rule(*args)

    def error(self, expected: str, got: str, hint: str) -> RuleError:
        """Make the error for a wrong return value of the rule."""
        return RuleError(f"expected {self.text} to return {expected}, got {got}", hint=hint)


def pair_of(out: Any, told: Told, what: str) -> tuple[Any, Any]:
    """Check that a rule returned a pair, and return it."""
    if not isinstance(out, tuple | list) or len(out) != 2:
        many = f" of {len(out)}" if isinstance(out, tuple | list) else ""
        raise told.error(f"a pair {what}", f"{type(out).__name__}{many}",
                         f"end it with `return {what[1:-1]}`")
    return out[0], out[1]


def results_of(out: Any, out_tree: tree.TreeDef, outs: Sequence[Aval], told: Told) -> list[Array]:
    """Check the rule's results against the structure and types of the function's results."""
    leaves, structure = tree.flatten(out)
    if structure != out_tree:
        raise told.error(f"results like the function, {out_tree}", f"{structure}",
                         f"{tree.difference(out_tree, structure)}: return what the function "
                         "returns")
    arrays = [_array(x, told, tree.keystr(path)) for x, path in zip(leaves, tree.paths(out_tree))]
    for x, want, path in zip(arrays, outs, tree.paths(out_tree)):
        if x._aval[:2] != want[:2]:
            raise told.error(f"result{tree.keystr(path)} like the function, {_kind(want)}",
                             _kind(x._aval), "return what the function returns")
    return arrays


def tangents_of(out: Any, out_tree: tree.TreeDef, outs: Sequence[Aval], told: Told) -> list[Array]:
    """Return the tangents of the float results; float0 stands for the others, and for a float0
    result."""
    leaves, structure = tree.flatten(out, _is_float0)
    wanted, like = tree.flatten(out_tree.unflatten(outs), lambda x: isinstance(x, Aval | Float0))
    if structure != like:
        raise told.error(f"tangents like the results, {like}", f"{structure}",
                         f"{tree.difference(like, structure)}: return a tangent for each "
                         "array of the result")
    found = []
    for x, want, path in zip(leaves, wanted, tree.paths(like)):
        if not _is_float0(want) and want.dtype.is_float:
            found.append(_like(x, want, told, f"tangent{tree.keystr(path)}", "result"))
    return found


def _is_float0(x: Any) -> bool:
    return isinstance(x, Float0)


def cotangents_of(out: Any, arguments: tree.TreeDef, avals: Sequence[Aval], told: Told
                  ) -> tuple[list[Array], tuple[int, ...]]:
    """Return the cotangents that are not zero, and for each argument the number of its
    cotangent, or -1."""
    n = len(arguments.subtrees)
    if not isinstance(out, tuple | list) or len(out) != n:
        got = f"{type(out).__name__} of {len(out)}" if isinstance(out, tuple | list) else \
            type(out).__name__
        raise told.error(f"a tuple of {n}, one for each argument that is differentiated", got,
                         "end it with `return (ct,)` where there is one argument; None is zero")
    found: list[Array] = []
    places: list[int] = []
    rest = iter(avals)
    for i, (given, structure) in enumerate(zip(out, arguments.subtrees)):
        _place(given, structure, f"[{i}]", rest, told, found, places)
    return found, tuple(places)


def _place(given: Any, structure: tree.TreeDef, path: str, avals: Any, told: Told,
           found: list[Array], places: list[int]) -> None:
    """Collect the cotangents of an argument, or of a part of it; None stands for zeros at any
    level."""
    if given is None:
        for _ in range(structure.num_leaves):
            next(avals)
            places.append(-1)
    elif structure.container is None:
        want = next(avals)
        if isinstance(given, SymbolicZero) or not want.dtype.is_float:
            places.append(-1)
            return
        places.append(len(found))
        found.append(_like(given, want, told, f"cotangent{path}", "argument"))
    else:
        _down(given, structure, path, avals, told, found, places)


def _down(given: Any, structure: tree.TreeDef, path: str, avals: Any, told: Told,
          found: list[Array], places: list[int]) -> None:
    row, data = structure.container, structure.data
    assert row is not None
    children: Sequence[Any] = ()
    fits = type(given) is row.kind
    if fits:
        children, got_data = row.take(given)
        fits = got_data == data and len(children) == len(structure.subtrees)
    if not fits:
        raise told.error(f"cotangent{path} like the argument, {structure}",
                         f"{tree.structure(given)}",
                         "return a cotangent for each array of the argument; None is zero")
    for key, child, inner in zip(row.keys(data, len(children)), children, structure.subtrees):
        _place(child, inner, f"{path}{key}", avals, told, found, places)


def _like(x: Any, want: Aval, told: Told, what: str, of: str) -> Array:
    """Return a tangent or cotangent as an Array, checked to have the type of its primal."""
    if isinstance(x, SymbolicZero) or is_nothing(x):
        return Array(build.const(0, want.dtype, want.shape), want.weak)
    array = _array(x, told, what)
    same = array._dtype is want.dtype or array.weak and (
        array._dtype.is_float or array._dtype.is_integer)
    if array._shape != want.shape or not same:
        raise told.error(f"{what} like the {of}, {_kind(want)}", _kind(array._aval),
                         "reduce or convert it: a derivative has the shape and dtype of what "
                         "it belongs to")
    return Array(build.cast(array._node, want.dtype), want.weak)


def _array(x: Any, told: Told, where: str) -> Array:
    try:
        return asarray(x)
    except FnxError as e:
        raise told.error(f"an array as {where or 'its result'}", type(x).__name__,
                         e.hint or "return arrays") from None


def _kind(aval: Aval) -> str:
    return f"{aval.dtype}{list(aval.shape)}"

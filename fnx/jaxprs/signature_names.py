"""The names of a function for a signature, which jaxprs say: of it, its arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.ir.cache import memos_of
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record
from fnx.core.tracing.trace import ClosedFunction, argument_name, function_name


class SignatureNames(Record):
    """What jaxprs say of a function for a signature.

    Attributes:
        source: its name and line.
        arguments: the names of its arguments.
        results: the paths of its results.
        donated: the numbers of the arguments that are donated.
    """

    source: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    donated: tuple[int, ...]


def signature_names(f: Callable[..., Any], in_tree: tree.TreeDef, out_tree: tree.TreeDef,
                    positions: Sequence[int], donated: Sequence[int] = ()) -> SignatureNames:
    """Return the names of a function for a signature; ``positions`` as of ``argument_name``.

    >>> from fnx.core.array import tree
    >>> def double(x): return 2 * x
    >>> structure = tree.structure(((1,), {}))
    >>> signature_names(double, structure, tree.structure(1), [0]).arguments
    ('x',)
    """
    code = getattr(f, "__code__", None)
    where = "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"
    return SignatureNames(
        f"{function_name(f)}{where}",
        tuple([argument_name(f, path, positions) for path in tree.paths(in_tree)]),
        tuple(["result" + tree.keystr(path) for path in tree.paths(out_tree)]),
        tuple(donated))


def record_names(closed: ClosedFunction, f: Callable[..., Any], in_tree: tree.TreeDef,
                 positions: Sequence[int], donated: Sequence[int]) -> None:
    """Record the names of the function that a body was traced from, for jaxprs of its callers."""
    memos_of(closed.function)[SignatureNames] = signature_names(f, in_tree, closed.out_tree,
                                                                positions, donated)


def recorded_names(body: UOp) -> SignatureNames | None:
    """Return what was recorded last of a body, or None."""
    names: SignatureNames | None = memos_of(body).get(SignatureNames)
    return names

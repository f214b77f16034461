"""What the traces of a function and of its custom rules give, and closing them over the same
captures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.ir import build, build_calls, op_args, ops
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.scope import scope
from fnx.core.scope.callbacks import Handle
from fnx.core.support.record import Record
from fnx.core.tracing.trace import TracedFunction, close, preserving_locs, trace, unflatten_arrays


class Signature(Record):
    """The leaves of the differentiated arguments, and the values of the other arguments."""

    in_tree: tree.TreeDef           # of ((arguments), {})
    avals: tuple[Aval, ...]
    perturbed: tuple[bool, ...]       # leaves that an enclosing trace may differentiate
    nondiff: tuple[tuple[int, Any], ...]  # (position, value) of the other arguments
    values: tuple[UOp, ...] = ()    # of the leaves, if traced for these values only
    cotangents: tuple[int, ...] | None = None  # the float results that have one, if known

    @property
    def primals(self) -> tree.TreeDef:
        """The structure of the tuple of arguments."""
        return self.in_tree.subtrees[0]

    def fill(self, differentiated: Sequence[Any]) -> list[Any]:
        """Return all arguments, given the differentiated ones."""
        out = list(differentiated)
        for i, value in self.nondiff:
            out.insert(i, value)
        return out

    @property
    def static(self) -> list[Any]:
        """The arguments that are not differentiated, which rules take first."""
        return [value for _, value in self.nondiff]


class TracedCustom(Record):
    """A CUSTOM without its arguments."""

    functions: tuple[UOp, ...]
    arg: op_args.Custom
    captures: tuple[UOp, ...]
    out_tree: tree.TreeDef
    outs: tuple[Aval, ...]
    stops: bool = False  # stop_gradient of its captures

    def call(self, args: Sequence[Array]) -> Any:
        """Apply it to arguments, and return the results in the structure of the function."""
        captures = [build.stop_gradient(x) if self.stops and x.dtype.is_inexact else x
                    for x in self.captures]
        token_args = [scope.current_token()] if self.arg.effects else []
        nodes = build_calls.custom(self.functions, self.arg,
                                   [*captures, *token_args, *[x._node for x in args]])
        if token_args:
            scope.set_token(nodes[0])
            nodes = nodes[1:]
        return unflatten_arrays(self.out_tree, nodes, self.outs)


class TracedRule(Record):
    """A traced rule: its name in ``op_args.Custom``, and the trace."""

    name: str
    traced: TracedFunction
    ct_indices: tuple[int, ...] = ()


def traced_rule(f: Callable[..., Any], leaf_groups: Sequence[Sequence[Any]], by: str, name: str,
                values: Iterable[UOp | None] = ()) -> TracedFunction:
    """Trace a rule on leaves for lists of Avals; it takes these lists and returns a list of arrays.

    ``values`` are the values of the first leaves, if known.
    """
    flat = [x for part in leaf_groups for x in part]
    in_tree = tree.structure((tuple([[0] * len(part) for part in leaf_groups]), {}))
    known = itertools.chain(values, itertools.repeat(None))
    return trace(f, flat, in_tree, known, transform=by, name=name)


def close_over(traced: TracedFunction, captures: Sequence[UOp], effects: bool
                ) -> tuple[UOp, list[UOp], list[UOp]]:
    """Close a trace to a FUNCTION of given captures, its further captures, and its leaves.

    With ``effects`` it also takes a token after the captures and returns one first, even if it
    has no effects. Returns the FUNCTION, the further captures, and all captures.
    """
    token_in, token_out = traced.tokens or (_NO_EFFECT, _NO_EFFECT)
    params = [token_in, *traced.leaves] if effects else traced.leaves
    outs = [token_out, *traced.nodes[:len(traced.outs)]] if effects else traced.nodes
    leaves = [*captures, *params]
    fn, new_captures = preserving_locs(close, outs, leaves, traced.name)
    if new_captures:
        leaves = [*captures, *new_captures, *params]
        fn = preserving_locs(close, outs, leaves, traced.name)[0]
    return fn, new_captures, [*captures, *new_captures]


def dedup_arrays(traced: TracedFunction, captures: Sequence[UOp]) -> TracedFunction:
    """Replace arrays that the trace creates anew each time by captures of equal content."""
    known: dict[Any, UOp] = {}
    kinds = {(c.dtype, c.shape) for c in captures if _is_data(c)}
    fresh = [n for n in toposort(traced.nodes) if _is_data(n) and (n.dtype, n.shape) in kinds]
    if not set(fresh).difference(captures):
        return traced
    for c in filter(_is_data, captures):
        known.setdefault(_content(c), c)
    same = {n: known[key] for n in fresh if n not in captures and (key := _content(n)) in known}
    nodes = iter(preserving_locs(substitute, traced.nodes, same))
    outs = [Array(next(nodes), x.weak) for x in traced.outs]
    aux = [Array(next(nodes), x.weak) if type(x) is Array else x for x in traced.aux]
    return traced.replace(outs=outs, aux=aux, tokens=(*traced.tokens[:1], *nodes))


def _is_data(node: UOp) -> bool:
    return node.op is ops.BUFFER and type(node.arg.handle) is not Handle


def _content(node: UOp) -> Any:
    return node.dtype, node.shape, node.arg.handle.view(node.dtype.np, node.shape).tobytes()


_NO_EFFECT = UOp(ops.LEAF, build_calls.TOKEN[1], (), op_args.Leaf(-1, build_calls.TOKEN[0]))

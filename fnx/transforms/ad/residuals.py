"""What a backward pass reads of the forward pass: saved, or computed again.

    body: y = sum(exp(x))       forward:  x -> y, exp's sum as residual where it is read
    ct -> ct * exp(x)           backward: x, ct -> ct * exp(x)      (exp is computed again)

Saved are the results that were dear, or that cannot be had again: REDUCE, GATHER, SCATTER,
calls and random bits. Elementwise and movement work is done again from these and the inputs:
it fuses into the kernels that read it, and costs less than its memory traffic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fnx.core import build, dtypes, ops
from fnx.core.uop import UOp, inherit, substitute, toposort

SAVED = frozenset({ops.REDUCE, ops.GATHER, ops.SCATTER, ops.GET, ops.THREEFRY})


class Forms(NamedTuple):
    """A FUNCTION for differentiation: ``forward`` returns outs and residuals.

    ``sources`` says what to call ``backward`` with: ("input", operand of the forward),
    ("result", result of the forward), ("cotangent", number).
    """

    forward: UOp
    backward: UOp
    sources: tuple[tuple[str, int], ...]

    def operands(self, args: Sequence[UOp], results: Sequence[UOp],
                 cts: Sequence[UOp]) -> list[UOp]:
        """The operands of ``backward``."""
        given = {"input": args, "result": results, "cotangent": cts}
        return [given[kind][i] for kind, i in self.sources]


def split(outs: Sequence[UOp], grads: Sequence[UOp], n_inputs: int, name: str) -> Forms:
    """Cut a graph of results and gradients in two.

    Args:
        outs: results over PARAM(0..n_inputs-1).
        grads: cotangents over these, and PARAMs from n_inputs on: the cotangents of results.
    """
    primal = set(toposort(outs))

    def saved(node: UOp) -> bool:
        if node.op not in SAVED:
            return False
        return (node.src[0] if node.op is ops.GET else node) in primal

    params: dict[UOp, UOp] = {}
    sources: list[tuple[str, int]] = []
    number = {node: i for i, node in reversed(list(enumerate(outs)))}
    extra: list[UOp] = []
    for node in toposort(grads, stop=saved):
        if node.op is ops.PARAM:
            slot = node.arg.slot
            sources.append(("input", slot) if slot < n_inputs else
                           ("cotangent", slot - n_inputs))
        elif saved(node):
            if node not in number:
                number[node] = len(outs) + len(extra)
                extra.append(node)
            sources.append(("result", number[node]))
        else:
            continue
        params[node] = build.param(len(params), node.dtype, node.shape)
    forward = build.function([*outs, *extra], n_inputs, name)
    backward = build.function(substitute(grads, params), len(params), f"{name}.backward")
    return Forms(forward, backward, tuple(sources))


def call_node(fn: UOp, args: Sequence[UOp]) -> UOp:
    """The CALL itself; build.results reads it."""
    outs = tuple([(o.shape, o.dtype) for o in fn.src])
    return UOp(ops.CALL, dtypes.void, (fn, *args), ops.Call(fn.arg.name, outs))


def rebuild(roots: Sequence[UOp], forms: Mapping[UOp, UOp]) -> list[UOp]:
    """The graph with each CALL in ``forms`` replaced by a call of that FUNCTION.

    Its first results are those of the CALL, so GETs stay. A node that was built as a call of
    the new FUNCTION already becomes one and the same with it, whatever was replaced before it.
    """
    if not forms:
        return list(roots)
    new: dict[UOp, UOp] = {}
    for node in toposort(roots):
        if node.op is ops.FUNCTION or not node.src:
            new[node] = node
            continue
        src = tuple([new[s] for s in node.src])
        form = forms.get(node)
        if form is not None:
            new[node] = inherit(call_node(form, src[1:]), node)
        else:
            new[node] = node if src == node.src else node.replace(src=src)
    return [new[r] for r in roots]

"""Residuals: what a backward pass reads of the forward pass, saved or recomputed.

    body: y = sum(exp(x))       forward:  x -> y, exp's sum as residual where it is read
    ct -> ct * exp(x)           backward: x, ct -> ct * exp(x)      (exp is recomputed)

Saved are results that are expensive or impossible to recompute (``save_residual`` in
derivatives.py): reductions, gathers, scatters, calls and random bits; and values that are results
anyway. Other elementwise and movement ops are recomputed from these and the inputs: they fuse into
the kernels that read them, and cost less than their memory traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.transforms.autodiff.derivatives import DERIVATIVES
from fnx.transforms.autodiff.higher_order import GetTupleRule, Source


def split(outs: Sequence[UOp], grads: Sequence[UOp], inputs: Mapping[UOp, Source], n_inputs: int,
          name: str, policy_saved: Sequence[UOp] | None = None, prevent_cse: bool = False
          ) -> tuple[UOp, UOp, tuple[Source, ...]]:
    """Split a graph of results and gradients in two: forward, backward, sources (Linearized).

    Args:
        outs: results over the PARAMs of a FUNCTION.
        grads: cotangents over these, and over the cotangents of the results.
        inputs: the source of the backward pass that each of these PARAMs is.
        n_inputs: number of PARAMs of the FUNCTION.
        policy_saved: for a checkpoint: the values to save instead.
        prevent_cse: put what the backward pass reads behind a BARRIER with the cotangents: so it is
            really recomputed, and only when they are available.
    """
    primal = set(toposort(outs))
    results = {o for o in outs if o.op in ops.ELEMENTWISE}
    policy_set = set(policy_saved or ())

    def saved(node: UOp) -> bool:
        if policy_saved is not None:
            return node in policy_set
        rule = DERIVATIVES[node.op]
        is_primal = (node.src[0] if isinstance(rule, GetTupleRule) else node) in primal
        return node in results or node in sums or rule.save_residual and is_primal

    sums: set[UOp] = set()
    if policy_saved is None:
        sums = _merge_saved(toposort(grads, stop=saved), primal,
                            lambda n: saved(n) and n not in outs)
    params: dict[UOp, UOp] = {}
    sources: list[Source] = []
    number = {node: i for i, node in reversed(list(enumerate(outs)))}
    extra: list[UOp] = []
    for node in toposort(grads, stop=saved):
        source = inputs.get(node)
        if source is None:
            if not saved(node):
                continue
            if node not in number:
                number[node] = len(outs) + len(extra)
                extra.append(node)
            source = "result", number[node]
        sources.append(source)
        params[node] = build.param(len(params), node.dtype, node.shape)
    if prevent_cse:
        cts = [params[node] for node in params if inputs.get(node, ("",))[0] == "cotangent"]
        params.update({node: build.barrier(x, *cts) for node, x in params.items()
                       if x not in cts and not build_calls.is_token(x)})
    forward = build.function([*outs, *extra], n_inputs, name)
    backward = build.function(substitute(grads, params), len(params), f"{name}.backward")
    return forward, backward, tuple(sources)


def _merge_saved(order: Sequence[UOp], primal: Container[UOp], saved: Callable[[UOp], bool]
                 ) -> set[UOp]:
    """Return elementwise results to save in the place of several residuals that only they read.

        x @ w + h @ u    ->    the sum is saved, and not both products
    """
    readers: dict[UOp, set[UOp]] = {}
    for n in order:
        if not saved(n):
            for s in n.src:
                readers.setdefault(s, set()).add(n)
    merged: set[UOp] = set()
    for n in order:
        if n.op in ops.ELEMENTWISE and n in primal and not saved(n):
            exclusive = [s for s in set(n.src) if (saved(s) or s in merged) and readers[s] == {n}]
            if len(exclusive) > 1:
                merged.difference_update(exclusive)
                merged.add(n)
    return merged

"""SORT in both modes: it is differentiated as a gather of the operands by the sorted order.

    y0, y1 = SORT(x0, x1)      y0 = x0[order], y1 = x1[order]      order = SORT(x0, x1) kept=(-1,)

The order is an integer array without derivative, so the comparison of keys needs none. If the SORT
gives it, as that of ``top_k`` does, it is that: a residual, and no second sort.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.derivations import Derivation, recent_forms
from fnx.core.ir.uop import UOp
from fnx.transforms.autodiff.higher_order import CallRule, Linearized, MaskedTangents
from fnx.transforms.autodiff.rules import Cotangent


def gather_by_order(node: UOp) -> UOp:
    """Return what a SORT computes as a FUNCTION of its operands, and of its order if the SORT
    gives that: GATHERs by the order.

    >>> x = build.param(0, dtypes.float32, (3,))
    >>> y, = build_calls.sort([x], 1)
    >>> [out.op for out in gather_by_order(y.src[0]).src]
    [GATHER]
    """
    arg = node.arg

    def make() -> UOp:
        params = [build.param(i, t, shape) for i, (shape, t) in enumerate(arg.ins)]
        if -1 in arg.outputs:
            shape, t = arg.outs[arg.outputs.index(-1)]
            order = build.param(len(params), t, shape)
            n_params = len(params) + 1
        else:
            order, = build_calls.sort(params[:arg.n_keys], arg.n_keys, (-1,), arg.name)
            n_params = len(params)
        outs = [order if i < 0 else gather_along_last(params[i], order) for i in arg.outputs]
        return build.function(outs, n_params, arg.name)

    function: UOp = recent_forms.get_or_make(arg, make)
    return function


def gather_along_last(x: UOp, index: UOp) -> UOp:
    """Gather the elements of each row at an index along the last axis."""
    shape = x.shape
    rows = [build.expand(build.reshape(build.iota(n), (n, *(1,) * (len(shape) - a - 1))), shape)
            for a, n in enumerate(shape[:-1])]
    return build.gather(x, *rows, index)


def _as_call(node: UOp) -> UOp:
    """Rewrite a SORT as the CALL of what it computes."""
    arg, outputs = op_args.Call(node.arg.name, node.arg.outs), node.arg.outputs
    order = [build.results(node)[outputs.index(-1)]] if -1 in outputs else []
    return UOp(ops.CALL, dtypes.void, (gather_by_order(node), *node.src, *order), arg)


class SortRule(CallRule):
    """SORT: differentiated as a CALL of ``gather_by_order``."""

    def bodies(self, node: UOp) -> Sequence[UOp]:
        return ()  # only its derivative has a body

    def singular(self, node: UOp) -> bool:
        return False

    def jvp_all(self, node: UOp, tangents: MaskedTangents, needs_mask: Sequence[int],
                nonfinite: Container[UOp]
                ) -> Derivation[tuple[Sequence[UOp], MaskedTangents]]:
        outs = build.results(node)
        if all(i < 0 or tangents[i] is None for i in node.arg.outputs):
            return outs, [None] * len(outs)
        call_tangents = (None, *tangents, *[None] * (-1 in node.arg.outputs))
        return (yield from super().jvp_all(_as_call(node), call_tangents, needs_mask, nonfinite))

    def depends(self, node: UOp) -> Derivation[Sequence[frozenset[int]]]:
        yield from ()
        return [frozenset(() if i < 0 else (i,)) for i in node.arg.outputs]

    def vjp_forms(self, node: UOp, out_cts: Mapping[int, Cotangent], active: Container[UOp],
                  needs_mask: Container[UOp], nonfinite: Container[UOp]) -> Derivation[Linearized]:
        form: Linearized = yield from super().vjp_forms(_as_call(node), out_cts, active,
                                                        needs_mask, nonfinite)
        operand, outputs = ("input", len(node.src)), node.arg.outputs
        return form if operand not in form.sources else form.replace(sources=tuple(
            [("result", outputs.index(-1)) if s == operand else s for s in form.sources]))

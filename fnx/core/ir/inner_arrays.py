"""Arrays inside FUNCTIONs, which become operands when the graph around them is closed.

Some rules of the user's are traced when a transform of a body needs them. What such a rule reads
besides its arguments (arrays, handles of callbacks) is no operand of the op then, so it stays in
the body.

    CALL(FUNCTION(x -> x * BUFFER), y)   ->   CALL(FUNCTION(w, x -> x * w), BUFFER, y)

>>> from fnx.core.ir import build_calls, dtypes, op_args
>>> w = UOp(ops.BUFFER, dtypes.float32, (), op_args.Buffer(None, (3,)))
>>> x = build.param(0, dtypes.float32, (3,))
>>> body = build.function([build.mul(x, w)], 1)
>>> arrays_inside(body) == (w,)
True
>>> out, = outs_with_operands(build_calls.call(body, [x]))
>>> out.src[0].src[1:] == (w, x), arrays_inside(out.src[0].src[0])
(True, ())
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.derivations import analysis, derived_forms
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, rebuild, substitute, toposort


@analysis
def arrays_inside(body: UOp) -> tuple[UOp, ...]:
    """Return the BUFFERs in a FUNCTION and in those that it calls."""
    buffers: dict[UOp, None] = {}
    for node in toposort(body.src):
        if node.op is ops.BUFFER:
            buffers[node] = None
        buffers.update(dict.fromkeys(_arrays_in_bodies(node)))
    return tuple(buffers)


def with_arrays_inside(fn: UOp, first: int, arrays: Sequence[UOp]) -> UOp:
    """Return a FUNCTION whose parameters from ``first`` on are these arrays."""
    n = len(arrays)
    to = {build.param(first + i, x.dtype, x.shape): x for i, x in enumerate(arrays)}
    to.update({x: build.param(i - n, x.dtype, x.shape)
               for i, x in build.params(fn).items() if i >= first + n})
    return build.function(substitute(fn.src, to), fn.arg.n_params - n, fn.arg.name)


def outs_with_operands(outs: Sequence[UOp], whole: Container[UOp] = frozenset()) -> list[UOp]:
    """Return nodes whose ops with bodies take the arrays inside these as operands.

    Args:
        outs: the nodes.
        whole: nodes to leave as they are.
    """
    known = {node: node for node in toposort(outs, stop=whole.__contains__) if node in whole}
    return rebuild(outs, lambda node, src: _with_operands(node, src, {}), known)


def _arrays_in_bodies(node: UOp) -> tuple[UOp, ...]:
    if node.op not in ops.HIGHER_ORDER:
        return ()
    return tuple(dict.fromkeys([x for body in accessors.bodies(node) for x in arrays_inside(body)]))


def _with_operands(node: UOp, src: Sequence[UOp], to: Mapping[UOp, UOp]) -> UOp | None:
    """Return an op that takes the arrays inside its bodies, mapped by ``to``, as operands."""
    arrays = _arrays_in_bodies(node)
    if not arrays:
        return None
    op = OpBodies(node.replace(src=tuple(src)))
    consts, carries, rest = op.split(op.operands)
    bodies = [_body_with_params(body, arrays) for body in op.bodies]
    return op.rebuild(bodies, [[*[to.get(x, x) for x in arrays], *consts], carries, rest])


def _body_with_params(body: UOp, arrays: tuple[UOp, ...]) -> UOp:
    """Return a body that takes these arrays first."""
    forms, key = derived_forms(body), (_body_with_params, arrays)
    form: UOp | None = forms.get(key)
    if form is None:
        n = len(arrays)
        to = {x: build.param(i, x.dtype, x.shape) for i, x in enumerate(arrays)}
        to.update({x: build.param(i + n, x.dtype, x.shape) for i, x in build.params(body).items()})
        outs = rebuild(body.src, lambda node, src: _with_operands(node, src, to), to)
        form = build.function(outs, body.arg.n_params + n, body.arg.name)
        forms.put(key, form)
    return form

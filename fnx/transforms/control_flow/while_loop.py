"""Trace ``while_loop`` and loops with a data-dependent trip count into a WHILE.

    while_loop(c, f, x)        WHILE(c, f, captures of both, x)
    fori_loop(0, n, f, x)      WHILE(i < n, (i + 1, f(i, x)), captures and n, (0, x))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.ir import build, build_calls, dtypes, op_args
from fnx.core.ir.derivations import derived_forms
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import DTypeError, PytreeError, ShapeError
from fnx.core.tracing.trace import inline_nodes, unflatten_arrays
from fnx.transforms.control_flow import uniform_control_flow
from fnx.transforms.control_flow.bodies import (
    Body,
    args_tree,
    check_carry,
    check_structure,
    disabled_jit_loops,
    flatten_arrays,
    infer_carry,
    merge_captures,
    trace_body,
)
from fnx.transforms.control_flow.scan import indexed_body


def while_loop(condition: Callable[..., Any], f: Callable[..., Any], init: Any,
               max_trips: int = 0) -> Any:
    """Run ``f(carry) -> carry`` while ``condition(carry)`` holds; return the final carry.

    ``max_trips`` is an upper bound of the number of steps; 0: unknown.
    """
    if (python_loops := disabled_jit_loops()) is not None:
        return python_loops.while_loop(condition, f, init)
    leaves, init_tree = flatten_arrays(init, "init_val")
    in_tree = args_tree(init_tree)

    def make(avals: list[Aval]) -> tuple[Body, Sequence[Aval]]:
        body = trace_body(f, avals, in_tree, "while_loop")
        check_structure("carry", body, init_tree, body.out_tree)
        return body, body.outs

    body, carry = infer_carry(leaves, make)
    check_carry("carry", body, init_tree, carry, body.returned)
    types = [Aval(c.shape, c.dtype, x.weak) for c, x in zip(carry, leaves)]
    cond_body = trace_body(condition, types, in_tree, "while_loop")
    _check_condition(cond_body)
    captures, (cond_fn, step) = merge_captures([cond_body, body])
    axes = uniform_control_flow.collective_axes([cond_fn, step])
    if cond_body.effects or axes:
        effects = cond_body.effects, body.effects
        effectful = cond_body if cond_body.effects else body
        outs = effectful.results(uniform_control_flow.while_loop(
            cond_fn, step, captures, effectful.carry(carry), effects, axes))
    else:
        outs = body.results(build_calls.while_(cond_fn, step, captures, body.carry(carry),
                                               max_trips=max_trips))
    return unflatten_arrays(init_tree, outs, body.outs)


def _check_condition(test: Body) -> None:
    hint = "return one comparison, such as x.sum() > 0"
    if test.out_tree.pytree_type is not None:
        raise PytreeError(f"expected {test.name} to return a bool scalar, got {test.out_tree}",
                          hint=hint)
    out, = test.outs
    if out.shape or not out.dtype.is_bool:
        kind = ShapeError if out.shape else DTypeError
        raise kind(f"expected {test.name} to return a bool scalar, got {out}", hint=hint)


def fori_loop_dynamic(f: Callable[..., Any], lower: Array, upper: Array, init: Any) -> Any:
    """Run ``f(i, carry) -> carry`` for i from lower to upper - 1; return the final carry."""
    if (python_loops := disabled_jit_loops()) is not None:
        return python_loops.fori_loop(f, int(lower), int(upper), init)
    t, weak = dtypes.promote(lower._dtype, lower.weak, upper._dtype, upper.weak)
    body, carry, init_tree = indexed_body(f, Aval((), t, weak), init)
    first, last = build.cast(lower._node, t), build.cast(upper._node, t)
    cond_fn, step = _counting_loop(body, first)
    consts, start = [*body.captures, last], [*body.carry(carry), first]
    axes = uniform_control_flow.collective_axes([step])
    if axes:
        outs = uniform_control_flow.while_loop(cond_fn, step, consts, start, (False, body.effects),
                                               axes)
    else:
        outs = build_calls.while_(cond_fn, step, consts, start, body.name + op_args.FORI_LOOP)
    return unflatten_arrays(init_tree, body.results(outs), body.outs)


def _counting_loop(body: Body, index: UOp) -> tuple[UOp, UOp]:
    """Return the condition and the body of a WHILE over (captures, upper, carry, i)."""
    n = len(body.captures)

    def make() -> tuple[UOp, UOp]:
        step, size = body.function, body.function.arg.n_params + 1
        upper, i = (build.param(slot, index.dtype, ()) for slot in (n, size - 1))
        moved = {x: build.param(slot + (slot >= n), x.dtype, x.shape)
                 for slot, x in build.params(step).items()}
        return (build.function([build.lt(i, upper)], size, body.name),
                build_calls.body_function(lambda: [
                    *inline_nodes(step, step.src, moved),
                    build.add(i, build.const(1, index.dtype))], size, body.name))

    loop: tuple[UOp, UOp] = derived_forms(body.function).get_or_make((_counting_loop, n), make)
    return loop

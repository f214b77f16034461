"""Trace ``scan``, ``map`` and counted loops into a SCAN, with the function as its body.

    scan(cell, h, xs)             SCAN(cell, captures, h, xs)
    map(f, xs)                    SCAN(f, captures, xs): no carry
    fori_loop(2, 5, f, x)         SCAN(f, captures, x, [2, 3, 4]): no results of the steps
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.ir import build, build_calls, dtypes, op_args
from fnx.core.ir.uop import UOp, set_composite
from fnx.core.rewriting.lengths import range_length
from fnx.core.support.errors import ArgumentError, PytreeError, ShapeError
from fnx.core.tracing.trace import unflatten_arrays
from fnx.transforms.control_flow.batched_body import batch_body
from fnx.transforms.control_flow.bodies import (
    Body,
    args_tree,
    check_carry,
    check_structure,
    disabled_jit_loops,
    flatten_arrays,
    infer_carry,
    leaf_path,
    trace_body,
)
from fnx.transforms.control_flow.scan_progress import report_progress
from fnx.transforms.control_flow.unroll import slice_rows, unrolled_scan


def scan(f: Callable[..., Any], init: Any, xs: Any, length: int | None, reverse: bool,
         unroll: int, checkpoint: int, progress: bool) -> tuple[Any, Any]:
    """Scan ``f(carry, x) -> (carry, y)``; return (final carry, stacked results).

    ``unroll`` is the number of steps run at once; 0 for all of them.
    """
    if (python_loops := disabled_jit_loops()) is not None:
        result: tuple[Any, Any] = python_loops.scan(f, init, xs, length, reverse)
        return result
    if progress:
        count = scan_length(*flatten_arrays(xs, "xs"), length)
        xs, f = (xs, Array(build.iota(count))), report_progress(f, count, reverse)
    carry, init_tree = flatten_arrays(init, "init")
    steps, xs_tree = flatten_arrays(xs, "xs")
    length = scan_length(steps, xs_tree, length)
    in_tree, rows, n = args_tree(init_tree, xs_tree), [_row(x) for x in steps], len(carry)

    def make(avals: list[Aval]) -> tuple[Body, Sequence[Aval]]:
        body = trace_body(f, [*avals, *rows], in_tree, "scan")
        carry_tree, _ = _carry_and_result(body)
        check_structure("carry", body, init_tree, carry_tree)
        return body, body.outs[:n]

    body, first = infer_carry(carry, make)
    check_carry("carry", body, init_tree, first, body.returned[:n])
    operands = body.captures, body.carry(first), [x._node for x in steps]
    outs = unrolled_scan(body.function, length, *operands, reverse, unroll, checkpoint)
    if unroll != 1 and length > 1 and not body.effects:
        _record(outs, body, operands, length=length, reverse=reverse, unroll=unroll or length)
    results = [Array(x, a.weak) for x, a in zip(body.results(outs), body.outs)]
    return init_tree.unflatten(results[:n]), _carry_and_result(body)[1].unflatten(results[n:])


def _record(outs: Sequence[UOp], body: Body, operands: Sequence[Sequence[UOp]], **params: Any
            ) -> None:
    """Record that results are those of a scan that is unrolled."""
    consts, carries, xs = operands
    for i, node in enumerate(outs):
        set_composite(node, "scan", _scan_again, [*consts, *carries, *xs], i, body=body.function,
                      num_consts=len(consts), num_carry=len(carries), **params)


def _scan_again(*args: Any, body: UOp, num_consts: int, num_carry: int, length: int, reverse: bool,
                unroll: int) -> list[Array]:
    nodes, n = [x._node for x in args], num_consts + num_carry
    return [Array(x) for x in unrolled_scan(body, length, nodes[:num_consts], nodes[num_consts:n],
                                            nodes[n:], reverse, unroll)]


def _carry_and_result(body: Body) -> tuple[tree.TreeDef, tree.TreeDef]:
    """Return the structures of the carry and of the result of one step."""
    out = body.out_tree
    kind = None if out.pytree_type is None else out.pytree_type.kind
    if kind not in (tuple, list) or len(out.subtrees) != 2:
        raise PytreeError(f"expected {body.name} to return (carry, output of the step), got "
                          f"{tree.describe_structure(out)}",
                          hint="return (carry, None) if a step has no output")
    carry, y = out.subtrees
    return carry, y


def scan_length(xs: Sequence[Array], structure: tree.TreeDef, length: int | None) -> int:
    """Return the number of steps: the common length of the leading axes, or ``length``."""
    for i, x in enumerate(xs):
        if not x.shape:
            raise ShapeError(f"expected arrays with a leading axis to scan over, got {x._aval} at "
                             f"{leaf_path(structure, i, 'xs')}",
                             hint="close over values that all steps share")
        if length is None:
            length = x.shape[0]
        elif x.shape[0] != length:
            where = leaf_path(structure, 0, "xs") if x.shape[0] != xs[0].shape[0] else "length="
            raise ShapeError(f"expected one length, got {length} of {where} and {x.shape[0]} of "
                             f"{leaf_path(structure, i, 'xs')}",
                             hint="give all arrays the same leading axis length, the number of "
                                  "steps")
    if length is None:
        raise ArgumentError("expected arrays to scan over or a length, got neither",
                            hint="pass length=, the number of steps")
    if length < 0:
        raise ArgumentError(f"expected a length >= 0, got {length}")
    return length


def _row(x: Array) -> Aval:
    return Aval(x.shape[1:], x._dtype, x.weak)


def map_(f: Callable[..., Any], xs: Any, batch_size: int) -> Any:
    """Apply ``f`` to each row, in batches of ``batch_size``, and stack the results."""
    if (python_loops := disabled_jit_loops()) is not None:
        return python_loops.map_(f, xs)
    steps, xs_tree = flatten_arrays(xs, "xs")
    length = scan_length(steps, xs_tree, None)
    body = trace_body(f, [_row(x) for x in steps], args_tree(xs_tree), "map")
    rows, parts = [x._node for x in steps], list[Sequence[UOp]]()
    rest = length % batch_size if batch_size > 1 else 0
    if length > rest or not length:
        parts.append(_map_rows(body, [slice_rows(x, 0, length - rest) for x in rows], batch_size))
    if rest:
        parts.append(_map_rows(body, [slice_rows(x, length - rest, length) for x in rows], rest))
    outs = [build.concat(ys, 0) for ys in zip(*parts)]
    return unflatten_arrays(body.out_tree, outs, body.outs)


def _map_rows(body: Body, rows: Sequence[UOp], batch_size: int) -> Sequence[UOp]:
    """Map a body over rows, whose number is a multiple of ``batch_size``."""
    length = rows[0].shape[0]
    if batch_size < 2 or not length:
        return body.results(build_calls.scan(body.function, length, body.captures,
                                             body.carry([]), rows))
    rounds, block = length // batch_size, batch_body(body, batch_size)
    split = [build.reshape(x, (rounds, batch_size, *x.shape[1:])) for x in rows]
    ys = body.results(build_calls.scan(block, rounds, body.captures, body.carry([]), split))
    return [build.reshape(y, (length, *y.shape[2:])) for y in ys]


def fori_loop(f: Callable[..., Any], lower: int, upper: int, init: Any, unroll: int) -> Any:
    """Run ``f(i, carry) -> carry`` for i from lower to upper - 1; return the final carry."""
    if (python_loops := disabled_jit_loops()) is not None:
        return python_loops.fori_loop(f, lower, upper, init)
    body, carry, init_tree = indexed_body(f, Aval((), dtypes.int32, True), init)
    length = range_length(lower, upper, 1)
    index = build.add(build.iota(length), build.const(lower, dtypes.int32, (length,)))
    outs = unrolled_scan(body.function, length, body.captures, body.carry(carry), [index], False,
                         unroll, name=body.name + op_args.FORI_LOOP)
    return unflatten_arrays(init_tree, body.results(outs), body.outs)


def indexed_body(f: Callable[..., Any], index: Aval, init: Any
                 ) -> tuple[Body, list[UOp], tree.TreeDef]:
    """Trace ``f(i, carry) -> carry`` as a FUNCTION (captures, carry, i).

    Returns:
        The body, the initial carry, and its structure.
    """
    leaves, init_tree = flatten_arrays(init, "init_val")
    in_tree = args_tree(tree.LEAF, init_tree)

    def make(avals: list[Aval]) -> tuple[Body, Sequence[Aval]]:
        body = trace_body(f, [index, *avals], in_tree, "fori_loop", n_rotated=1)
        check_structure("carry", body, init_tree, body.out_tree)
        return body, body.outs

    body, carry = infer_carry(leaves, make)
    check_carry("carry", body, init_tree, carry, body.returned)
    return body, carry, init_tree

"""If, Loop and Scan, by fnx's control flow where conditions or counts are traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx import lax
from fnx.core.array.array import Array
from fnx.onnx.evaluate import Node
from fnx.onnx.registry import op
from fnx.onnx.types import Value, to_array
from fnx.transforms.vmap import vmap


@op("If")
def _if(n: Node, condition: Value, *, then_branch: Any = None, else_branch: Any = None) -> Value:
    known = n.constant_or_none(condition)
    if known is not None:
        return tuple(n.subgraph(then_branch if known.item() else else_branch, ()))
    return tuple(lax.cond(
        jnp.reshape(condition, ()),
        lambda: [to_array(x) for x in n.subgraph(then_branch, ())],
        lambda: [to_array(x) for x in n.subgraph(else_branch, ())]))


_UNROLLED = 256  # iterations at most; further ones are those of a SCAN or WHILE
_ENDLESS = 1 << 31  # iterations without a condition, which is more than any program waits for


@op("Loop")
def _loop(n: Node, trips: Value, condition: Value, *carries: Value, body: Any = None) -> Value:
    count = None if trips is None else n.constant_or_none(trips)
    go = np.asarray(True) if condition is None else n.constant_or_none(condition)
    state, rows, t = list(carries), list[list[Value]](), 0
    while go is not None and (trips is None or count is not None):
        if not go.item() or count is not None and t >= count.item():
            return *state, *_stacked(n, rows, len(body.outputs) - 1 - len(carries))
        if t == _UNROLLED:
            break
        test, *results = n.subgraph(
            body, [np.asarray(t, np.int64), np.asarray(True), *state], t)
        state, t = results[:len(carries)], t + 1
        rows.append(results[len(carries):])
        go, condition = n.constant_or_none(test), test
    if len(body.outputs) - 1 == len(carries):
        return _while(n, trips, condition, state, body, t)
    if count is None or go is None or count.item() >= _ENDLESS:
        raise n.refuse("the number of iterations is traced, so the size of what it stacks is not "
                       "known", "call the model outside of jit, vmap and grad")
    return _rest(n, count.item(), state, rows, body)


def _stacked(n: Node, rows: list[list[Value]], scanned: int) -> list[Array]:
    if scanned and not rows:
        raise n.refuse("expected at least one iteration, as the shapes of what it stacks come "
                       "from its body")
    return [jnp.stack([to_array(row[i]) for row in rows]) for i in range(scanned)]


def _rest(n: Node, count: int, carries: Sequence[Value], rows: list[list[Value]], body: Any
          ) -> Value:
    """Return the results of a loop whose first iterations are unrolled: ``rows`` are theirs."""
    def step(carry: Any, t: Any) -> Any:
        test, *results = n.subgraph(body, [t, np.asarray(True), *carry], t)
        known = n.constant_or_none(test)
        if known is None or not known.item():
            raise n.refuse(f"expected a condition that is a constant, as the loop stacks rows of "
                           f"more than {_UNROLLED} iterations")
        arrays = [to_array(x) for x in results]
        return arrays[:len(carry)], arrays[len(carry):]

    state, more = lax.scan(step, [to_array(x) for x in carries],
                           jnp.arange(len(rows), count, dtype=np.int64))
    return *state, *[jnp.concatenate(pair) for pair in zip(_stacked(n, rows, len(more)), more)]


def _while(n: Node, trips: Value, condition: Value, carries: Any, body: Any, start: int
           ) -> Value:
    limit = None if trips is None else jnp.reshape(to_array(trips), ())
    count = None if trips is None else n.constant_or_none(trips)
    ends = trips is not None and (count is None or count.item() < _ENDLESS)

    def more(carry: Any) -> Array:
        t, go = carry[:2]
        return go if limit is None else jnp.logical_and(go, t < limit)

    def step(carry: Any) -> Any:
        test, *results = n.subgraph(body, [carry[0], np.asarray(True), *carry[2:]], carry[0])
        if not ends and n.constant_or_none(test) is not None:
            raise n.refuse("expected a loop that ends, got one whose condition is a constant")
        return [carry[0] + 1, jnp.reshape(to_array(test), ()).astype(bool),
                *[to_array(x) for x in results]]

    go = True if condition is None else jnp.reshape(to_array(condition), ()).astype(bool)
    first = [jnp.asarray(start, np.int64), jnp.asarray(go), *[to_array(x) for x in carries]]
    return tuple(lax.while_loop(more, step, first)[2:])


@op("Scan", since=8)
def _scan_8(n: Node, lengths: Value, *inputs: Value, body: Any = None, directions: Any = None,
            num_scan_inputs: int = 0) -> Value:
    if lengths is not None:
        raise n.refuse("fnx computes Scan of opset 8 without sequence_lens only",
                       "convert the model to a newer opset with onnx.version_converter")
    return tuple(vmap(lambda xs: _scan(
        n, *xs, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions))(
        [to_array(x) for x in inputs]))


@op("Scan", since=9)
def _scan(n: Node, *inputs: Value, body: Any = None, num_scan_inputs: int = 0,
          scan_input_axes: Any = None, scan_input_directions: Any = None,
          scan_output_axes: Any = None, scan_output_directions: Any = None) -> Value:
    states = len(inputs) - num_scan_inputs
    axes = scan_input_axes or [0] * num_scan_inputs
    back = scan_input_directions or [0] * num_scan_inputs
    xs = [jnp.moveaxis(jnp.flip(to_array(x), a) if b else to_array(x), a, 0)
          for x, a, b in zip(inputs[states:], axes, back)]

    def step(carry: Any, rows: Any) -> Any:
        results = [to_array(x) for x in n.subgraph(body, [*carry, *rows[1:]], rows[0])]
        return results[:states], results[states:]

    carry, ys = lax.scan(step, [to_array(x) for x in inputs[:states]],
                         [jnp.arange(xs[0].shape[0]), *xs])
    out_axes = scan_output_axes or [0] * len(ys)
    out_back = scan_output_directions or [0] * len(ys)
    moved = [jnp.moveaxis(jnp.flip(y, 0) if b else y, 0, a)
             for y, a, b in zip(ys, out_axes, out_back)]
    return *carry, *moved

"""If, Loop and Scan, by fnx's control flow where conditions or counts are traced."""

from __future__ import annotations

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


@op("Loop")
def _loop(n: Node, trips: Value, condition: Value, *carries: Value, body: Any = None) -> Value:
    count = None if trips is None else n.constant_or_none(trips)
    go = np.asarray(True) if condition is None else n.constant_or_none(condition)
    state, rows, t = list(carries), list[list[Value]](), 0
    while go is not None and (trips is None or count is not None):
        if not go.item() or count is not None and t >= count.item():
            return _with_rows(n, state, rows, body, len(carries))
        test, *results = n.subgraph(
            body, [np.asarray(t, np.int64), np.asarray(True), *state], t)
        state, t = results[:len(carries)], t + 1
        rows.append(results[len(carries):])
        go, condition = n.constant_or_none(test), test
    return _while(n, trips, condition, state, body, t)


def _with_rows(n: Node, state: list[Value], rows: list[list[Value]], body: Any, carries: int
               ) -> Value:
    scanned = len(body.outputs) - 1 - carries
    if scanned and not rows:
        raise n.refuse("expected at least one iteration, as the shapes of what it stacks come "
                       "from its body")
    return *state, *[jnp.stack([to_array(row[i]) for row in rows]) for i in range(scanned)]


def _while(n: Node, trips: Value, condition: Value, carries: Any, body: Any, start: int
           ) -> Value:
    if len(body.outputs) - 1 > len(carries):
        raise n.refuse("the number of iterations is traced, so the size of what it stacks is not "
                       "known", "call the model outside of jit, vmap and grad")
    limit = None if trips is None else jnp.reshape(to_array(trips), ())

    def more(carry: Any) -> Array:
        t, go = carry[:2]
        return go if limit is None else jnp.logical_and(go, t < limit)

    def step(carry: Any) -> Any:
        test, *results = n.subgraph(body, [carry[0], carry[1], *carry[2:]], carry[0])
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

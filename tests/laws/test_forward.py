"""Forward mode against reverse mode: the same rows, the same graphs, the same zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import assume, given, settings

from fnx.core import build, dtypes, ops
from fnx.core.levels import interp, spec
from fnx.core.uop import UOp
from fnx.lower.tensor.inline import inline
from fnx.transforms.ad.forward import pushforward
from tests.graphs import Graph
from tests.laws.test_gradients import gradients, params, projected, results, smooth_graphs


def along(loss: UOp, tangents: dict[UOp, UOp]) -> UOp:
    """The derivative along a direction, by forward mode."""
    (_,), (t,) = pushforward([loss], tangents)
    return build.like(loss, 0) if t is None else t


def against(loss: UOp, tangents: dict[UOp, UOp]) -> UOp:
    """The same by reverse mode."""
    out = build.const(0.0, dtypes.float64)
    for g, (x, t) in zip(gradients(loss, list(tangents)), tangents.items()):
        out = build.add(out, build.reduce(build.mul(g, t), ops.ADD, range(len(x.shape))))
    return out





def values(nodes: Sequence[UOp], env: dict[UOp, Any]) -> list[Any]:
    spec.check(nodes, "tensor")
    return interp.evaluate(nodes, env)


@settings(max_examples=80)
@given(smooth_graphs)
def test_forward_is_reverse_to_second_order(graph: Graph) -> None:
    """Also forward over reverse, reverse over forward, reverse over reverse; through calls."""
    assume(any(out.dtype.is_float for out in graph.fn.src))
    rng, xs = np.random.default_rng(7), params(graph.args)
    env: dict[UOp, Any] = dict(zip(xs, graph.args))
    floats = [x for x in xs if x.dtype.is_float]
    tangents = {x: build.param(len(xs) + i, x.dtype, x.shape) for i, x in enumerate(floats)}
    env.update({t: rng.normal(size=t.shape) for t in tangents.values()})
    for fn in (graph.fn, inline(graph.fn)):
        loss = projected(results(fn, xs), np.random.default_rng(1))
        first = [along(loss, tangents), against(loss, tangents)]
        second = [f(g, tangents) for g in first for f in (along, against)]
        for group in (first, second):
            found = values(group, env)
            np.testing.assert_allclose(
                found, found[0], rtol=1e-6, atol=1e-8 * max(1.0, abs(float(found[0]))))

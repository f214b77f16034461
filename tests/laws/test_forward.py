"""Forward mode against reverse mode: the same rows, the same graphs, the same zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.derivations import derive
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp, spec
from fnx.lower.tensor.inline import inline
from fnx.transforms.autodiff.forward import jvp_form, pushforward
from fnx.transforms.autodiff.higher_order import Activity, JvpKey
from fnx.transforms.autodiff.linearity import CONSTANT, LINEAR, LinearityKey
from fnx.transforms.autodiff.reverse import linearize
from fnx.transforms.autodiff.transpose import transpose_to_jvp
from fnx.transforms.batching.batch import batch
from tests.graphs import Graph, graphs
from tests.laws.test_gradients import (
    SMOOTH,
    gradients,
    params,
    projected,
    results,
    smooth_graphs,
)


def along(loss: UOp, tangents: dict[UOp, UOp]) -> UOp:
    """Return the derivative along a direction, by forward mode."""
    (_,), (t,) = pushforward([loss], tangents)
    return build.const_like(loss, 0) if t is None else t


def against(loss: UOp, tangents: dict[UOp, UOp]) -> UOp:
    """Return the derivative along a direction, by reverse mode."""
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
    """Also forward over reverse, reverse over forward and reverse over reverse, through calls."""
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


# ---- linear maps of graphs with loops -----------------------------------------------------------

WITH_LOOPS = SMOOTH | {ops.SCAN, ops.WHILE, ops.COND, ops.STOP_GRADIENT}


def filled(found: Sequence[Any], places: Sequence[int | None], like: Sequence[Any]) -> list[Any]:
    return [np.zeros(np.shape(x)) if i is None else found[i] for i, x in zip(places, like)]


def assert_close(got: Sequence[Any], want: Sequence[Any]) -> None:
    for a, b in zip(got, want):
        scale = max(1.0, float(np.abs(b).max(initial=0.0)))
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8 * scale)


@settings(max_examples=60)
@given(graphs(types=[dtypes.float64], allowed=WITH_LOOPS, steps=12, calls=2, smooth=True))
def test_all_linear_maps_of_a_graph_agree(graph: Graph) -> None:
    """jvp = linearize = batched jvp; vjp = its transpose = the transpose of linearize. All of them
    are linear, and the linearity check agrees."""
    fn, n, rng = graph.fn, graph.fn.arg.n_params, np.random.default_rng(5)
    fn = build.function([build.elementwise(ops.TANH, o) if o.dtype.is_float else o
                         for o in fn.src], n, "bounded")
    params = build.params(fn)
    ins = tuple([i for i, p in sorted(params.items()) if p.dtype.is_float])
    outs = tuple([o for o, x in enumerate(fn.src) if x.dtype.is_float])
    assume(ins and outs)
    primal = [interp.apply(fn, graph.args)[o] for o in outs]
    ts = [rng.normal(size=graph.args[i].shape) for i in ins]
    cts = [rng.normal(size=x.shape) for x in primal]

    jvp = jvp_form(fn, JvpKey(ins))
    spec.check([jvp.function], "tensor")
    found = interp.apply(jvp.function, [*graph.args, *ts])
    places = [jvp.result_indices[o][0] for o in outs]
    along = filled(found, places, primal)
    assert_close([found[o] for o in outs], primal)

    lanes = batch(jvp.function, 2, [False] * n + [True] * len(ins))
    wide = interp.apply(lanes.function, [*graph.args, *[np.stack([t, -t]) for t in ts]])
    for place, x in zip(places, along):
        if place is not None:
            assert_close([wide[place]], [np.stack([x, -x]) if lanes.outs[place] else x])

    made = linearize(fn, Activity(ins, outs))
    forward = fn if made.forward is None else made.forward
    spec.check([forward, made.backward], "tensor")
    saved = interp.apply(forward, graph.args)
    read = {"input": graph.args, "result": saved, "cotangent": cts}
    operands = [read[kind][i] for kind, i in made.sources]
    back = filled(interp.apply(made.backward, operands), [v for v, _ in made.result_indices], ts)
    size = sum(np.abs(t * g).sum() for t, g in zip(ts, back))
    product = sum((t * g).sum() for t, g in zip(ts, back))
    assert product == pytest.approx(sum((x * ct).sum() for x, ct in zip(along, cts)),
                                    rel=1e-7, abs=1e-8 * max(1.0, size))

    pushes, active = transpose_to_jvp(made)
    linear = interp.apply(pushes.function, [*operands, *[ts[k] for k in active]])
    numbers = [i for kind, i in made.sources if kind == "cotangent"]
    of_result = dict(zip(numbers, pushes.result_indices))
    assert_close(filled(linear, [of_result.get(k) for k in range(len(outs))], primal), along)

    check_linear(made.backward, [kind == "cotangent" for kind, _ in made.sources])
    check_linear(pushes.function, [k >= len(operands) for k in range(pushes.function.arg.n_params)])


def check_linear(body: UOp, linear: Sequence[bool]) -> None:
    derive(body, LinearityKey(tuple([LINEAR if x else CONSTANT for x in linear])))

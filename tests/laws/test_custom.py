"""Random programs with custom rules equal to their own derivatives: no result changes.

The rules come from the modes themselves: the jvp form for a jvp, the linearized body for a vjp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.uop import UOp
from fnx.transforms.autodiff.forward import jvp_form
from fnx.transforms.autodiff.higher_order import Activity, JvpKey
from fnx.transforms.autodiff.reverse import linearize
from fnx.transforms.batching.batch import batch
from tests.graphs import graph_of
from tests.laws.test_forward import against, along, values
from tests.laws.test_gradients import SMOOTH, params, projected, results

SEEDS = 15


def floats(nodes: Any) -> tuple[int, ...]:
    return tuple([i for i, x in enumerate(nodes) if x.dtype.is_float])


def with_jvp(fn: UOp, xs: list[UOp]) -> tuple[UOp, ...]:
    outs = floats(fn.src)
    jvp = jvp_form(fn, JvpKey(floats(xs), instantiate=outs))
    found = list(jvp.function.src)
    tangents = []
    for o in outs:
        place = jvp.result_indices[o][0]
        assert place is not None
        tangents.append(found[place])
    rule = build.function([*found[:len(fn.src)], *tangents], jvp.function.arg.n_params, "jvp")
    return build_calls.custom([fn, rule], op_args.Custom("f", types(fn), ("jvp",), 0), xs)


def with_vjp(fn: UOp, xs: list[UOp]) -> tuple[UOp, ...]:
    inputs, outs = floats(xs), floats(fn.src)
    form = linearize(fn, Activity(inputs, outs))
    forward = form.forward_of(fn)
    there = build.params(fn)
    saved = [there[i] if kind == "input" else forward.src[i]
             for kind, i in form.sources if kind != "cotangent"]
    fwd = build.function([*forward.src[:len(fn.src)], *saved], len(xs), "fwd")
    kept = [build.param(i, x.dtype, x.shape) for i, x in enumerate(saved)]
    cts = [build.param(len(kept) + k, fn.src[o].dtype, fn.src[o].shape)
           for k, o in enumerate(outs)]
    rest = iter(kept)
    found = build_calls.call(form.backward, [cts[i] if kind == "cotangent" else next(rest)
                                             for kind, i in form.sources])
    bwd = build.function(found, len(kept) + len(cts), "bwd")
    indices = dict(zip(inputs, [-1 if i is None else i for i, _ in form.result_indices]))
    arg = op_args.Custom("f", types(fn), ("fwd", "bwd"), 0,
                         tuple([indices.get(i, -1) for i in range(len(xs))]))
    return build_calls.custom([fn, fwd, bwd], arg, xs)


def types(fn: UOp) -> tuple[tuple[ops.Shape, dtypes.DType], ...]:
    return tuple([(o.shape, o.dtype) for o in fn.src])


@pytest.mark.cases(7)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("wrap", [with_jvp, with_vjp])
def test_rules_that_are_the_derivative(
        wrap: Callable[[UOp, list[UOp]], tuple[UOp, ...]], seed: int) -> None:
    graph = graph_of(seed, 8, [dtypes.float64], SMOOTH, 1, smooth=True)
    if not floats(graph.fn.src):
        return
    rng, xs = np.random.default_rng(seed), params(graph.args)
    ruled = build.function(wrap(graph.fn, xs), len(xs), "ruled")
    twice = build.function(wrap(ruled, xs), len(xs), "twice")  # rules of functions that have rules
    active = [x for x in xs if x.dtype.is_float]
    tangents = {x: build.param(len(xs) + i, x.dtype, x.shape) for i, x in enumerate(active)}
    env: dict[UOp, Any] = {**dict(zip(xs, graph.args)),
                           **{t: rng.normal(size=t.shape) for t in tangents.values()}}
    groups: list[list[UOp]] = [[], [], []]
    for fn in (graph.fn, ruled, twice):
        loss = projected(results(fn, xs), np.random.default_rng(1))
        first = [along(loss, tangents), against(loss, tangents)]
        groups[0].append(loss)
        groups[1] += first
        groups[2] += [f(g, tangents) for g in first for f in (along, against)]
    for group in groups:
        want, *others = values(group, env)
        for got in others:
            np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10)


@pytest.mark.cases(16)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("wrap", [with_jvp, with_vjp])
def test_batches_of_rules_are_rules_of_batches(
        wrap: Callable[[UOp, list[UOp]], tuple[UOp, ...]], seed: int) -> None:
    """The gradient of a batch some of whose arguments are not batched."""
    graph = graph_of(seed, 8, [dtypes.float64], SMOOTH, 1, smooth=True)
    if not floats(graph.fn.src):
        return
    rng, xs = np.random.default_rng(seed), params(graph.args)
    flags = tuple([bool(b) for b in rng.integers(0, 2, len(xs))])
    args = [np.stack([x, np.roll(x, 1), x * 0.5]).astype(x.dtype) if b else x
            for x, b in zip(graph.args, flags)]
    wide = params(args)
    found = []
    for fn in (graph.fn, build.function(wrap(graph.fn, xs), len(xs), "ruled")):
        made = batch(fn, 3, flags)
        outs = [x if b else build.expand(x, (3, *x.shape))
                for x, b in zip(build_calls.call(made.function, wide), made.outs)]
        loss = projected([x for x in outs if x.dtype.is_float], np.random.default_rng(1))
        tangents = {x: build.const(0.5, x.dtype, x.shape) for x in wide if x.dtype.is_float}
        found += [[loss], [along(loss, tangents), against(loss, tangents)]]
    env: dict[UOp, Any] = dict(zip(wide, args))
    for want, got in zip(found[:2], found[2:]):
        for a, b in zip(values(want, env), values(got, env)):
            np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-10)

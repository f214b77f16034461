"""Random programs with and without effects have bitwise equal results and the same kernels for
them.

Effects are inserted after a random number of steps, on values that exist by then.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
from fnx.backends.device.base import get_device
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.core.scope import callbacks
from fnx.core.support.target import Target
from fnx.lower.pipeline import lower
from fnx.transforms.link import link
from tests.graphs import Graph, graph_of
from tests.helpers import assert_same
from tests.laws.device import MACHINE

SEEN: list[int] = []
HANDLE = callbacks.Handle(lambda xs, shapes: (SEEN.append(len(SEEN)), [])[1], "watch")


def watched(graph: Graph, seed: int) -> tuple[UOp, list[Any], int]:
    """Return the FUNCTION with effects on random nodes, its arguments, and how many effects."""
    rng = random.Random(seed)
    fn, n = graph.fn, graph.fn.arg.n_params
    nodes = [x for x in toposort(fn.src) if x.op.result != "void" and x.op not in (ops.FUNCTION,)]
    handle, token = build.param(n, dtypes.uint32, ()), build.param(n + 1, dtypes.bool_, (0,))
    count = rng.randint(1, 4)
    for _ in range(count):
        read = [rng.choice(nodes) for _ in range(rng.randint(0, 2))]
        token, = build_calls.callback("watch", handle, token, read, [])
    args = [*graph.args, np.array(HANDLE.number.value, np.uint32), np.zeros(0, bool)]
    return build.function([*fn.src, token], n + 2, fn.arg.name), args, count


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 24))
def test_results_have_the_same_bits(seed: int, steps: int) -> None:
    graph = graph_of(seed, steps)
    noisy, args, count = watched(graph, seed)
    device = get_device(MACHINE)
    run = [link(graph.fn, device), link(noisy, device)]
    SEEN.clear()
    without_effects, with_effects = ([o.view(t.dtype.np, t.shape) for o, t in zip(
        program.run([device.upload(a) for a in values]), graph.fn.src)]
        for program, values in zip(run, (graph.args, args)))
    device.synchronize()
    assert len(SEEN) == count
    assert_same(with_effects, without_effects)
    assert_same(interp.apply(noisy, args)[:-1], interp.apply(graph.fn, graph.args))


def kernels(fn: UOp) -> list[UOp]:
    block = lower(fn, Target("interp", kind="kernels")).block
    return [c.src[0] for c in block.commands.src if c.src[0].op is ops.KERNEL]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 24))
def test_the_kernels_of_the_results_are_the_same(seed: int, steps: int) -> None:
    graph = graph_of(seed, steps, calls=0)
    noisy, _, _ = watched(graph, seed)
    rest = kernels(noisy)
    for kernel in kernels(graph.fn):
        assert kernel in rest
        rest.remove(kernel)


def programs(log: Sequence[Any]) -> dict[str, tuple[Any, Any]]:
    def noise(*xs: Any) -> None:
        if log:
            for x in xs:
                fnx.debug.callback(log[0], x)

    def softmax_loss(w: Any, x: Any) -> Any:
        h = fnx.numpy.tanh(x @ w)
        noise(h)
        p = fnx.nn.log_softmax(h)
        noise(p, h.sum())
        return -p[:, 0].mean()

    def recurrent(w: Any, x: Any) -> Any:
        def cell(h: Any, u: Any) -> Any:
            new = fnx.numpy.tanh(h @ w[:8, :8] + u[:8])
            noise(new.sum(), h)
            return new, new.mean()
        return fnx.lax.scan(cell, fnx.numpy.zeros(8), x)

    def small(w: Any, x: Any) -> Any:
        def step(v: Any, u: Any) -> Any:
            noise(v)
            return v * 0.9 + u[:2].sum(), v.sum()
        return fnx.lax.scan(step, w[0, :3], x)

    def until(w: Any, x: Any) -> Any:
        def step(v: Any) -> Any:
            noise(v)
            return v * 1.5 + w[0, 0]
        return fnx.lax.while_loop(lambda v: (v * v).sum() < 1e4, step, x[0, :3])

    return {"softmax": (softmax_loss, fnx.value_and_grad(softmax_loss)),
            "recurrent": (recurrent, recurrent), "small": (small, small), "until": (until, until)}


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", list(programs([])))
def test_whole_programs(name: str) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 16)).astype(np.float32)
    x = rng.standard_normal((24, 32)).astype(np.float32)
    seen: list[Any] = []
    for without_effects, with_effects in zip(programs([])[name], programs([seen.append])[name]):
        assert_same(fnx.tree.leaves(fnx.jit(with_effects)(w, x)),
                    fnx.tree.leaves(fnx.jit(without_effects)(w, x)))
    fnx.effects_barrier()
    assert seen

"""Targets with few buffer bindings: kernels stay within the limit and results are the same."""

from __future__ import annotations

import os
import random
from functools import cache
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fnx.backends.cpu.device import CpuDevice
from fnx.backends.device.base import get_device
from fnx.backends.interp import InterpDevice
from fnx.core.ir import accessors, build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.lower.pipeline import lower
from tests.graphs import ALL_OPS, Graph, graphs
from tests.helpers import assert_same
from tests.laws.test_jit_eager_interp import INTEGERS, run

EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "10"))
FOUR_OPERANDS = {ops.GATHER, ops.SCATTER, ops.THREEFRY}  # a single node may read 4 arrays


@cache
def binding(name: str, buffers: int) -> Any:
    """A host device whose target binds at most so many buffers."""
    device: Any = InterpDevice() if name == "interp" else CpuDevice()
    device.target = device.target.replace(max_buffers=buffers)
    return device


def most_bound(fn: UOp, device: Any) -> int:
    """Return the largest number of buffers that a kernel of a FUNCTION binds."""
    commands = lower(fn, device.target).block.commands
    return max([accessors.max_bindings([m for m in e.src[1:] if m.op is not ops.CONST])
                for e in accessors.all_execs(commands) if e.src[0].op is ops.KERNEL], default=0)


def holds(fn: UOp, args: Any, name: str, buffers: int) -> None:
    """The property: no kernel exceeds the limit, and the results equal those without a limit."""
    device = binding(name, buffers)
    assert most_bound(fn, device) <= buffers
    plain = get_device(name)
    for lengths_later in (False, True):
        assert_same(run(fn, args, device, lengths_later), run(fn, args, plain, lengths_later))


def wide(seed: int, operands: int) -> Graph:
    """A FUNCTION of so many arguments and as many results, each of which reads several
    arguments."""
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    shapes = [(3, 5), (5,), (3, 1), ()]
    params = [build.param(i, dtypes.int32, choose.choice(shapes)) for i in range(operands)]
    pool = [*params]
    binary = (build.add, build.mul, build.sub, build.maximum)

    def read(node: UOp, shape: tuple[int, ...]) -> UOp:
        if node.shape == shape:
            return node
        if len(node.shape) == len(shape) and all(n in (1, m) for n, m in zip(node.shape, shape)):
            return build.expand(node, shape)
        flat = build.reduce(node, ops.ADD, range(len(node.shape))) if node.shape else node
        return build.expand(build.reshape(flat, (1,) * len(shape)), shape)

    for _ in range(3 * operands):
        shape = choose.choice(shapes)
        kind = choose.random()
        several = [read(choose.choice(pool), shape) for _ in range(choose.randint(2, 12))]
        if kind < 0.15 and shape:
            joined = build.concat(several, choose.randrange(len(shape)))
            made = build.reduce(joined, choose.choice((ops.ADD, ops.MAX)),
                                range(len(joined.shape)))
        elif kind < 0.25:
            made = build.where(build.lt(several[0], several[1]), several[-1], several[0])
        else:
            made = several[0]
            for other in several[1:]:
                made = choose.choice(binary)(made, other)
        pool.append(made)
    results = choose.sample(pool[operands:], operands)
    if choose.random() < 0.4:  # a loop body
        first = [build.param(i, dtypes.int32, p.shape) for i, p in enumerate(params)]
        same = [next((r for r in results if r.shape == p.shape), p) for p in params]
        body = build.function([build.add(s, build.const(7, s.dtype, s.shape)) for s in same],
                              operands, "wide")
        results = list(build_calls.scan(body, 3, [], first, []))
    fn = build.function(results, operands, "wide")
    return Graph(fn, [rng.integers(-9, 9, p.shape, np.int32) for p in params])


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 1 << 30), st.sampled_from([4, 5, 8]))
@example(30316, 4)  # two operands of one node need the same buffers
def test_wide_programs(seed: int, buffers: int) -> None:
    graph = wide(seed, 14)
    holds(graph.fn, graph.args, "interp", buffers)


@settings(max_examples=EXAMPLES)
@given(graphs(types=INTEGERS, steps=14))
def test_any_graph_on_eight(graph: Graph) -> None:
    holds(graph.fn, graph.args, "interp", 8)


@settings(max_examples=EXAMPLES)
@given(graphs(types=INTEGERS, allowed=ALL_OPS - FOUR_OPERANDS, steps=14))
def test_graphs_on_four(graph: Graph) -> None:
    holds(graph.fn, graph.args, "interp", 4)

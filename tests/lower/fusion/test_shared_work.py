"""One kernel computes the sine and the cosine of one operand, wherever both are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.lower.fusion import shared_work
from fnx.lower.fusion.group import Group, topological_order
from fnx.lower.fusion.kernelize import Fusion

READERS: dict[str, Callable[[Any, Any], Any]] = {
    "result": lambda m, v: v,
    "scaled": lambda m, v: v * 2 + 1,
    "sum": lambda m, v: m.sum(v),
    "rows": lambda m, v: m.sum(v, 1),
    "columns": lambda m, v: m.sum(v, 0),
    "centered": lambda m, v: v - m.mean(v, 1, keepdims=True),
    "transposed": lambda m, v: v.T + 1,
    "product": lambda m, v: v @ v.T,
    "reversed": lambda m, v: v + v[:, ::-1],
    "neighbors": lambda m, v: v[:, 1:] - v[:, :-1],
}
OPERANDS: dict[str, Callable[[Any, Any], Any]] = {
    "argument": lambda m, x: x,
    "scaled": lambda m, x: x * 0.5,
    "expensive": lambda m, x: m.tanh(m.exp(x) / (x * x + 1)),
    "normalized": lambda m, x: x - m.mean(x, 1, keepdims=True),
    "product": lambda m, x: x @ m.ones((x.shape[1], x.shape[1]), np.float32),
}
SHAPES = st.sampled_from([(3, 4), (40, 50), (64, 128), (300, 100)])


def x_of(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


@settings(max_examples=60)
@given(st.sampled_from(sorted(OPERANDS)), SHAPES,
       st.lists(st.tuples(st.booleans(), st.sampled_from(sorted(READERS))), min_size=2, max_size=4))
def test_values_are_numpy_s(operand: str, shape: tuple[int, ...], reads: Any) -> None:
    def program(m: Any, x: Any) -> list[Any]:
        t = OPERANDS[operand](m, x)
        parts = m.sin(t), m.cos(t)
        return [READERS[how](m, parts[which]) for which, how in reads]

    x = x_of(shape)
    for got, wanted in zip(fnx.jit(lambda x: program(jnp, x))(x), program(np, x)):
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-3, atol=2e-3)


def sharing(f: Callable[..., Any], *shapes: tuple[int, ...]) -> list[int]:
    """Return how many of SIN and COS each kernel with one of them computes."""
    counts = []
    for kernel in fnx.jit(f).lower(*map(x_of, shapes)).kernels:
        nodes = toposort(kernel.node.src)
        counts.append(len({n.op for n in nodes if n.op in shared_work.PARTNER_OP}))
    return [n for n in counts if n]


@pytest.mark.parametrize("f", [
    lambda x: (jnp.sin(x), jnp.cos(x)),
    lambda x: (jnp.sin(x) * 2, jnp.cos(x) + 1),
    lambda x: (jnp.sin(x).sum(), jnp.cos(x).sum()),
    lambda x: (jnp.sin(x), jnp.cos(x).sum(0)),
    fnx.value_and_grad(lambda x: jnp.sin(x - x.mean(1, keepdims=True)).sum()),
])
def test_both_are_in_one_kernel(f: Any) -> None:
    assert sharing(f, (300, 100)) == [2]


def test_few_elements_are_not_worth_a_kernel() -> None:
    assert sharing(lambda x: (jnp.sin(x).sum(), jnp.cos(x).sum()), (4, 4)) == [1, 1]


def unary(op: ops.Op, x: UOp) -> UOp:
    return UOp(op, x.dtype, (x,))


def test_a_pair_is_visited_together() -> None:
    x = build.param(0, dtypes.float32, (8,))
    s, c = unary(ops.SIN, x), unary(ops.COS, x)
    y = build.exp(s)
    assert shared_work.pair([x, s, y, c]) == [x, s, c, y]
    assert shared_work.pair([x, s, y]) == [x, s, y]


def test_a_group_that_reads_it_elsewhere_too_reads_the_buffer() -> None:
    """A group that reads one of both at two indices cannot compute it for one of them only."""
    x = build.param(0, dtypes.float32, (512, 512))
    s, c = unary(ops.SIN, x), unary(ops.COS, x)
    roots = [build.add(s, build.permute(c, (1, 0))), build.mul(c, c)]
    fusion = Fusion(build.function(roots, 1)).run()
    assert sorted(len([n for n in g.inside if n.op in shared_work.PARTNER_OP])
                  for g in fusion.groups)[-1] == 2


CROSSED: dict[str, Callable[[Any, Any], Any]] = {
    "sine and cosine": lambda m, x: (m.cos(x) - m.sin(x).sum(), m.sin(x) + m.cos(x).sum()),
    "their columns": lambda m, x: (m.cos(x) - m.sin(x).sum(0), m.sin(x) + m.cos(x).sum(0)),
    "maxima and their indices": lambda m, x: (
        x.max(-1) + m.argmax(x, -1)[::-1], m.argmax(x, -1) * x.max(-1)[::-1]),
}


@pytest.mark.parametrize("shape", [(5, 65), (2, 22), (40, 50), (2000, 8)])
@pytest.mark.parametrize("name", CROSSED)
def test_a_kernel_does_not_read_what_it_writes_for_others(name: str, shape: tuple[int, int]
                                                          ) -> None:
    """Each of two kernels reads both values, one of them at another index."""
    f, x = CROSSED[name], x_of(shape)
    looped = fnx.jit(lambda x: fnx.lax.scan(
        lambda c, _: (c + f(jnp, x)[0], f(jnp, x)[1]), jnp.zeros_like(f(jnp, x)[0]), length=2))
    for got, wanted in zip(fnx.jit(lambda x: f(jnp, x))(x), f(np, x)):
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-3, atol=2e-3)
    np.testing.assert_allclose(np.asarray(looped(x)[0]), 2 * f(np, x)[0], rtol=2e-3, atol=4e-3)


def test_kernels_that_read_one_another_are_an_error() -> None:
    first, second = Group(0, (8,)), Group(1, (8,))
    first.reads.add(second)
    assert topological_order([first, second]) == [second, first]
    second.reads.add(first)
    with pytest.raises(fnx.errors.KernelError, match="read one another"):
        topological_order([first, second])

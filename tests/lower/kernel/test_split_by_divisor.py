"""Loops whose counters are divided: derivatives of slices with a step, and of diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.ir import dtypes, ops
from fnx.core.ir.uop import toposort


def gradient(f: Any, x: Any) -> Any:
    return fnx.jit(fnx.grad(lambda x: (f(x) * jnp.arange(1.0, f(x).size + 1).reshape(f(x).shape)
                                       ).sum()))(x)


def expected(f: Any, x: Any) -> Any:
    """Where each element of a view lies in its array tells which number it gets."""
    at = f(np.arange(x.size).reshape(x.shape))
    out = np.zeros(x.size, np.float32)
    np.add.at(out, at.ravel(), np.arange(1.0, at.size + 1, dtype=np.float32))
    return out.reshape(x.shape)


@st.composite
def views(draw: Any) -> tuple[Any, tuple[int, ...]]:
    rows, columns = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    start, step = draw(st.integers(0, 3)), draw(st.integers(1, 40))
    offset = draw(st.integers(-3, 3)) if min(rows, columns) > 3 else 0
    batch = draw(st.sampled_from([(), (3,)]))
    f = draw(st.sampled_from([
        lambda x: x.diagonal(offset, -2, -1), lambda x: x[..., start::step],
        lambda x: x.reshape(-1)[start::step], lambda x: x[..., ::-1][..., start::step],
        lambda x: x.swapaxes(-1, -2).reshape(-1)[start::step],
        lambda x: x[..., start::step, ::step]]))
    return f, (*batch, rows, columns)


@pytest.mark.cases(3)
@settings(max_examples=30, deadline=None)
@given(drawn=views())
def test_derivatives_of_slices_with_a_step(drawn: Any) -> None:
    f, shape = drawn
    x = np.ones(shape, np.float32)
    np.testing.assert_array_equal(gradient(f, jnp.asarray(x)), expected(f, x))


@pytest.mark.parametrize("f,shape", [
    (lambda x: jnp.diagonal(x), (200, 200)), (lambda x: jnp.diagonal(x, 0, 1, 2), (5, 60, 60)),
    (lambda x: x.reshape(-1)[::77], (100, 90))])
def test_no_element_is_divided(f: Any, shape: tuple[int, ...]) -> None:
    lowered = fnx.jit(fnx.grad(lambda x: jnp.sin(f(x)).sum())).lower(np.ones(shape, np.float32))
    *_, last = [k.node for k in lowered.kernels]
    assert not [n for n in toposort(last.src) if n.op in (ops.IDIV, ops.REM)
                and n.dtype is dtypes.index and any(r.arg.kind == "VEC" for r in n.ranges)]

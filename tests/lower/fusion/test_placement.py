"""Vectors that are read again and again are copied first if their elements are apart in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import toposort

PROGRAMS: dict[str, tuple[Any, int]] = {
    "diagonal": (lambda m, x: x - m.diag(m.diagonal(x)), 2),
    "column": (lambda m, x: x * x[:, 3], 2),
    "steps": (lambda m, x: x[:, :100] + x[5, ::4][:100], 2),
    "backwards": (lambda m, x: x + x[7, ::-1], 2),
    "row": (lambda m, x: x * x[3], 1),
    "part of a row": (lambda m, x: x[:, :100] + x[3, 8:108], 1),
    "along the column": (lambda m, x: x - x[:, 2:3], 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_vectors_apart_in_memory(name: str) -> None:
    f, kernels = PROGRAMS[name]
    x = np.random.default_rng(0).standard_normal((400, 400)).astype(np.float32)
    jitted = fnx.jit(lambda x: f(jnp, x))
    np.testing.assert_allclose(np.asarray(jitted(x)), f(np, x), rtol=1e-6)
    assert len(list(jitted.lower(x).kernels)) == kernels


@pytest.mark.parametrize("name", ["diagonal", "column", "backwards", "row"])
def test_short_ones_are_read_where_they_are(name: str) -> None:
    f, _ = PROGRAMS[name]
    x = np.arange(256, dtype=np.float32).reshape(16, 16)
    jitted = fnx.jit(lambda x: f(jnp, x))
    np.testing.assert_allclose(np.asarray(jitted(x)), f(np, x), rtol=1e-6)
    assert len(list(jitted.lower(x).kernels)) == 1


@pytest.mark.parametrize("name, shape", [("sum", (500, 510)), ("rows", (540, 300))])
def test_padded_rows_that_a_reduction_reads_across_are_written_first(
        name: str, shape: tuple[int, ...]) -> None:
    """Else each element would be at an index with divisions: a gather."""
    def f(m: Any, x: Any) -> Any:
        y = m.pad(x, 1) if name == "sum" else m.pad(x, ((0, 0), (1, 2)))
        return y.sum() if name == "sum" else y.reshape(-1, 101).sum(1)

    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    jitted = fnx.jit(lambda x: f(jnp, x))
    np.testing.assert_allclose(np.asarray(jitted(x)), f(np, x), rtol=2e-4, atol=1e-3)
    first, *_ = jitted.lower(x).kernels
    assert first.name.startswith("map")


def _softmax(m: Any, x: Any) -> Any:
    e = m.exp(x.T - x.T.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _normalized(m: Any, x: Any) -> Any:
    centered = x.T - x.T.mean(-1, keepdims=True)
    return centered / m.sqrt((centered ** 2).mean(-1, keepdims=True))


@pytest.mark.parametrize("f", [_softmax, _normalized])
@pytest.mark.parametrize("shape, is_one", [((500, 300), False), ((40, 17), True)])
def test_long_rows_that_are_columns_in_memory_are_reduced_as_columns(
        f: Any, shape: tuple[int, ...], is_one: bool) -> None:
    """A kernel of rows would read each lane from another row of memory."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    jitted = fnx.jit(lambda x: f(jnp, x))
    np.testing.assert_allclose(np.asarray(jitted(x)), f(np, x), rtol=1e-4, atol=1e-5)
    assert (len(list(jitted.lower(x).kernels)) == 1) is is_one
    along = fnx.jit(lambda x: f(jnp, x.T)).lower(x)
    assert len(list(along.kernels)) == 1


def test_columns_of_one_matrix_are_not_reduced_beside_rows_of_another() -> None:
    """A transposed copy of one of both is read along its rows."""
    def loss(x: Any, y: Any) -> Any:
        return (_softmax(jnp, x) * y).sum()
    x, y = (np.random.default_rng(i).standard_normal(shape).astype(np.float32)
            for i, shape in enumerate([(500, 300), (300, 500)]))
    gradient = fnx.jit(fnx.grad(loss))
    along = fnx.grad(lambda x: loss(x.T, y))(np.ascontiguousarray(x.T))
    np.testing.assert_allclose(gradient(x, y), np.asarray(along).T, rtol=1e-4, atol=1e-6)
    assert "map_div" in [k.name.split()[0] for k in gradient.lower(x, y).kernels]


def test_a_mask_of_indices_is_computed_by_all_of_its_readers() -> None:
    """Reading it from memory takes each of them a load in place of its comparison."""
    def f(x: Any) -> Any:
        return jnp.sin(jnp.tril(x) @ jnp.tril(x).T).sum()
    kernels = fnx.jit(fnx.grad(f)).lower(jnp.ones((64, 64))).kernels
    assert not [ref for k in kernels for ref in toposort(k.node.src)
                if ref.op is ops.REF and ref.dtype.is_bool]

"""interleave_linalg: which LINALGs compute a matrix in each lane, and what is fused into them."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
import fnx.scipy as jsp
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.target import Target
from fnx.lower.tensor.interleave_linalg import _symmetric_part, interleave_linalg

HOST = Target("cpu")


def linalgs(outs: tuple[UOp, ...], target: Target = HOST
            ) -> list[tuple[str, tuple[str, ...], bool]]:
    fn = interleave_linalg(build.function(outs, 2), target)
    return [(n.arg.routine, n.arg.options, n.arg.interleaved) for n in toposort(fn.src)
            if n.op is ops.LINALG]


def matrices(n: int, batch: int = 100, dtype: DType = dtypes.float32) -> UOp:
    return build.param(0, dtype, (batch, n, n))


@pytest.mark.parametrize(("a", "interleaved"), [
    (matrices(9), True), (matrices(9, 15), False), (matrices(200), False),
    (matrices(9, dtype=dtypes.complex64), False)])
def test_many_small_real_matrices_are_interleaved(a: UOp, interleaved: bool) -> None:
    assert linalgs(build_calls.linalg("cholesky", [a])) == [("cholesky", (), interleaved)]


def test_a_device_keeps_its_way() -> None:
    gpu = Target("gpu", kind="opencl")
    assert linalgs(build_calls.linalg("cholesky", [matrices(9)]), gpu) == [("cholesky", (), False)]


@pytest.mark.parametrize("batch", [1, 100])
def test_factors_that_only_solve_are_not_stored(batch: int) -> None:
    a, b = matrices(9, batch), build.param(1, dtypes.float32, (batch, 9, 2))
    lu, _, order = build_calls.linalg("lu", [a])
    x, = build_calls.linalg("lu_solve", [a, lu, order, b])
    again, = build_calls.linalg("lu_solve", [a, lu, order, x])
    assert linalgs((x,)) == [("solve", (), batch > 1)]
    assert [routine for routine, *_ in linalgs((x, lu))] == ["lu", "lu_solve"]
    assert [routine for routine, *_ in linalgs((again,))] == ["lu", "lu_solve", "lu_solve"]


def test_what_a_solution_depends_on_is_computed_once() -> None:
    """Also if it is itself replaced: the matrix is that of the new graph."""
    a, b = matrices(9, 100), build.param(1, dtypes.float32, (100, 9, 2))
    factor, = build_calls.linalg("cholesky", [a])
    lu, _, order = build_calls.linalg("lu", [factor])
    x, = build_calls.linalg("lu_solve", [factor, lu, order, b])
    assert [routine for routine, *_ in linalgs((factor, x))] == ["cholesky", "solve"]


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.complex64])
def test_upper_factors_are_not_transposed(dtype: DType) -> None:
    a, order = matrices(35, 2, dtype), (0, 2, 1)
    factor, = build_calls.linalg("cholesky", [build.permute(a, order)])
    upper = build.permute(factor, order)
    assert linalgs((upper,)) == [("cholesky", ("upper",), False)]
    assert linalgs((upper, factor))[0][1] != ("upper",)
    values = np.random.default_rng(0).normal(size=(2, 35, 35)).astype(np.float32)
    if dtype.is_complex:
        values = values + 1j * values[::-1]
    p = values @ values.conj().swapaxes(1, 2) + np.eye(35, dtype=np.float32)
    r = fnx.jit(jsp.linalg.cholesky)(np.triu(p))
    np.testing.assert_allclose(jnp.conj(r).swapaxes(1, 2) @ r, p, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.complex64])
def test_the_hermitian_part_is_found(dtype: DType) -> None:
    a = matrices(35, 2, dtype)
    assert linalgs(build_calls.linalg("cholesky", [_symmetric_part(a)])) == [
        ("cholesky", ("symmetrize",), False)]
    values = np.random.default_rng(0).normal(size=(2, 2, 35, 35))
    a = values[0] + 1j * values[1]
    hermitian, skew = a @ a.conj().swapaxes(1, 2) + np.eye(35), a - a.conj().swapaxes(1, 2)
    factor = jnp.linalg.cholesky((hermitian + skew).astype("complex64"))
    np.testing.assert_allclose(factor, np.linalg.cholesky(hermitian), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("batch", "n"), [(100, 9), (2, 35), (1, 4)])
def test_the_symmetric_part_is_taken_inside(batch: int, n: int) -> None:
    values = np.random.default_rng(0).normal(size=(batch, n, n)).astype(np.float32)
    skew = values - values.swapaxes(1, 2)
    positive = values @ values.swapaxes(1, 2) + n * np.eye(n, dtype=np.float32)
    np.testing.assert_allclose(jnp.linalg.cholesky(positive + skew), np.linalg.cholesky(positive),
                               rtol=1e-3, atol=1e-3)
    lower = jnp.linalg.cholesky(positive + np.triu(skew), symmetrize_input=False)
    np.testing.assert_allclose(lower, np.linalg.cholesky(positive), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(jnp.linalg.eigvalsh(positive + skew), np.linalg.eigvalsh(positive),
                               rtol=1e-3)

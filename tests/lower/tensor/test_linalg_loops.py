"""Loops over columns, for files without LAPACK, are what the interpreter computes by LAPACK."""

from __future__ import annotations

import numpy as np
import pytest

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import toposort
from fnx.core.levels import interp, spec
from fnx.core.support.target import Target
from fnx.lower.tensor.linalg_loops import ROUTINES
from fnx.lower.tensor.unroll_linalg import unroll_linalg
from tests.linalg.matrices import OPERANDS, OPTIONS, random

FILE = Target("file", kind="c", has_host=False)
CASES = [(routine, options) for routine in sorted(ROUTINES)
         for options in OPTIONS.get(routine, [()]) if "pivoting" not in options]


def results(routine: str, options: tuple[str, ...], xs: list[np.ndarray], target: Target
            ) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return what the loops compute, and what LINALG means."""
    params = [build.param(i, getattr(dtypes, x.dtype.name), x.shape) for i, x in enumerate(xs)]
    fn = build.function(build_calls.linalg(routine, params, options), len(params), routine)
    loops = unroll_linalg(fn, target)
    spec.check([loops], "tensor")
    assert not any(n.op is ops.LINALG for n in toposort([loops]))
    return [list(interp.apply(f, xs)) for f in (loops, fn)]


@pytest.mark.cases(3)
@pytest.mark.parametrize("dtype", ["f4", "c16"])
@pytest.mark.parametrize(("routine", "options"), CASES)
def test_loops_compute_what_lapack_does(routine: str, options: tuple[str, ...], dtype: str) -> None:
    tolerance = 2e-4 if dtype == "f4" else 1e-11
    for m, n in ((9, 9), (9, 3), (3, 9)):
        if routine == "householder_product" and m < n:
            continue  # not defined
        xs = OPERANDS[routine](random(m * n), (2,), m, n, np.dtype(dtype), options)
        got, expected = results(routine, options, xs, FILE)
        if routine == "svd":  # signs of pairs of vectors are free
            for s, u, vh in (got, expected):
                k = s.shape[-1]
                product = u[..., :k] * s[..., None, :] @ vh[..., :k, :]
                np.testing.assert_allclose(product, xs[0], atol=tolerance)
            got, expected = ([x[0], *[abs(v.conj().swapaxes(1, 2) @ v) for v in x[1:]]]
                             for x in (got, expected))
        elif routine == "eigh":
            w, v = got
            np.testing.assert_allclose(xs[0] @ v, v * w[:, None], atol=30 * tolerance)
            got, expected = [w], expected[:1]
        for a, b in zip(got, expected):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_failures_are_in_one_matrix() -> None:
    a = np.tile(np.eye(9, dtype=np.float32), (3, 1, 1))
    a[1] *= -1
    (factor,), (expected,) = results("cholesky", (), [a], FILE)
    np.testing.assert_array_equal(factor, expected)
    a[1] = 0
    for got, want in zip(*results("lu", (), [a], FILE)):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("routine", ["qr", "svd", "eigh"])
def test_nan_ends(routine: str) -> None:
    (first, *_), _ = results(routine, (), [np.full((1, 9, 9), np.nan, np.float32)], FILE)
    assert np.isnan(first).all()


def test_a_host_computes_them_if_there_is_one() -> None:
    a = build.param(0, dtypes.float32, (5, 32, 32))
    fn = build.function(build_calls.linalg("cholesky", [a]), 1)
    for target in (Target("opencl", kind="opencl"), Target("cpu")):
        assert unroll_linalg(fn, target) is fn

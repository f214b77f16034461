"""LINALG: its kernels compute what the interpreter does, for each routine, batch and dtype."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fnx.backends.device.base import get_device
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.ir import build, build_calls, dtypes, linalg
from fnx.core.levels import interp, spec
from fnx.core.support.config import override
from fnx.core.support.errors import DTypeError, ShapeError
from fnx.lower.emit.linalg import LAPACK_ROUTINES
from fnx.transforms.autodiff.linalg_rules import JVPS, VJPS
from tests.linalg.matrices import OPERANDS, OPTIONS, SIZES, draw, random

DTYPES = {np.dtype("f4"): dtypes.float32, np.dtype("f8"): dtypes.float64,
          np.dtype("i4"): dtypes.int32,
          np.dtype("c8"): dtypes.complex64, np.dtype("c16"): dtypes.complex128}


@public_api
def run(routine: str, *xs: object, options: tuple[str, ...] = ()) -> tuple[Array, ...]:
    nodes = build_calls.linalg(routine, [asarray(x)._node for x in xs], options)
    return tuple(map(Array, nodes))


def interpret(routine: str, xs: list[np.ndarray], options: tuple[str, ...]) -> list[np.ndarray]:
    params = [build.param(i, DTYPES[x.dtype], x.shape) for i, x in enumerate(xs)]
    fn = build.function(build_calls.linalg(routine, params, options), len(params), routine)
    spec.check([fn], "tensor")
    return interp.apply(fn, xs)


def cases() -> Iterator[tuple[str, tuple[str, ...]]]:
    for routine in linalg.ROUTINES:
        yield from ((routine, options) for options in OPTIONS.get(routine, [()]))


@pytest.mark.cases(3)
@pytest.mark.parametrize(("routine", "options"), [*cases()])
def test_kernels_compute_what_the_interpreter_does(routine: str, options: tuple[str, ...]) -> None:
    for dtype, tolerance in (("f4", 3e-4), ("f8", 1e-12), ("c8", 3e-4), ("c16", 1e-12)):
        for m, n, batch in SIZES:
            if routine == "householder_product" and m < n or routine == "tridiagonal" and n > 30:
                continue  # not defined; sensitive to rounding
            xs = OPERANDS[routine](random(m * n), (batch,), m, n, np.dtype(dtype), options)
            with override(x64=True):
                got = run(routine, *xs, options=options)
            for a, b in zip(got, interpret(routine, xs, options)):
                assert (a.shape, a.dtype) == (b.shape, b.dtype)
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.cases(1)
@pytest.mark.parametrize("routine", ["cholesky", "lu", "lu_diagonal", "lu_solve", "qr", "solve",
                                     "triangular_solve"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_many_small_matrices(routine: str, dtype: str) -> None:
    """One matrix per lane, unrolled or by loops: what the interpreter computes, also in the last
    group."""
    tolerance = 5e-4 if dtype == "f4" else 1e-11
    for n, batch in ((1, 32), (2, 33), (3, 47), (8, 67), (13, 17)):
        for options in OPTIONS.get(routine, [()]):
            m = min(n, 3) if routine.endswith("solve") else n + 2 if routine == "qr" else n
            xs = OPERANDS[routine](random(n), (batch,), m, n, np.dtype(dtype), options)
            if routine == "lu":
                xs[0][7] = 0
            with override(x64=True):
                got = run(routine, *xs, options=options)
            for a, b in zip(got, interpret(routine, xs, options)):
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.cases(4)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (9, 9), (5, 12), (12, 5)])
def test_many_small_spectra(m: int, n: int, dtype: str) -> None:
    a = draw(random(n), (19, m, n), np.dtype(dtype))
    a[1], a[2], a[3] = 0, np.eye(m, n), a[3, :, :1]
    a[4] *= np.finfo(dtype).max / 1e3 / np.abs(a[4]).max()
    a[5] *= np.geomspace(1, 1e-30, n)
    eps = 4 * max(m, n) * np.finfo(dtype).eps
    with override(x64=True):
        s, u, v = map(np.asarray, run("svd", a))
        sizes = np.linalg.svd(a.astype("f8"), compute_uv=False)
        norm = np.maximum(sizes[:, :1], np.finfo(dtype).tiny)
        np.testing.assert_allclose(s / norm, sizes / norm, atol=eps)
        np.testing.assert_allclose((u * (s / norm)[:, None]) @ v, a / norm[:, None], atol=eps)
        for q in (u.swapaxes(1, 2) @ u, v @ v.swapaxes(1, 2)):
            np.testing.assert_allclose(q, np.broadcast_to(np.eye(len(q[0])), q.shape), atol=eps)
        if m != n:
            return
        half = np.tril(a)
        whole = half + np.tril(a, -1).swapaxes(1, 2)
        w, q = map(np.asarray, run("eigh", half, options=("lower",)))
        norm = np.maximum(abs(w).max(1, keepdims=True), np.finfo(dtype).tiny)
        np.testing.assert_allclose(q.swapaxes(1, 2) @ q, np.broadcast_to(np.eye(n), q.shape),
                                   atol=eps)
        np.testing.assert_allclose(whole / norm[:, None] @ q, q * (w / norm)[:, None], atol=eps)
        assert (np.diff(w) >= 0).all()
        only, = run("eigvalsh", whole.swapaxes(1, 2))
        np.testing.assert_allclose(only / norm, w / norm, atol=eps)


@pytest.mark.parametrize("routine", ["cholesky", "lu", "qr", "eigh", "svd"])
def test_nan_stays_in_its_lane(routine: str) -> None:
    a = np.tile(np.eye(7, dtype=np.float32), (20, 1, 1))
    a[3, 2, 1] = a[3, 1, 2] = np.nan
    a[19, 6, 6] = np.inf
    for result in run(routine, a)[:3 if routine == "svd" else 1]:
        is_good = np.isfinite(result).reshape(20, -1).all(1)
        assert not is_good[3] and is_good[:3].all() and is_good[4:19].all()


@pytest.mark.parametrize("routine", ["eigh", "svd"])
@pytest.mark.parametrize("scale", [1.0, 1e36, 1e-34])
def test_vectors_of_small_matrices_are_orthogonal(routine: str, scale: float) -> None:
    """As exactly as LAPACK's; squares neither overflow nor underflow."""
    x = random(1).normal(size=(64, 5, 5)).astype(np.float32)
    x = (x + x.swapaxes(1, 2)) * np.float32(scale)
    got, expected = (f(routine, [x], ("lower",) if routine == "eigh" else ()) for f in (
        lambda name, xs, options: run(name, *xs, options=options), interpret))
    np.testing.assert_allclose(got[0], expected[0], rtol=0, atol=1e-5 * scale)
    for ours, theirs in zip(got[1:], expected[1:]):
        errors = [abs(np.eye(5) - np.swapaxes(v, 1, 2) @ v).max() for v in (
            np.asarray(ours, np.float64), np.asarray(theirs, np.float64))]
        assert errors[0] <= 2 * errors[1]


def test_a_failure_among_small_matrices_is_nan() -> None:
    a = np.tile(np.eye(3, dtype=np.float32), (40, 1, 1))
    a[[0, 39]] = -1
    factor = np.asarray(run("cholesky", a)[0])
    assert np.isnan(factor[[0, 39]][:, *np.tril_indices(3)]).all()
    np.testing.assert_array_equal(factor[1:39], a[1:39])


def test_every_routine_has_a_kernel_and_a_meaning() -> None:
    from fnx.core.ir.linalg_semantics import MEANINGS
    assert set(linalg.ROUTINES) == set(LAPACK_ROUTINES) == set(MEANINGS) == set(OPERANDS)
    assert linalg.LINEAR_ROUTINES == set(VJPS) <= set(JVPS)


@pytest.mark.parametrize("routine", ["cholesky", "lu", "qr", "eigh", "svd", "svdvals", "schur",
                                     "eig", "eigvals"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_ends(routine: str, value: float) -> None:
    """And is seen in the results; LAPACK's eig and svd of an infinity seem right."""
    a = np.eye(5, dtype=np.float32)
    a[1, 2] = a[2, 1] = value
    for result in run(routine, np.stack([a, np.full_like(a, value)])):
        if result.dtype != np.int32:
            assert not np.isfinite(result).reshape(2, -1).all(1).any()


@pytest.mark.parametrize("shape", [(0, 0), (3, 0, 0), (0, 3, 3), (0, 4), (4, 0)])
def test_matrices_without_elements(shape: tuple[int, ...]) -> None:
    for routine, options in (("qr", ("full",)), ("svd", ()), ("svd", ("full",)), ("lu", ())):
        xs = [np.zeros(shape, np.float32)]
        types = linalg.result_types(routine, options, ((shape, dtypes.float32),))
        outs = run(routine, *xs, options=options)
        assert [o.shape for o in outs] == [shape for shape, _ in types]


def test_one_kernel_serves_all_sizes() -> None:
    compiled = get_device("cpu").kernels.counts
    run("geqrf", np.ones((3, 7, 5), np.float32))
    before = compiled["compiled"] + compiled["disk"]
    for shape in ((9, 4), (2, 3, 3), (4, 5, 11, 13)):
        run("geqrf", np.ones(shape, np.float32))
    assert compiled["compiled"] + compiled["disk"] == before


def test_bad_operands() -> None:
    a = np.ones((2, 3, 3), np.float32)
    with pytest.raises(ShapeError, match="equal batch axes"):
        run("triangular_solve", a, np.ones((3, 3), np.float32))
    with pytest.raises(ShapeError, match="cholesky"):
        run("cholesky", np.ones((2, 3), np.float32))
    with pytest.raises(DTypeError, match="one float or complex dtype"):
        run("lu", np.ones((2, 3), np.int32))

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
from fnx.lower.emit.lapack import EMITTERS
from fnx.transforms.autodiff.linalg_rules import JVPS, VJPS
from tests.linalg.matrices import OPERANDS, OPTIONS, SIZES, random

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


@pytest.mark.parametrize("routine", ["cholesky", "lu", "lu_solve"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_many_small_matrices(routine: str, dtype: str) -> None:
    """One matrix per lane: what the interpreter computes, also in the last group."""
    tolerance = 1e-4 if dtype == "f4" else 1e-12
    for n, batch in ((1, 32), (2, 33), (3, 47), (5, 48), (8, 67)):
        xs = OPERANDS[routine](random(n), (batch,), min(n, 3) if routine == "lu_solve" else n, n,
                               np.dtype(dtype), ())
        if routine == "lu":
            xs[0][7] = 0
        with override(x64=True):
            got = run(routine, *xs)
        for a, b in zip(got, interpret(routine, xs, ())):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_a_failure_among_small_matrices_is_nan() -> None:
    a = np.tile(np.eye(3, dtype=np.float32), (40, 1, 1))
    a[[0, 39]] = -1
    factor = np.asarray(run("cholesky", a)[0])
    assert np.isnan(factor[[0, 39]][:, *np.tril_indices(3)]).all()
    np.testing.assert_array_equal(factor[1:39], a[1:39])


def test_every_routine_has_a_kernel_and_a_meaning() -> None:
    from fnx.core.ir.linalg_semantics import MEANINGS
    assert set(linalg.ROUTINES) == set(EMITTERS) == set(MEANINGS) == set(OPERANDS)
    assert linalg.LINEAR_ROUTINES == set(VJPS) <= set(JVPS)


@pytest.mark.parametrize("routine", ["cholesky", "lu", "qr", "eigh", "svd", "schur"])
def test_nan_ends(routine: str) -> None:
    nan = np.full((2, 5, 5), np.nan, np.float32)
    assert np.isnan(run(routine, nan)[0]).any()


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

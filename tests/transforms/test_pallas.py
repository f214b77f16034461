"""Kernels over blocks compute what a loop over the blocks does in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.experimental import pallas as pl

ROW = pl.BlockSpec((1, None), lambda i, j: (i, j))


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2))
@settings(max_examples=15)
def test_products_of_blocks(rows: int, columns: int, height: int, width: int) -> None:
    x = np.arange(rows * height * 3, dtype=np.float32).reshape(-1, 3)
    y = np.arange(columns * width * 3, dtype=np.float32).reshape(3, -1)

    def kernel(x: Any, y: Any, z: Any) -> None:
        z[...] = x[...] @ y[...]
    f = pl.pallas_call(
        kernel, fnx.ShapeDtypeStruct((len(x), y.shape[1]), "float32"), grid=(rows, columns),
        in_specs=[pl.BlockSpec((height, 3), lambda i, j: (i, 0)),
                  pl.BlockSpec((3, width), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((height, width), lambda i, j: (i, j)))
    np.testing.assert_array_equal(fnx.jit(f)(x, y), x @ y)


def test_axes_that_the_kernel_does_not_see_and_scratch() -> None:
    def kernel(x: Any, out: Any, total: Any) -> None:
        @pl.when(pl.program_id(1) > 0)
        def _() -> None:
            total[...] += x[0]
        out[...] = total[...]
    f = pl.pallas_call(kernel, fnx.ShapeDtypeStruct((2,), "float32"), grid=(2, 2), in_specs=[ROW],
                       out_specs=pl.BlockSpec((None,), lambda i, j: i),
                       scratch_shapes=[fnx.ShapeDtypeStruct((), "float32")])
    x = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    assert f(x).tolist() == [2, 6]
    assert fnx.grad(lambda x: f(x).sum())(x).tolist() == [[0, 2], [0, 1]]


def test_mistakes() -> None:
    with pytest.raises(ShapeError):
        pl.pallas_call(lambda o: None, fnx.ShapeDtypeStruct((3,), "int32"),
                       out_specs=pl.BlockSpec((2, 1), lambda: (0, 0)))()
    with pytest.raises(ArgumentError):
        pl.program_id(0)
    with pytest.raises(ArgumentError):
        pl.pallas_call(lambda *_: None, fnx.ShapeDtypeStruct((3,), "int32"), in_specs=[ROW])(1, 2)

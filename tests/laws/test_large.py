"""More than 2**31 elements: compiled for and linked on the null device, and one real array.

An offset beyond 2**31 computed in 32 bits would silently read and write elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.nn as nn
import fnx.numpy as jnp
from fnx import lax
from fnx.backends.device.base import get_device
from fnx.core.support.config import override
from fnx.core.support.errors import OverflowedError

COMPILED = True
LARGE = (1 << 31) + 17
WIDE = (1 << 16) + 3

ON_NULL: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], tuple[int, ...]]] = {
    "map": (lambda x: jnp.tanh(x) + 1, [(LARGE,)], (LARGE,)),
    "fold": (lambda x: x.sum(), [(LARGE,)], ()),
    "rows": (lambda x: nn.softmax(x), [(WIDE, WIDE)], (WIDE, WIDE)),
    "columns": (lambda x: nn.softmax(x, axis=0), [(WIDE, WIDE)], (WIDE, WIDE)),
    "turned": (lambda x: x.T + 1, [(WIDE, WIDE)], (WIDE, WIDE)),
    "product": (lambda x, y: x @ y, [(WIDE, 8), (8, WIDE)], (WIDE, WIDE)),
    "gradient": (fnx.grad(lambda x: (x ** 2).sum()), [(LARGE,)], (LARGE,)),
    "joined": (lambda x, y: jnp.concatenate([x, y]), [(LARGE,), (LARGE,)], (2 * LARGE,)),
    "window": (lambda x: lax.slice(x, (LARGE - 9,), (LARGE,)), [(LARGE,)], (9,)),
    "written": (lambda x: x.at[LARGE - 3].set(1), [(LARGE,)], (LARGE,)),
    "scan": (lambda x: jnp.cumsum(x), [(LARGE,)], (LARGE,)),
}


@pytest.mark.parametrize("name", ON_NULL)
def test_programs_are_made_and_submitted(name: str) -> None:
    f, shapes, result = ON_NULL[name]
    with override(device="null"):
        null: Any = get_device("null")
        f = fnx.jit(f)
        args = [fnx.jit(lambda shape=shape: jnp.zeros(shape, np.float32))() for shape in shapes]
        before = len(null.submissions)
        out = f(*args)
        assert out.shape == result and len(null.submissions) == before + 1
        use = f.memory(*args)
        assert use.arguments == 4 * sum(math.prod(shape) for shape in shapes)
        assert use.results == 4 * math.prod(result)
        assert use.temporaries < 1 << 28 or name == "scan"


def test_a_real_one_is_read_written_and_folded_where_it_should() -> None:
    """Two gigabytes: one array of int8."""
    x = fnx.jit(lambda: jnp.zeros(LARGE, jnp.int8).at[-3].set(5).at[(1 << 31) - 1].set(2))()
    assert x.shape == (LARGE,)
    assert [int(x[i]) for i in (LARGE - 3, (1 << 31) - 1, 14, 0)] == [5, 2, 0, 0]
    found = fnx.jit(lambda x: (x.sum(dtype=jnp.int32), x.max(), (x == 5).sum(), x[-5:],
                               lax.dynamic_slice(x, (LARGE - 5,), (4,))))(x)
    assert [np.asarray(y).tolist() for y in found] == [7, 5, 1, [0, 0, 5, 0, 0], [0, 0, 5, 0]]
    with pytest.raises(OverflowedError, match="fits int32, got 2147483665"):
        x.argmax()
    with override(x64=True):
        place, *found = fnx.jit(lambda x, i: (
            jnp.argmax(x), lax.dynamic_slice(x, (i,), (4,)), x[i + jnp.arange(4)]))(
                x, np.int64(LARGE - 5))
    assert int(place) == LARGE - 3 and place.dtype == np.int64
    assert [np.asarray(y).tolist() for y in found] == [[0, 0, 5, 0], [0, 0, 5, 0]]


@pytest.mark.parametrize("f", [
    lambda x, i: jnp.argmax(x), lambda x, i: jnp.argmin(x, 0), lambda x, i: jnp.nanargmax(x),
    lambda x, i: lax.argmax(x, 0, np.int64), lambda x, i: lax.dynamic_slice(x, (i,), (8,)),
    lambda x, i: lax.dynamic_update_slice(x, x[:3], (i,)), lambda x, i: x.at[i].set(1),
    lambda x, i: x[i - jnp.arange(3)], lambda x, i: lax.dynamic_index_in_dim(x, i),
    lambda x, i: x.reshape(-1, 1)[(1 << 31) + 1:, i], lambda x, i: jnp.searchsorted(x, x[:3]),
    lambda x, i: fnx.grad(lambda x: lax.dynamic_slice(x, (i,), (8,)).sum())(x)])
def test_places_of_64_bits(f: Callable[..., Any]) -> None:
    with override(device="null", x64=True):
        null: Any = get_device("null")
        x = fnx.jit(lambda: jnp.zeros(LARGE, np.float32))()
        before = len(null.submissions)
        fnx.jit(f)(x, np.int64(LARGE - 9))
        assert len(null.submissions) == before + 1

"""preferred_element_type= of products: integer sums are as wide as the requested type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.errors import DTypeError

PRODUCTS: dict[str, Callable[[Any, str], Any]] = {
    "matmul": lambda x, t: jnp.matmul(x, x, preferred_element_type=t),
    "einsum": lambda x, t: jnp.einsum("ij,jk->ik", x, x, preferred_element_type=t),
    "tensordot": lambda x, t: jnp.tensordot(x, x, 1, preferred_element_type=t),
    "dot": lambda x, t: lax.dot(x, x, preferred_element_type=t),
    "dot_general": lambda x, t: lax.dot_general(x, x, (((1,), (0,)), ((), ())),
                                                preferred_element_type=t),
    "conv": lambda x, t: lax.conv(x[None, None], x[None, None], (1, 1), "VALID",
                                  preferred_element_type=t)}


@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize("given", ["int8", "uint8", "int16", "int32", "uint32"])
@pytest.mark.parametrize("preferred", ["int8", "int16", "int32", "float16", "float32"])
def test_whole_numbers_need_as_many_bits(product: Callable[[Any, str], Any], given: str,
                                         preferred: str) -> None:
    x = jnp.ones((2, 2), given)
    if jnp.dtype(preferred).itemsize < x.dtype.itemsize:
        with pytest.raises(DTypeError, match=f"at least .* bits for {given}, got {preferred}"):
            product(x, preferred)
    else:
        assert product(x, preferred).dtype == preferred


def test_floats_may_become_narrower() -> None:
    x = jnp.ones((2, 2), "float32")
    assert jnp.matmul(x, x, preferred_element_type="bfloat16").dtype == "bfloat16"

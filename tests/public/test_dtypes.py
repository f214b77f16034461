"""dtype and weak type of functions of every pair of dtypes are JAX's, in both x64 modes.

tests/golden/dtypes.json has JAX's answers (scripts/record_jax_dtypes.py). What JAX refuses is not
checked; what fnx refuses or answers differently on purpose has a row in DIFFERENCES, with the
reason.
"""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.core.support.errors import FnxError
from tests.public.test_promotion import FLOATS, GOLDEN, KINDS, STRONG, public

RECORDED = json.loads((GOLDEN / "dtypes.json").read_text())

# function -> why its dtype or weak type differs from JAX's
EXPONENT = "an exponent of int4 is converted by name, as every operand of another kind"
REAL_ONLY = "an activation of real numbers"
MASK = "(True, 1) is as wide as the number"
DIFFERENCES: dict[str, str] = {
    **dict.fromkeys(("nn.celu", "nn.elu", "nn.gelu"), REAL_ONLY), "lax.pow": EXPONENT,
    "jnp.power": MASK, "nn.hard_tanh": FLOATS, **dict.fromkeys((
        "nn.hard_sigmoid", "nn.hard_silu", "nn.mish", "nn.relu", "nn.relu6", "nn.selu",
        "nn.soft_sign", "nn.softplus", "nn.squareplus"), STRONG)}


def wrong(name: str, x64: bool) -> list[tuple[tuple[str, ...], str, str]]:
    """Return (kinds of operands, JAX's answer, fnx's answer) where they differ."""
    out = []
    text = RECORDED[f"{name} {int(x64)}"]
    cases = KINDS.typed_cases(KINDS.FUNCTIONS[name], x64)
    assert len(text) == 2 * len(cases)
    for i, case in enumerate(cases):
        want = text[2 * i:2 * i + 2]
        if want == "!!":
            continue
        try:
            x = KINDS.traced(fnx, public(name), case)
            got = KINDS.CODES[str(x.dtype)] + "-w"[x.weak_type]
        except FnxError as error:
            got = type(error).__name__
        if got != want and (got[0] != "b" or want[0] != "b"):  # a bool is never weak
            out.append((case, want, got))
    return out


@pytest.mark.cases(30)
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", KINDS.FUNCTIONS)
def test_types_are_those_of_jax(name: str, x64: bool) -> None:
    with override(x64=x64):
        found = wrong(name, x64)
        assert not found or name in DIFFERENCES and len(found) <= 20, found


@pytest.mark.parametrize("t", [np.float16, ml_dtypes.bfloat16])
def test_neighbours_are_of_the_dtype_itself(t: Any) -> None:
    x = np.arange(65536, dtype=np.uint16).view(t)
    for to in (np.inf, -np.inf, 1.0):
        with np.errstate(all="ignore"):
            want = np.nextafter(x, np.full_like(x, to)).astype(np.float32)
        np.testing.assert_array_equal(
            np.asarray(jnp.nextafter(x, jnp.asarray(to, t))).astype(np.float32), want)
    with np.errstate(all="ignore"):
        above = np.nextafter(x, np.full_like(x, np.inf)).astype(np.float32) - x.astype(np.float32)
        finite = np.isfinite(above) & (x.astype(np.float32) > 0)
    np.testing.assert_array_equal(
        np.asarray(jnp.spacing(x)).astype(np.float32)[finite], above[finite])


@pytest.mark.parametrize("x64", [False, True])
def test_words_that_name_no_width_are_of_the_default_width(x64: bool) -> None:
    with fnx.enable_x64(x64):
        bits = 64 if x64 else 32
        for word, kind in (float, "float"), ("float", "float"), (int, "int"), ("int", "int"), \
                ("uint", "uint"):
            assert str(jnp.zeros(2).astype(word).dtype) == f"{kind}{bits}"
            assert str(jnp.ones(2, word).dtype) == f"{kind}{bits}"
        for word in ("float64", np.float64, np.dtype(np.float64)):
            assert str(jnp.zeros(2, word).dtype) == "float64"

"""dtype, weak type and values of elementwise functions of every pair of kinds are JAX's.

tests/golden/promotion.json has JAX's answers (scripts/record_jax_promotion.py). Where JAX refuses,
fnx refuses too or gives the mathematically right answer; deliberate differences have a row in
DIFFERENCES, with the reason.
"""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp
from fnx.core.support.errors import FnxError

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
RECORDED = json.loads((GOLDEN / "promotion.json").read_text())
MODULES = {"jnp": jnp, "lax": lax, "nn": nn}


def _kinds() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kinds", GOLDEN / "kinds.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KINDS = _kinds()

FLOATS = "an activation computes in floats: those of whole numbers are not cut to whole ones"
STRONG = "the float that integers become is chosen here, so it is as strong as they are"

# (function, kinds of its operands or None for all) -> why the answer differs from JAX's.
DIFFERENCES: dict[tuple[str, tuple[str, ...] | None], str] = {
    ("jnp.power", ("weak_i", "i")): "3 ** -2 is 0 rounded to zero; JAX's overflows",
    ("jnp.fmod", ("True", "b")): "a remainder by 0 is 0, also of a Python bool",
    ("nn.hard_tanh", None): FLOATS,
    ("nn.log_sigmoid", ("u",)): "JAX negates uint32, which wraps around",
    ("nn.softmax", ("u",)): "JAX subtracts the largest in uint32, which wraps around",
    ("nn.log_softmax", ("u",)): "JAX subtracts the largest in uint32, which wraps around",
    **{(f"nn.{f}", None): STRONG for f in (
        "gelu", "mish", "relu", "soft_sign", "softplus")},
}
# These differ in the weak type alone.
ONLY_WEAK = {name for (name, kinds), why in DIFFERENCES.items() if kinds is None and why == STRONG}
CASES = [(name, kinds, want) for name, arity in KINDS.FUNCTIONS.items()
         for kinds, want in zip(KINDS.cases(arity), RECORDED[name])]


def answer(f: Callable[..., Any], operands: list[Any]) -> Any:
    """Return [dtype, weak, values], or the error that fnx raises."""
    try:
        x = f(*operands)
    except FnxError as error:
        return error
    return [str(x.dtype), int(x.weak_type), np.asarray(x)]


def public(name: str) -> Callable[..., Any]:
    room, _, function = name.partition(".")
    f: Callable[..., Any] = getattr(MODULES[room], function)
    return f


def same_values(got: Any, want: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.allclose(np.asarray(got, np.float64).ravel(), np.asarray(want, np.float64),
                           rtol=2e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", KINDS.FUNCTIONS)
def test_promotes_as_jax_does(name: str) -> None:
    operands = KINDS.operands(jnp)
    wrong = []
    for kinds, want in zip(KINDS.cases(KINDS.FUNCTIONS[name]), RECORDED[name]):
        if (name, kinds) in DIFFERENCES or name not in ONLY_WEAK and (name, None) in DIFFERENCES:
            continue
        got = answer(public(name), [operands[k] for k in kinds])
        if isinstance(want, str):  # JAX refuses: fnx refuses too, or its answer is right
            ok = isinstance(got, FnxError) or is_right(name, [operands[k] for k in kinds], got)
        else:
            ok = not isinstance(got, FnxError) and got[0] == want[0] and (
                got[1] == want[1] or want[0] == "bool" or name in ONLY_WEAK
            ) and same_values(got[2], want[2])
        if not ok:
            wrong.append((kinds, want, got))
    assert not wrong


def is_right(name: str, operands: list[Any], got: Any) -> bool:
    """Whether the answer is that for operands converted to one dtype first.

    What remains are functions of bools that JAX has for integers only: these answer as NumPy does.
    """
    common = jnp.result_type(*operands)
    to = np.dtype(np.int32) if common.kind == "b" and got[0] != "bool" else common
    if got[0].startswith("float"):
        to = np.dtype(np.float32)
    again = answer(public(name), [jnp.asarray(x).astype(to) for x in operands])
    return not isinstance(again, FnxError) and again[0] == got[0] and same_values(
        got[2], again[2].ravel())


def test_every_difference_is_one() -> None:
    """A row that no longer differs must go."""
    operands = KINDS.operands(jnp)
    names = {name for name, _ in DIFFERENCES}
    differ = set()
    for name, kinds, want in CASES:
        if name not in names:
            continue
        got = answer(public(name), [operands[k] for k in kinds])
        refused = isinstance(got, FnxError)
        if isinstance(want, str) != refused or not refused and (
                got[:2] != want[:2] or not same_values(got[2], want[2])):
            differ |= {(name, kinds), (name, None)}
    assert set(DIFFERENCES) <= differ, set(DIFFERENCES) - differ


@pytest.mark.parametrize(("left", "right", "want"), [
    ("uint32", -1, 4294967295), ("int8", 300, 44), ("int8", -129, 127), ("uint8", -1, 255)])
def test_a_number_that_fits_an_int_is_taken_modulo_what_it_meets(left: str, right: int, want: int
                                                                 ) -> None:
    """As JAX 0.10: the number is an int32 first, then converted; to make an array of it, it must
    fit."""
    zero = jnp.zeros(2, left)
    for made in (zero + right, jnp.maximum(zero, 0).at[:].set(right), jnp.full(2, right, left)):
        assert made.dtype == left and np.asarray(made).tolist() == [want, want]
    for make in (lambda: jnp.asarray(right, left), lambda: jnp.array([right], left),
                 lambda: zero + 2**40, lambda: zero - 2**40):
        with pytest.raises(OverflowError):
            make()


def test_an_integer_of_many_digits_is_refused_among_floats() -> None:
    for big in (2**200, 10**400, -10**400):
        with pytest.raises(OverflowError, match="bits"):
            jnp.zeros(2) + big
    assert (jnp.zeros(2) + 2**40)[0] == 2**40


# Recorded from JAX 0.10.2: x.at[[0, 0, 1, 3]] of int32 [-4, 3, -1, 6] and uint8 [4, 3, 1, 6].
AT_RESULTS = {
    ("int32", "add", -1.5): [-7, 1, -1, 4], ("int32", "multiply", 2.7): [-29, 8, -1, 16],
    ("int32", "subtract", 2.7): [-9, 0, -1, 3], ("int32", "divide", -1.5): [-2, -3, -1, -6],
    ("int32", "min", -1.5): [-4, -1, -1, -1], ("int32", "max", 2.7): [2, 3, -1, 6],
    ("int32", "set", 2.7): [2, 2, -1, 2], ("uint8", "add", -1.5): [1, 1, 1, 4],
    ("uint8", "multiply", -1.5): [9, 0, 1, 0], ("uint8", "max", -1.5): [4, 3, 1, 6],
    ("uint8", "set", -1.5): [0, 0, 1, 0], ("uint8", "min", -1.5): [0, 0, 1, 0]}


@pytest.mark.parametrize(("dtype", "method", "value"), AT_RESULTS)
def test_updates_are_combined_in_the_dtype_that_both_promote_to(dtype: str, method: str,
                                                                value: float) -> None:
    x = jnp.asarray([-4, 3, -1, 6] if dtype == "int32" else [4, 3, 1, 6], dtype)
    index = jnp.asarray([0, 0, 1, 3])
    for v in (value, jnp.float32(value), np.full(4, value, np.float32)):
        got = getattr(x.at[index], method)(v)
        assert got.tolist() == AT_RESULTS[dtype, method, value]

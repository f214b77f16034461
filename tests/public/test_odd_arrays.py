"""Unusual NumPy data in every parameter that takes arrays: used by value, or refused.

A refusal is an fnx error with the user's line; nothing crashes, nothing is misread.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.errors import FnxError

COMPILED = True
pytestmark = pytest.mark.filterwarnings("ignore:the matrix subclass")


class Tagged(np.ndarray[Any, Any]):
    """A subclass, as unit and label libraries define it."""


def _base() -> Any:
    return np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 5


def _frozen() -> Any:
    x = _base()
    x.flags.writeable = False
    return x


def _record() -> Any:
    packed = np.zeros((2, 3, 4), np.dtype([("tag", "i1"), ("value", "<f4")]))  # misaligned
    packed["value"] = _base()
    return packed["value"]


TAKEN: dict[str, Callable[[], Any]] = {
    "plain": _base, "read-only": _frozen, "Fortran": lambda: np.asfortranarray(_base()),
    "negative strides": lambda: _base()[::-1, :, ::-1], "gaps": lambda: _base()[:, ::2, 1::2],
    "transposed": lambda: _base().transpose(2, 0, 1), "no strides": lambda: np.broadcast_to(
        np.float32(2.5), (2, 3, 4)), "overlapping": lambda: np.lib.stride_tricks
    .sliding_window_view(np.arange(6, dtype=np.float32), 3), "unaligned": _record,
    "big-endian": lambda: _base().astype(">f4"), "big-endian whole": lambda: _base().astype(">i2"),
    "0-d": lambda: np.array(2.5, np.float32), "0-d big-endian": lambda: np.array(7, ">u4"),
    "scalar": lambda: np.float32(2.5), "empty": lambda: _base()[:0], "empty inside": lambda:
    np.zeros((2, 0, 3), np.int8), "subclass": lambda: _base().view(Tagged),
    "matrix": lambda: np.asmatrix(np.eye(2, dtype=np.float32)),
    "mapped": lambda: np.frombuffer(_base().tobytes(), np.float32), "bools": lambda: _base() > 0,
    "float16": lambda: _base().astype(np.float16),
    "many axes": lambda: np.zeros((1,) * 12 + (2,), np.float32),
    "wide": lambda: np.array([1.5, -2.5]), "wide whole": lambda: np.array([1, -2])}
REFUSED: dict[str, Callable[[], Any]] = {
    "unmasked": lambda: np.ma.MaskedArray(_base()),
    "masked": lambda: np.ma.MaskedArray(_base(), _base() > 3),
    "long complex": lambda: np.array([1j], np.clongdouble), "text": lambda: np.array(["a"]),
    "bytes": lambda: np.array([b"a"]), "objects": lambda: np.array([1, None], object),
    "records": lambda: np.zeros(2, [("x", "f4")]), "dates": lambda: np.array(["2020"], "M8[Y]"),
    "spans": lambda: np.array([3], "m8[s]"), "void": lambda: np.zeros(2, "V4"),
    "long double": lambda: np.zeros(2, np.longdouble),
    "too large a number": lambda: np.array([2**40]), "ragged": lambda: [[1, 2], [3]]}

WAYS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "asarray": (jnp.asarray, lambda x: x), "array": (jnp.array, lambda x: x),
    "a function": (lambda x: jnp.add(x, 1), lambda x: x + x.dtype.type(1)),
    "an operator": (lambda x: jnp.zeros(()).astype(jnp.asarray(x).dtype) + x, lambda x: x),
    "jit": (fnx.jit(lambda x: x * 1), lambda x: x),
    "a capture": (lambda x: fnx.jit(lambda: jnp.asarray(x) * 1)(), lambda x: x),
    "a tree": (lambda x: fnx.tree.map(lambda y: jnp.flip(y), {"a": x})["a"], np.flip),
    "vmap": (lambda x: fnx.vmap(lambda y: y)(jnp.stack([jnp.asarray(x)]))[0], lambda x: x),
    "a condition": (lambda x: jnp.where(True, x, 0), lambda x: x),
    "device_put": (fnx.device_put, lambda x: x),
    "a scan": (lambda x: lax.scan(lambda c, y: (c, y), 0, jnp.stack([jnp.asarray(x)] * 2))[1][0],
               lambda x: x),
    "an update": (lambda x: jnp.zeros_like(x).at[...].set(x), lambda x: x)}


def plain(x: Any) -> Any:
    """Return the same values in a plain array; 64-bit dtypes become 32-bit, which is the
    default."""
    data = np.array(np.asarray(x), order="C", subok=False)
    narrow = {"float64": "float32", "int64": "int32"}
    return data.astype(narrow.get(data.dtype.name, data.dtype.newbyteorder("=")))


@pytest.mark.cases(4)
@pytest.mark.parametrize("kind", TAKEN)
def test_odd_arrays_mean_their_values(kind: str) -> None:
    for way, (ours, theirs) in WAYS.items():
        x = TAKEN[kind]()
        want = plain(theirs(plain(x)))
        if kind == "bools" and way in (
                "a function", "jit", "an operator", "a capture", "a condition"):
            want = np.asarray(ours(jnp.asarray(plain(x))))
        got = np.asarray(ours(x))
        assert (got.dtype, got.shape) == (want.dtype, want.shape), way
        np.testing.assert_array_equal(got, want, way)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_array_of_numbers_is_refused(kind: str) -> None:
    for way, (ours, _) in WAYS.items():
        x = REFUSED[kind]()
        if kind == "ragged" and way in ("a tree", "jit", "device_put"):
            continue  # a pytree of numbers
        with pytest.raises(FnxError) as error:
            ours(x)
        assert "test_odd_arrays.py" in str(error.value), (way, str(error.value))


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_odd_arrays_are_saved_as_their_values(ending: str, tmp_path: Path) -> None:
    given = {kind: make() for kind, make in TAKEN.items() if "wide" not in kind}
    fnx.save(tmp_path / f"x.{ending}", given)
    found = fnx.load(tmp_path / f"x.{ending}")
    for kind, x in given.items():
        np.testing.assert_array_equal(np.asarray(found[kind]), plain(x), kind)


@pytest.mark.cases(1)
@pytest.mark.parametrize("shape", [(2**45,), (2**40, 2**40), (2**62, 4), (3, 2**63), (2**20,) * 4])
def test_huge_shapes_are_refused_or_cost_nothing(shape: tuple[int, ...]) -> None:
    """They are refused where an array of that shape would have to be stored."""
    for make in (lambda: jnp.zeros(shape, jnp.float64), lambda: jnp.broadcast_to(1.0, shape) + 0,
                 lambda: jnp.full(shape, 2), lambda: fnx.random.normal(fnx.random.key(0), shape),
                 lambda: jnp.ones(3).reshape(shape), lambda: jnp.tile(jnp.ones(2), shape),
                 lambda: jnp.eye(max(shape))):
        with pytest.raises((FnxError, MemoryError)):
            np.asarray(make())

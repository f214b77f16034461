"""Exported functions as bytes: what is read computes what was written, or is refused."""

from __future__ import annotations

import collections
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, CheckpointError, NotBuiltError
from fnx.experimental import serialize_executable
from fnx.exporting import export_trees, exported

Point = collections.namedtuple("Point", "x y")
exported.register_namedtuple_serialization(Point, serialized_name="tests.Point")
W = jnp.arange(6.0).reshape(2, 3)


def model(p: Any, *, scale: Any) -> Any:
    y = lax.fori_loop(0, 3, lambda i, x: jnp.sin(x) * scale, W @ p.x)
    return {"y": y, "p": Point(p.y, None)}


ARGS: tuple[Any, ...] = (Point(jnp.ones(3), jnp.arange(2)),)


def written() -> bytearray:
    return exported.export(fnx.jit(model))(*ARGS, scale=2.0).serialize(vjp_order=1)


def test_what_is_read_is_what_was_written() -> None:
    f = exported.deserialize(written())
    expected = model(*ARGS, scale=2.0)
    result = f.call(*ARGS, scale=2.0)
    assert result["y"].tolist() == expected["y"].tolist() and isinstance(result["p"], Point)
    assert f.fun_name == "model" and f.has_vjp() and not f.vjp().has_vjp()
    y, pull = fnx.vjp(lambda x: f.call(Point(x, jnp.arange(2)), scale=2.0)["y"], jnp.ones(3))
    cotangents = f.vjp().call(jnp.ones(3), jnp.arange(2), jnp.float32(2), y)
    assert jnp.allclose(pull(y)[0], cotangents[0], atol=1e-6)


@given(st.integers(0, 10 ** 6), st.integers(0, 255))
def test_bytes_that_are_changed_are_refused_or_harmless(place: int, value: int) -> None:
    data = written()
    start = len(exported.MAGIC) + 32
    data[start + place % (len(data) - start)] = value
    data[len(exported.MAGIC):start] = hashlib.sha256(data[start:]).digest()
    try:
        f = exported.deserialize(data)
        args, kwargs = f.in_tree.unflatten([jnp.zeros(a.shape, a.dtype) for a in f.in_avals])
        f.call(*args, **kwargs)
    except (CheckpointError, ArgumentError):
        pass


@given(st.recursive(st.none() | st.just(0), lambda x: st.lists(x) | st.tuples(x, x) |
                    st.dictionaries(st.text(), x) | st.builds(Point, x, x)))
def test_structures_are_read_as_written(value: Any) -> None:
    structure = fnx.tree.structure(value)
    assert export_trees.decode(export_trees.encode(structure)) == structure


@pytest.mark.parametrize("call", [
    lambda: exported.export(model), lambda: exported.export(fnx.jit(model), platforms=["abacus"]),
    lambda: exported.deserialize(written()).call(ARGS[0], scale=jnp.ones(2)),
    lambda: exported.deserialize(written()).call(ARGS[0]),
    lambda: exported.deserialize(written()).serialize(vjp_order=2),
    lambda: exported.export(fnx.jit(lambda x: fnx.debug.print("{}", x)))(1.0)])
def test_mistakes(call: Any) -> None:
    with pytest.raises(ArgumentError):
        call()


def test_compiled_functions_as_bytes() -> None:
    compiled = fnx.jit(model).lower(*ARGS, scale=2.0).compile()
    again = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
    assert again(*ARGS, scale=3.0)["y"].tolist() == compiled(*ARGS, scale=3.0)["y"].tolist()
    data, in_tree, out_tree = serialize_executable.serialize(compiled)
    with pytest.raises(CheckpointError):
        serialize_executable.deserialize_and_load(data[:-1], in_tree, out_tree)
    with pytest.raises(ArgumentError):
        serialize_executable.deserialize_and_load(data, out_tree, in_tree)


def test_references_from_outside_are_refused_and_those_within_exported() -> None:
    r = fnx.new_ref(jnp.ones(3))

    def within(x: Any) -> Any:
        inner = fnx.new_ref(x)
        inner[...] *= 3
        return inner[...]
    for f, args in ((lambda r: r[...], (r,)), (lambda x: r[...] + x, (jnp.ones(3),))):
        with pytest.raises(NotBuiltError, match="to use no references from outside"):
            exported.export(fnx.jit(f))(*args)
    found = exported.deserialize(exported.export(fnx.jit(within))(jnp.ones(3)).serialize())
    assert found.call(jnp.arange(3.0)).tolist() == [0, 3, 6]


def test_functions_of_fnx_need_no_jit() -> None:
    assert float(exported.export(jnp.sin)(fnx.ShapeDtypeStruct((), "float32")).call(0.0)) == 0

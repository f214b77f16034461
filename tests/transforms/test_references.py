"""References: what functions read and write besides their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, DTypeError, LeakedTracerError


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9)), max_size=5))
def test_writes_in_jit_are_those_of_numpy(writes: list[tuple[int, int]]) -> None:
    x, r = np.zeros(4, np.float32), fnx.new_ref(jnp.zeros(4))

    @fnx.jit
    def write(ref: fnx.Ref, i: Any, value: Any) -> Any:
        ref[i] += value
        return ref[...].sum()
    for i, value in writes:
        x[i] += value
        assert write(r, i, float(value)) == x.sum()
    np.testing.assert_array_equal(r[...], x)
    assert write.cache_info().traces <= 1


def test_writes_in_loops_and_branches() -> None:
    r = fnx.new_ref(jnp.zeros(3))

    def step(i: Any, total: Any) -> Any:
        def odd() -> None:
            r[i] = 10.0 * total
        lax.cond(i % 2 == 1, odd, lambda: None)
        return total + 1
    total = fnx.jit(lambda n: lax.fori_loop(0, n, step, 0.0))(3)
    assert total == 3 and r[...].tolist() == [0, 10, 0]
    assert lax.map(lambda x: x + r[1], jnp.arange(2.0)).tolist() == [10, 11]


def test_derivatives_go_through_writes() -> None:
    def f(x: Any) -> Any:
        r = fnx.new_ref(x)
        lax.fori_loop(0, 3, lambda i, _: r.__setitem__(..., r[...] * x), None)
        return r[...]
    assert fnx.grad(f)(2.0) == 4 * 8
    y, dy = fnx.jvp(f, (2.0,), (1.0,))
    assert (y, dy) == (16, 32)
    assert fnx.vmap(fnx.grad(f))(jnp.array([1.0, 2.0])).tolist() == [4, 32]


@pytest.mark.parametrize("transform", [
    lambda f: fnx.grad(f), lambda f: fnx.value_and_grad(f), lambda f: fnx.jacrev(f),
    lambda f: fnx.checkpoint(f), lambda f: lambda x: fnx.vjp(f, x)[0],
    lambda f: lambda x: fnx.jvp(f, (x,), (x,)), lambda f: lambda x: fnx.linearize(f, x)[0],
    lambda f: fnx.jit(fnx.grad(f))])
def test_a_reference_from_outside_is_written_under_a_transform(transform: Any) -> None:
    r = fnx.new_ref(0.0)

    def f(x: Any) -> Any:
        r[...] += 3 * x
        return x * x
    transform(f)(2.0)
    assert r[...] == 6


def test_references_are_checked() -> None:
    r = fnx.new_ref(jnp.zeros(2))
    with pytest.raises(ArgumentError, match="at both args"):
        fnx.jit(lambda a, b: None)(r, r)
    with pytest.raises(ArgumentError, match="int32"):
        r[0] = jnp.int32(1)
    with pytest.raises(ArgumentError, match="mapped"):
        fnx.vmap(lambda x: r.__setitem__(0, x))(jnp.arange(2.0))
    kept = []
    fnx.jit(lambda x: kept.append(fnx.new_ref(x)))(1.0)
    with pytest.raises(LeakedTracerError):
        kept[0][...]


def test_a_scan_over_a_reference_writes_its_rows() -> None:
    r = fnx.new_ref(jnp.zeros((3, 2)))

    def step(total: Any, given: Any) -> Any:
        row, x = given
        row[...] += x + total
        return total + x, row[0]
    assert lax.scan(step, 0.0, (r, jnp.arange(3.0)))[1].tolist() == [0, 1, 3]
    assert r[...].tolist() == [[0, 0], [1, 1], [3, 3]]


def test_a_reference_is_an_operand_of_no_function() -> None:
    r = fnx.new_ref(jnp.zeros(3))
    with pytest.raises(DTypeError, match="got a Ref"):
        jnp.sin(r)
    assert len(list(r)) == 3
    with pytest.raises(ArgumentError, match="return no reference"):
        fnx.jit(lambda x: x)(r)
    with pytest.raises(ArgumentError, match="from outside, too"):
        fnx.jit(lambda x: x[0] + r[0])(r)


def test_a_custom_vjp_that_writes_its_argument() -> None:
    @fnx.custom_vjp
    def f(x: Any, r: Any) -> Any:
        r[...] = x
        return 2 * x

    f.defvjp(lambda x, r: (f(x, r), None), lambda _, ct: (3 * ct, None))
    r = fnx.new_ref(0.0)
    assert f(3.0, r) == 6.0 and r[...] == 3.0
    assert fnx.grad(f)(4.0, r) == 3.0 and r[...] == 4.0


def test_stages_of_functions_of_references() -> None:
    other = fnx.new_ref(jnp.float32(1))

    @fnx.jit
    def f(r: fnx.Ref, x: Any, *, k: Any) -> dict[str, Any]:
        r[...] = r[...] + x
        other[...] = other[...] * k
        return {"sum": r[...].sum()}

    r = fnx.new_ref(jnp.zeros(2))
    traced = f.trace(r, 1.0, k=3.0)
    assert "Ref{f32[2]}" in str(traced.jaxpr)
    lowered = traced.lower()
    assert "main" in lowered.as_text("stablehlo")
    for stage in (traced, lowered, lowered.compile()):
        (first, second), named = stage.args_info
        assert first.shape == (2,) and second.shape == () == named["k"].shape
        assert stage.out_info["sum"].shape == ()
    compiled = f.lower(r, 1.0, k=3.0).compile()
    assert r[...].tolist() == [0, 0] and other[...] == 1
    assert compiled(r, 1.0, k=3.0)["sum"] == 2
    assert compiled(fnx.new_ref(jnp.ones(2)), 1.0, k=3.0)["sum"] == 4
    assert r[...].tolist() == [1, 1] and other[...] == 9
    with pytest.raises(ArgumentError, match="expected arguments like"):
        compiled(r, k=3.0)
    assert f.eval_shape(r, 1.0, k=3.0)["sum"].shape == ()


def test_stages_of_a_function_that_was_called() -> None:
    r = fnx.new_ref(jnp.float32(0))

    @fnx.jit
    def f(x: Any) -> None:
        r[...] = r[...] + x
    f(1.0)
    f.lower(1.0).compile()(5.0)
    f(1.0)
    assert r[...] == 7


def test_an_array_is_frozen_already() -> None:
    x = jnp.ones(2)
    assert fnx.freeze(x) is x

"""jit: signatures, static arguments, donation, captures, nesting, counts."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.scope import storage
from fnx.core.support.errors import (
    ArgumentError,
    DonatedError,
    DTypeError,
    LeakedTracerError,
    StaticArgumentError,
    TracedValueError,
)
from fnx.transforms.grad import grad, value_and_grad
from fnx.transforms.jit import jit

THIS = __file__.rpartition("/")[2]
Pair = namedtuple("Pair", "a b")


def arr(*values: float) -> Array:
    return jnp.asarray(np.asarray(values, "float32"))


# ---- signatures


def test_traces_once_per_signature() -> None:
    traced: list[Any] = []

    @jit
    def f(x: Array) -> Array:
        traced.append(x.shape)
        return x + 1

    for _ in range(3):
        f(arr(1, 2))
    f(arr(1, 2, 3))
    f(arr(5, 6))
    assert traced == [(2,), (3,)]
    info = f.cache_info()
    assert (info.traces, info.compiles, info.hits) == (2, 2, 3)
    assert info.misses == ("args[0]: float32[2] -> float32[3]",)


TREES = st.recursive(
    st.just("leaf") | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner)
    | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    | st.builds(Pair, inner, inner), max_leaves=8)


@settings(max_examples=40)
@given(TREES)
def test_trees_go_through_both_paths(shape: Any) -> None:
    leaves, treedef = tree.flatten(shape)
    values = [arr(i, i + 1) for i in range(len(leaves))]
    arg = treedef.unflatten(values)
    f = jit(lambda t: tree.map(lambda x: x * 2, t))
    first, second = f(arg), f(arg)  # the general path, then the fast path
    for out in (first, second):
        assert tree.structure(out) == treedef
        for x, y in zip(tree.leaves(out), values):
            np.testing.assert_array_equal(x, np.asarray(y) * 2)


def test_launcher_tells_signatures_apart() -> None:
    f = jit(lambda t: t["a"] - t["b"])
    assert f({"a": arr(3), "b": arr(1)}).tolist() == [2]
    assert f({"b": arr(1), "a": arr(3)}).tolist() == [2]
    assert f({"a": arr(3, 4), "b": arr(1, 1)}).tolist() == [2, 3]
    assert f({"a": 5.0, "b": arr(1)}).tolist() == [4]
    with pytest.raises(KeyError):
        f({"a": arr(3), "c": arr(1)})
    assert f({"a": np.float32(3), "b": arr(1)}).tolist() == [2]


def test_python_numbers_are_inputs() -> None:
    f = jit(lambda x, s: x * s)
    assert [f(arr(1, 2), s).tolist() for s in (2.0, 3.0, 4.0)] == [[2, 4], [3, 6], [4, 8]]
    assert f.cache_info().traces == 1


def test_keyword_arguments() -> None:
    f = jit(lambda x, *, scale: x * scale)
    assert f(arr(1, 2), scale=arr(3)).tolist() == [3, 6]
    assert f(arr(1, 2), scale=arr(5)).tolist() == [5, 10]
    assert f.cache_info().traces == 1


def test_methods_and_results_without_arrays() -> None:
    class Model:
        @jit
        def apply(self_params: Any, x: Array) -> Any:
            return {"y": x + self_params, "none": None, "one": 1.0}

    out = Model.apply(arr(1), arr(2))
    assert out["y"].tolist() == [3] and out["none"] is None and float(out["one"]) == 1


def test_argument_passed_through_and_results_shared() -> None:
    f = jit(lambda x: (x, x.reshape(2, 1), x + 1, x + 1))
    x = arr(1, 2)
    a, b, c, d = f(x)
    assert a.tolist() == [1, 2] and b.tolist() == [[1], [2]]
    assert c.tolist() == d.tolist() == [2, 3]


def test_zero_sized_and_zero_dimensional() -> None:
    f = jit(lambda x: (x + 1, x.sum(), jnp.concatenate([x, x])))
    y, s, c = f(jnp.zeros((0,)))
    assert y.shape == (0,) and float(s) == 0 and c.shape == (0,)
    assert float(jit(lambda x: x * 2)(jnp.asarray(3.0))) == 6
    assert jit(lambda x: x.sum(0))(jnp.zeros((0, 3))).tolist() == [0, 0, 0]


# ---- static arguments


def test_static_arguments_by_position_and_name() -> None:
    f = jit(lambda x, n, mode="a": x * n if mode == "a" else x - n,
            static_argnums=1, static_argnames="mode")
    assert f(arr(2), 3).tolist() == [6]
    assert f(arr(2), 3, mode="b").tolist() == [-1]
    assert f(arr(4), 3).tolist() == [12]
    assert f.cache_info().traces == 2
    assert f(arr(2), 3.0).tolist() == [6]  # another type is another value
    assert f.cache_info().traces == 3
    assert "static" in f.cache_info().misses[-1]


def test_unhashable_static_argument() -> None:
    f = jit(lambda x, n: x, static_argnums=1)
    with pytest.raises(StaticArgumentError, match=r"hashable.*list") as e:
        f(arr(1), [1, 2])
    assert THIS in str(e.value) and "tuple" in str(e.value)


def test_static_argument_that_is_no_parameter() -> None:
    with pytest.raises(StaticArgumentError, match="static_argnums below 1"):
        jit(lambda x: x, static_argnums=3)
    with pytest.raises(StaticArgumentError, match="parameters as static_argnames"):
        jit(lambda x: x, static_argnames="y")


# ---- donation


def test_donated_argument_has_no_value_afterwards() -> None:
    f = jit(lambda p, x: p + x, donate_argnums=0)
    for _ in range(2):
        p, x = arr(1, 2), arr(3, 4)
        out = f(p, x)
        assert out.tolist() == [4, 6] and x.tolist() == [3, 4]
        with pytest.raises(DonatedError, match="donated") as e:
            p + 1
        assert THIS in str(e.value) and "result of the call" in str(e.value)
        with pytest.raises(DonatedError):
            f(p, x)
    assert f(out, x).tolist() == [7, 10]


def test_a_donated_argument_is_gone_before_anything_writes_over_it() -> None:
    """After Ctrl-C during submission, an array that can still be read has its old value."""
    step = jit(lambda w: w * 0.5 + 1, donate_argnums=0)
    w = jnp.ones(1000)
    for one_step in (True, False):
        w = step(w) if one_step else step(step(step(w)))
        executable = step._traces.values()[0].value.executable
        assert executable is not None
        buffer = executable.buffer

        def submit(*args: Any, submit: Any = buffer.submit) -> None:
            submit(*args)
            raise KeyboardInterrupt

        executable.buffer = SimpleNamespace(submit=submit)
        with pytest.raises(KeyboardInterrupt):
            step(w)
        executable.buffer = buffer
        with pytest.raises(DonatedError):
            w + 1
        w = jnp.ones(1000)


def test_donated_twice_in_one_call() -> None:
    f = jit(lambda p, q: p + q, donate_argnums=0)
    x = arr(1)
    with pytest.raises(DonatedError, match="twice"):
        f(x, x)
    f(arr(1), arr(2))
    with pytest.raises(DonatedError, match="twice"):  # also on the fast path
        f(x, x)
    assert x.tolist() == [1]


# ---- captured values

WEIGHT = arr(1, 1)
FACTOR = 2


def _helper(x: Array) -> Array:
    return x * WEIGHT * FACTOR


def test_rebound_globals_are_seen() -> None:
    global WEIGHT, FACTOR
    f = jit(_helper)
    g = jit(lambda x: _helper(x) + 1)
    assert f(arr(1, 2)).tolist() == [2, 4] and g(arr(1, 2)).tolist() == [3, 5]
    WEIGHT = arr(10, 10)
    assert f(arr(1, 2)).tolist() == [20, 40] and g(arr(1, 2)).tolist() == [21, 41]
    info = f.cache_info()
    assert (info.traces, info.compiles) == (2, 1)  # another array, same program
    assert info.misses == ("WEIGHT: an array float32[2] -> an array float32[2]",)
    FACTOR = 3
    assert f(arr(1, 2)).tolist() == [30, 60] and g(arr(1, 2)).tolist() == [31, 61]
    assert f.cache_info().compiles == 2 and "FACTOR: 2 -> 3" in f.cache_info().misses
    WEIGHT, FACTOR = arr(1, 1), 2


def test_rebound_cells_are_seen() -> None:
    w = arr(2, 2)
    f = jit(lambda x: x * w)
    assert f(arr(1, 2)).tolist() == [2, 4]
    w = arr(3, 3)
    assert f(arr(1, 2)).tolist() == [3, 6]
    w = arr(4)
    assert f(arr(1, 2)).tolist() == [4, 8]
    assert f.cache_info().traces == 3 and f.cache_info().compiles == 2


def test_value_read_while_tracing_is_watched() -> None:
    """Rebinding an array whose value determined the trace is noticed."""
    w = arr(2)
    f = jit(lambda x: x + w if float(w[0]) > 0 else x - w)
    assert f(arr(1)).tolist() == [3]
    w = arr(-3)
    assert f(arr(1)).tolist() == [4]


@settings(max_examples=12)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=5))
def test_captures_of_nested_functions_do_not_mix(picks: list[int]) -> None:
    outer = [arr(i, i + 10) for i in range(4)]

    def layer(k: int) -> Any:
        w = outer[k]
        return jit(lambda x: x * 2 + w)

    layers = [layer(k) for k in picks]

    def f(x: Array) -> Array:
        for g in layers:
            x = g(x)
        return x

    want = np.asarray([1.0, 2.0])
    for k in picks:
        want = want * 2 + np.asarray(outer[k])
    np.testing.assert_array_equal(f(arr(1, 2)), want)
    np.testing.assert_array_equal(jit(f)(arr(1, 2)), want)
    slope = grad(lambda x: jit(f)(x).sum())(arr(1, 2))
    assert slope.tolist() == [2.0 ** len(picks)] * 2


# ---- nesting and transforms


def test_nested_jit_is_traced_once_also_under_grad() -> None:
    count = 0

    @jit
    def layer(x: Array, w: Array) -> Array:
        nonlocal count
        count += 1
        return jnp.tanh(x @ w)

    def loss(ws: list[Array], x: Array) -> Array:
        for w in ws:
            x = layer(x, w)
        return x.sum()

    ws = [jnp.asarray(np.eye(4, dtype="f4") * (i + 1) / 10) for i in range(10)]
    x = jnp.ones((3, 4))
    step = jit(value_and_grad(loss))
    value, slopes = step(ws, x)
    assert count == 1
    plain, plain_slopes = value_and_grad(loss)(ws, x)
    np.testing.assert_allclose(value, plain, rtol=1e-6)
    for a, b in zip(slopes, plain_slopes):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    stages = step.lower(ws, x)
    products = [k for k in stages.kernels if k.name.startswith("contract")]
    assert len(products) == 10 + 10 + 9  # forward, dw, dx: nothing runs twice
    assert len({k.node for k in products}) <= 6  # ten equal layers are lowered once


def test_jit_of_grad_of_jit_of_grad() -> None:
    f = jit(grad(jit(grad(lambda x: x**4))))
    assert float(f(jnp.asarray(2.0))) == pytest.approx(48)


# ---- bad input


def test_if_on_a_traced_value() -> None:
    @jit
    def f(x: Array) -> Array:
        return x if x > 0 else -x

    with pytest.raises(TracedValueError) as e:
        f(jnp.asarray(1.0))
    assert THIS in str(e.value) and "where" in str(e.value)


def test_leaked_tracer() -> None:
    kept: list[Array] = []

    @jit
    def f(x: Array) -> Array:
        kept.append(x + 1)
        return x

    f(arr(1))
    with pytest.raises(LeakedTracerError, match="outlived"):
        kept[0] + 1
    assert f(arr(2)).tolist() == [2]


def test_argument_and_result_that_are_no_arrays() -> None:
    with pytest.raises(DTypeError, match=r"argument args\[0\]") as e:
        jit(lambda s: 1)("text")
    assert "static" in str(e.value)
    with pytest.raises(ArgumentError, match="result"):
        jit(lambda x: "text")(arr(1))
    with pytest.raises(ArgumentError, match="expected a function"):
        jit(3)


def test_an_error_while_tracing_leaves_nothing_behind() -> None:
    @jit
    def f(x: Array, fail: bool) -> Array:
        if fail:
            raise RuntimeError("mine")
        return x + 1

    g = jit(f._f, static_argnums=1)
    with pytest.raises(RuntimeError, match="mine"):
        g(arr(1), True)
    assert g(arr(1), False).tolist() == [2]
    assert (arr(1) + 1).tolist() == [2]


# ---- inspection


def test_lower_shows_every_stage() -> None:
    f = jit(lambda x, w: jnp.tanh(x @ w))
    stages = f.lower(jnp.ones((4, 5)), jnp.ones((5, 6)))
    assert [k.name.split(" ")[0] for k in stages.kernels] == ["contract_tanh_mul"]
    assert stages.kernels[0].flops >= 2 * 4 * 5 * 6
    for level in ("graph", "simplified", "kernels", "commands"):
        assert stages.text(level)


def test_lower_takes_shapes_in_the_place_of_arrays() -> None:
    f = jit(lambda x, w, n: jnp.tanh(x @ w["a"]) * n, static_argnames="n")
    shapes = ShapeDtypeStruct((4, 5), "float32"), {"a": ShapeDtypeStruct((5, 6), "float32")}
    arrays = jnp.ones((4, 5)), {"a": jnp.ones((5, 6))}
    assert f.lower(*shapes, n=2).text("graph") == f.lower(*arrays, n=2).text("graph")
    assert f.memory(*shapes, n=2) == f.memory(*arrays, n=2)
    assert f(*arrays, n=2).shape == (4, 6)
    assert f.cache_info().traces == 1
    with pytest.raises(DTypeError, match="got ShapeDtypeStruct"):
        f(*shapes, n=2)


@pytest.mark.parametrize("how", ["add", "max"])
def test_an_update_may_be_read_across_its_rows(how: str) -> None:
    """x.at[i].add(f(a).T): a loop over a's rows scatters into strided elements."""
    x, a = np.zeros((3, 31, 4), np.float32), np.arange(124, dtype=np.float32).reshape(4, 31) / 99

    def f(x: Any, a: Any, i: Any) -> Any:
        return getattr(x.at[i], how)(jnp.tanh(a).T)

    want = x.copy()
    want[1] = np.tanh(a).T
    for g in (f, jit(f)):
        got = g(jnp.asarray(x), jnp.asarray(a), jnp.asarray(1))
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_gradient_of_a_product_of_constant_matrices() -> None:
    """Fusion sees no contraction if no operand varies; the schedule creates one anyway."""

    def f(x: Any) -> Any:
        y = jnp.tanh(jnp.full((18, 38), 0.5))
        return jnp.sum((y.T @ y) * x), y

    gradient, _ = grad(f, has_aux=True)(jnp.ones((38, 38)))
    np.testing.assert_allclose(gradient, np.full((38, 38), 18 * np.tanh(0.5) ** 2), rtol=1e-5)


def test_a_number_is_converted_once_whichever_signature_it_has(
        monkeypatch: pytest.MonkeyPatch) -> None:
    f = jit(lambda x, y: x + y)
    x = jnp.ones(3)
    kinds = [2.0, np.float32(2), 2, np.int8(2), True, np.full(3, 2, np.float32)]
    for _ in range(4):
        for y in kinds:
            np.testing.assert_array_equal(f(x, y), np.ones(3) + y)
    made: list[Any] = []
    put = storage.put
    monkeypatch.setattr(storage, "put", lambda value: made.append(value) or put(value))
    for y in kinds[:2]:
        made.clear()
        f(x, y)
        assert len(made) == 1

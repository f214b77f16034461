"""``jit(dynamic=)``: one trace for all lengths, kernels that take them, refusals by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax, nn, random
from tests.helpers import new_kernels

T = fnx.dim("T", 1, 4096)


def _arrays(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=shape).astype("float32")) for shape in shapes]


def _attention(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(q @ k.T / 4.0, -1) @ v


def _recurrent(x: Any, w: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.tanh(c @ w + row), c), jnp.zeros(w.shape[0]), x)


def _loss(x: Any, w: Any) -> Any:
    return fnx.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - x[:, :1]) ** 2))(w)


@pytest.mark.cases(1)
@pytest.mark.parametrize(("f", "shapes", "dynamic"), [
    (_attention, [(1, 16)] * 3, {"q": {0: T}, "k": {0: T}, "v": {0: T}}),
    (_recurrent, [(1, 8), (0, 8, 8)], {"x": {0: T}}),
    (_loss, [(1, 8), (0, 8, 3)], {0: {0: T}}),
], ids=["attention", "recurrent", "loss"])
def test_one_trace_serves_all_lengths(f: Callable[..., Any], shapes: list[Any], dynamic: Any
                                      ) -> None:
    traces = []

    def traced(*args: Any) -> Any:
        traces.append(1)
        return f(*args)
    traced.__signature__ = inspect.signature(f)  # type: ignore[attr-defined]
    jitted = fnx.jit(traced, dynamic=dynamic)
    for t in (33, 1, 2, 7, 100, 33):
        args = _arrays(*[(t, *s[1:]) if s[0] else s[1:] for s in shapes])
        for got, want in zip(fnx.tree.leaves(jitted(*args)), fnx.tree.leaves(f(*args)),
                             strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    assert len(traces) == 1 == jitted.cache_info().traces


def test_traces_of_other_choices_are_counted() -> None:
    """A trace holds for the lengths for which its assumptions do: each further one is a miss."""
    traces = []

    def f(x: Any) -> Any:
        traces.append(1)
        return x[:-1] if x.shape[0] == 7 else x[1:]
    jitted = fnx.jit(f, dynamic={0: {0: T}})
    for t in (5, 6, 7, 5, 7):
        jitted(*_arrays((t,)))
    info = jitted.cache_info()
    assert info.traces == len(traces) > 1
    assert info.misses[0] == "T = 7: the trace excludes T == 7"


@pytest.mark.cases(1)
@pytest.mark.parametrize("f", [
    *[lambda x, mode=mode: jnp.pad(x, (5, 9), mode=mode) for mode in (
        "edge", "reflect", "symmetric", "wrap", "maximum", "mean", "minimum", "median")],
    lambda x: jnp.pad(x, 2, mode="mean", stat_length=3),
    lambda x: jnp.pad(x, (0, -x.shape[0] % 128)),
    lambda x: jnp.linspace(0.3, x[-1], x.shape[0]),
    lambda x: jnp.linspace(0.3, 1, x.shape[0], endpoint=False),
    lambda x: jnp.linspace(0, 10, x.shape[0] // 2 + 1, dtype=int),
    lambda x: jnp.geomspace(1, 10, x.shape[0]),
    lambda x: random.permutation(random.key(1), x),
    lambda x: random.permutation(random.key(1), x.shape[0]),
    lambda x: random.choice(random.key(1), x.shape[0], (3,)),
    lambda x: random.choice(random.key(1), x, (1,), replace=False),
    lambda x: x * 0.5 ** x.shape[0]])
def test_functions_of_lengths_take_dimensions(f: Callable[..., Any]) -> None:
    jitted = fnx.jit(f, dynamic={0: {0: T}})
    for t in (1, 2, 3, 7, 100, 1626):
        x = _arrays((t,))[0]
        np.testing.assert_allclose(jitted(x), fnx.jit(f)(x), rtol=2e-5)


def test_a_function_of_numpys_that_needs_a_length_names_the_users_line() -> None:
    with pytest.raises(fnx.errors.InconclusiveDimensionError, match=r"test_jit_dynamic\.py:"):
        fnx.jit(lambda x: jnp.triu_indices(x.shape[0]), dynamic={0: {0: T}})(*_arrays((4,)))
    with pytest.raises(fnx.errors.ArgumentError, match="expected reflect_type 'even' along"):
        fnx.jit(lambda x: jnp.pad(x, 2, "reflect", reflect_type="odd"),
                dynamic={0: {0: T}})(*_arrays((4,)))


def test_another_length_compiles_nothing() -> None:
    f = fnx.jit(lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5), dynamic={"x": {0: T}})
    for t in (40, 50):
        f(*_arrays((t, 24))).block_until_ready()
    before = new_kernels()
    for t in (41, 45, 47, 52, 59):
        f(*_arrays((t, 24))).block_until_ready()
    assert new_kernels() == before


def test_fixed_lengths_are_constants_of_kernels() -> None:
    f = fnx.jit(lambda x: nn.softmax(x.reshape(-1, 4, 24), -1), dynamic={"x": {0: T}})
    assert "(x0: float32[n0, 24]," in f.lower(*_arrays((40, 96))).text("tiled")


def test_a_loop_over_a_dimension_has_gradients() -> None:
    def f(x: Any) -> Any:
        return lax.fori_loop(1, x.shape[0], lambda i, c: 0.5 * c + x[i], x[0])
    slope = fnx.jit(fnx.grad(lambda x: f(x).sum()), dynamic={0: {0: T}})
    for t in (5, 1, 3):
        x = _arrays((t,))[0]
        np.testing.assert_allclose(slope(x), fnx.grad(f)(x))
    assert slope.cache_info().traces == 1


def test_keywords_trees_and_negative_axes() -> None:
    n = fnx.dim("n")
    f = fnx.jit(lambda batch, *, mask: jnp.where(mask, batch["x"], 0).sum(-1) + batch["y"],
                dynamic={"batch": {-1: n}, "mask": {0: n}})
    for length in (3, 5):
        x = jnp.arange(float(length))
        np.testing.assert_array_equal(f({"x": x, "y": x}, mask=x > 1), x + x[2:].sum())


def test_lengths_that_depend_on_each_other() -> None:
    f = fnx.jit(lambda x, y: y.reshape(-1, 2) * x[:, None], dynamic={0: {0: T}, 1: {0: 2 * T}})
    assert f(jnp.ones(3), jnp.ones(6)).shape == (3, 2)
    with pytest.raises(fnx.errors.ShapeError, match=r"expected 2\*T as axis 0 of args\[1\] with T "
                                                    "= 3, got 5"):
        f(jnp.ones(3), jnp.ones(5))


def test_under_other_transforms() -> None:
    f = fnx.jit(lambda x: (x * x.shape[0]).sum(), dynamic={"x": {0: T}})
    for t in (2, 5):
        np.testing.assert_array_equal(fnx.grad(f)(jnp.ones(t)), np.full(t, t))
        np.testing.assert_array_equal(fnx.vmap(f)(jnp.ones((3, t))), np.full(3, t * t))
        assert fnx.jit(lambda x: f(x) + 1)(jnp.ones(t)) == t * t + 1


def test_a_captured_value_that_changes_is_seen() -> None:
    scale = [2.0]

    def f(x: Any) -> Any:
        return x * factor
    factor = scale[0]
    jitted = fnx.jit(f, dynamic={"x": {0: T}})
    assert jitted(jnp.ones(2)).sum() == 4
    factor = 3.0
    assert jitted(jnp.ones(3)).sum() == 9
    assert jitted(jnp.ones(2)).sum() == 6


def test_an_equality_that_the_bounds_leave_open_is_decided_by_the_call() -> None:
    f = fnx.jit(lambda x: x.sum() if x.shape[0] == 1 else 2 * x.sum(), dynamic={"x": {0: T}})
    assert [float(f(jnp.ones(t))) for t in (5, 1, 3, 1)] == [10, 1, 6, 1]


@pytest.mark.parametrize(("f", "text"), [
    (lambda x: x if x.shape[0] > 100 else 2 * x, "got T > 100 with 1 <= T <= 4096"),
    (lambda x: sum(x[i] for i in range(x.shape[0])), "got the dimension T"),
    (lambda x: x * float(x.shape[0]), "expected a float, got the dimension T"),
])
def test_what_needs_the_number_is_refused(f: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(fnx.errors.InconclusiveDimensionError, match=text) as error:
        fnx.jit(f, dynamic={"x": {0: T}})(jnp.ones(5))
    assert "test_jit_dynamic.py:" in str(error.value)


def test_numpy_refuses_a_dimension() -> None:
    with pytest.raises(TypeError, match="'T'"):
        fnx.jit(lambda x: x * np.ones(x.shape[0]), dynamic={"x": {0: T}})(jnp.ones(5))


def test_comparisons_that_the_bounds_decide() -> None:
    f = fnx.jit(lambda x: x if x.shape[0] <= 4096 and x.shape[0] + 1 > 1 else 1 / 0,
                dynamic={"x": {0: T}})
    assert f(jnp.ones(5)).shape == (5,)


@pytest.mark.parametrize(("shape", "text"), [
    ((5000,), "expected 1 <= T <= 4096, got 5000 at axis 0 of args"),
    ((0,), "expected 1 <= T <= 4096, got 0 at axis 0 of args"),
    ((), "expected an axis 0 of args"),
])
def test_lengths_outside_of_the_bounds(shape: tuple[int, ...], text: str) -> None:
    with pytest.raises(fnx.errors.ShapeError, match=text):
        fnx.jit(lambda x: 2 * x, dynamic={"x": {0: T}})(jnp.zeros(shape))


@pytest.mark.parametrize("dynamic", [{"z": {0: T}}, {"x": T}, {"x": {0: 5}}, {"x": {"a": T}}])
def test_bad_declarations(dynamic: Any) -> None:
    with pytest.raises(fnx.errors.ArgumentError, match="dynamic="):
        fnx.jit(lambda x: x, dynamic=dynamic)


@pytest.mark.parametrize("args", [("a b",), ("T", 5, 2), ("T", -1, 2), ("T", 1, 2**31)])
def test_bad_dimensions(args: Any) -> None:
    with pytest.raises(fnx.errors.ArgumentError, match="dimension"):
        fnx.dim(*args)


def test_what_needs_a_number_is_refused_by_name() -> None:
    """Methods of int, and tables of an axis, need the length while tracing."""
    def shifted(x: Any) -> Any:
        return fnx.vmap(lambda r: lax.ppermute(r, "i", [(0, 0)]), axis_name="i")(x)
    for f, what in ((lambda x: x * x.shape[0].bit_length(), "T"), (shifted, "ppermute"),
                    (lambda x: lax.fft(x + 0j, "fft", x.shape), "fft")):
        with pytest.raises(fnx.errors.InconclusiveDimensionError, match=what):
            fnx.jit(f, dynamic={0: {0: T}})(*_arrays((4,)))
    assert not hasattr(T, "is_prime")


def test_an_odd_element_is_dropped() -> None:
    """T and 2*floordiv(T, 2) vary together, so their minimum is known."""
    f = fnx.jit(lambda x: x[:x.shape[0] // 2 * 2].reshape(-1, 2).sum(1), dynamic={0: {0: T}})
    for t in (7, 8, 1):
        x = _arrays((t,))[0]
        np.testing.assert_allclose(f(x), np.asarray(x)[:t // 2 * 2].reshape(-1, 2).sum(1))
    assert f.cache_info().traces == 1


def test_numpy_numbers_and_floats_compute_with_dimensions() -> None:
    assert (np.int32(2) * T, np.int64(8) == T, np.int16(3) + T) == (2 * T, False, T + 3)
    f = fnx.jit(lambda x: (0.5 * x.shape[0], x.shape[0] - 0.5, 1.5 - x.shape[0],
                           np.float32(2) * x.shape[0]), dynamic={0: {0: T}})
    assert [float(v) for v in f(*_arrays((6,)))] == [3.0, 5.5, -4.5, 12.0]
    with pytest.raises(fnx.errors.InconclusiveDimensionError, match=r"numpy.sqrt.*dimension T"):
        np.sqrt(T)

"""Cached eager calls give the same results as uncached ones."""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.image
import fnx.lax as lax
import fnx.numpy as jnp
import fnx.scipy.signal
from fnx.core.array import eager_cache
from fnx.core.support.config import override
from fnx.core.support.errors import DonatedError, OutOfBoundsWarning
from tests.attack.agreement import outcome
from tests.attack.programs import program_of, results
from tests.helpers import same_bits

COMPILED = True
grad_module = importlib.import_module("fnx.transforms.grad")


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    eager_cache.clear_cache()
    yield


def array(*values: float) -> fnx.Array:
    return jnp.asarray(np.array(values, np.float32))


def kept() -> int:
    return len(eager_cache._call_cache)


@pytest.mark.cases(3)
@pytest.mark.parametrize("seed", range(20))
def test_a_call_that_is_repeated_gives_what_it_gives_anew(seed: int) -> None:
    """Random programs, line by line, on other values of the same types."""
    program = program_of(seed + 5000)
    given = [np.roll(x, 1) if x.ndim else x for x in program.inputs]

    def run(inputs: list[np.ndarray]) -> object:
        return outcome(lambda *xs: results(program, list(xs)), *inputs)

    run(program.inputs)
    again = run(given)
    eager_cache.clear_cache()
    anew = run(given)
    assert isinstance(again, Exception) == isinstance(anew, Exception)
    if not isinstance(anew, Exception):
        for a, b in zip(sum(again, []), sum(anew, []), strict=True):
            assert a.dtype == b.dtype and same_bits(a.numbers, b.numbers), program


def test_a_repeated_call_makes_no_node() -> None:
    x, y = array(1, 2), array(3, 4)
    assert (jnp.sum(x, axis=0) == 3).item() and kept()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eager_cache.CacheMiss, "__init__", None)  # a cache miss would raise
        assert float(jnp.sum(y, axis=0)) == 7


def test_functions_of_fnx_are_part_of_a_call() -> None:
    """A function of the user's may read what changes; one of fnx computes the same each time."""
    x = jnp.ones((4, 6))
    calls = [lambda f=f: lax.reduce_window(x, 0., f, (2, 2), (2, 2), "VALID")
             for f in (lax.add, lax.mul, lambda a, b: a + b)]
    first = [call() for call in calls]
    assert len([key for key in eager_cache._call_cache.keys() if key[0] is lax.reduce_window]) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eager_cache.CacheMiss, "__init__", None)
        for call, want in zip(calls[:2], first):
            np.testing.assert_array_equal(call(), want)
        np.testing.assert_array_equal(calls[2](), first[0])  # not looked up at all
    assert not np.array_equal(first[0], first[1])


CONSTANTS = {  # calls with tables or indices that follow from their signature
    "fft": lambda x: jnp.fft.fft(x[0]).real, "irfft": lambda x: jnp.fft.irfft(x),
    "list": lambda x: x[:, [0, 2]], "resize": lambda x: fnx.image.resize(x, (5, 9), "linear"),
    "stft": lambda x: fnx.scipy.signal.stft(x, nperseg=4)[2].real,
    "detrend": fnx.scipy.signal.detrend,
    "multivariate_normal": lambda x: fnx.random.multivariate_normal(
        jnp.zeros(2, "uint32"), x[0, :3], x[:3, :3] @ x[:3, :3].T + jnp.eye(3), (2,))}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_of_a_call_are_kept_with_its_program(name: str) -> None:
    f = CONSTANTS[name]
    one, two = (jnp.asarray(np.random.default_rng(i).normal(size=(4, 6)), "float32")
                for i in range(2))
    f(one)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eager_cache.CacheMiss, "__init__", None)  # a cache miss would raise
        again = f(two)
    eager_cache.clear_cache()
    assert same_bits(np.asarray(again), np.asarray(f(two)))


def test_which_operands_share_memory_is_part_of_a_call() -> None:
    x, y = array(1, 2), array(10, 20)
    assert (x - x).tolist() == [0, 0]
    assert (x - y).tolist() == [-9, -18]
    assert (y - y).tolist() == [0, 0]
    assert jnp.stack([x, y, x]).tolist() == [[1, 2], [10, 20], [1, 2]]
    assert jnp.stack([x, x, y]).tolist() == [[1, 2], [1, 2], [10, 20]]


def test_numbers_are_told_apart_by_type_and_sign() -> None:
    x = array(1, -1)
    with np.errstate(divide="ignore"):
        assert (x / 0.0).tolist() == [np.inf, -np.inf]
        assert (x / -0.0).tolist() == [-np.inf, np.inf]
        assert (x / 0).tolist() == [np.inf, -np.inf]
    i = jnp.asarray([3])
    assert (i + 1).dtype == np.int32 and (i + 1.0).dtype == np.float32
    assert (i + True).dtype == np.int32
    assert all(np.isnan((x + float("nan")).tolist())) and all(np.isnan((x * np.nan).tolist()))


def test_a_call_that_reads_values_is_made_anew() -> None:
    assert [n.tolist() for n in jnp.nonzero(jnp.asarray([0, 1, 1]))] == [[1, 2]]
    assert [n.tolist() for n in jnp.nonzero(jnp.asarray([1, 0, 0]))] == [[0]]
    x = array(1, 2, 3)
    assert x[jnp.asarray([True, False, True])].tolist() == [1, 3]
    assert x[jnp.asarray([False, False, True])].tolist() == [3]


def test_each_line_that_reads_outside_warns() -> None:
    x = array(1, 2, 3)
    for _ in range(2):
        x[1]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        x[7]
        x[7]
    assert [w.category for w in found] == [OutOfBoundsWarning] * 2


def test_another_index_is_the_same_call() -> None:
    x = jnp.arange(60).reshape(3, 4, 5)
    want = np.arange(60).reshape(3, 4, 5)
    x[0], x[0, 1], x[0, 1:, 2], x[2, 2], x.at[0].set(1), x.at[0, 1].add(1)
    before = kept()
    for i in (-3, -1, 1, 2):
        assert x[i].tolist() == want[i].tolist()
        assert x[i, -2].tolist() == want[i, -2].tolist()
        assert x[i, 1:, 3].tolist() == want[i, 1:, 3].tolist()
        changed, added = want.copy(), want.copy()
        changed[i], added[i, 3] = 1, added[i, 3] + 1
        assert x.at[i].set(1).tolist() == changed.tolist()
        assert x.at[i, 3].add(1).tolist() == added.tolist()
    assert kept() == before
    with pytest.warns(OutOfBoundsWarning, match="got 3"):
        assert x[3].tolist() == want[2].tolist()
    with override(check_index=True), pytest.raises(IndexError, match="got -4"):
        x[-4]


def test_another_slice_of_the_same_length_is_the_same_call() -> None:
    data = np.arange(60, dtype=np.float32).reshape(6, 10)
    x = jnp.asarray(data)
    first = [np.s_[0:2], np.s_[:, 1:4], np.s_[0:2, 1:4], np.s_[-3:-1]]
    for index in first:
        np.testing.assert_array_equal(x[index], data[index])
    count = kept()
    for index in (np.s_[4:], np.s_[:2], np.s_[:, 7:], np.s_[:, -3:], np.s_[3:5, 0:3], np.s_[-2:]):
        np.testing.assert_array_equal(x[index], data[index])
    assert kept() == count
    for index in (np.s_[3:3], np.s_[7:9], np.s_[::2], np.s_[4:1:-1], np.s_[:], np.s_[1:99, None]):
        np.testing.assert_array_equal(x[index], data[index])


def test_another_seed_or_bound_is_the_same_call_and_gives_what_jit_gives() -> None:
    key = fnx.random.key(0)
    calls = {"key": lambda i: fnx.random.key_data(fnx.random.key(i)), "raw": fnx.random.PRNGKey,
             "fold": lambda i: fnx.random.key_data(fnx.random.fold_in(key, i)),
             "bounds": lambda i: fnx.random.randint(key, (5,), -i, maxval=i + 3),
             "one hot": lambda i: fnx.nn.one_hot(i, 9)}
    for call in calls.values():
        call(1)
    count = kept()
    for name, call in calls.items():
        for i in (0, 2, 7, 123456789, 2**31 - 4):
            assert same_bits(np.asarray(call(i)), np.asarray(fnx.jit(lambda: call(i))())), name
    assert kept() == count
    for seed in (-1, 2**32 - 1, 2**40 + 3):
        np.testing.assert_array_equal(fnx.random.PRNGKey(seed),
                                      fnx.jit(lambda: fnx.random.PRNGKey(seed))())


def test_effects_take_place_at_each_call(capfd: pytest.CaptureFixture[str]) -> None:
    x = array(1)
    for _ in range(3):
        fnx.debug.print("{}", x)
    fnx.effects_barrier()
    assert capfd.readouterr().out.count("[1.]") == 3


def test_the_configuration_is_part_of_a_call() -> None:
    x = jnp.asarray([1, 2])
    assert x.sum().dtype == np.int32
    with override(x64=True):
        assert jnp.asarray([1, 2], "int32").sum().dtype == np.int64
    assert x.sum().dtype == np.int32
    with override(device="interp"):
        assert jnp.asarray([1, 2]).sum().item() == 3
    with override(check="nan"), pytest.raises(FloatingPointError, match="test_eager_cache.py"):
        jnp.log(array(-1.0))
    assert np.isnan(jnp.log(array(-1.0)).tolist()).all()
    with override(check="nan"), pytest.raises(FloatingPointError, match="test_eager_cache.py"):
        jnp.log(array(-1.0))


def test_a_donated_operand_is_refused() -> None:
    x = array(1, 2)
    x + 1
    fnx.jit(lambda x: x * 2, donate_argnums=0)(x)
    with pytest.raises(DonatedError, match="test_eager_cache.py"):
        x + 1


def test_results_keep_their_structure_and_weak_type() -> None:
    x = array(3, 1)
    for _ in range(2):
        low, high = jnp.divmod(x, 2)
        assert (low.tolist(), high.tolist()) == ([1, 0], [1, 1])
        assert (jnp.asarray(1.0) + 1).weak_type and not (x + 1).weak_type
        split = jnp.split(x, 2)
        assert type(split) is list and [s.tolist() for s in split] == [[3], [1]]


def test_calls_that_cannot_be_told_apart_are_not_kept() -> None:
    x = array(1, 2)
    before = kept()
    for n in (1, 2):
        jnp.apply_along_axis(lambda row, n=n: row * n, 0, x)  # a function
        x + np.array([n, n], np.float32)  # NumPy data
    inside = {key[0] for key in eager_cache._call_cache.keys()[before:]}
    assert jnp.apply_along_axis not in inside
    assert (x + np.array([5, 5], np.float32)).tolist() == [6, 7]


def test_tracing_is_never_short_cut() -> None:
    x = array(1, 2)
    for _ in range(2):
        x * x
    assert fnx.grad(lambda x: (x * x).sum())(x).tolist() == [2, 4]
    assert fnx.jit(lambda y: x * x + y)(x).tolist() == [2, 6]
    assert fnx.vmap(lambda y: y * y)(x).tolist() == [1, 4]


def test_the_number_of_kept_calls_is_bounded() -> None:
    x = array(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eager_cache._call_cache, "limit", 20)
        for n in range(50):
            x + n
        assert kept() == 20


def test_threads_repeat_calls() -> None:
    found: list[float] = []

    def work(n: int) -> None:
        x = array(n)
        for _ in range(200):
            x = x + 1 - 1
        found.append(float(x[0]))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == [0, 1, 2, 3]


NUMBERS = (0.0, -0.0, 1.0, -1.0, 1 + 1e-7, 1 - 1e-9, 1.0000002, 0.1, -2.5, 3.0, 1e-29, 1e-31, 1e-40,
           1e-60, 1e29, 3e38, -1e39, float("inf"), float("nan"), 2.0 ** 0.5, 7.0)
ARITHMETIC = {
    "x + v": lambda x, v: x + v, "v + x": lambda x, v: v + x, "x - v": lambda x, v: x - v,
    "v - x": lambda x, v: v - x, "x * v": lambda x, v: x * v, "v * x": lambda x, v: v * x,
    "x / v": lambda x, v: x / v, "v / x": lambda x, v: v / x, "multiply": jnp.multiply,
    "subtract": lambda x, v: jnp.subtract(v, x), "weak": lambda x, v: jnp.asarray(3.5) * v}


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_another_number_is_the_same_call_and_gives_what_it_gives_anew(name: str) -> None:
    f = ARITHMETIC[name]
    for dtype in (np.float32, np.int32, np.float16):
        x = jnp.asarray(np.array([0, 1, 2.5, -3, 1e-3, 100]).astype(dtype))
        anew = []
        for v in NUMBERS:
            eager_cache.clear_cache()
            anew.append(f(x, v))
        eager_cache.clear_cache()
        for _ in range(2):
            for v, want in zip(NUMBERS, anew):
                got = f(x, v)
                assert (got.dtype, got.weak_type) == (want.dtype, want.weak_type)
                assert np.asarray(got).tobytes() == np.asarray(want).tobytes(), (v, dtype)


def test_new_numbers_are_not_kept_one_by_one() -> None:
    x = array(1, 2, 3)
    x * 0.5
    before = kept()
    for i in range(100):
        x * (0.5 + 0.01 * i + 0.003)
    assert kept() <= before + 1


def test_numbers_of_x64_are_their_own() -> None:
    with fnx.enable_x64(True):
        x = jnp.asarray(np.array([1.0, 3.0]))
        wide = [np.asarray(x * v) for v in (0.1, 0.2, 1 / 3)]
    narrow = [np.asarray(array(1, 3) * v) for v in (0.1, 0.2, 1 / 3)]
    for v, a, b in zip((0.1, 0.2, 1 / 3), wide, narrow):
        assert a.tobytes() == (np.array([1.0, 3.0]) * v).tobytes()
        assert b.tobytes() == (np.array([1, 3], np.float32) * np.float32(v)).tobytes()


# ---- gradients: cached by the traced graph ------------------------------------------------------

def scaled_loss(factor: float, offset: Any) -> Any:
    return lambda x: ((x * factor + offset) ** 2).sum()


def test_a_gradient_is_found_by_what_was_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    x, offset = jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, 5.0])
    want = [[2.0 * 2.5 * (2.5 * 1 + 3), 2.0 * 2.5 * (2.5 * 2 + 5)]]
    for _ in range(2):
        np.testing.assert_allclose(fnx.grad(scaled_loss(2.5, offset))(x), want[0], rtol=1e-6)
    monkeypatch.setattr(grad_module, "_with_gradients", None)  # not differentiated again
    np.testing.assert_allclose(fnx.grad(scaled_loss(2.5, offset))(x), want[0], rtol=1e-6)
    other = fnx.grad(scaled_loss(2.5, offset + 1))(x)
    np.testing.assert_allclose(other, [32.5, 55.0], rtol=1e-6)


def test_gradients_follow_what_python_decides() -> None:
    def f(x: Any) -> Any:
        return (x * 2 if float(x[0]) > 0 else x * 3).sum()
    for value, slope in [(1.0, 2.0), (-1.0, 3.0)] * 2:
        np.testing.assert_array_equal(fnx.grad(f)(jnp.full(3, value)), np.full(3, slope))


def test_gradients_of_shared_memory_and_other_kinds_are_their_own() -> None:
    def f(x: Any, y: Any) -> Any:
        return (x * y).sum()
    x, y = jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, 4.0])
    for _ in range(2):
        assert fnx.grad(f)(x, y).tolist() == [3, 4] and fnx.grad(f)(x, x).tolist() == [1, 2]
        assert [g.tolist() for g in fnx.grad(f, (0, 1))(x, y)] == [[3, 4], [1, 2]]
        value, found = fnx.value_and_grad(f, 1)(x, y)
        assert float(value) == 11 and found.tolist() == [1, 2]
        assert fnx.grad(f)(2.0, 3.0).weak_type and not fnx.grad(f)(jnp.float32(2), 3.0).weak_type
    assert fnx.jit(lambda x: fnx.grad(f)(x, y))(x).tolist() == [3, 4]
    assert fnx.grad(lambda x: fnx.grad(f)(x, y)[0] * x[0])(x).tolist() == [3, 0]

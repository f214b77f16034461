"""fnx.random: its laws. (tests/public/test_golden.py checks that the bits are JAX's.)"""

from __future__ import annotations

import itertools
import math
import pickle
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.dtypes
import fnx.numpy as jnp
import fnx.random as random
from fnx.core.array.array import Array
from fnx.core.ir.dtypes import uint32
from fnx.core.ir.uop import toposort
from fnx.core.levels import interp
from fnx.core.scope import scope
from fnx.core.support.errors import FnxError
from fnx.core.tracing import trace
from tests.helpers import key_data

SEEDS = st.integers(0, 2**32 - 1)
quick = settings(max_examples=25, deadline=None)


@quick
@given(SEEDS, st.integers(1, 40))
def test_an_element_depends_on_key_and_place_only(seed: int, n: int) -> None:
    k = random.key(seed)
    long = np.asarray(random.bits(k, (64,)))
    np.testing.assert_array_equal(np.asarray(random.bits(k, (n,))), long[:n])
    np.testing.assert_array_equal(np.asarray(random.bits(k, (4, 16))).ravel(), long)


@quick
@given(SEEDS)
def test_keys_differ(seed: int) -> None:
    k = random.PRNGKey(seed)
    rows = [tuple(r) for r in np.asarray(random.split(k, 20)).tolist()]
    assert len(set(rows)) == len(rows)
    assert rows[:5] == [tuple(random.fold_in(k, i).tolist()) for i in range(5)]
    np.testing.assert_array_equal(np.asarray(random.split(k, 3))[:2],
                                  np.asarray(random.split(k, 2)))


@quick
@given(SEEDS, st.floats(-100, 100), st.floats(0.5, 100))
def test_uniform_stays_inside(seed: int, low: float, width: float) -> None:
    x = np.asarray(random.uniform(random.key(seed), (200,), minval=low, maxval=low + width))
    assert (x >= np.float32(low)).all() and (x <= np.float32(low + width)).all()


@quick
@given(SEEDS, st.integers(-2**31, 2**31 - 2), st.integers(1, 2**32))
def test_randint_stays_inside(seed: int, low: int, width: int) -> None:
    high = min(low + width, 2**31 - 1)
    x = np.asarray(random.randint(random.key(seed), (100,), low, high)).astype(np.int64)
    assert (x >= low).all() and (x < high).all()


@quick
@given(SEEDS, st.integers(0, 60))
def test_a_permutation_has_each_element_once(seed: int, n: int) -> None:
    assert sorted(random.permutation(random.key(seed), n).tolist()) == list(range(n))


@quick
@given(SEEDS, st.integers(0, 30))
def test_a_traced_permutation_is_the_eager_one(seed: int, n: int) -> None:
    k = random.PRNGKey(seed)
    with scope.Scope("jit") as tracing:
        leaf = tracing.leaf(uint32, (2,))
        out = random.permutation(Array(leaf), n)
        fn, _ = trace.close([out._node], [leaf])
    (got,) = interp.apply(fn, [np.asarray(k)])
    np.testing.assert_array_equal(got, np.asarray(random.permutation(k, n)))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_vectors_that_are_shuffled_independently(axis: int) -> None:
    x = jnp.arange(600).reshape(20, 30)
    got = np.asarray(random.permutation(random.key(3), x, axis, True))
    np.testing.assert_array_equal(np.sort(got, axis), np.arange(600).reshape(20, 30))
    order = np.argsort(got, axis) if axis == 0 else np.argsort(got, axis).T
    assert len({tuple(o) for o in order.T.tolist()}) == order.shape[1]


def test_long_permutations_and_draws_by_weight_sort_and_search() -> None:
    """Nothing in a trace compares all elements with all."""
    for f in (lambda k: random.permutation(k, 30_000),
              lambda k: random.choice(k, 30_000, (30_000,), p=jnp.ones(30_000) / 30_000)):
        lowered = fnx.jit(f).lower(random.key(0))
        assert max(math.prod(n.shape) for n in toposort(lowered.graph.src)) < 1 << 20


def test_moments() -> None:
    k = random.key(3)
    n = (20_000,)
    for name, mean, deviation in (("normal", 0, 1), ("uniform", 0.5, 12**-0.5),
                                  ("exponential", 1, 1), ("laplace", 0, 2**0.5),
                                  ("gumbel", 0.5772, 1.2825), ("logistic", 0, 1.8138)):
        x = np.asarray(getattr(random, name)(k, n), np.float64)
        assert abs(x.mean() - mean) < 5 * deviation / n[0]**0.5, name
        assert abs(x.std() / deviation - 1) < 0.05, name


def test_bits_are_balanced_and_float64_has_all_of_its() -> None:
    k = random.key(11)
    words = np.asarray(random.bits(k, (4096,)))
    ones = np.unpackbits(words.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 0.01
    x = np.asarray(random.uniform(k, (4096,), np.float64))
    assert (np.frexp(x)[0] * 2**53 % 2**20 != 0).mean() > 0.99


def test_choice_with_weights() -> None:
    p = jnp.asarray([0.0, 0.25, 0.75])
    x = np.asarray(random.choice(random.key(0), 3, (4000,), p=p))
    counts = np.bincount(x, minlength=3) / 4000
    np.testing.assert_allclose(counts, [0, 0.25, 0.75], atol=0.03)
    y = np.asarray(random.categorical(random.key(0), jnp.log(p), shape=(4000,)))
    np.testing.assert_allclose(np.bincount(y, minlength=3) / 4000, [0, 0.25, 0.75], atol=0.03)


def test_choice_without_replacement() -> None:
    x: Any = random.choice(random.key(0), 6, (2, 3), replace=False)
    assert sorted(itertools.chain(*x.tolist())) == list(range(6))


@pytest.mark.cases(2)
@pytest.mark.parametrize(("n", "p"), [(7, 0.3), (12, 0.95), (60, 0.4), (1000, 0.5)])
def test_binomial_follows_its_distribution(n: int, p: float) -> None:
    draws = 20_000
    found = np.asarray(random.binomial(random.key(3), n, p, shape=(draws,))).astype(int)
    assert found.min() >= 0 and found.max() <= n
    expected = draws * np.array([math.comb(n, k) * p**k * (1 - p)**(n - k) for k in range(n + 1)])
    common = expected > 20
    counts = np.bincount(found, minlength=n + 1)
    square = ((counts - expected)[common]**2 / expected[common]).sum()
    assert square < common.sum() + 5 * math.sqrt(2 * common.sum()), (square, common.sum())


def test_multinomial_counts_all_trials() -> None:
    p = np.array([0.1, 0.0, 0.6, 0.3], "f4")
    found = np.asarray(random.multinomial(random.key(5), 100.0, p, shape=(5_000, 4)))
    np.testing.assert_array_equal(found.sum(1), 100)
    spread = np.sqrt(100 * p * (1 - p) / 5_000)
    np.testing.assert_array_less(abs(found.mean(0) - 100 * p), 5 * spread + 1e-6)
    np.testing.assert_allclose(found.var(0), 100 * p * (1 - p), rtol=0.1)


# ---- keys with a dtype of their own ------------------------------------------------------------


def test_keys_are_no_numbers_and_move_like_arrays() -> None:
    k, ks = random.key(7), random.split(random.key(7), 3)
    assert (k.shape, k.dtype, ks.shape) == ((), random.key_dtype(), (3,))
    assert jnp.issubdtype(k.dtype, fnx.dtypes.prng_key)
    assert repr(k) == "Array((), dtype=key<fry>) overlaying:\n[0 7]"
    rows = key_data(ks)
    assert rows == key_data(random.split(random.PRNGKey(7), 3))
    assert key_data(ks[1]) == rows[1] and key_data(ks[::-1]) == rows[::-1]
    assert key_data(jnp.stack([k, k])) == [[0, 7]] * 2
    assert key_data(jnp.concatenate([ks, ks[:1]])) == rows + rows[:1]
    assert key_data(jnp.where(ks == ks[2], k, ks)) == [*rows[:2], [0, 7]]
    assert key_data(ks.at[0].set(k)) == [[0, 7], *rows[1:]]
    assert [key_data(one) for one in ks] == rows
    assert key_data(random.wrap_key_data(random.key_data(ks))) == rows
    assert key_data(pickle.loads(pickle.dumps(ks))) == rows


@pytest.mark.parametrize("act", [
    lambda k: k + 1, lambda k: k + k, lambda k: -k, lambda k: k < k, lambda k: jnp.sin(k),
    lambda k: k.astype(float), lambda k: jnp.asarray(k, int), lambda k: float(k),
    lambda k: np.asarray(k), lambda k: k.sum(),
    lambda k: jnp.sort(jnp.stack([k, k])), lambda k: bool(k), lambda k: jnp.logical_not(k),
    lambda k: fnx.grad(lambda k: random.normal(k))(k), lambda k: random.wrap_key_data(k),
    lambda k: random.normal(random.split(k)), lambda k: random.key(0, dtype="uint32")])
def test_what_is_no_number_is_refused(act: Any) -> None:
    with pytest.raises(FnxError):
        act(random.key(0))


@pytest.mark.parametrize("shape", [0.05, 0.5, 1.0, 1.5, 3.0, 40.0])
def test_gamma_numbers_move_with_their_parameter(shape: float) -> None:
    """The derivative holds the cumulative probability fixed."""
    with fnx.enable_x64(True):
        a = jnp.full(6, shape)
        for log in (False, True):
            draw = random.loggamma if log else random.gamma
            drawn, slopes = fnx.jvp(lambda a: draw(random.key(4), a), (a,), (jnp.ones(6),))
            for given, slope in zip(drawn.tolist(), slopes.tolist()):
                with mpmath.workdps(30):
                    x = mpmath.exp(given) if log else mpmath.mpf(given)
                    less = mpmath.diff(lambda p: mpmath.gammainc(p, 0, x, regularized=True), shape)
                    density = x**(shape - 1) * mpmath.exp(-x) / mpmath.gamma(shape)
                    expected = float(-less / density / (x if log else 1))
                assert math.isclose(slope, expected, rel_tol=1e-7), (shape, given)


@pytest.mark.cases(1)
@pytest.mark.parametrize("name, f, at, expected", [
    ("beta", lambda k, a: random.beta(k, a, 3.0, (4000,)), 2.0, 3 / 25),
    ("dirichlet", lambda k, a: random.dirichlet(k, jnp.stack([a, a * 0 + 3.0]), (4000,))[:, 0],
     2.0, 3 / 25),
    ("chisquare", lambda k, a: random.chisquare(k, a, (4000,)), 3.0, 1.0)])
def test_means_move_with_parameters(name: str, f: Any, at: float, expected: float) -> None:
    slope = fnx.grad(lambda a: f(random.key(9), a).mean())(at)
    assert abs(float(slope) - expected) < 0.05 * expected + 0.02, name


# Recorded from JAX 0.10.2 with jax_threefry_partitionable=False and key(42).
IN_HALVES = {
    "split": (lambda k: random.key_data(random.split(k, 3)),
              [[3134548294, 3733159049], [3746501087, 894150801], [801545058, 2363201431]]),
    "uint8": (lambda k: random.bits(k, (5,), "uint8"), [45, 179, 215, 3, 244]),
    "uint16": (lambda k: random.bits(k, (5,), "uint16"), [8426, 37627, 63599, 6563, 55571]),
    "uint32": (lambda k: random.bits(k, (3,)), [2465931498, 430176367, 255383827]),
    "float16": (lambda k: random.uniform(k, (3,), "float16"), [0.69921875, 0.0146484375,
                                                               0.5146484375]),
    "bfloat16": (lambda k: random.uniform(k, (5,), "bfloat16"),
                 [0.171875, 0.6953125, 0.8359375, 0.0078125, 0.953125]),
    "randint": (lambda k: random.randint(k, (5,), 0, 1000), [12, 243, 807, 929, 184]),
    "permutation": (lambda k: random.permutation(k, 17)[:7], [3, 16, 0, 11, 8, 15, 4])}


@pytest.mark.parametrize("name", IN_HALVES)
def test_bits_counted_in_halves_are_those_of_earlier_versions_of_jax(name: str) -> None:
    draw, expected = IN_HALVES[name]
    k = random.key(42)
    usual = draw(k).tolist()
    with fnx.threefry_partitionable(False):
        assert draw(k).tolist() == expected
    assert draw(k).tolist() == usual != expected


@pytest.mark.parametrize("axis,lead", [(0, (2,)), (1, (2, 2)), (-1, ()), (2, (3,))])
def test_categories_without_replacement_are_distinct(axis: int, lead: tuple[int, ...]) -> None:
    """As many as JAX draws, from the same noise; -inf comes last."""
    logits = np.zeros((5, 6, 4), "f4")
    batch = tuple(np.delete(logits.shape, axis).tolist())
    got = np.asarray(random.categorical(random.key(1), logits, axis, (*lead, *batch),
                                        replace=False))
    drawn = got.reshape(-1, *batch)
    assert got.shape == (*lead, *batch) and got.min() >= 0 and got.max() < logits.shape[axis]
    assert all((drawn[i] != drawn[j]).all() for i in range(len(drawn)) for j in range(i))


def test_more_draws_than_categories() -> None:
    with pytest.raises(FnxError, match="at most 3 draws without replacement"):
        random.categorical(random.key(0), jnp.zeros(3), shape=(4,), replace=False)
    seen = random.categorical(random.key(0), jnp.asarray([0.0, -jnp.inf, 0.0]), shape=(2,),
                              replace=False)
    assert sorted(seen.tolist()) == [0, 2]


@pytest.mark.parametrize("x64,dtype", [(False, "int32"), (True, "int64")])
def test_choices_of_numbers_are_of_the_default_int_type(x64: bool, dtype: str) -> None:
    with fnx.enable_x64(x64):
        p = jnp.ones(10) / 10
        for replace in (True, False):
            for weights in (None, p):
                drawn = random.choice(random.key(0), 10, (3,), replace, weights)
                assert drawn.dtype == dtype, (replace, weights is None)

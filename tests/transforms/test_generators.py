"""Keys of other generators than Threefry; the numbers are those of JAX 0.10.2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import FnxError, random
from fnx.random import generators


def words(key: Any) -> Any:
    return np.asarray(random.key_data(key)).tolist()


def test_rbg_draws_what_jax_draws() -> None:
    key = random.key(7, impl="rbg")
    assert words(key) == [0, 7, 0, 7]
    assert random.bits(random.key(0, impl="rbg"), (2,)).tolist() == [1713891541, 3781805453]
    assert random.choice(random.key(2, impl="rbg"), 5, (3,)).tolist() == [0, 1, 0]
    assert random.gamma(random.key(2, impl="rbg"), 2.0) == pytest.approx(4.0385227)
    np.testing.assert_allclose(random.normal(random.key(0, impl="rbg"), (3,)),
                               [-0.25581604, 1.177591, 0.6301837], rtol=1e-6)
    assert words(random.split(random.key(0, impl="rbg"))) == [
        [1797259609, 2579123966, 1797259609, 2579123966],
        [928981903, 3453687069, 928981903, 3453687069]]


def test_unsafe_rbg_splits_as_jax_does() -> None:
    key = random.key(3, impl="unsafe_rbg")
    assert words(random.split(key)) == [
        [3146934739, 3391003311, 1891301882, 1478358120],
        [1089363569, 1607244725, 1190331783, 2650401737]]
    assert words(random.fold_in(key, 3)) == [56543296, 1826787334, 2453521982, 2503663990]


@pytest.mark.parametrize("t, want", [
    ("uint8", [[35, 125], [252, 137], [100, 105]]),
    ("uint16", [[25891, 5245], [28156, 19849], [13156, 43369]]),
])
def test_a_state_gives_bits_and_the_next_state(t: str, want: list[list[int]]) -> None:
    state, bits = generators.rng_bit_generator(jnp.arange(4, dtype="uint32"), (3, 2), t)
    assert state.tolist() == [0, 1, 4, 3]
    assert bits.tolist() == want


def test_64_bits_are_two_words() -> None:
    with fnx.enable_x64(True):
        state = jnp.asarray([1 << 32, 2 | 3 << 32], "uint64")
        after, wide = generators.rng_bit_generator(state, (3,), "uint64")
        _, narrow = generators.rng_bit_generator(state, (6,), "uint32")
        assert np.asarray(wide).view(np.uint32).tolist() == narrow.tolist()
        assert after.tolist() == [1 << 32, 4 | 3 << 32]
        assert generators.rng_bit_generator(state, (0,), "uint64")[1].shape == (0,)


COUNTING = generators.define_prng_impl(
    key_shape=(2,), seed=lambda s: jnp.stack([s, s]).astype("uint32"),
    split=lambda w, shape: w + jnp.arange(int(np.prod(shape)), dtype="uint32").reshape(*shape, 1),
    random_bits=lambda w, width, shape: jnp.full(shape, w.sum(), f"uint{width}"),
    fold_in=lambda w, data: w + data, name="counting", tag="count")


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg", COUNTING], ids=repr)
def test_keys_go_through_transforms_and_loops(impl: Any) -> None:
    key = random.key(5, impl=impl)
    keys = random.split(key, 3)
    assert keys.shape == (3,) and len(keys) == 3 and keys.ndim == 1 and keys.dtype == key.dtype
    want = [random.uniform(k, (2,)).tolist() for k in keys]
    assert fnx.jit(random.uniform, static_argnums=1)(keys[0], (2,)).tolist() == want[0]
    assert fnx.vmap(lambda k: random.uniform(k, (2,)))(keys).tolist() == want
    assert fnx.lax.scan(lambda c, k: (c, random.uniform(k, (2,))), 0, keys)[1].tolist() == want
    folded = fnx.jit(random.fold_in)(key, 4)
    assert (folded == random.fold_in(key, 4)).item() and (folded != key).item()
    assert (random.wrap_key_data(random.key_data(keys), impl=impl) == keys).all()
    assert (keys.reshape(3, 1)[:, 0] == keys).all() and keys[..., 1].shape == ()
    assert random.key(5, dtype=key.dtype).dtype is not None and random.clone(key) is key
    assert random.key_impl(key) == impl and random.key_dtype(impl) == key.dtype
    assert jnp.issubdtype(key.dtype, fnx.dtypes.prng_key)
    assert random.permutation(key, 5).sum() == 10


def test_a_generator_of_the_users_is_called_with_words() -> None:
    key = random.key(7, impl=COUNTING)
    assert repr(key) == "Array((), dtype=key<count>) overlaying:\n[7 7]"
    assert random.bits(key, (3,)).tolist() == [14, 14, 14]
    assert words(random.split(key, 2)) == [[7, 7], [8, 8]]
    assert words(random.fold_in(key, 5)) == [12, 12]
    assert repr(random.key_impl(key)) == "PRNGSpec('counting')"


BAD = COUNTING.generator.replace(name="bad", random_bits=lambda w, width, shape: jnp.zeros(shape))


@pytest.mark.parametrize("act, says", [
    (lambda: random.key(0, impl="nothing"), "expected impl 'threefry2x32', 'rbg'"),
    (lambda: random.bits(random.key(0, impl=BAD), (2,)),
     "random_bits of the generator bad to return uint32.2., got float32.2."),
    (lambda: random.bits(random.split(random.key(0, impl="rbg")), ()), "expected one key"),
    (lambda: random.wrap_key_data(jnp.zeros(3, "uint32"), impl="rbg"), "of shape"),
    (lambda: random.key(jnp.arange(2), impl="rbg"), "expected one integer as seed"),
    (lambda: np.asarray(random.key(0, impl="rbg")), "random keys"),
    (lambda: jnp.sin(random.key(0, impl="rbg")), "expected"),
    (lambda: generators.rng_bit_generator(jnp.arange(3, dtype="uint32"), (2,)), "uint32.4. or"),
    (lambda: generators.rng_bit_generator(jnp.arange(4, dtype="uint32"), (2,), "int32"),
     "expected an unsigned dtype"),
    (lambda: generators.rng_bit_generator(jnp.arange(4, dtype="uint32"), (2,), algorithm=1),
     "expected Philox"),
])
def test_what_no_generator_is_is_refused(act: Any, says: str) -> None:
    with pytest.raises(FnxError, match=says):
        act()

"""Memory shared with NumPy and through DLPack; pickles, copies, ufuncs, plots."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import random
import signal
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.dlpack
import fnx.numpy as jnp
from fnx.core.ir import dtypes, low_precision
from fnx.core.support.errors import ArgumentError, ExchangeError

COMPILED = True  # memory of the default device
OF_NUMPY = [t for t in dtypes.USER if t.np.names is None]
EXCHANGED = [t for t in dtypes.USER if fnx.dlpack.is_supported_dtype(t.name)]


def address(x: Any) -> int:
    return x._storage.ptr if isinstance(x, fnx.Array) else x.__array_interface__["data"][0]


def aligned(n: int, dtype: Any = "float32", start: int = 0) -> np.ndarray:
    """NumPy data whose address is ``start`` bytes past a multiple of 64."""
    t = np.dtype(dtype)
    raw = np.zeros(n * t.itemsize + 192, np.uint8)
    first = -address(raw) % 64 + start
    return raw[first:first + n * t.itemsize].view(t)


class Giver:
    """An array of another library, which supports DLPack alone."""

    def __init__(self, value: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.value, self.device = value, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.value.__dlpack__(**kwargs)


# ---- to others


@pytest.mark.parametrize("t", OF_NUMPY, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)], ids=str)
def test_numpy_sees_an_array_where_it_is(t: dtypes.DType, shape: tuple[int, ...]) -> None:
    x = jnp.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5).astype(t)
    for seen in (np.asarray(x), np.from_dlpack(x)):
        assert seen.dtype == t.np and seen.shape == shape and not seen.flags.writeable
        assert seen.size == 0 or address(seen) == address(x)
        np.testing.assert_array_equal(seen, np.array(x))


@pytest.mark.parametrize("t", EXCHANGED, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)], ids=str)
def test_there_and_back_again(t: dtypes.DType, shape: tuple[int, ...]) -> None:
    with fnx.enable_x64():
        x = jnp.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5).astype(t)

        class Other(Giver):
            def __dlpack__(self, **kwargs: Any) -> Any:
                return x.__dlpack__(**kwargs)

        y = fnx.dlpack.from_dlpack(Other(np.zeros(0)))
        assert y._dtype is t and y.shape == shape and not y.weak_type
        assert y.size == 0 or address(y) == address(x)
        assert np.array_equal(y._numbers(), x._numbers())
        assert fnx.dlpack.from_dlpack(x) is x
        assert address(fnx.dlpack.from_dlpack(x, copy=True)) != address(x)


def test_who_can_not_be_told_of_read_only_memory_gets_a_copy() -> None:
    x = jnp.arange(4)

    class Old(Giver):
        def __dlpack__(self, **kwargs: Any) -> Any:
            return x.__dlpack__()

    old = np.from_dlpack(Old(np.zeros(0)))
    assert address(old) != address(x) and old.tolist() == [0, 1, 2, 3]
    with pytest.raises(ExchangeError, match="before 1.0"):
        x.__dlpack__(copy=False)
    own = np.from_dlpack(x, copy=True)
    own[0] = 7
    assert x.tolist() == [0, 1, 2, 3]


def test_what_dlpack_has_not_is_refused_by_name() -> None:
    for t in ("int4", "uint4"):
        with pytest.raises(ExchangeError, match=f"got {t}.*\n.*astype"):
            jnp.ones(2).astype(t).__dlpack__(max_version=(1, 0))
    with pytest.raises(ExchangeError, match="got key<fry>.*\n.*key_data"):
        fnx.random.key(0).__dlpack__(max_version=(1, 0))
    with pytest.raises(ExchangeError, match=r"got \(2, 0\)"):
        jnp.ones(2).__dlpack__(dl_device=(2, 0))
    with pytest.raises(ExchangeError, match="no stream"):
        jnp.ones(2).__dlpack__(stream=1)
    with pytest.raises(BufferError):
        jnp.ones(2).__dlpack__(stream=1)
    with pytest.raises(fnx.errors.TracedValueError):
        fnx.jit(lambda x: np.from_dlpack(x))(jnp.ones(2))


# ---- from others


@pytest.mark.parametrize("t", [t for t in OF_NUMPY if t.bits < 64], ids=str)
def test_memory_of_others_is_taken_where_it_is(t: dtypes.DType) -> None:
    there = aligned(6, t.np).reshape(2, 3)
    there[...] = np.arange(6).reshape(2, 3) % 2
    x = jnp.from_dlpack(Giver(there))
    assert address(x) == address(there) and x._dtype is t
    assert np.array_equal(np.asarray(x), there)
    assert fnx.jit(lambda a: a == a)(x).all()


LAYOUTS = {
    "unaligned": lambda a: aligned(24, start=4).reshape(4, 6), "columns": lambda a: a.T,
    "every other": lambda a: a[:, ::2], "backwards": lambda a: a[::-1], "broadcast":
    lambda a: np.broadcast_to(a[0], (3, 6)), "64 bits": lambda a: a.astype("float64")}


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_lies_otherwise_is_copied(name: str) -> None:
    base = aligned(24).reshape(4, 6)
    base[...] = np.arange(24).reshape(4, 6)
    value = LAYOUTS[name](base)
    x = jnp.from_dlpack(Giver(value))
    assert address(x) != address(value) and np.array_equal(np.asarray(x), value)
    assert np.array_equal(np.asarray(jnp.asarray(value)), value)
    with pytest.raises(ExchangeError, match="C-contiguous|multiple of 64|becomes float32"):
        jnp.from_dlpack(Giver(value), copy=False)


def test_bad_givers() -> None:
    for bad in (3, [1.0], object(), None):
        with pytest.raises(ArgumentError, match="__dlpack__"):
            jnp.from_dlpack(bad)
    with pytest.raises(ExchangeError, match="device"):
        jnp.from_dlpack(Giver(np.zeros(2), (2, 0)))

    class Liar(Giver):
        def __dlpack__(self, **kwargs: Any) -> Any:
            return "no capsule"

    with pytest.raises(ExchangeError, match="Liar"):
        jnp.from_dlpack(Liar(np.zeros(2)))
    taken = np.zeros(2, np.float32).__dlpack__(max_version=(1, 0))

    class Twice(Giver):
        def __dlpack__(self, **kwargs: Any) -> Any:
            return taken

    assert jnp.from_dlpack(Twice(np.zeros(2))).tolist() == [0, 0]
    with pytest.raises(ExchangeError, match="Twice"):
        jnp.from_dlpack(Twice(np.zeros(2)))


@pytest.mark.parametrize("value", [
    np.arange(6, dtype=">f4"), np.array(3, ">i2"), np.arange(6, dtype=">u4").reshape(2, 3)[::-1],
    np.zeros((0, 2), ">f4"), np.arange(6.0)[::-2], np.frombuffer(b"abcd", np.uint8)],
    ids=lambda v: f"{v.dtype.str}{v.shape}")
def test_byte_orders_and_strides(value: np.ndarray) -> None:
    for x in (jnp.asarray(value), fnx.jit(lambda a: a * 1)(value), jnp.sin(value) * 0 + value):
        assert np.array_equal(np.asarray(x), value) and x.shape == value.shape


# ---- writability and lifetimes


def test_an_array_is_taken_back_without_a_copy_and_what_can_be_written_is_not() -> None:
    x = jnp.arange(32.0).reshape(2, 16)
    for view in (np.asarray(x), np.asarray(x)[1], np.asarray(x).reshape(4, 8)):
        assert address(jnp.asarray(view)) == address(view)
    data = aligned(16)
    y = jnp.asarray(data)
    data[:] = 1
    assert y.sum() == 0
    data.flags.writeable = False  # its owner can set that back
    z = jnp.asarray(data)
    data.flags.writeable = True
    data[:] = 2
    assert z.sum() == 16


def test_borrowed_memory_is_never_written_over() -> None:
    there = aligned(1024)
    there[:] = 1
    step = fnx.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.from_dlpack(Giver(there))
    for _ in range(3):
        x = step(x)
    assert (there == 1).all() and x[0] == 4


def test_dropped_in_every_order() -> None:
    """A view of a view of an array: whichever is dropped first, the others keep the values."""
    for order in itertools.permutations(range(4)):
        source = aligned(64)
        source[:] = np.arange(64)
        gone = weakref.ref(source.base)
        x = jnp.from_dlpack(Giver(source))
        chain: list[Any] = [source, x, np.from_dlpack(x), jnp.from_dlpack(np.from_dlpack(x))]
        del source, x
        for i in order:
            chain[i] = None
            for left in chain:
                assert left is None or np.array_equal(np.asarray(left), np.arange(64))
            del left
        assert gone() is None, order


def test_capsules_that_nobody_takes_let_go() -> None:
    source = aligned(64)
    gone = weakref.ref(source.base)
    capsules = [jnp.from_dlpack(Giver(source)).__dlpack__(max_version=v) for v in (None, (1, 0))]
    del source
    assert gone() is not None
    del capsules
    assert gone() is None


def test_work_in_flight_keeps_what_it_reads() -> None:
    f = fnx.jit(lambda x: (x @ x).sum())
    for _ in range(3):
        there = aligned(512 * 512).reshape(512, 512)
        there[...] = 1
        y = f(jnp.from_dlpack(Giver(there)))
        del there
        other = aligned(512 * 512)
        other[:] = 5
        assert y == 512.0 ** 3


def test_interrupts_lose_no_memory() -> None:
    """Ctrl-C at any instruction of an exchange, a thousand times.

    The Python callbacks that others (hypothesis, JAX) add to the garbage collector are removed: an
    exception raised in them is printed and lost, and its traceback keeps objects alive.
    """
    callbacks, gc.callbacks[:] = gc.callbacks[:], []
    sources = [weakref.ref(aligned(64).base)]
    raised, made = 0, [None]
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    choose = random.Random(0)
    try:
        for _ in range(1000):
            try:
                source = aligned(64)
                sources.append(weakref.ref(source.base))
                signal.setitimer(signal.ITIMER_REAL, choose.uniform(1e-6, 1.5e-4))
                for _ in range(2000):  # a swallowed interrupt is noticed
                    made = [jnp.from_dlpack(Giver(source))]
                    made.append(np.from_dlpack(made[0]))
            except KeyboardInterrupt:
                raised += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            source = None
            made.clear()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.callbacks[:] = callbacks
    gc.collect()
    assert raised == 1000 and [ref for ref in sources if ref() is not None] == []


# ---- pickles and copies


@pytest.mark.parametrize("t", dtypes.USER, ids=str)
def test_pickles_and_copies(t: dtypes.DType) -> None:
    for shape in ((), (0, 2), (2, 3)):
        x = jnp.ones(shape).astype(t)
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            y = pickle.loads(pickle.dumps(x, protocol))
            assert y._dtype is t and y.shape == shape and np.array_equal(y._numpy(), x._numpy())
        y = copy.deepcopy({"a": [x]})["a"][0]
        assert copy.copy(x) is x and y._dtype is t and address(y) != address(x)
        if t.storage is None or t.np.names is None:
            buffers: list[Any] = []
            pickle.dumps(x, 5, buffer_callback=buffers.append)
            assert len(buffers) == 1 or x.ndim == 0  # the memory itself, besides the pickle
    weak = jnp.asarray(1.5)
    assert pickle.loads(pickle.dumps(weak)).weak_type and copy.deepcopy(weak).weak_type


# ---- NumPy's functions, ml_dtypes, plots


def test_ufuncs_and_functions_of_numpy() -> None:
    x = jnp.asarray([1.0, 4.0, 9.0])
    a = np.asarray([1.0, 2.0, 3.0], "float32")
    assert type(np.sqrt(x)) is np.ndarray and np.sqrt(x).tolist() == [1, 2, 3]
    assert type(a + x) is type(x + a) is fnx.Array and type(np.float32(1) + x) is fnx.Array
    assert np.add(a, x).tolist() == [2, 6, 12] and np.add.reduce(x) == 14
    a += x
    assert type(a) is np.ndarray and a.tolist() == [2, 6, 12]
    assert np.stack([x, x]).shape == (2, 3) and np.linalg.norm(x) > 9
    assert (x == a).shape == (3,) and np.array_equal(x, x) and np.max(x) == 9
    out = np.zeros(3, "float32")
    np.multiply(x, 2, out=out)
    assert out.tolist() == [2, 8, 18]
    with pytest.raises(TypeError):
        np.add(a, a, out=x)  # an Array is immutable


@pytest.mark.parametrize("t", list(dtypes.LOW_PRECISION.values()), ids=str)
def test_ml_dtypes(t: dtypes.DType) -> None:
    theirs = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, t.name))
    x = jnp.asarray(theirs)
    assert x._dtype is t and x.dtype == theirs.dtype and np.asarray(x).dtype == theirs.dtype
    assert np.array_equal(np.asarray(x).astype(float), theirs.astype(float))
    assert np.array_equal(low_precision.decode(x._numpy(), t), theirs.astype(t.compute.np))
    assert address(jnp.asarray(np.asarray(x))) == address(x)


def test_matplotlib_takes_arrays() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    left, right = figure.subplots(1, 2)
    x = jnp.linspace(0, 1, 5)
    line, = left.plot(x, jnp.sin(x), label="sine")
    left.fill_between(x, x, x + 1)
    left.errorbar(x, x, yerr=x)
    left.hist(x)
    left.axhline(x[2])
    image = right.imshow(jnp.outer(x, x))
    np.testing.assert_allclose(line.get_ydata(), np.sin(np.asarray(x)), rtol=1e-6)
    np.testing.assert_allclose(image.get_array(), np.outer(x, x))


def test_pandas_takes_arrays_and_gives_columns() -> None:
    import pandas

    x = jnp.arange(6.0).reshape(3, 2)
    frame = pandas.DataFrame({"a": x[:, 0], "b": jnp.arange(3), "c": jnp.asarray([1, 0, 1], bool)})
    assert [str(t) for t in frame.dtypes] == ["float32", "int32", "bool"]
    assert frame["a"].tolist() == [0, 2, 4] and pandas.DataFrame(x).shape == (3, 2)
    assert jnp.asarray(frame["b"]).tolist() == [0, 1, 2]
    assert jnp.sum(frame[["a", "b"]].to_numpy()) == 9
    assert np.array_equal(fnx.jit(lambda v: v * 2)(frame["a"].to_numpy()), [0, 4, 8])
    both = frame["a"] + jnp.ones(3)
    assert type(both) is pandas.Series and both.tolist() == [1, 3, 5]


def test_threads_exchange_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    source = [aligned(256) for _ in range(8)]
    for i, a in enumerate(source):
        a[:] = i

    def work(seed: int) -> bool:
        choose = random.Random(seed)
        for _ in range(100):
            i = choose.randrange(8)
            x = jnp.from_dlpack(Giver(source[i]))
            y = np.from_dlpack(x)
            del x
            if not (y == i).all():
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))

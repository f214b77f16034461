"""Bad axes, shapes, modes, keys and paddings in every function that takes them.

Each raises an fnx error that names the user's line.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax, random
from fnx.core.support.errors import FnxError

COMPILED = True  # error lines are looked up among frames of user code
X = np.arange(6, dtype=np.float32).reshape(2, 3)
AXES: tuple[Any, ...] = (5, -9, 1.5, "x", (0, 0), (0, 7), {}, 1 << 70)
SHAPES: tuple[Any, ...] = (-1, (2, -3), 2.5, "ab", (2, None), (1 << 62, 4), 1 << 70, [[2]])
MODES: tuple[Any, ...] = ("nonsense", 3, (), b"clip")
KEYS: tuple[Any, ...] = (None, 1.5, "key", np.zeros(3, np.uint32), np.zeros(2, np.float32),
                         np.zeros((2, 2), np.uint32), [])
# The arguments of functions whose other arguments are more than X.
OTHERS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("concatenate", "stack", "concat"), ([X, X],)), "take": (X, [0]),
    **dict.fromkeys(("append", "cross", "vecdot"), (X, X)), "delete": (X, 0),
    "insert": (X, 0, 1), "repeat": (X, 2), "roll": (X, 1), "split": (X, 1),
    "array_split": (X, 1), **dict.fromkeys(("percentile", "nanpercentile"), (X, 50)),
    **dict.fromkeys(("quantile", "nanquantile"), (X, 0.5)),
    "take_along_axis": (X, X.astype(int)), "compress": ([True], X),
    **dict.fromkeys(("partition", "argpartition"), (X, 1)),
    "apply_along_axis": (jnp.sum,), "put_along_axis": (X, X.astype(int), 1)}
UNSEEN = {"put_along_axis", "apply_along_axis"}  # axis follows other positional arguments
LEGAL = {("roll", (0, 0))}  # as in NumPy: both shifts
PADS: tuple[Any, ...] = (-1, 1.5, "x", ((1, 2, 3),), ((1,), (2, 3)), (1, 2, 3), None,
                         ((0, 1), (2, -1)))
WINDOWS: tuple[Any, ...] = ("nonsense", ((0, 0),) * 3, 1.5, ((0,), (0,)), "same ", [(0, 1.5)] * 2)


def _public(module: Any, parameter: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in sorted(n for n in dir(module) if not n.startswith("_")):
        f = getattr(module, name)
        if callable(f) and not inspect.isclass(f):
            try:
                if parameter in inspect.signature(f).parameters:
                    yield name, f
            except ValueError:
                continue


def refused(act: Callable[[], Any]) -> str:
    """Return what is wrong with a refusal; empty if it is as expected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = act()
        except FnxError as error:
            return "" if "test_refusals.py:" in str(error) else f"no line: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return f"taken: {found!r}"[:80]


def _all(calls: Iterator[tuple[str, Callable[[], Any]]]) -> None:
    found = [f"{what}: {wrong}" for what, act in calls if (wrong := refused(act))]
    assert not found, "\n".join(found)


def test_axes() -> None:
    def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
        for name, f in _public(jnp, "axis"):
            for axis in AXES if name not in UNSEEN else ():
                args = OTHERS.get(name, (X,))
                if not any((name, axis) == legal for legal in LEGAL):
                    yield f"{name} {axis}", lambda f=f, args=args, axis=axis: f(*args, axis=axis)
    _all(calls())


def test_an_array_is_no_axis() -> None:
    def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
        for name, f in _public(jnp, "axis"):
            for axis in (jnp.ones(3), jnp.float32(1)) if name not in UNSEEN else ():
                args = OTHERS.get(name, (X,))
                yield f"{name} {axis.shape}", lambda f=f, args=args, axis=axis: f(*args, axis=axis)
    _all(calls())


def test_an_array_is_no_dtype() -> None:
    """Functions about dtypes take arrays, as in JAX; where a dtype is asked for, none is one."""
    about = {"isdtype", "promote_types", "issubdtype", "astype"}
    modules: tuple[tuple[Any, tuple[Any, ...]], ...] = (
        (jnp, (X,)), (random, (random.key(0),)), (lax, (X,)), (fnx.nn, (X,)))

    def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
        for module, args in modules:
            for name, f in _public(module, "dtype"):
                if name not in about and not _missing(f, args):
                    for dtype in (jnp.ones(3), jnp.float32(1), X):
                        yield f"{name} {type(dtype)}", lambda f=f, a=args, t=dtype: f(*a, dtype=t)
        x = jnp.ones(3)
        yield from {"hstack": lambda: jnp.hstack([x], x), "astype": lambda: x.astype(x),
                    "asarray": lambda: jnp.asarray(x, x), "full": lambda: jnp.full(3, 1.0, x),
                    "randint": lambda: random.randint(random.key(0), (3,), 0, 3, x),
                    "convert": lambda: lax.convert_element_type(x, x),
                    "iota": lambda: lax.iota(x, 3)}.items()
    _all(calls())
    assert jnp.finfo(jnp.ones(3)).dtype == jnp.result_type(jnp.ones(3)) == np.float32
    assert jnp.can_cast(jnp.ones(3), jnp.ones(3)) and jnp.issubdtype(jnp.ones(3), jnp.floating)


def _missing(f: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    try:
        inspect.signature(f).bind(*args, dtype=None)
    except TypeError:
        return True
    return False


def test_a_sequence_is_no_bound() -> None:
    """As in JAX, a parameter of a distribution is a number or an array."""
    one = {"randint": (0, 5), "bernoulli": (0.5,), "uniform": (None, 0.0, 1.0),
           "truncated_normal": (-1.0, 1.0), "gamma": (2.0,), "beta": (1.0, 1.0),
           "poisson": (1.0,), "binomial": (3.0, 0.5), "pareto": (2.0,), "geometric": (0.5,)}

    def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
        for name, numbers in one.items():
            shape: tuple[Any, ...] = ((3,),) if name in ("randint", "uniform") else ()
            for i in range(len(numbers)):
                args = [random.key(0), *shape, *numbers]
                if args[at := len(shape) + 1 + i] is not None:
                    args[at] = (args[at],)
                    yield f"{name} {i}", lambda n=name, args=args: getattr(random, n)(*args)
    _all(calls())


def test_shapes() -> None:
    def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
        for shape in SHAPES:
            for name in ("zeros", "ones", "empty"):
                yield f"{name} {shape}", lambda n=name, s=shape: getattr(jnp, n)(s)
            yield f"full {shape}", lambda s=shape: jnp.full(s, 1)
            yield f"broadcast_to {shape}", lambda s=shape: jnp.broadcast_to(X, s)
            yield f"lax.full {shape}", lambda s=shape: lax.full(s, 1)
            for name in ("uniform", "normal", "bits", "exponential", "gumbel", "laplace"):
                yield f"{name} {shape}", lambda n=name, s=shape: getattr(random, n)(
                    random.key(0), s)
        for shape in ((4, 2), (-1, 4), (-1, -1), 2.5, "x", (7,)):
            yield f"reshape {shape}", lambda s=shape: jnp.reshape(X, s)
    _all(calls())


@pytest.mark.parametrize("name", ["split", "array_split"])
@pytest.mark.parametrize("sections", [0, -1])
def test_parts_of_a_split_are_at_least_one(name: str, sections: int) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected .*, got {sections}"):
        getattr(jnp, name)(X, sections)


def test_shapes_that_do_not_fit() -> None:
    misfits = (((2, 3), (2,)), ((3,), (4,)), ((0,), (2,)), ((2, 1, 3), (3, 2)))

    def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
        for name in """add subtract multiply divide power maximum minimum arctan2 hypot logaddexp
                copysign nextafter equal less greater logical_and floor_divide remainder heaviside
                bitwise_and left_shift gcd ldexp""".split():
            for one, two in misfits:
                x, y = np.ones(one, np.float32), np.ones(two, np.float32)
                if name in ("bitwise_and", "left_shift", "gcd"):
                    x, y = x.astype(int), y.astype(int)
                y = y.astype(int) if name == "ldexp" else y
                yield f"{name} {one} {two}", lambda n=name, x=x, y=y: getattr(jnp, n)(x, y)
        for name in ("matmul", "dot", "inner", "vecdot", "tensordot"):
            yield name, lambda n=name: getattr(jnp, n)(np.ones((2, 3)), np.ones((4, 5)))
        for name in ("concatenate", "vstack", "stack"):
            yield name, lambda n=name: getattr(jnp, n)([np.ones((2, 3)), np.ones((4, 5, 1))])
    _all(calls())


def test_modes() -> None:
    i = np.array([0, 1])

    def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
        for mode in MODES:
            yield f"take {mode}", lambda m=mode: jnp.take(X, i, mode=m)
            yield f"take_along_axis {mode}", lambda m=mode: jnp.take_along_axis(X, X.astype(int), 1,
                                                                               mode=m)
            yield f"pad {mode}", lambda m=mode: jnp.pad(X, 1, mode=m)
            yield f"choose {mode}", lambda m=mode: jnp.choose(i, [1, 2], mode=m)
            yield f"convolve {mode}", lambda m=mode: jnp.convolve(X[0], X[1], mode=m)
            yield f"at.set {mode}", lambda m=mode: jnp.asarray(X).at[0].set(1, mode=m)
            yield f"at.get {mode}", lambda m=mode: jnp.asarray(X).at[0].get(mode=m)
            yield f"ravel_multi_index {mode}", lambda m=mode: jnp.ravel_multi_index(
                (i, i), (2, 2), mode=m)
            yield f"qr of sides {mode}", lambda m=mode: jnp.searchsorted(X[0], 1.0, side=m)
            yield f"resize {mode}", lambda m=mode: fnx.image.resize(X, (4, 4), m)
    _all(calls())


def test_keys() -> None:
    def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
        for key in KEYS:
            for name in ("uniform", "normal", "bits", "bernoulli", "exponential", "split",
                         "gumbel", "rademacher", "cauchy", "laplace", "logistic"):
                yield f"{name} {key}", lambda n=name, k=key: getattr(random, n)(k)
            yield f"randint {key}", lambda k=key: random.randint(k, (2,), 0, 5)
            yield f"permutation {key}", lambda k=key: random.permutation(k, 5)
            yield f"fold_in {key}", lambda k=key: random.fold_in(k, 1)
            yield f"gamma {key}", lambda k=key: random.gamma(k, 2.0)
            yield f"categorical {key}", lambda k=key: random.categorical(k, X)
    _all(calls())


def test_paddings() -> None:
    image, kernel = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 2, 2), np.float32)

    def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
        for pad in PADS:
            yield f"pad {pad}", lambda p=pad: jnp.pad(X, p)
        for pad in WINDOWS:
            yield f"conv {pad}", lambda p=pad: lax.conv_general_dilated(image, kernel, (1, 1), p)
            yield f"reduce_window {pad}", lambda p=pad: lax.reduce_window(
                X, 0.0, lax.add, (2, 2), (1, 1), p)
            yield f"conv_transpose {pad}", lambda p=pad: lax.conv_transpose(
                image, kernel, (1, 1), p)
        for config in (((1, 0),) * 2, ((0, 0, -1),) * 2, ((0, 0),), 3, ((0, 0, 0.5),) * 2):
            yield f"lax.pad {config}", lambda c=config: lax.pad(X, np.float32(0), c)
    _all(calls())


def test_empty_folds_have_no_largest() -> None:
    nothing = np.zeros((0, 3), np.float32)
    _all((name, lambda n=name: getattr(jnp, n)(nothing, axis=0)) for name in (
        "max", "min", "argmax", "argmin", "ptp", "nanargmax", "amax", "amin"))


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", ["sort", "argsort", "unique", "lexsort", "median", "partition"])
def test_nan_keys_go_to_the_end_as_numpy_has_them(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for n in (1, 2, 9, 40, 300):
        x = rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, 1.0, -2.5], n).astype(np.float32)
        if name in ("sort", "unique"):
            np.testing.assert_array_equal(getattr(jnp, name)(x), getattr(np, name)(x))
        elif name == "median":
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(jnp.median(x), np.median(x))
        elif name == "partition":
            np.testing.assert_array_equal(jnp.partition(x, n // 2)[n // 2], np.sort(x)[n // 2])
        else:
            f: Any = getattr(np, name)
            expected = f(x, kind="stable") if name == "argsort" else f((x,))
            np.testing.assert_array_equal(getattr(jnp, name)(x if name == "argsort" else (x,)),
                                          expected)

"""``JaxTestCase``: a case of a test, which compares values, dtypes and numbers of traces."""

from __future__ import annotations

import contextlib
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl.testing import absltest, parameterized

from fnx.as_jax.testing.counters import (
    count_jit_compilation_cache_miss,
    count_jit_tracing_cache_miss,
)
from fnx.as_jax.testing.tolerances import Tolerance, tolerance
from fnx.core.array import tree
from fnx.core.array.abstract_values import FLOAT0
from fnx.core.array.array import Array
from fnx.core.support.config import config, override
from fnx.extend.core import jaxprs_in_params
from fnx.jaxprs.make import make_jaxpr
from fnx.random import key_data
from fnx.transforms.host_callbacks import effects_barrier
from fnx.transforms.jit import jit
from fnx.transforms.vjp import vjp

JaxTestLoader = absltest.TestLoader


def _dtype(x: Any) -> np.dtype[Any]:
    kind = {bool: "bool", int: "int32", float: "float32", complex: "complex64"}.get(type(x))
    if kind is not None:
        return np.dtype(kind)
    return np.dtype(x.dtype) if hasattr(x, "dtype") else np.asarray(x).dtype


def _wide(x: Any) -> Any:
    """Return an array of a dtype of NumPy that holds all values of it."""
    is_key = isinstance(x, Array) and x._dtype.kind == "key"
    array = np.asarray(key_data(x) if is_key else x)
    return array.astype(np.float32) if array.dtype.kind == "V" and array.dtype != FLOAT0 else array


def assert_numpy_allclose(a: Any, b: Any, atol: Tolerance = None, rtol: Tolerance = None,
                          err_msg: str = "") -> None:
    """Fail unless two arrays are equal within the larger tolerance of their dtypes."""
    left, right = _wide(a), _wide(b)
    if left.dtype == FLOAT0 and right.dtype == FLOAT0:
        np.testing.assert_equal(left.shape, right.shape, err_msg)
        return
    kinds = (_dtype(a), _dtype(b))
    absolute = max(tolerance(t, atol) for t in kinds)
    relative = max(tolerance(t, rtol) for t in kinds)
    np.testing.assert_allclose(left, right, atol=absolute, rtol=relative, err_msg=err_msg)


def check_close(xs: Any, ys: Any, atol: Tolerance = None, rtol: Tolerance = None,
                err_msg: str = "") -> None:
    """Fail unless two pytrees are equal within the tolerances of their dtypes."""
    tree.map(lambda x, y: assert_numpy_allclose(x, y, atol, rtol, err_msg), xs, ys)


def check_eq(xs: Any, ys: Any, err_msg: str = "") -> None:
    """Fail unless two pytrees are equal."""
    tree.map(lambda x, y: np.testing.assert_array_equal(_wide(x), _wide(y), err_msg), xs, ys)


def check_raises(thunk: Callable[[], Any], err_type: type[BaseException], msg: str) -> None:
    """Fail unless a call raises an error whose message begins with a text."""
    try:
        thunk()
    except err_type as error:
        assert str(error).startswith(msg), f"expected {msg!r}, got {error}"
        return
    raise AssertionError(f"expected {err_type.__name__}")


def check_raises_regexp(thunk: Callable[[], Any], err_type: type[BaseException], pattern: str
                        ) -> None:
    """Fail unless a call raises an error whose message matches a pattern."""
    try:
        thunk()
    except err_type as error:
        assert re.match(pattern, str(error)), f"expected {pattern!r}, got {error}"
        return
    raise AssertionError(f"expected {err_type.__name__}")


def iter_eqns(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of a jaxpr and of those in their params."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jaxprs_in_params(eqn.params):
            yield from iter_eqns(inner)


def fwd_bwd_jaxprs(f: Callable[..., Any], *example_args: Any) -> tuple[Any, Any]:
    """Return the jaxprs of the forward and the backward pass of a function."""
    traced: Any = make_jaxpr(lambda *args: vjp(f, *args), return_shape=True)(*example_args)
    forward, (shape, residuals) = traced
    return forward, make_jaxpr(lambda back, ct: back(ct))(residuals, shape)


def _dots(fun: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    closed: Any = make_jaxpr(fun)(*args)
    return [e for e in iter_eqns(closed.jaxpr)
            if e.primitive.name in ("dot_general", "conv_general_dilated")]


def assert_dot_precision(expected_precision: Any, fun: Callable[..., Any], *args: Any) -> None:
    """Fail unless all products of a function have a precision."""
    for eqn in _dots(fun, args):
        assert eqn.params["precision"] == expected_precision, eqn


def assert_dot_preferred_element_type(expected: Any, fun: Callable[..., Any], *args: Any,
                                      **kwargs: Any) -> None:
    """Fail unless all products of a function have a dtype of their sums."""
    for eqn in _dots(lambda *xs: fun(*xs, **kwargs), args):
        assert eqn.params["preferred_element_type"] == expected, eqn


class JaxTestCase(parameterized.TestCase):  # type: ignore[misc]
    """A case of a test written for JAX."""

    settings: Mapping[str, Any] = {}

    def setUp(self) -> None:
        """Apply the settings of the class, and seed the random numbers by the test's name."""
        super().setUp()
        self.enter_context(override(**self.settings))
        self._random = np.random.RandomState(zlib.adler32(self._testMethodName.encode()))

    def tearDown(self) -> None:
        """Wait for callbacks."""
        effects_barrier()
        super().tearDown()

    def rng(self) -> Any:
        """Return the random numbers of this test."""
        return self._random

    def assertArraysEqual(self, x: Any, y: Any, *, check_dtypes: bool = True,
                          err_msg: str = "", allow_object_dtype: bool = False,
                          verbose: bool = True) -> None:
        """Fail unless two arrays have the same values, shape and dtype."""
        if check_dtypes:
            self.assertDtypesMatch(x, y)
        left, right = _wide(x), _wide(y)
        if left.dtype == FLOAT0 and right.dtype == FLOAT0:
            self.assertEqual(left.shape, right.shape)
            return
        np.testing.assert_array_equal(left, right, err_msg=err_msg)
        self.assertEqual(left.shape, right.shape)

    def assertArraysAllClose(self, actual: Any, desired: Any, *, check_dtypes: bool = True,
                             atol: Tolerance = None, rtol: Tolerance = None, err_msg: str = ""
                             ) -> None:
        """Fail unless two arrays have the same shape and dtype, and close values."""
        self.assertEqual(np.shape(actual), np.shape(desired))
        if check_dtypes:
            self.assertDtypesMatch(actual, desired)
        assert_numpy_allclose(actual, desired, atol, rtol, err_msg)

    def assertDtypesMatch(self, x: Any, y: Any, *, canonicalize_dtypes: bool = True) -> None:
        """Fail unless two values have the same dtype, in the current mode."""
        def canonical(t: np.dtype[Any]) -> Any:
            narrow = t.name.replace("64", "32").replace("complex128", "complex64")
            wide = t.kind in "iuf" and t.itemsize == 8 or t == np.complex128
            return np.dtype(narrow) if wide and canonicalize_dtypes and not config.x64 else t
        if hasattr(x, "dtype") or hasattr(y, "dtype"):
            self.assertEqual(canonical(_dtype(x)), canonical(_dtype(y)))

    def assertAllClose(self, actual: Any, desired: Any, *, check_dtypes: bool = True,
                       atol: Tolerance = None, rtol: Tolerance = None,
                       canonicalize_dtypes: bool = True, check_shapes: bool = True,
                       err_msg: str = "") -> None:
        """Fail unless two dicts, sequences, arrays or numbers are equal within tolerances."""
        options: dict[str, Any] = {
            "check_dtypes": check_dtypes, "atol": atol, "rtol": rtol, "err_msg": err_msg,
            "canonicalize_dtypes": canonicalize_dtypes}
        if isinstance(actual, dict):
            self.assertIsInstance(desired, dict)
            self.assertEqual(set(actual), set(desired))
            for k in actual:
                self.assertAllClose(actual[k], desired[k], **options)
        elif isinstance(actual, list | tuple) and not hasattr(actual, "__array__"):
            self.assertTrue(isinstance(desired, list | tuple | np.ndarray | Array))
            self.assertEqual(len(actual), len(desired))
            for x, y in zip(actual, desired):
                self.assertAllClose(x, y, **options)
        elif hasattr(actual, "__array__") or np.isscalar(actual) or hasattr(actual, "dtype"):
            self.assertArraysAllClose(actual, desired, check_dtypes=False, atol=atol, rtol=rtol,
                                      err_msg=err_msg)
            if check_dtypes:
                self.assertDtypesMatch(actual, desired, canonicalize_dtypes=canonicalize_dtypes)
        elif actual == desired:
            return
        else:
            raise TypeError((type(actual), type(desired)))

    def assertMultiLineStrippedEqual(self, expected: str, what: str) -> None:
        """Fail unless two texts are equal up to the spaces around lines."""
        def lines(text: str) -> str:
            return "\n".join(line.strip() for line in text.strip().splitlines())
        self.assertMultiLineEqual(lines(expected), lines(what),
                                  msg=f"Found\n{what}\nExpecting\n{expected}")

    @contextlib.contextmanager
    def assertNoWarnings(self) -> Iterator[None]:
        """Fail if a block warns."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield

    def assertDeprecationWarnsOrRaises(self, deprecation_id: str, message: str) -> Any:
        """Expect the warning of a deprecation."""
        return self.assertWarnsRegex(DeprecationWarning, message)

    @contextlib.contextmanager
    def assertCacheMisses(self, func: Callable[[], Any], *, cpp: int | None = None,
                          aot_call: int | None = None, tracing: int | None = None,
                          lowering: int | None = None,
                          compilation_after_persistent_cache_miss: int | None = None
                          ) -> Iterator[Any]:
        """Fail unless a call traces and compiles as often as said."""
        with count_jit_tracing_cache_miss() as traces, \
                count_jit_compilation_cache_miss() as compilations:
            yield func()
        for got, want in ((traces(), tracing), (compilations(), lowering)):
            if want is not None:
                self.assertEqual(got, want)

    def _CompileAndCheck(self, fun: Callable[..., Any], args_maker: Callable[[], Any], *,
                         check_dtypes: bool = True, tol: Tolerance = None,
                         rtol: Tolerance = None, atol: Tolerance = None,
                         check_cache_misses: bool = True) -> None:
        """Fail unless a function gives the same values jitted, and is traced once."""
        args = args_maker()
        calls: list[int] = []

        def counted(*xs: Any) -> Any:
            calls.append(1)
            return fun(*xs)
        want = fun(*args)
        jitted = jit(counted)
        self.assertAllClose(want, jitted(*args), check_dtypes=check_dtypes,
                            atol=tol if atol is None else atol,
                            rtol=tol if rtol is None else rtol)
        other = args_maker()
        traced = len(calls)
        got = jitted(*other)
        if check_cache_misses:
            self.assertEqual(len(calls), traced, "the second call was traced again")
        self.assertAllClose(fun(*other), got, check_dtypes=check_dtypes,
                            atol=tol if atol is None else atol,
                            rtol=tol if rtol is None else rtol)

    def _CheckAgainstNumpy(self, numpy_reference_op: Callable[..., Any],
                           lax_op: Callable[..., Any], args_maker: Callable[[], Any],
                           check_dtypes: bool = True, tol: Tolerance = None,
                           atol: Tolerance = None, rtol: Tolerance = None,
                           canonicalize_dtypes: bool = True) -> None:
        """Fail unless a function gives the same values as one of NumPy."""
        args = args_maker()
        self.assertAllClose(lax_op(*args), numpy_reference_op(*args), check_dtypes=check_dtypes,
                            atol=tol if atol is None else atol,
                            rtol=tol if rtol is None else rtol,
                            canonicalize_dtypes=canonicalize_dtypes)


class BufferDonationTestCase(JaxTestCase):
    """A case about donated arrays."""

    def assertDeleted(self, x: Any) -> None:
        """Fail unless an array is deleted."""
        self.assertTrue(x.is_deleted())

    def assertNotDeleted(self, x: Any) -> None:
        """Fail if an array is deleted."""
        self.assertFalse(x.is_deleted())

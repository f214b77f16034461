"""Numerical checks of derivatives, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fnx.core.array import tree
from fnx.core.array.abstract_values import FLOAT0
from fnx.core.array.api_boundary import asarray
from fnx.core.ir.dtypes import NDArray
from fnx.core.support.errors import ArgumentError, lazy_module
from fnx.transforms.autodiff.arguments import Float0
from fnx.transforms.jvp import jvp
from fnx.transforms.vjp import linearize, vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]

Tolerance: TypeAlias = float | Mapping[Any, float] | None

# By the bits of the narrowest float: the step of a finite difference, and its tolerance.
_EPS = {16: 3e-2, 32: 1e-3, 64: 1e-4}
_TOLERANCE = {16: 1e-1, 32: 2e-3, 64: 1e-5}


def check_grads(f: Callable[..., Any], args: Sequence[Any], order: int,
                modes: Sequence[str] = ("fwd", "rev"), atol: Tolerance = None,
                rtol: Tolerance = None, eps: float | None = None) -> None:
    """Compare derivatives of a function with finite differences in one random direction.

    >>> import fnx.numpy as jnp
    >>> check_grads(jnp.sin, (0.5,), order=2)

    Args:
        f: a function of pytrees of float arrays.
        args: the arguments of f; a tuple.
        order: the maximal order of derivatives.
        modes: some of "fwd" (jvp), "rev" (vjp) and "lin" (linearize), in all combinations.
        atol: the absolute tolerance: a number, or a dict by dtype.
        rtol: the relative tolerance: a number, or a dict by dtype.
        eps: the step of the finite differences.

    Returns:
        None.

    Raises:
        AssertionError: a derivative differs from the finite difference.
        ArgumentError: an unknown mode.
    """
    if unknown := set(modes) - {"fwd", "rev", "lin"}:
        raise ArgumentError(f'check_grads: expected modes of "fwd", "rev" and "lin", got '
                            f"{sorted(unknown)}")
    if order > 0:
        for mode in modes:
            _CHECKS[mode](f, tuple(args), order, modes, (atol, rtol, eps))


def check_jvp(f: Callable[..., Any], f_jvp: Callable[..., Any], args: Sequence[Any],
              atol: Tolerance = None, rtol: Tolerance = None, eps: float | None = None,
              err_msg: str = "") -> None:
    """Compare a jvp along a random direction with a finite difference.

    >>> import fnx, functools
    >>> check_jvp(fnx.numpy.sin, functools.partial(fnx.jvp, fnx.numpy.sin), (0.5,))

    Args:
        f: a function of pytrees of float arrays.
        f_jvp: (args, tangents) -> (result, tangent).
        args: the arguments of f; a tuple.
        atol: the absolute tolerance: a number, or a dict by dtype.
        rtol: the relative tolerance: a number, or a dict by dtype.
        eps: the step of the finite difference.
        err_msg: a prefix of the message.

    Returns:
        None.

    Raises:
        AssertionError: they differ, or the result is not that of ``f``.
    """
    args, rng = tuple(args), np.random.default_rng(0)
    direction = _random_like(rng, args)
    out, tangent = f_jvp(args, direction)
    _assert_close(out, f(*args), atol, rtol, f"{err_msg or 'jvp'}: result")
    _assert_close(tangent, _difference(f, args, direction, eps), atol, rtol,
                  f"{err_msg or 'jvp'}: tangent")


def check_vjp(f: Callable[..., Any], f_vjp: Callable[..., Any], args: Sequence[Any],
              atol: Tolerance = None, rtol: Tolerance = None, eps: float | None = None,
              err_msg: str = "") -> None:
    """Compare the vjp of a random cotangent, along a random direction, with a finite difference.

    >>> import fnx, functools
    >>> check_vjp(fnx.numpy.sin, functools.partial(fnx.vjp, fnx.numpy.sin), (0.5,))

    Args:
        f: a function of pytrees of float arrays.
        f_vjp: args -> (result, pullback).
        args: the arguments of f; a tuple.
        atol: the absolute tolerance: a number, or a dict by dtype.
        rtol: the relative tolerance: a number, or a dict by dtype.
        eps: the step of the finite difference.
        err_msg: a prefix of the message.

    Returns:
        None.

    Raises:
        AssertionError: they differ, or the result is not that of ``f``.
    """
    args, rng = tuple(args), np.random.default_rng(0)
    out, pullback = f_vjp(*args)
    _assert_close(out, f(*args), atol, rtol, f"{err_msg or 'vjp'}: result")
    direction, ct = _random_like(rng, args), _random_like(rng, out)
    _assert_close(_inner_product(direction, pullback(ct)),
                  _inner_product(_difference(f, args, direction, eps), ct),
                  atol, rtol, f"{err_msg or 'vjp'}: cotangents along a direction")


# ---- modes --------------------------------------------------------------------------------------

_Options = tuple[Tolerance, Tolerance, float | None]


def _check_forward(f: Callable[..., Any], args: tuple[Any, ...], order: int, modes: Sequence[str],
                   options: _Options, jvp_fn: Callable[..., Any] = jvp) -> None:
    def along(primals: Any, tangents: Any) -> Any:
        return jvp_fn(f, primals, tangents)
    check_jvp(f, along, args, *options)
    check_grads(along, (args, _random_like(np.random.default_rng(1), args)), order - 1, modes,
                *options)


def _check_linear(f: Callable[..., Any], args: tuple[Any, ...], order: int, modes: Sequence[str],
                  options: _Options) -> None:
    def linearized_jvp(f: Callable[..., Any], primals: Any, tangents: Any) -> Any:
        out, tangent_map = linearize(f, *primals)
        return out, tangent_map(*tangents)
    _check_forward(f, args, order, modes, options, linearized_jvp)


def _check_reverse(f: Callable[..., Any], args: tuple[Any, ...], order: int, modes: Sequence[str],
                   options: _Options) -> None:
    ct = _random_like(np.random.default_rng(2), f(*args))

    def gradient(*args: Any) -> Any:
        return vjp(f, *args)[1](ct)
    check_vjp(f, lambda *args: vjp(f, *args), args, *options)
    check_grads(gradient, args, order - 1, modes, *options)


_CHECKS = {"fwd": _check_forward, "rev": _check_reverse, "lin": _check_linear}


# ---- trees of arrays ----------------------------------------------------------------------------


def _as_numpy(x: Any) -> NDArray:
    value = x if getattr(x, "dtype", None) == FLOAT0 else np.asarray(asarray(x))
    return value if value.dtype == FLOAT0 or value.dtype.kind in "fiub" else value.astype("f4")


def _is_float(x: NDArray) -> bool:
    return bool(x.dtype.kind == "f")


def _random_like(rng: np.random.Generator, xs: Any) -> Any:
    """Return a tree of random numbers for floats, and of float0 for integers."""
    def one(x: Any) -> Any:
        value = _as_numpy(x)
        return asarray(rng.normal(size=value.shape), value.dtype) if _is_float(value) else \
            Float0.like(value.shape)
    return tree.map(one, xs)


def _min_float_bits(xs: Any) -> int:
    widths = [x.dtype.itemsize * 8 for x in map(_as_numpy, tree.leaves(xs)) if _is_float(x)]
    return min(widths, default=64)


def _difference(f: Callable[..., Any], args: Any, direction: Any, eps: float | None) -> Any:
    """Return the central difference of f along a direction."""
    h = eps or _EPS[_min_float_bits(args)]

    def at(step: float) -> Any:
        return f(*tree.map(lambda x, t: x if getattr(t, "dtype", None) == FLOAT0 else
                           asarray(x) + step * t, args, direction))

    def slope(above: Any, below: Any) -> NDArray:
        a, b = _as_numpy(above), _as_numpy(below)
        if not _is_float(a):
            return Float0.like(a.shape)
        with np.errstate(invalid="ignore"):
            return np.where(a == b, 0, (a - b) / (2 * h)).astype(a.dtype)
    return tree.map(slope, at(h), at(-h))


def _inner_product(xs: Any, ys: Any) -> NDArray:
    """Return the inner product of the float leaves of two trees."""
    pairs = [(_as_numpy(x), _as_numpy(y)) for x, y in zip(tree.leaves(xs), tree.leaves(ys))]
    products = [np.sum(x * y) for x, y in pairs if _is_float(x) and _is_float(y)]
    return np.asarray(sum(products, np.zeros((), products[0].dtype if products else "f4")))


def _assert_close(got: Any, want: Any, atol: Tolerance, rtol: Tolerance, what: str) -> None:
    def one(got: Any, want: Any) -> None:
        a, b = _as_numpy(got), _as_numpy(want)
        if _is_float(b):
            np.testing.assert_allclose(a, b, rtol=_tolerance(rtol, b) * max(b.size, 1),
                                       atol=_tolerance(atol, b) * max(b.size, 1), err_msg=what)
        else:
            np.testing.assert_array_equal(a, b, err_msg=what)
    tree.map(one, got, want)


def _tolerance(tolerance: Tolerance, x: NDArray) -> float:
    default = _TOLERANCE[x.dtype.itemsize * 8]
    if isinstance(tolerance, Mapping):
        return {np.dtype(t): value for t, value in tolerance.items()}.get(x.dtype, default)
    return default if tolerance is None else tolerance


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_module(__name__, __all__)

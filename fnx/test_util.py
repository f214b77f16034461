"""Numerical checks of derivatives, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fnx.core.array import tree
from fnx.core.array.public import asarray
from fnx.core.dtypes import NDArray
from fnx.core.errors import ArgumentError, module_face
from fnx.transforms.ad.arguments import FLOAT0, Float0
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
    direction = _like(rng, args)
    out, tangent = f_jvp(args, direction)
    _close(out, f(*args), atol, rtol, f"{err_msg or 'jvp'}: result")
    _close(tangent, _difference(f, args, direction, eps), atol, rtol,
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
    out, pull = f_vjp(*args)
    _close(out, f(*args), atol, rtol, f"{err_msg or 'vjp'}: result")
    direction, ct = _like(rng, args), _like(rng, out)
    _close(_product(direction, pull(ct)), _product(_difference(f, args, direction, eps), ct),
           atol, rtol, f"{err_msg or 'vjp'}: cotangents along a direction")


# ---- modes --------------------------------------------------------------------------------------

_Options = tuple[Tolerance, Tolerance, float | None]


def _forward(f: Callable[..., Any], args: tuple[Any, ...], order: int, modes: Sequence[str],
             options: _Options, by: Callable[..., Any] = jvp) -> None:
    def along(primals: Any, tangents: Any) -> Any:
        return by(f, primals, tangents)
    check_jvp(f, along, args, *options)
    check_grads(along, (args, _like(np.random.default_rng(1), args)), order - 1, modes, *options)


def _linear(f: Callable[..., Any], args: tuple[Any, ...], order: int, modes: Sequence[str],
            options: _Options) -> None:
    def by(f: Callable[..., Any], primals: Any, tangents: Any) -> Any:
        out, push = linearize(f, *primals)
        return out, push(*tangents)
    _forward(f, args, order, modes, options, by)


def _reverse(f: Callable[..., Any], args: tuple[Any, ...], order: int, modes: Sequence[str],
             options: _Options) -> None:
    ct = _like(np.random.default_rng(2), f(*args))

    def pulled(*args: Any) -> Any:
        return vjp(f, *args)[1](ct)
    check_vjp(f, lambda *args: vjp(f, *args), args, *options)
    check_grads(pulled, args, order - 1, modes, *options)


_CHECKS = {"fwd": _forward, "rev": _reverse, "lin": _linear}


# ---- trees of arrays ----------------------------------------------------------------------------


def _value(x: Any) -> NDArray:
    value = x if getattr(x, "dtype", None) == FLOAT0 else np.asarray(asarray(x))
    return value if value.dtype == FLOAT0 or value.dtype.kind in "fiub" else value.astype("f4")


def _is_float(x: NDArray) -> bool:
    return bool(x.dtype.kind == "f")


def _like(rng: np.random.Generator, xs: Any) -> Any:
    """Return a tree of random numbers for floats, and of float0 for integers."""
    def one(x: Any) -> Any:
        value = _value(x)
        return asarray(rng.normal(size=value.shape), value.dtype) if _is_float(value) else \
            Float0.like(value.shape)
    return tree.map(one, xs)


def _bits(xs: Any) -> int:
    found = [x.dtype.itemsize * 8 for x in map(_value, tree.leaves(xs)) if _is_float(x)]
    return min(found, default=64)


def _difference(f: Callable[..., Any], args: Any, direction: Any, eps: float | None) -> Any:
    """Return the central difference of f along a direction."""
    h = eps or _EPS[_bits(args)]

    def at(step: float) -> Any:
        return f(*tree.map(lambda x, t: x if getattr(t, "dtype", None) == FLOAT0 else
                           asarray(x) + step * t, args, direction))

    def slope(above: Any, below: Any) -> NDArray:
        a, b = _value(above), _value(below)
        if not _is_float(a):
            return Float0.like(a.shape)
        with np.errstate(invalid="ignore"):
            return np.where(a == b, 0, (a - b) / (2 * h)).astype(a.dtype)
    return tree.map(slope, at(h), at(-h))


def _product(xs: Any, ys: Any) -> NDArray:
    """Return the inner product of the float leaves of two trees."""
    pairs = [(_value(x), _value(y)) for x, y in zip(tree.leaves(xs), tree.leaves(ys))]
    found = [np.sum(x * y) for x, y in pairs if _is_float(x) and _is_float(y)]
    return np.asarray(sum(found, np.zeros((), found[0].dtype if found else "f4")))


def _close(got: Any, want: Any, atol: Tolerance, rtol: Tolerance, what: str) -> None:
    def one(got: Any, want: Any) -> None:
        a, b = _value(got), _value(want)
        if _is_float(b):
            np.testing.assert_allclose(a, b, rtol=_tolerance(rtol, b) * max(b.size, 1),
                                       atol=_tolerance(atol, b) * max(b.size, 1), err_msg=what)
        else:
            np.testing.assert_array_equal(a, b, err_msg=what)
    tree.map(one, got, want)


def _tolerance(given: Tolerance, x: NDArray) -> float:
    usual = _TOLERANCE[x.dtype.itemsize * 8]
    if isinstance(given, Mapping):
        return {np.dtype(t): value for t, value in given.items()}.get(x.dtype, usual)
    return usual if given is None else given


if not TYPE_CHECKING:
    __getattr__, __dir__ = module_face(__name__, __all__)

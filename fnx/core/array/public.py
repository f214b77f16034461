"""The API boundary: conversion of arguments to Arrays, and evaluation of results.

``asarray`` converts anything array-like, ``public`` decorates public functions. Eager evaluation:
when the outermost public call ends and no trace is open, its results are evaluated as one graph,
by the function that ``set_evaluator`` registered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from fnx.core import build, dtypes, narrow, ops
from fnx.core.array import committed, convert, scope, storage, tree
from fnx.core.array.array import Array, from_numpy, from_storage
from fnx.core.array.refusal import misfit, refusal, without_places
from fnx.core.array.repeated import EagerCall, repeat
from fnx.core.config import config
from fnx.core.dtypes import DType
from fnx.core.errors import DTypeError, FnxError, KernelError, ShapeError, user_site
from fnx.core.operators import ValueOperators
from fnx.core.process import load
from fnx.core.tracebacks import shorten
from fnx.core.uop import current_site

P = ParamSpec("P")
R = TypeVar("R")


# ---- arguments --------------------------------------------------------------------------------


_LARGE, _WIDE = 3e38, 1 << 31  # Python numbers below fit the default dtypes
_AS_THEY_ARE = {np.dtype(t.name).type: t for t in (
    dtypes.bool_, dtypes.float32, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.uint8,
    dtypes.uint16, dtypes.uint32)}  # types of NumPy scalars that need no conversion


def as_given(x: Any) -> Any:
    """Return ``x.__jax_array__()`` if x defines it (a library's layer, for example), else x."""
    return x.__jax_array__() if hasattr(type(x), "__jax_array__") else x


def concrete(x: Any) -> Array:
    """Convert a number or NumPy data to an Array with memory, as jit does with its arguments."""
    kind = type(x)
    own = _AS_THEY_ARE.get(kind)
    if own is not None:
        return from_storage(storage.put(np.asarray(x)), (), own)
    scalar = convert.SCALARS.get(kind)
    if scalar is None:
        given = as_given(x)
        if given is x:
            return from_numpy(convert.numpy_data(x, None))
        return given if type(given) is Array else concrete(given)
    t = scalar()
    if kind is float and -_LARGE < x < _LARGE or kind is int and -_WIDE <= x < _WIDE:
        # these fit; all others are checked below
        return from_storage(storage.put(np.array(x, t.np)), (), t, True)
    return from_numpy(ops.const_value(build.const(x, t)), not t.is_bool)


def asarray(x: Any, dtype: Any = None) -> Array:
    """Convert anything array-like to an Array: see ``fnx.numpy.asarray``."""
    to = None if dtype is None else convert.dtype_argument(dtype)
    if type(x) is Array:
        return x if to is None or to is x._dtype and not x.weak else strong_cast(x, to)
    scalar = convert.SCALARS.get(type(x))
    if scalar is not None:
        t = to or scalar()
        return Array(build.const(convert.fits(x, t), t), to is None and not t.is_bool)
    given = as_given(x)
    if given is not x:
        return asarray(given, dtype)
    if isinstance(x, (list, tuple)):
        leaves = tree.leaves(x)
        if any(hasattr(kind, "__jax_array__") for kind in set(map(type, leaves))):
            x = tree.map(as_given, x)
            leaves = tree.leaves(x)
        kinds = set(map(type, leaves))
        if to is None:
            to = _common(leaves, kinds)
        for kind in kinds:
            convert.check_mask(kind)
        data = None if Array in kinds else convert.listed(x)
        if data is None or _is_lost(data, to if dtype is None else _common(leaves, kinds)):
            return _stack([asarray(item, to) for item in x])
        x = data
    if isinstance(x, ValueOperators):
        raise KernelError(f"expected an array or a number, got {x!r}",
                          hint="in a kernel compute with operators and the functions of fnx.kernel")
    data = convert.numpy_data(x, to)
    if isinstance(x, np.generic):
        t = dtypes.as_dtype(data.dtype)
        return Array(build.const(narrow.decoded(data, t)[()], t))
    if not data.flags.writeable:
        sharing = load("fnx.core.array.sharing")
        shared: Array | None = sharing.borrow(data) if sharing.is_frozen(data) else None
        if shared is not None:
            return shared
    return from_numpy(data)


def _is_lost(data: Any, t: DType | None) -> bool:
    """Whether NumPy has no dtype for the elements of a list, which promote to ``t``.

    It then converted them to objects, or integers to floats.
    """
    return t is not None and (data.dtype.kind == "O" or t.is_integer and data.dtype.kind == "f")


def _common(leaves: list[Any], kinds: set[type]) -> DType | None:
    """Return the dtype that the elements of a list promote to; Python numbers are weak.

    None if an element has no dtype.
    """
    found = dict.fromkeys([kind_of(kind()) for kind in kinds if kind in convert.SCALARS])
    for x in leaves if len(found) < len(kinds) else ():
        if type(x) is Array:
            found[kind_of(x)] = None
        elif type(x) not in convert.SCALARS:
            own = (x if hasattr(x, "dtype") else convert.listed(x)).dtype
            if own.kind in "OSUMmc":
                return None
            found[dtypes.default(dtypes.as_dtype(own)), False] = None
    return promoted_kind(found)[0] if found else None


def _stack(items: list[Array]) -> Array:
    for x in items[1:]:
        if x._shape != items[0]._shape:
            raise ShapeError(f"expected rows of one shape, got {items[0]._shape} and {x._shape}",
                             hint="pad the rows to one length")
    return Array(build.concat([build.reshape(x._node, (1, *x._shape)) for x in items], 0))


def strong_cast(x: Array, to: DType) -> Array:
    """Cast x to a dtype that is not weak."""
    return Array(build.cast(x._node, to)) if x._dtype is not to else _strong(x)


def _strong(x: Array) -> Array:
    if x._storage is None:
        return Array(x._node)
    x._storage.lent = True
    return from_storage(x._storage, x._shape, x._dtype)


def promoted_kind(kinds: Iterable[tuple[DType, bool]]) -> tuple[DType, bool]:
    """Return the (dtype, weak) that operands of the given (dtype, weak) pairs promote to."""
    (t, weak), *others = kinds
    for other in others:
        t, weak = dtypes.promote(t, weak, *other)
    return t, weak


def kind_of(x: Any) -> tuple[DType, bool]:
    """Return the (dtype, weak) of an operand, for promotion."""
    if type(x) is Array:
        return x._dtype, x.weak
    scalar = convert.SCALARS.get(type(x))
    if scalar is not None:
        t = scalar()
        return t, not t.is_bool
    if isinstance(x, complex):
        raise dtypes.no_complex("complex")
    raise DTypeError(f"expected an array or a number, got {type(x).__name__}",
                     hint="convert it with fnx.numpy.asarray(...)")


# ---- calls -----------------------------------------------------------------------------------

_UNKNOWN = ("<unknown>", 0)
_MOVING = frozenset({"device_put", "to_device"})  # functions that accept arrays of several devices


def _check_places(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        committed.check_arguments(args, kwargs)
    except FnxError as error:
        error.site = user_site(3)
        error.name_caller(call.__qualname__)
        raise


def public(f: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Decorate a function of the public API: record the user's line, evaluate eager results.

    Its errors start with ``name`` (by default that of f), and arguments that do not fit the
    signature raise. Calls nested in a public call (outside a trace that it opened) skip all this.
    """
    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if current_site.site is not None:
            return f(*args, **kwargs)
        made: Any = None
        if not scope.is_open():
            made = repeat(call, args, kwargs)
            if made.__class__ is not EagerCall:
                return cast(R, made)
            if config.placing and call.__name__ not in _MOVING:
                _check_places(call, args, kwargs)
        current_site.site = user_site(2) or _UNKNOWN
        try:
            out = f(*args, **kwargs)
            if not scope.is_open():
                settle(out, made)
            return out
        except FnxError as error:
            error.name_caller(call.__qualname__)
            shorten(error)
            raise
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                kept = without_places(call, kwargs)  # f was never entered
                if kept is None:
                    raise refusal(call, args, kwargs) from None
                current_site.site = None
                return again(*args, **kept)
            if (found := misfit(call, args, kwargs, error)) is not None:
                raise found from None
            shorten(error)
            raise
        except Exception as error:
            if not isinstance(error, MemoryError) and \
                    (found := misfit(call, args, kwargs, error)) is not None:
                raise found from None
            shorten(error)
            raise
        finally:
            current_site.site = None
            if scope.pending and not scope.is_open():
                scope.take_pending()  # of a call that failed
    again: Callable[..., R] = call
    if name:
        call.__name__ = call.__qualname__ = name
    return call


def settle(out: Any, call: EagerCall | None = None) -> None:
    """Evaluate the unevaluated Arrays of a pytree and pending effects, as one graph.

    The program is stored in the eager cache under the key of ``call``.
    """
    if scope.pending and (token := scope.take_pending()) is not None:
        pending = [x for x in tree.leaves(out) if type(x) is Array
                   and x._storage is None and x._uop is not None]
        pending.append(Array(token))
        call = None
    elif type(out) is Array:
        if out._storage is not None or out._uop is None:
            return
        pending = [out]
    else:
        pending = [x for x in tree.leaves(out) if type(x) is Array
                   and x._storage is None and x._uop is not None]
        if not pending:
            return
    found = storage.evaluate([x._node for x in pending],
                             None if call is None else partial(call.keep, out, pending))
    for x, memory in zip(pending, found):
        x._storage, x._uop = memory, None

"""The API boundary: conversion of arguments to Arrays, and evaluation of results.

``asarray`` converts anything array-like, ``public_api`` decorates public functions. Eager
evaluation: when the outermost public call ends and no trace is open, its results are evaluated as
one graph, by the function that ``set_evaluator`` registered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from fnx.core.array import convert, placement, tree
from fnx.core.array.arguments import check_annotated
from fnx.core.array.array import Array, from_numpy, from_storage, placed_result
from fnx.core.array.call_validation import (
    adapt_call,
    explain_misplaced,
    explain_type_error,
    fits_signature,
    placement_target,
    signature_error,
)
from fnx.core.array.eager_cache import CacheMiss, cached_dispatch, public_functions
from fnx.core.ir import build, dtypes, low_precision, ops
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.uop import CallLocation, current_loc
from fnx.core.scope import scope, storage
from fnx.core.support.config import config
from fnx.core.support.errors import DTypeError, FnxError, ShapeError, user_location
from fnx.core.support.line_visits import LineVisit
from fnx.core.support.process import lazy_import
from fnx.core.support.traceback_filter import filter_traceback

zero_copy = lazy_import("fnx.core.array.zero_copy")

P = ParamSpec("P")
R = TypeVar("R")


# ---- arguments --------------------------------------------------------------------------------


_FLOAT_LIMIT, _INT_LIMIT = 3e38, 1 << 31  # Python numbers below fit the default dtypes
_EXACT_SCALARS = {np.dtype(t.name).type: t for t in (
    dtypes.bool_, dtypes.float32, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.uint8,
    dtypes.uint16, dtypes.uint32)}  # types of NumPy scalars that need no conversion


def unwrap_jax_array(x: Any) -> Any:
    """Return ``x.__jax_array__()`` if x defines it (a library's layer, for example), else x."""
    return x.__jax_array__() if hasattr(type(x), "__jax_array__") else x


def to_concrete(x: Any) -> Array:
    """Convert a number or NumPy data to an Array with memory, as jit does with its arguments."""
    kind = type(x)
    exact = _EXACT_SCALARS.get(kind)
    if exact is not None:
        return from_storage(storage.put(np.asarray(x)), (), exact)
    scalar = convert.SCALAR_DTYPES.get(kind)
    if scalar is None:
        unwrapped = unwrap_jax_array(x)
        if unwrapped is x:
            return from_numpy(convert.to_numpy(x, None))
        return unwrapped if type(unwrapped) is Array else to_concrete(unwrapped)
    t = scalar()
    if kind is float and -_FLOAT_LIMIT < x < _FLOAT_LIMIT or kind is int and \
            -_INT_LIMIT <= x < _INT_LIMIT:
        # these fit; all others are checked below
        return from_storage(storage.put(np.array(x, t.np)), (), t, True)
    return from_numpy(ops.const_value(build.const(x, t)), not t.is_bool)


def asarray(x: Any, dtype: Any = None) -> Array:
    """Convert anything array-like to an Array: see ``fnx.numpy.asarray``."""
    to = None if dtype is None else convert.parse_dtype(dtype)
    if type(x) is Array:
        return x if to is None or to is x._dtype and not x.weak else strong_cast(x, to)
    scalar = convert.SCALAR_DTYPES.get(type(x))
    if scalar is not None:
        t = to or scalar()
        return Array(build.const(convert.truncate_scalar(x, t), t), to is None and not t.is_bool)
    unwrapped = unwrap_jax_array(x)
    if unwrapped is not x:
        return asarray(unwrapped, dtype)
    if isinstance(x, (list, tuple)):
        leaves = tree.leaves(x)
        if any(hasattr(kind, "__jax_array__") for kind in set(map(type, leaves))):
            x = tree.map(unwrap_jax_array, x)
            leaves = tree.leaves(x)
        kinds = set(map(type, leaves))
        if to is None:
            to = _list_dtype(leaves, kinds)
        for kind in kinds:
            convert.reject_masked(kind)
        data = None if Array in kinds else convert.numpy_from_list(x)
        if data is None or _is_lossy(data, to if dtype is None else _list_dtype(leaves, kinds)):
            return _stack_rows([asarray(item, to) for item in x])
        x = data
    data = convert.to_numpy(x, to)
    if isinstance(x, np.generic):
        t = dtypes.as_dtype(data.dtype)
        return Array(build.const(low_precision.decode(data, t)[()], t))
    if not data.flags.writeable and zero_copy.is_read_only(data):
        shared: Array | None = zero_copy.borrow_array(data)
        if shared is not None:
            return shared
    return from_numpy(data)


def constant_array(value: NDArray, dtype: Any = None) -> Array:
    """Return an Array of NumPy data that follow from the signature of the current call alone, as
    the tables of an fft: the program of an eager call that reads it can be cached."""
    return Array(storage.constant_node(convert.to_numpy(
        value, None if dtype is None else convert.parse_dtype(dtype))))


def _is_lossy(data: Any, t: DType | None) -> bool:
    """Whether NumPy has no dtype for the elements of a list, which promote to ``t``.

    It then converted them to objects, or integers to floats.
    """
    return t is not None and (data.dtype.kind == "O" or t.is_integer and data.dtype.kind == "f")


def _list_dtype(leaves: list[Any], kinds: set[type]) -> DType | None:
    """Return the dtype that the elements of a list promote to; Python numbers are weak.

    None if an element has no dtype.
    """
    seen = dict.fromkeys([dtype_and_weak(kind())
                          for kind in kinds if kind in convert.SCALAR_DTYPES])
    for x in leaves if len(seen) < len(kinds) else ():
        if type(x) is Array:
            seen[dtype_and_weak(x)] = None
        elif type(x) not in convert.SCALAR_DTYPES:
            dtype = (x if hasattr(x, "dtype") else convert.numpy_from_list(x)).dtype
            if dtype.kind in "OSUMm":
                return None
            seen[dtypes.default_width(dtypes.as_dtype(dtype)), False] = None
    return join_dtypes(seen)[0] if seen else None


def _stack_rows(items: list[Array]) -> Array:
    for x in items[1:]:
        if x._shape != items[0]._shape:
            raise ShapeError(f"expected rows of one shape, got {items[0]._shape} and {x._shape}",
                             hint="pad the rows to one length")
    return Array(build.concat([build.reshape(x._node, (1, *x._shape)) for x in items], 0))


def strong_cast(x: Array, to: DType) -> Array:
    """Cast x to a dtype that is not weak. Random keys are no numbers."""
    if "key" in (x._dtype.kind, to.kind) and x._dtype is not to:
        raise dtypes.random_key_error()
    return Array(build.cast(x._node, to)) if x._dtype is not to else _without_weak(x)


def _without_weak(x: Array) -> Array:
    if x._storage is None:
        return Array(x._node)
    x._storage.is_aliased = True
    return from_storage(x._storage, x._shape, x._dtype)


def join_dtypes(kinds: Iterable[tuple[DType, bool]]) -> tuple[DType, bool]:
    """Return the (dtype, weak) that operands of the given (dtype, weak) pairs promote to."""
    (t, weak), *others = kinds
    for other in others:
        t, weak = dtypes.promote(t, weak, *other)
    return t, weak


def dtype_and_weak(x: Any) -> tuple[DType, bool]:
    """Return the (dtype, weak) of an operand, for promotion."""
    if type(x) is Array:
        return x._dtype, x.weak
    scalar = convert.SCALAR_DTYPES.get(type(x))
    if scalar is not None:
        t = scalar()
        return t, not t.is_bool
    raise DTypeError(f"expected an array or a number, got {type(x).__name__}",
                     hint="convert it with fnx.numpy.asarray(...)")


# ---- calls -----------------------------------------------------------------------------------

_UNKNOWN_LOCATION = ("<unknown>", 0)
# functions that accept arrays of several devices
_TRANSFERS = frozenset({"device_put", "make_array_from_single_device_arrays", "reshard",
                         "to_device", "with_sharding_constraint"})


def _check_placement(call: Callable[..., Any], args: tuple[Any, ...],
                     kwargs: dict[str, Any]) -> None:
    try:
        placement.check_arguments(args, kwargs)
    except FnxError as error:
        error.loc = user_location(3)
        error.prefix_caller(call.__qualname__)
        raise


def takes_out_sharding(f: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function, which ignores its keyword ``out_sharding``: its results have it."""
    checked = check_annotated(f)

    @functools.wraps(f)
    def placed(*args: P.args, **kwargs: P.kwargs) -> R:
        target = kwargs.pop("out_sharding", None)
        return checked(*args, **kwargs) if target is None else \
            cast(R, placed_result(checked, args, kwargs, target))
    return placed


def _call_adapted(call: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    """Call a public function, which rejected these arguments, with what they mean in JAX."""
    adapted = adapt_call(call, args, kwargs)
    if adapted is None:
        raise signature_error(call, args, kwargs) from None
    current_loc.loc = None
    if (target := placement_target(call, kwargs)) is not None:
        return cast(R, placed_result(call, *adapted, target))
    return call(*adapted[0], **adapted[1])


def public_api(f: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Decorate a function of the public API: record the user's line, evaluate eager results.

    Its errors start with ``name`` (by default that of f), and arguments that do not fit the
    signature raise. Calls nested in a public call (outside a trace that it opened) skip all this,
    except for the checks that annotations of f ask for.
    """
    checked = check_annotated(f)

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if current_loc.loc is not None:
            return checked(*args, **kwargs)
        result: Any = None
        if not scope.is_open():
            result = cached_dispatch(call, args, kwargs)
            if result.__class__ is not CacheMiss:
                return cast(R, result)
            if config.placing and call.__name__ not in _TRANSFERS:
                _check_placement(call, args, kwargs)
        loc = user_location(2) or _UNKNOWN_LOCATION
        function = "" if call.__name__.startswith("_") else call.__name__
        if loc.__class__ is tuple:
            loc = CallLocation(loc)
            loc.function = function
            if names := scope.region_names():
                loc.names = names
        elif loc.__class__ is LineVisit:
            loc = loc.calling(function)
        current_loc.loc = loc
        try:
            scope.record_lines(loc)
            out = checked(*args, **kwargs)
            if not scope.is_open():
                evaluate_pending(out, result)
            return out
        except FnxError as error:
            explain_misplaced(call, args, kwargs, error)
            error.prefix_caller(call.__qualname__)
            filter_traceback(error)
            raise
        except TypeError as error:
            if not fits_signature(call, args, kwargs):
                return _call_adapted(retry, args, kwargs)
            if (explained := explain_type_error(call, args, kwargs, error)) is not None:
                raise explained from None
            filter_traceback(error)
            raise
        except Exception as error:
            if not isinstance(error, MemoryError) and \
                    (explained := explain_type_error(call, args, kwargs, error)) is not None:
                raise explained from None
            filter_traceback(error)
            raise
        finally:
            current_loc.loc = None
            if scope.pending_tokens and not scope.is_open():
                scope.pop_pending()  # of a call that failed
    retry: Callable[..., R] = call
    if name:
        call.__name__ = call.__qualname__ = name
    public_functions.add(call)
    return call


def evaluate_pending(out: Any, miss: CacheMiss | None = None) -> None:
    """Evaluate the unevaluated Arrays of a pytree and pending effects, as one graph.

    The program is stored in the eager cache under the key of ``miss``.
    """
    token = scope.pop_pending() if scope.pending_tokens else None
    if token is not None:
        pending = [x for x in tree.leaves(out) if type(x) is Array
                   and x._storage is None and x._uop is not None]
        pending.append(Array(token))
        miss = None
    elif type(out) is Array:
        if out._storage is not None or out._uop is None:
            return
        pending = [out]
    else:
        pending = [x for x in tree.leaves(out) if type(x) is Array
                   and x._storage is None and x._uop is not None]
        if not pending:
            return
    if scope.thread_state.suspended:
        pending = [x for x in pending if not scope.is_suspended(x._node)]
        miss = None
    storages = storage.evaluate([x._node for x in pending],
                                None if miss is None else partial(miss.store, out, pending))
    for x, memory in zip(pending, storages):
        x._storage, x._uop = memory, None
    if token is not None:
        storages[-1].wait()  # so that output is where sys.stdout is when the call is made

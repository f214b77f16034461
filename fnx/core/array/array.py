"""The user-facing Array.

An Array is immutable. A *concrete* array has memory (``_storage``); a *traced* one has only a
node, under some transform. array_base.py has its properties and reads its value. ``weak`` is JAX's
weak
type: the dtype came from a Python scalar and yields in promotion. It is stored here, never in the
graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

import numpy as np

from fnx.core.array.arguments import PrecisionLike, ReadMode, TakeMode, WriteMode
from fnx.core.array.array_base import ArrayBase
from fnx.core.array.axes import AxisLike
from fnx.core.array.convert import DTypeLike, default_int
from fnx.core.array.device_mixin import ArrayDeviceMixin
from fnx.core.array.placement import Placement, placement_of
from fnx.core.ir import build, dtypes, low_precision, ops
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.expr import ValueOperators
from fnx.core.ir.ops import Op, Shape
from fnx.core.ir.uop import UOp, current_loc
from fnx.core.rewriting import dimensions
from fnx.core.scope import scope, storage
from fnx.core.support.config import config
from fnx.core.support.errors import MutationError, set_missing_names
from fnx.core.support.name_hints import CURES_OF_ARRAYS
from fnx.core.support.process import load


class Array(ArrayBase, ArrayDeviceMixin, ValueOperators):
    """An immutable n-dimensional array; make one with ``fnx.numpy.asarray``.

    >>> import fnx.numpy as jnp
    >>> x = jnp.asarray([1.0, 2.0, 3.0])
    >>> x * 2 + x[0]
    Array([3., 5., 7.], dtype=float32)
    """

    __slots__ = ()
    __array_priority__ = 100

    # set by core/array/array_operators.py and fnx/numpy/array_methods.py, from functions
    if TYPE_CHECKING:
        def all(self, axis: AxisLike = None, out: None = None, keepdims: bool = False, *,
                where: ArrayLike | None = None) -> Array: ...
        def any(self, axis: AxisLike = None, out: None = None, keepdims: bool = False, *,
                where: ArrayLike | None = None) -> Array: ...
        def argmax(self, axis: int | None = None, out: None = None,
                   keepdims: bool | None = None) -> Array: ...
        def argmin(self, axis: int | None = None, out: None = None,
                   keepdims: bool | None = None) -> Array: ...
        def argpartition(self, kth: int, axis: int = -1) -> Array: ...
        def argsort(self, axis: int | None = -1, *, kind: None = None, order: None = None,
                    stable: bool = True, descending: bool = False,
                    dtype: DTypeLike | None = None) -> Array: ...
        def astype(self, dtype: DTypeLike, copy: bool = False) -> Array: ...
        def choose(self, choices: Sequence[ArrayLike], out: None = None,
                   mode: Literal["raise", "wrap", "clip"] = "raise") -> Array: ...
        def clip(self, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array: ...
        def cumprod(self, axis: int | None = None, dtype: DTypeLike | None = None,
                    out: None = None) -> Array: ...
        def cumsum(self, axis: int | None = None, dtype: DTypeLike | None = None,
                   out: None = None) -> Array: ...
        def conj(self) -> Array: ...
        def conjugate(self) -> Array: ...
        def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array: ...
        def dot(self, b: ArrayLike, *, precision: PrecisionLike = None,
                preferred_element_type: DTypeLike | None = None) -> Array: ...
        def flatten(self, order: Literal["C", "F"] = "C") -> Array: ...
        def matmul(self, b: ArrayLike, *, precision: PrecisionLike = None,
                   preferred_element_type: DTypeLike | None = None) -> Array: ...
        def max(self, axis: AxisLike = None, out: None = None, keepdims: bool = False,
                initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array: ...
        def mean(self, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
                 keepdims: bool = False, *, where: ArrayLike | None = None) -> Array: ...
        def min(self, axis: AxisLike = None, out: None = None, keepdims: bool = False,
                initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array: ...
        def prod(self, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
                 keepdims: bool = False, initial: ArrayLike | None = None,
                 where: ArrayLike | None = None, promote_integers: bool = True) -> Array: ...
        def nonzero(self, *, size: int | None = None, fill_value: Any = None
                    ) -> tuple[Array, ...]: ...
        def ptp(self, axis: AxisLike = None, out: None = None,
                keepdims: bool = False) -> Array: ...
        def ravel(self, order: Literal["C", "F"] = "C") -> Array: ...
        def repeat(self, repeats: Any, axis: int | None = None, *,
                   total_repeat_length: int | None = None) -> Array: ...
        def reshape(self, *shape: Any, order: Literal["C", "F"] = "C") -> Array: ...
        def round(self, decimals: int = 0, out: None = None) -> Array: ...
        def searchsorted(self, v: ArrayLike, side: Literal["left", "right"] = "left",
                         sorter: ArrayLike | None = None, *, method: str = "scan") -> Array: ...
        def sort(self, axis: int | None = -1, *, kind: None = None, order: None = None,
                 stable: bool = True, descending: bool = False) -> Array: ...
        def squeeze(self, axis: AxisLike = None) -> Array: ...
        def std(self, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
                ddof: float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
                mean: ArrayLike | None = None, correction: float | None = None) -> Array: ...
        def sum(self, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
                keepdims: bool = False, initial: ArrayLike | None = None,
                where: ArrayLike | None = None, promote_integers: bool = True) -> Array: ...
        def swapaxes(self, axis1: int, axis2: int) -> Array: ...
        def take(self, indices: ArrayLike, axis: int | None = None, out: None = None,
                 mode: TakeMode = None, unique_indices: bool = False,
                 indices_are_sorted: bool = False,
                 fill_value: ArrayLike | None = None) -> Array: ...
        def to_device(self, device: Any, *, stream: Any = None) -> Array: ...
        def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1,
                  dtype: DTypeLike | None = None, out: None = None) -> Array: ...
        def transpose(self, *axes: Any) -> Array: ...
        def var(self, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
                ddof: float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
                mean: ArrayLike | None = None, correction: float | None = None) -> Array: ...
        def view(self, dtype: DTypeLike | None = None, type: None = None) -> Array: ...
        def byteswap(self, inplace: bool = False) -> Array: ...
        def compress(self, condition: ArrayLike, axis: int | None = None, *,
                     size: int | None = None, fill_value: ArrayLike = 0, out: None = None
                     ) -> Array: ...

    def __init__(self, node: UOp, weak: bool = False) -> None:
        self._uop, self._storage, self._value = node, None, None
        self._shape, self._dtype, self.weak = node.shape, node.dtype, weak

    @property
    def T(self) -> Array:
        """The array with its axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> Array:
        """The array with its last two axes swapped."""
        return self.swapaxes(-1, -2)

    @property
    def at(self) -> AtLike:
        """Updated copies: ``x.at[index].set(value)`` and similar methods."""
        return cast(AtLike, _METHODS["at"](self))

    @property
    def _trace(self) -> Any:
        """The innermost open trace, which libraries for JAX compare."""
        return scope.innermost()

    @property
    def real(self) -> Array:
        """The real part; of real numbers, the array itself."""
        return _METHODS["_real"](self)

    @property
    def imag(self) -> Array:
        """The imaginary part; of real numbers, zeros."""
        return _METHODS["_imag"](self)

    @property
    def sharding(self) -> Any:
        """The sharding: which part of the array each device holds."""
        return _METHODS["_sharding"](self)

    @property
    def device(self) -> Any:
        """The device that holds the array; its sharding if there are several."""
        sharding = self.sharding
        return sharding if sharding.num_devices > 1 else next(iter(sharding.device_set))

    def devices(self) -> set[Any]:
        """Return the devices that hold the array.

        Returns:
            A set of devices.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(2).devices()
        {CpuDevice(id=0)}
        """
        devices: set[Any] = self.sharding.device_set
        return devices

    def block_until_ready(self) -> Array:
        """Wait until the value is computed, and return this array.

        Returns:
            The same Array.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(2).block_until_ready()
        Array([1., 1.], dtype=float32)
        """
        if self._storage is not None:
            self._storage.wait()
        return self

    def __iter__(self) -> Iterator[Array]:
        n = len(self)
        if self._storage is None or self.committed:
            return iter([self[i] for i in range(n)])
        rows = self._numpy()
        return iter([from_numpy(np.asarray(rows[i])) for i in range(n)])

    def __contains__(self, value: Any) -> bool:
        is_equal: Any = self == value
        return is_equal is not False and bool(is_equal.any())  # False: of a type with no arrays

    def _is_readable(self) -> bool:
        return self.is_fully_addressable or self.is_fully_replicated

    def _part(self, index: tuple[slice, ...], device: Any = None) -> Array:
        """Return a part of the block of this process, on a device."""
        block = self.sharding._block(self._shape)
        data = self._storage.view(self._dtype.np, tuple([s.stop - s.start for s in block]))
        ends = [s.indices(n)[:2] for s, n in zip(index, self._shape)]
        part = data[tuple([slice(max(start - b.start, 0), min(stop, b.stop) - b.start)
                           for (start, stop), b in zip(ends, block)])]
        memory = storage.put(part)
        if device is not None:
            memory.placed = Placement(device.platform, current_loc.loc, (device.id,),
                                      _METHODS["_single_device"](device))
        return from_storage(memory, part.shape, self._dtype, self.weak)

    # ---- text, copies

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak else ""
        if self.is_deleted():
            state = "donated" if self._value else "deleted"
            return f"<{state} Array {self._dtype}{list(self._shape)}>"
        if self._storage is None:
            return f"Traced<{self._dtype}{list(self._shape)}{weak}>" \
                f"{scope.describe_traces(self._node)}"
        if not self._is_readable():
            return f"Array(shape={self._shape}, dtype={self._dtype}{weak})"
        if not self.size and self._shape != (0,):
            return f"Array([], shape={self._shape}, dtype={self._dtype}{weak})"
        if self._dtype.kind == "key":
            return f"Array({self._shape}, dtype={self._dtype}) overlaying:\n" \
                f"{low_precision.key_words(self._numpy())}"
        text = np.array2string(self._numbers(), separator=", ", prefix="Array(", suffix=",")
        return f"Array({text}, dtype={self._dtype}{weak})"

    def __str__(self) -> str:
        return repr(self) if self._storage is None or self._dtype.kind == "key" or \
            not self._is_readable() else str(self._numbers())

    def __format__(self, spec: str) -> str:
        if self._storage is None:
            return format(self._scalar("format()"), spec) if spec else repr(self)
        is_number = not self._shape and self._dtype.kind != "key"
        return format(self.item() if is_number else str(self), spec)

    def __copy__(self) -> Array:
        return self

    def __deepcopy__(self, memo: Any) -> Array:
        memory = self._storage
        if memory is None:
            return self
        placement = placement_of(memory) if config.placing else None
        if placement is None or placement.sharding is None:
            return from_numpy(self._numpy(), self.weak)
        block = tuple([part.stop - part.start for part in placement.sharding._block(self._shape)])
        copied = storage.put(memory.view(self._dtype.np, block))
        copied.placed = placement
        return from_storage(copied, self._shape, self._dtype, self.weak)

    def __reduce__(self) -> Any:
        return from_numpy, (np.array(self._numpy()), self.weak)

    def copy(self) -> Array:
        """Return a copy in new memory, so that this array may be donated.

        Returns:
            An Array of the same shape, dtype and values.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(2).copy()
        Array([1., 1.], dtype=float32)
        """
        return self.__deepcopy__(None)

    def clone(self) -> Array:
        """Return a copy in new memory, like ``copy``.

        Returns:
            An Array of the same shape, dtype and values.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(2).clone()
        Array([1., 1.], dtype=float32)
        """
        return self.copy()

    # ---- computing

    def _apply(self, op: Op, *operands: Any) -> Array:
        return _METHODS["_operator"](op, operands)

    def __matmul__(self, other: Any) -> Array:
        return _METHODS["_matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Array:
        return _METHODS["_matmul"](other, self)

    def __rlshift__(self, other: Any) -> Array:
        return self._apply(ops.SHL, other, self)

    def __rrshift__(self, other: Any) -> Array:
        return self._apply(ops.SHR, other, self)

    def __divmod__(self, other: Any) -> tuple[Array, Array]:
        quotient = self._apply(ops.IDIV, self, other)
        return NotImplemented if quotient is NotImplemented else (quotient, self % other)

    def __rdivmod__(self, other: Any) -> tuple[Array, Array]:
        quotient = self._apply(ops.IDIV, other, self)
        return NotImplemented if quotient is NotImplemented else (quotient, other % self)

    def __pos__(self) -> Array:
        return self

    def __round__(self, digits: int = 0) -> Array:
        return self.round(digits)

    def __getitem__(self, index: Any) -> Array:
        return _METHODS["_get_item"](self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise MutationError("cannot assign into an Array, which is immutable",
                            hint=f"write x = x.at[{_format_index(index)}].set(value), or "
                                 ".add(value)")

    def __delitem__(self, index: Any) -> None:
        raise MutationError("cannot delete from an Array, which is immutable",
                            hint="select the elements to keep, as in x[keep]")


ArrayLike: TypeAlias = Array | np.ndarray[Any, Any] | np.generic | float


class AtWrite(Protocol):
    """A method of ``x.at[index]`` that writes at the index."""

    def __call__(self, value: ArrayLike, *, mode: WriteMode = None,
                 indices_are_sorted: bool = False, unique_indices: bool = False,
                 wrap_negative_indices: bool = True) -> Array: ...


class AtLike(Protocol):
    """The type of ``x.at``, whose class is in core/array/updates.py."""

    set: AtWrite
    add: AtWrite
    subtract: AtWrite
    multiply: AtWrite
    mul: AtWrite
    divide: AtWrite
    min: AtWrite
    max: AtWrite
    power: AtWrite

    def __getitem__(self, index: Any) -> AtLike: ...

    def apply(self, func: Callable[[Array], Any], *, mode: WriteMode = None,
              indices_are_sorted: bool = False, unique_indices: bool = False,
              wrap_negative_indices: bool = True) -> Array: ...

    def get(self, *, mode: ReadMode = None, fill_value: ArrayLike | None = None,
            indices_are_sorted: bool = False, unique_indices: bool = False,
            wrap_negative_indices: bool = True) -> Array: ...


def _format_index(index: Any) -> str:
    def format_entry(i: Any) -> str:
        if isinstance(i, slice):
            parts = ["" if p is None else str(p) for p in (i.start, i.stop)]
            return ":".join(parts) + ("" if i.step is None else f":{i.step}")
        return "..." if i is Ellipsis else str(i) if isinstance(i, int) or i is None else "index"
    return ", ".join(map(format_entry, index)) if isinstance(index, tuple) else format_entry(index)


_METHODS: dict[str, Callable[..., Array]] = {}


set_missing_names(Array, "an Array", CURES_OF_ARRAYS)


class LazyMethod:
    """A method of Array whose module is imported on first access, as few programs use it."""

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __get__(self, x: Array | None, cls: type[Array]) -> Any:
        f = getattr(load(self._module), self._name)
        setattr(Array, self._name, f)
        return f if x is None else f.__get__(x)


def set_methods(functions: Mapping[str, Callable[..., Any] | LazyMethod]) -> None:
    """Attach functions to Array as methods; each takes the array as first argument.

    array_operators.py and updates.py set what the class calls, such as "_operator" and "at";
    fnx.numpy sets the rest.
    """
    for name, f in functions.items():
        if not isinstance(f, LazyMethod):
            _METHODS[name] = f
        if not hasattr(Array, name):
            setattr(Array, name, f)


def _dimension_as_array(length: Any) -> Array:
    return Array(build.const(length, default_int()), True)


dimensions.set_as_array(_dimension_as_array)


def sharding_on(device: str) -> Any:
    """Return the sharding of arrays on a device."""
    return _METHODS["_sharding_on"](device)


def placed_result(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any],
                  target: Any) -> Any:
    """Return the result of a call on a device, or with a sharding."""
    return _METHODS["_placed_result"](f, args, kwargs, target)


def unsharded(ndim: int) -> Any:
    """Return the sharding of an array's type: over a mesh without axes."""
    return _METHODS["_unsharded"](ndim)


# ---- new arrays -------------------------------------------------------------------------------


def from_storage(storage: Any, shape: Shape, dtype: DType, weak: bool = False) -> Array:
    """Return a concrete array over memory that is filled already, or will be."""
    x = object.__new__(Array)
    x._uop, x._storage, x._value = None, storage, None
    x._shape, x._dtype, x.weak = shape, dtype, weak
    return x


def from_storages(storages: Sequence[Any], avals: Sequence[tuple[Shape, DType, bool]]
                  ) -> list[Array]:
    """Return ``from_storage`` of each storage. Inlined, as a call per array doubles the cost."""
    arrays, new = [], object.__new__
    for memory, (shape, dtype, weak) in zip(storages, avals):
        x = new(Array)
        x._uop, x._storage, x._value = None, memory, None
        x._shape, x._dtype, x.weak = shape, dtype, weak
        arrays.append(x)
    return arrays


def from_numpy(value: NDArray, weak: bool = False) -> Array:
    """Return a concrete array with a copy of NumPy data, whose dtype fnx must support."""
    return from_storage(storage.put(value), value.shape, dtypes.as_dtype(value.dtype), weak)

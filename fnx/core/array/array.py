"""The user's Array.

An Array is immutable. A *concrete* one has memory (``_storage``); a *traced* one has only its
node, under some transform. ``weak`` is JAX's weak type: a value that came from a Python scalar
and gives way in promotion; it lives here, never in the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from fnx.core import dtypes, narrow, op_args, ops
from fnx.core.array import scope, storage
from fnx.core.array.arguments import PrecisionLike, ReadMode, TakeMode, WriteMode
from fnx.core.array.aval import Aval
from fnx.core.array.axes import AxisLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.elementwise import OPERATORS
from fnx.core.dtypes import DType, NDArray
from fnx.core.errors import (
    ArgumentError,
    DonatedError,
    DTypeError,
    MutationError,
    ShapeError,
    Site,
    TracedValueError,
)
from fnx.core.operators import ValueOperators
from fnx.core.ops import Op, Shape
from fnx.core.process import load
from fnx.core.tracebacks import shorten
from fnx.core.uop import UOp

P = ParamSpec("P")
R = TypeVar("R")


_LOOPS = "a loop of traced length is fnx.lax.fori_loop or fnx.lax.while_loop"
_INSTEAD = {
    "bool()": "choose with fnx.numpy.where(condition, a, b) or fnx.lax.cond instead of Python's "
              f"`if`; {_LOOPS}",
    "index": f"{_LOOPS}; a slice of traced start is fnx.lax.dynamic_slice",
    "value": "compute with the array; fnx.numpy has the functions of math and NumPy, and "
             "fnx.pure_callback hands values to others"}
_STATEMENTS = {  # first words of lines
    "while": "write the loop with fnx.lax.while_loop(condition, body, start)",
    "assert": "look at the value with fnx.debug.print, or outside of the traced function"}


def _statement(site: Site | None) -> str:
    """The first word of a line of the user's: which statement asks for a value."""
    words = "" if site is None else load("linecache").getline(*site)
    return words.split(None, 1)[0] if words.strip() else ""


class Array(ValueOperators):
    """An immutable n-dimensional array; make one with ``fnx.numpy.asarray``.

    >>> import fnx.numpy as jnp
    >>> x = jnp.asarray([1.0, 2.0, 3.0])
    >>> x * 2 + x[0]
    Array([3., 5., 7.], dtype=float32)
    """

    __slots__ = ("_uop", "_storage", "_shape", "_dtype", "weak", "_value", "__weakref__")
    _uop: UOp | None
    _storage: Any
    _shape: Shape
    _dtype: DType
    weak: bool
    _value: Any
    __array_priority__ = 100

    if TYPE_CHECKING:  # set by core/array/operate.py and fnx/numpy/methods.py, from functions
        def all(self, axis: AxisLike = None, out: None = None, keepdims: bool = False, *,
                where: ArrayLike | None = None) -> Array: ...
        def any(self, axis: AxisLike = None, out: None = None, keepdims: bool = False, *,
                where: ArrayLike | None = None) -> Array: ...
        def argmax(self, axis: int | None = None, out: None = None,
                   keepdims: bool = False) -> Array: ...
        def argmin(self, axis: int | None = None, out: None = None,
                   keepdims: bool = False) -> Array: ...
        def astype(self, dtype: DTypeLike, copy: bool = False) -> Array: ...
        def clip(self, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array: ...
        def cumprod(self, axis: int | None = None, dtype: DTypeLike | None = None,
                    out: None = None) -> Array: ...
        def cumsum(self, axis: int | None = None, dtype: DTypeLike | None = None,
                   out: None = None) -> Array: ...
        def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array: ...
        def dot(self, b: ArrayLike, *, precision: PrecisionLike = None,
                preferred_element_type: DTypeLike | None = None) -> Array: ...
        def flatten(self, order: Literal["C"] = "C") -> Array: ...
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
                 where: ArrayLike | None = None) -> Array: ...
        def ptp(self, axis: AxisLike = None, keepdims: bool = False) -> Array: ...
        def ravel(self, order: Literal["C"] = "C") -> Array: ...
        def repeat(self, repeats: Any, axis: int | None = None, *,
                   total_repeat_length: int | None = None) -> Array: ...
        def reshape(self, *shape: Any, order: Literal["C"] = "C") -> Array: ...
        def round(self, decimals: int = 0) -> Array: ...
        def squeeze(self, axis: AxisLike = None) -> Array: ...
        def std(self, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
                ddof: float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
                correction: float | None = None) -> Array: ...
        def sum(self, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
                keepdims: bool = False, initial: ArrayLike | None = None,
                where: ArrayLike | None = None) -> Array: ...
        def swapaxes(self, axis1: int, axis2: int) -> Array: ...
        def take(self, indices: ArrayLike, axis: int | None = None, out: None = None,
                 mode: TakeMode = None, unique_indices: bool = False,
                 indices_are_sorted: bool = False,
                 fill_value: ArrayLike | None = None) -> Array: ...
        def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1,
                  dtype: DTypeLike | None = None) -> Array: ...
        def transpose(self, *axes: Any) -> Array: ...
        def var(self, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
                ddof: float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
                correction: float | None = None) -> Array: ...
        def view(self, dtype: DTypeLike) -> Array: ...

    def __init__(self, node: UOp, weak: bool = False) -> None:
        self._uop, self._storage, self._value = node, None, None
        self._shape, self._dtype, self.weak = node.shape, node.dtype, weak

    # ---- what it is

    @property
    def _node(self) -> UOp:
        """The node that stands for this array in a graph."""
        node = self._uop
        if node is None:
            if self._storage is None:
                raise DonatedError("expected an array with a value, got one that was donated",
                                   hint="use the result of the call it was donated to")
            node = UOp(ops.BUFFER, self._dtype, (), op_args.Buffer(self._storage, self._shape))
            self._storage.lent = True  # whoever has the node may read it at any time
            self._uop = node
        return node

    @property
    def _aval(self) -> Aval:
        return Aval(self._shape, self._dtype, self.weak)

    @property
    def shape(self) -> Shape:
        """Lengths of the axes."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, as NumPy's dtype (of a type that NumPy lacks, that of ml_dtypes)."""
        t = self._dtype
        return t.np if t.storage is None else narrow.public_dtype(t)

    @property
    def ndim(self) -> int:
        """How many axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """How many elements."""
        return math.prod(self._shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self._dtype.itemsize

    @property
    def weak_type(self) -> bool:
        """Whether the dtype gives way in promotion, as that of a Python scalar does."""
        return self.weak

    @property
    def T(self) -> Array:
        """The axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> Array:
        """The last two axes swapped."""
        return self.swapaxes(-1, -2)

    @property
    def at(self) -> AtLike:
        """``x.at[index].set(value)`` and its like: a changed copy."""
        return cast(AtLike, _METHODS["at"](self))

    # ---- values

    def _known(self) -> Any:
        """Storage with the value; of a traced array where its trace knows it."""
        if self._storage is not None:
            return self._storage
        if self._value is None:
            node = scope.known(self._node)
            self._value = storage.evaluate([node])[0]
            buffer = op_args.Buffer(self._value, self._shape)
            scope.remember(self._node, UOp(ops.BUFFER, self._dtype, (), buffer))
        return self._value

    def _numpy(self) -> NDArray:
        """The value as it is held."""
        view: NDArray = self._known().view(self._dtype.np, self._shape)
        return view

    def _numbers(self) -> NDArray:
        """The value in a type of NumPy: of one that it lacks, that in which it is computed."""
        t = self._dtype
        return self._numpy() if t.storage is None or t.np.names is None else \
            narrow.decoded(self._numpy(), t)

    def block_until_ready(self) -> Array:
        """This array, once its value is there.

        Returns:
            The same Array.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(2).block_until_ready()
        Array([1., 1.], dtype=float32)
        """
        if self._storage is not None:
            self._storage.wait()
        return self

    def is_ready(self) -> bool:
        """Whether the value can be read without waiting.

        Returns:
            A bool.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(2).block_until_ready().is_ready()
        True
        """
        ready = getattr(self._storage, "ready", None)
        return self._storage is not None and (ready is None or bool(ready()))

    def is_deleted(self) -> bool:
        """Whether the array was donated.

        Returns:
            A bool.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(2).is_deleted()
        False
        """
        return self._uop is None and self._storage is None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        t = self._dtype
        if t.np.names is not None and dtype is not None and np.dtype(dtype) != self.dtype:
            return self._numbers().astype(dtype)
        value = narrow.presented(self._numpy(), t)
        if dtype is not None and np.dtype(dtype) != value.dtype:
            if copy is False:
                raise ArgumentError(f"expected dtype {value.dtype} where copy=False, got {dtype}",
                                    hint="leave copy= out")
            return value.astype(dtype)
        return value.copy() if copy else value

    def item(self, *index: int) -> Any:
        """One element as a Python number.

        Args:
            index: where it is: nothing for the only one, a number in row-major order, or one
                number an axis.

        Returns:
            A bool, int or float.

        Raises:
            ShapeError: there are several, and no index.

        >>> import fnx.numpy as jnp
        >>> jnp.asarray([1.5, 2.5]).item(1)
        2.5
        """
        return self._numbers().item(*index) if index else self._scalar("item()")

    def tolist(self) -> Any:
        """Nested lists of Python numbers.

        Returns:
            A list of as many levels as there are axes; of a 0-d array a number.

        >>> import fnx.numpy as jnp
        >>> jnp.asarray([[1, 2]]).tolist()
        [[1, 2]]
        """
        return self._numbers().tolist()

    def _scalar(self, what: str) -> Any:
        if self.size != 1:
            raise ShapeError(f"{what}: expected an array of one element, got shape {self._shape}",
                             hint="reduce it first, with .any(), .all() or .sum()")
        try:
            return self._numbers().item()
        except TracedValueError as error:
            error.instead(_STATEMENTS.get(_statement(error.site), "") or
                          _INSTEAD.get(what, _INSTEAD["value"]))
            raise

    def __bool__(self) -> bool:
        return bool(self._scalar("bool()"))

    def __float__(self) -> float:
        return float(self._scalar("float()"))

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex()"))

    def __index__(self) -> int:
        if self._shape or not self._dtype.is_integer:
            raise DTypeError(f"expected a 0-d array of integers as an index, got "
                             f"{self._dtype}{list(self._shape)}", hint="use int(x)")
        return int(self._scalar("index"))

    def __len__(self) -> int:
        if not self._shape:
            raise ShapeError("len(): expected an array of at least one dimension, got a 0-d one",
                             hint="use .size; a loop over numbers is over fnx.numpy.arange(n)")
        return self._shape[0]

    def __iter__(self) -> Iterator[Array]:
        n = len(self)
        if self._storage is None:
            return iter([self[i] for i in range(n)])
        rows = self._numpy()
        return iter([from_numpy(np.asarray(rows[i])) for i in range(n)])

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    # ---- text, copies

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak else ""
        if self.is_deleted():
            return f"<donated Array {self._dtype}{list(self._shape)}>"
        if self._storage is None:
            return f"Traced<{self._dtype}{list(self._shape)}{weak}>{scope.describe(self._node)}"
        if not self.size and self._shape != (0,):
            return f"Array([], shape={self._shape}, dtype={self._dtype}{weak})"
        text = np.array2string(self._numbers(), separator=", ", prefix="Array(", suffix=",")
        return f"Array({text}, dtype={self._dtype}{weak})"

    def __str__(self) -> str:
        return repr(self) if self._storage is None else str(self._numbers())

    def __format__(self, spec: str) -> str:
        if self._storage is None:
            return format(self._scalar("format()"), spec) if spec else repr(self)
        return format(self.item() if not self._shape else str(self), spec)

    def __copy__(self) -> Array:
        return self

    def __deepcopy__(self, memo: Any) -> Array:
        return self if self._storage is None else from_numpy(self._numpy(), self.weak)

    def __reduce__(self) -> Any:
        return from_numpy, (np.array(self._numpy()), self.weak)

    def copy(self) -> Array:
        """An array of its own memory (so that this one may be donated).

        Returns:
            An Array of the same shape, dtype and values.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(2).copy()
        Array([1., 1.], dtype=float32)
        """
        return self.__deepcopy__(None)

    # ---- computing

    def _apply(self, op: Op, *operands: Any) -> Array:
        for x in operands:
            if type(x) is not Array and not isinstance(x, _OPERANDS):
                return _refused(op, x)  # type: ignore[no-any-return]
        try:
            return _METHODS["_operator"](op, *operands)
        except Exception as error:
            shorten(error)
            raise

    def __matmul__(self, other: Any) -> Array:
        return _METHODS["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Array:
        return _METHODS["matmul"](other, self)

    def __rlshift__(self, other: Any) -> Array:
        return self._apply(ops.SHL, other, self)

    def __rrshift__(self, other: Any) -> Array:
        return self._apply(ops.SHR, other, self)

    def __divmod__(self, other: Any) -> tuple[Array, Array]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Array, Array]:
        return other // self, other % self

    def __pos__(self) -> Array:
        return self

    def __round__(self, digits: int = 0) -> Array:
        return self.round(digits)

    def __getitem__(self, index: Any) -> Array:
        return _METHODS["_get_item"](self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise MutationError("expected no assignment into an Array, which is immutable",
                            hint=f"write x = x.at[{_show_index(index)}].set(value), or .add(value)")

    def __delitem__(self, index: Any) -> None:
        raise MutationError("expected no deletion from an Array, which is immutable",
                            hint="select what stays, as in x[keep]")


ArrayLike: TypeAlias = Array | np.ndarray[Any, Any] | np.generic | float


class AtWrite(Protocol):
    """A method of ``x.at[index]`` that writes there."""

    def __call__(self, value: ArrayLike, *, mode: WriteMode = None,
                 indices_are_sorted: bool = False, unique_indices: bool = False) -> Array: ...


class AtLike(Protocol):
    """The type of ``x.at``, whose class is in core/array/operate.py."""

    set: AtWrite
    add: AtWrite
    subtract: AtWrite
    multiply: AtWrite
    mul: AtWrite
    divide: AtWrite
    min: AtWrite
    max: AtWrite

    def __getitem__(self, index: Any) -> AtLike: ...

    def get(self, *, mode: ReadMode = None, fill_value: ArrayLike | None = None,
            indices_are_sorted: bool = False, unique_indices: bool = False) -> Array: ...


_OPERANDS = (Array, bool, int, float, np.ndarray, np.generic)


def _refused(op: Op, x: Any) -> Any:
    if isinstance(x, (list, tuple, complex)):
        raise DTypeError(f"{OPERATORS[op].name}: expected an array or a number, got "
                         f"{type(x).__name__}",
                         hint="convert it with fnx.numpy.asarray(...)" if not
                         isinstance(x, complex) else "fnx holds no complex numbers yet")
    if x is None and op not in (ops.CMPEQ, ops.CMPNE):
        raise DTypeError(f"{OPERATORS[op].name}: expected an array or a number, got None",
                         hint="a function without a return statement returns None")
    return NotImplemented


def _show_index(index: Any) -> str:
    def one(i: Any) -> str:
        if isinstance(i, slice):
            parts = ["" if p is None else str(p) for p in (i.start, i.stop)]
            return ":".join(parts) + ("" if i.step is None else f":{i.step}")
        return "..." if i is Ellipsis else str(i) if isinstance(i, int) or i is None else "index"
    return ", ".join(map(one, index)) if isinstance(index, tuple) else one(index)


_METHODS: dict[str, Callable[..., Array]] = {}


def set_methods(functions: dict[str, Callable[..., Any]]) -> None:
    """Make functions methods of Array: each takes the array first.

    operate.py gives "_operator", "_get_item" and "at", which the class calls; fnx.numpy the rest.
    """
    _METHODS.update(functions)
    for name, f in functions.items():
        if not hasattr(Array, name):
            setattr(Array, name, f)


# ---- new arrays -------------------------------------------------------------------------------


def from_storage(storage: Any, shape: Shape, dtype: DType, weak: bool = False) -> Array:
    """A concrete array over memory that is filled, or will be."""
    x = object.__new__(Array)
    x._uop, x._storage, x._value = None, storage, None
    x._shape, x._dtype, x.weak = shape, dtype, weak
    return x


def from_numpy(value: NDArray, weak: bool = False) -> Array:
    """A concrete array with a copy of NumPy data of a dtype that fnx holds."""
    return from_storage(storage.put(value), value.shape, dtypes.as_dtype(value.dtype), weak)

"""The base class of Array: its node, its memory, and conversions to Python and NumPy values.

>>> import fnx.numpy as jnp
>>> isinstance(jnp.ones(2), ArrayBase), jnp.ones(2).tolist()
(True, [1.0, 1.0])
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fnx.core.array.aval import Aval
from fnx.core.ir import low_precision, op_args, ops
from fnx.core.ir.dtypes import DType, NDArray, random_key_error
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope, storage
from fnx.core.support.errors import (
    ArgumentError,
    DonatedError,
    DTypeError,
    Location,
    ShapeError,
    TracedValueError,
)
from fnx.core.support.name_hints import CURES_OF_ARRAYS
from fnx.core.support.process import lazy_import

abstract_values = lazy_import("fnx.core.array.abstract_values")
dlpack = lazy_import("fnx.core.array.dlpack")
linecache = lazy_import("linecache")

_LOOP_HINT = "for a loop of traced length use fnx.lax.fori_loop or fnx.lax.while_loop"
_ALTERNATIVES = {
    "bool()": "use fnx.numpy.where(condition, a, b) or fnx.lax.cond instead of Python's `if`; "
              f"{_LOOP_HINT}",
    "index": f"{_LOOP_HINT}; for a slice with a traced start use fnx.lax.dynamic_slice",
    "value": "compute with the array; fnx.numpy has the functions of math and NumPy, and "
                  "fnx.pure_callback passes values to other libraries"}
_STATEMENT_HINTS = {  # by the first word of the user's line
    "while": "write the loop with fnx.lax.while_loop(condition, body, start)",
    "assert": "print the value with fnx.debug.print, or check it outside the traced function"}


def _statement_keyword(loc: Location | None) -> str:
    """Return the first word of the user's line, which tells the statement that needs a value."""
    words = "" if loc is None else linecache.getline(*loc)
    return words.split(None, 1)[0] if words.strip() else ""


class ArrayBase:
    """A node, or for a concrete array the memory of its value, or both."""

    __slots__ = ("_uop", "_storage", "_shape", "_dtype", "weak", "_value", "__weakref__")
    _uop: UOp | None
    _storage: Any
    _shape: Shape
    _dtype: DType
    weak: bool
    _value: Any

    # ---- what it is

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in CURES_OF_ARRAYS]

    @property
    def _node(self) -> UOp:
        """The node that represents this array in a graph."""
        node = self._uop
        if node is None:
            if self._storage is None:
                raise self._donated_error("")
            node = UOp(ops.BUFFER, self._dtype, (), op_args.Buffer(self._storage, self._shape))
            # whoever holds the node may read the memory at any time
            self._storage.is_aliased = True
            self._uop = node
        return node

    def _donated_error(self, what: str) -> DonatedError:
        """Return the error of a donated or deleted array; ``what`` is a prefix of the message."""
        if not self._value:
            return DonatedError(f"{what}expected an array with a value, got one that was deleted: "
                                f"{self._aval}",
                                hint="call x.delete() when nothing reads x any more")
        return DonatedError(
            f"{what}expected an array with a value, got one that was donated to {self._value}: "
            f"{self._aval}",
            hint="use the result of the call; a call that fails while running also consumes its "
                 "donated arguments")

    @property
    def _aval(self) -> Aval:
        return Aval(self._shape, self._dtype, self.weak)

    @property
    def aval(self) -> Any:
        """Shape, dtype and weak type, as ``fnx.typeof`` returns them."""
        return abstract_values.ShapedArray.of(self._aval)

    @property
    def shape(self) -> Shape:
        """The lengths of the axes."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, as a NumPy dtype (from ml_dtypes if NumPy lacks the type)."""
        t = self._dtype
        return t.np if t.storage is None else low_precision.public_dtype(t)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def itemsize(self) -> int:
        """The size of an element, in bytes."""
        return self._dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of all elements, in bytes."""
        return self.size * self._dtype.itemsize

    @property
    def weak_type(self) -> bool:
        """Whether the dtype yields in promotion, like that of a Python scalar."""
        return self.weak

    # ---- values

    def _evaluated_storage(self) -> Any:
        """Return storage with the value; a traced array needs a trace that knows its value."""
        storage.mark_impure()
        if self._storage is not None:
            return self._storage
        if self._value is None or type(self._value) is str:  # a str: donated, so _node raises
            node = scope.resolve_leaves(self._node)
            self._value = storage.evaluate([node])[0]
            buffer = op_args.Buffer(self._value, self._shape)
            scope.cache_value(self._node, UOp(ops.BUFFER, self._dtype, (), buffer))
        return self._value

    def _numpy(self) -> NDArray:
        """Return the value in its storage dtype."""
        view: NDArray = self._evaluated_storage().view(self._dtype.np, self._shape)
        return view

    def _numbers(self) -> NDArray:
        """Return the value in a NumPy dtype; types that NumPy lacks use their compute dtype."""
        t = self._dtype
        if t.kind == "key":
            raise random_key_error()
        return self._numpy() if t.storage is None or t.np.names is None else \
            low_precision.decode(self._numpy(), t)

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

    def delete(self) -> None:
        """Free the memory now. The array has no value afterwards.

        Raises:
            TracedValueError: the array is traced and has no memory.

        >>> import fnx.numpy as jnp
        >>> x = jnp.ones(2)
        >>> x.delete()
        >>> x.is_deleted(), x.shape
        (True, (2,))
        """
        if self._storage is None and self._uop is not None:
            raise TracedValueError("delete(): expected an array with memory, got a traced one",
                                   hint="arrays that a traced function does not return are freed "
                                        "automatically")
        if not self.is_deleted():
            self._storage, self._uop, self._value = None, None, ""

    def is_deleted(self) -> bool:
        """Whether the array was donated or deleted.

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
        value = low_precision.as_public_array(self._numpy(), t)
        if dtype is not None and np.dtype(dtype) != value.dtype:
            if copy is False:
                raise ArgumentError(f"expected dtype {value.dtype} where copy=False, got {dtype}",
                                    hint="omit copy=")
            return value.astype(dtype)
        return value.copy() if copy else value

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        return dlpack.export_capsule(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the host

    def item(self, *index: int) -> Any:
        """Return one element as a Python number.

        Args:
            index: nothing for the only element, a flat index in row-major order, or one index per
                axis.

        Returns:
            A bool, int, float or complex.

        Raises:
            ShapeError: there are several elements and no index.

        >>> import fnx.numpy as jnp
        >>> jnp.asarray([1.5, 2.5]).item(1)
        2.5
        """
        return self._numbers().item(*index) if index else self._scalar("item()")

    def tolist(self) -> Any:
        """Return nested lists of Python numbers.

        Returns:
            A list with one level per axis; a number for a 0-d array.

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
            error.set_hint(_STATEMENT_HINTS.get(_statement_keyword(error.loc), "") or
                           _ALTERNATIVES.get(what, _ALTERNATIVES["value"]))
            if what in ("float()", "int()", "complex()"):
                error.prefix_caller(what)
            raise

    def __bool__(self) -> bool:
        return bool(self._scalar("bool()"))

    def _real_scalar(self, what: str) -> Any:
        if self._dtype.is_complex:
            raise DTypeError(f"{what}: expected a real number, got {self._dtype}",
                             hint="take x.real or abs(x) first, or use complex(x)")
        return self._scalar(what)

    def __float__(self) -> float:
        return float(self._real_scalar("float()"))

    def __int__(self) -> int:
        return int(self._real_scalar("int()"))

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
                             hint="use .size; to loop over integers use fnx.numpy.arange(n)")
        return self._shape[0]

"""References: arrays that are written in place (fnx.ref), as states of functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fnx.core.array import convert
from fnx.core.array.abstract_values import AbstractValue, ShapedArray
from fnx.core.array.api_boundary import asarray, evaluate_pending, public_api, strong_cast
from fnx.core.array.array import Array
from fnx.core.array.promotion import broadcast_nodes
from fnx.core.ir import build
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError, DTypeError
from fnx.core.tracing.reference_log import ReferenceLog, open_log
from fnx.core.tracing.state import State

__all__ = [
    "AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set",
    "swap",
]


class AbstractRef(AbstractValue):
    """The type of a reference: that of the array it holds.

    Args:
        inner_aval: the shape and dtype of the array.

    >>> import fnx
    >>> fnx.new_ref(1.0).aval
    Ref{float32[]}
    """

    def __init__(self, inner_aval: ShapedArray) -> None:
        self.inner_aval = inner_aval

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.inner_aval.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the array."""
        return self.inner_aval.dtype

    def str_short(self) -> str:
        """Return the type as text."""
        return f"Ref{{{self.inner_aval.str_short()}}}"

    __repr__ = str_short

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractRef) and self.inner_aval == other.inner_aval

    def __hash__(self) -> int:
        return hash((AbstractRef, self.inner_aval))


class Ref(State):
    """A reference to an array; ``new_ref`` makes one.

    Args:
        value: the array that it holds.

    >>> import fnx
    >>> r = fnx.new_ref(1.0)
    >>> r[...] += 2
    >>> r[...]
    Array(3., dtype=float32)
    """

    __slots__ = ("_aval",)
    __hash__ = State.__hash__

    def __init__(self, value: Any) -> None:
        array = asarray(value)
        super().__init__(array if type(value) is Array else strong_cast(array, array._dtype))
        self._aval = ShapedArray.of(self.held._aval)
        log = open_log()
        if log is not None:
            log.create(self, self.held)
        _evaluate(self.held)

    @property
    def held(self) -> Array:
        """The array in the innermost trace; its value is not read."""
        value: Array = super().get()
        return value

    def get(self) -> Array:
        """Return the array in the innermost trace.

        >>> import fnx
        >>> fnx.new_ref(1.0).get()
        Array(1., dtype=float32)
        """
        log = open_log()
        return self.held if log is None else log.read(self, None, self.held)

    def set(self, value: Any) -> None:
        """Replace the array in the innermost trace; outside of traces it is computed now.

        Args:
            value: an array of the same type.

        >>> import fnx
        >>> r = fnx.new_ref(1.0)
        >>> r.set(fnx.numpy.float32(2.0)); r
        Ref(2., dtype=float32)
        """
        log = open_log()
        if log is not None:
            log.write(self, None, _same_dtype(self, value))
            return
        super().set(value)
        _evaluate(value)

    @property
    def aval(self) -> AbstractRef:
        """The type of the reference."""
        return AbstractRef(self._aval)


    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the array."""
        return self._aval.dtype

    @property
    def ndim(self) -> int:
        """The number of axes of the array."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the array."""
        return self._aval.size

    @property
    def sharding(self) -> Any:
        """The sharding of the array."""
        return self.held.sharding

    def __len__(self) -> int:
        return len(self._aval)

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise DTypeError(f"expected an array or a number, got a {self.aval}",
                         hint="read it: r[...]")

    def __getitem__(self, index: Any) -> Array:
        return get(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        set(self, index, value)

    def addupdate(self, value: Any, index: Any = ...) -> None:
        """Add a value to the part at an index.

        Args:
            value: an array like this part.
            index: an index of the array.

        >>> import fnx
        >>> r = fnx.new_ref(1.0)
        >>> r.addupdate(2.0); r[...]
        Array(3., dtype=float32)
        """
        addupdate(self, index, value)

    def __repr__(self) -> str:
        return repr(self.held).replace("Array", "Ref", 1)

    def __bool__(self) -> bool:
        return bool(self.held)

    def merge(self, before: Any, rows: Any, batched: Sequence[bool]) -> Any:
        """Return the value after ``vmap``; one that differs between batch elements is refused.

        Args:
            before: the value before.
            rows: the values after, with a batch axis.
            batched: whether they differ.

        Raises:
            ArgumentError: they differ.

        >>> import fnx, fnx.numpy as jnp
        >>> r = fnx.new_ref(0)
        >>> fnx.vmap(lambda x: x + r[...])(jnp.arange(2))
        Array([0, 1], dtype=int32)
        """
        if batched[0]:
            raise ArgumentError("expected a vmapped function not to write what differs between "
                                "batch elements to a reference from outside",
                                hint="pass the reference as an argument that is mapped, too")
        return rows[0] if rows.shape[0] else before


class RowRef(Ref):
    """A reference to a row of the array of another reference.

    Args:
        of: the other reference.
        number: the row.

    >>> import fnx
    >>> r = fnx.new_ref([1.0, 2.0])
    >>> RowRef(r, 1)[...] = 5.0; r
    Ref([1., 5.], dtype=float32)
    """

    __slots__ = ("number", "of")

    def __init__(self, of: Ref, number: Any) -> None:
        self.of, self.number, self.backward, self.values = of, number, None, []
        self._aval = ShapedArray.of(of._aval._aval._replace(shape=of.shape[1:]))

    @property
    def lifted(self) -> State:
        """The reference that transforms have a value of."""
        return self.of.lifted

    @property
    def held(self) -> Array:
        """The row."""
        return get(self.of, self.number)

    def get(self) -> Array:
        """Return the row.

        >>> import fnx
        >>> RowRef(fnx.new_ref([1.0, 2.0]), 1).get()
        Array(2., dtype=float32)
        """
        return self.held

    def set(self, value: Any) -> None:
        """Replace the row.

        Args:
            value: an array of the same type.

        >>> import fnx, fnx.numpy as jnp
        >>> r = fnx.new_ref([1.0, 2.0])
        >>> RowRef(r, 0).set(jnp.float32(4)); r
        Ref([4., 2.], dtype=float32)
        """
        set(self.of, self.number, value)


@public_api
def new_ref(init_val: Any, *, memory_space: Any = None, kind: str | None = None) -> Ref:
    """Return a reference that holds an array.

    Args:
        init_val: the array.
        memory_space: accepted for compatibility with JAX.
        kind: accepted for compatibility with JAX.

    Returns:
        A Ref.

    >>> r = new_ref([1, 2])
    >>> r[0] = 5; r
    Ref([5, 2], dtype=int32)
    """
    return Ref(init_val)


@public_api
def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """Return a reference that holds zeros.

    Args:
        ty: an object with ``shape`` and ``dtype``.
        memory_space: accepted for compatibility with JAX.

    Returns:
        A Ref.

    >>> import fnx
    >>> empty_ref(fnx.ShapeDtypeStruct((2,), "float32"))
    Ref([0., 0.], dtype=float32)
    """
    t = convert.parse_dtype(ty.dtype)
    return Ref(Array(build.const(0, t, tuple(ty.shape))))


def free_ref(ref: Ref) -> None:
    """Accept that a reference is not used again.

    Args:
        ref: the reference.

    >>> free_ref(new_ref(1.0))
    """


@public_api
def freeze(ref: Ref | Array) -> Array:
    """Return the array of a reference that is not written any more.

    Args:
        ref: the reference; an array is itself.

    Returns:
        An Array.

    >>> freeze(new_ref(1))
    Array(1, dtype=int32)
    """
    if isinstance(ref, Array):
        return ref
    held = _checked(ref).held
    log = _log_of(ref)
    return held if log is None else log.read(ref, None, held, "freeze")


@public_api
def get(ref: Ref, idx: Any = None) -> Array:
    """Return the part of an array at an index.

    Args:
        ref: the reference to the array.
        idx: an index; None for the whole array.

    Returns:
        An Array.

    >>> get(new_ref([1, 2]), 1)
    Array(2, dtype=int32)
    """
    held = _checked(ref).held
    part = held if _is_whole(idx) else held[idx]
    log = _log_of(ref)
    return part if log is None else log.read(ref, idx, part)


@public_api
def set(ref: Ref, idx: Any, value: Any) -> None:
    """Replace the part of an array at an index.

    Args:
        ref: the reference to the array.
        idx: an index; None for the whole array.
        value: what broadcasts to this part, of the dtype of the array.

    Raises:
        ArgumentError: it has another dtype.
        ShapeError: it does not broadcast.

    >>> r = new_ref([1, 2])
    >>> set(r, 0, 7); r
    Ref([7, 2], dtype=int32)
    """
    before = _checked(ref).held
    x = _same_dtype(ref, value)
    log = _log_of(ref)
    if log is not None:
        log.write(ref, idx, _like_part(before, idx, x))
    elif _is_whole(idx) and x.shape == before.shape:
        ref.set(x)
    else:
        ref.set(before.at[... if idx is None else idx].set(x))


@public_api
def swap(ref: Ref, idx: Any, value: Any) -> Array:
    """Replace the part of an array at an index, and return what was there.

    Args:
        ref: the reference to the array.
        idx: an index; None for the whole array.
        value: an array like this part.

    Returns:
        An Array.

    >>> swap(new_ref([1, 2]), 1, 5)
    Array(2, dtype=int32)
    """
    log = _log_of(ref)
    if log is not None:
        return log.write(ref, idx, _like_part(_checked(ref).held, idx, _same_dtype(ref, value)))
    before = get(ref, idx)
    set(ref, idx, value)
    return before


@public_api
def addupdate(ref: Ref, idx: Any, x: Any) -> None:
    """Add to the part of an array at an index.

    Args:
        ref: the reference to the array.
        idx: an index; None for the whole array.
        x: an array like this part.

    >>> r = new_ref([1, 2])
    >>> addupdate(r, 1, 5); r
    Ref([1, 7], dtype=int32)
    """
    before, added = _checked(ref).held, _same_dtype(ref, x)
    log = _log_of(ref)
    if log is not None:
        log.write(ref, idx, _like_part(before, idx, added), "addupdate")
        return
    ref.set(before.at[... if idx is None else idx].add(added))


def _log_of(ref: Ref) -> ReferenceLog | None:
    """Return where accesses are recorded; those of a row are accesses of the array it is of."""
    return None if isinstance(ref, RowRef) else open_log()


def _evaluate(value: Any) -> None:
    """Compute a value outside of traces, so that its graph does not grow with each write."""
    if not scope.is_open():
        evaluate_pending(value)


def _is_whole(index: Any) -> bool:
    return index is None or index is Ellipsis or isinstance(index, tuple) and not index


def _like_part(held: Array, index: Any, value: Array) -> Array:
    """Return a value with the shape of the part at an index, to which it must broadcast."""
    held.at[... if index is None else index].set(value)
    part = held if _is_whole(index) else held[index]
    return value if value.shape == part.shape else \
        Array(broadcast_nodes("set", [part._node, value._node])[1], value.weak)


def _checked(ref: Any) -> Ref:
    if not isinstance(ref, Ref):
        raise ArgumentError(f"expected a reference, got {type(ref).__name__}",
                            hint="make one with fnx.new_ref")
    return ref


def _same_dtype(ref: Ref, value: Any) -> Array:
    """Return a value in the type of a reference, to which only weak numbers are converted."""
    held = ref.held
    x = asarray(value)
    if x._dtype is not held._dtype and not x.weak:
        raise ArgumentError(f"expected a value of dtype {held._dtype}, as the reference holds, got "
                            f"{x._aval}", hint=f"convert it with .astype({held._dtype})")
    return Array(build.cast(x._node, held._dtype), held.weak)

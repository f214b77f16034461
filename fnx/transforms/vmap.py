"""vmap: a function of one element -> the function of a batch of them.

    vmap(f)(xs):  trace f on a leaf like one element of xs  ->  batch the FUNCTION
                  ->  call it on xs, with the batch axis in front

What does not depend on xs is computed once, not once per batch element. Arguments without a batch
axis are passed to f as they are; those with one have no values while f is traced.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from fnx.core.array import arguments, tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.array.call_validation import validate_call
from fnx.core.array.convert import non_array_hint
from fnx.core.array.pytree_registry import Path, pytree_type
from fnx.core.ir import build, op_args
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.errors import (
    ArgumentError,
    AxisError,
    BatchSizeError,
    FnxError,
    NotBuiltError,
    PytreeError,
    ShapeError,
)
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.core.tracing.state import Lift, State, StateUsedError
from fnx.core.tracing.trace import ClosedFunction, inline_function, preserving_locs, trace
from fnx.transforms.dispatch.stateful_calls import on_values, values_of_references
from fnx.transforms.transformed import Transformed, check_function, run_call

batching = lazy_import("fnx.transforms.batching.batch")

P = ParamSpec("P")
R = TypeVar("R")

MAX_LISTED = 8  # arguments that an error about sizes lists
_SIZE_ONLY_AXIS = object()  # the axis name of a retry that traces for this batch size


@validate_call
def vmap(fun: Callable[P, R], in_axes: Any = 0, out_axes: Any = 0, axis_name: Any = None,
         axis_size: int | None = None, spmd_axis_name: Any = None) -> Transformed[P, Any]:
    """Vectorize ``fun`` over axes of its arguments.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.vmap(lambda x, y: x * y.sum(), in_axes=(0, None))(jnp.arange(3.0), jnp.ones(2))
    Array([0., 2., 4.], dtype=float32)

    Args:
        fun: a pure function of pytrees of arrays.
        in_axes: the mapped axis of each positional argument: an int, None for an argument that
            is not mapped, or a pytree of these; a tuple has one of these for each argument. An
            int or None applies to all arrays below it. Keyword arguments are mapped over axis 0.
        out_axes: the position of the mapped axis in the results: an int, None for a result that
            is not mapped, or a pytree of these.
        axis_name: the name of the axis for collectives inside ``fun`` (``fnx.lax.psum``).
        axis_size: the size of the batch; needed if no argument is mapped.
        spmd_axis_name: accepted for JAX's sake: the axis is on one device.

    Returns:
        A function with the arguments of ``fun``, of which mapped ones have one more axis.

    Raises:
        ArgumentError: nothing is mapped, or a result with out_axes None depends on mapped ones.
        AxisError: an axis that an argument or a result does not have.
        ShapeError: mapped axes of different sizes.
        PytreeError: ``in_axes`` or ``out_axes`` do not fit the arguments or results.
    """
    check_function(fun, "vmap")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if in_axes is not None and type(in_axes) not in (int, tuple):
        raise ArgumentError("expected in_axes to be an int, None, or a tuple with one of these, "
                            f"or a pytree, for each argument; got {in_axes!r}",
                            hint="for one argument that is a dict write in_axes=({'w': 0},)")
    for x in tree.leaves(out_axes):
        if isinstance(x, bool) or not hasattr(x, "__index__"):
            raise ArgumentError("expected out_axes to be an int, None, or a pytree of these like "
                                f"the results; got {out_axes!r}")
    if axis_size is not None:
        axis_size = arguments.check_int("axis_size", axis_size)
        if axis_size < 0:
            raise ArgumentError(f"expected axis_size >= 0, got {axis_size}")
    for what, name in (("axis_name", axis_name), ("spmd_axis_name", spmd_axis_name)):
        try:
            hash(name)
        except TypeError:
            raise ArgumentError(f"expected {what} as a value that is hashable, got {name!r}",
                                hint="pass a string or another hashable object") from None
    return Vmapped(fun, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name,
                    axis_size=axis_size, spmd_axis_name=spmd_axis_name)


VMAPPABLE: set[type] = set()  # types with rules of their own, which vmap does not follow


def _check_containers(args: Any) -> None:
    for x in tree.leaves(args, is_leaf=lambda x: type(x) in VMAPPABLE):
        if type(x) in VMAPPABLE:
            raise NotBuiltError(f"vmap: expected arrays in pytrees, got a {type(x).__name__}, "
                                "which register_vmappable gave rules of its own",
                                hint="vmap over a pytree of the arrays that have the axis")


class Vmapped(Transformed[P, R]):
    kind = "vmap"
    summary = "The function vectorized: it maps over axes of the arguments."
    _sums_cotangents = False

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        in_axes, out_axes = self._options["in_axes"], self._options["out_axes"]
        if VMAPPABLE:
            _check_containers((args, kwargs))
        leaves, in_tree = tree.flatten((args, kwargs))
        axes = self._in_axes(in_axes, in_tree)
        mapped = [self._map_leaf(x, axis, in_tree, i)
                  for i, (x, axis) in enumerate(zip(leaves, axes)) if axis is not None]
        size = self._size(mapped)
        inputs = list(leaves)
        for m in mapped:
            inputs[m.index] = m.element
        name = self._options["axis_name"]
        try:
            closed, nodes = self._batch(inputs, in_tree, mapped, size, name)
        except BatchSizeError:
            if name is not None:
                raise
            closed, nodes = self._batch(inputs, in_tree, mapped, size, _SIZE_ONLY_AXIS)
        leaf_axes = _axis_per_leaf(out_axes, closed.out_tree, f"out_axes of vmap of {self._name}")
        outs = [self._out(x, axis, aval, closed.out_tree, i, size)
                for i, (x, axis, aval) in enumerate(zip(nodes, leaf_axes, closed.outs))]
        return closed.out_tree.unflatten(outs)

    def _run_with_states(self, used: StateUsedError, args: tuple[Any, ...],
                         kwargs: dict[str, Any]) -> Any:
        axes = self._in_axes(self._options["in_axes"], tree.structure((args, kwargs)))
        axis_of = {id(x): axis for x, axis in zip(tree.leaves((args, kwargs)), axes)}
        (args, kwargs), references = values_of_references((args, kwargs),
                                                          [axis is not None for axis in axes])
        if not references:
            return super()._run_with_states(used, args, kwargs)
        options = {**self._options, "out_axes": (
            self._options["out_axes"], [axis_of.get(id(x), 0) for x in references])}
        out, values = Vmapped[Any, Any](on_values(self._f), **options)(*args, **kwargs)
        for reference, value in zip(references, values):
            reference.set(value)
        return out

    def with_aux(self, lifted: Lift) -> Callable[..., tuple[Any, Any]]:
        g: _VmappedWithStates[Any, Any] = _VmappedWithStates(
            lifted.closed(self._f), **{**self._options,
                                       "out_axes": (self._options["out_axes"], 0)})

        def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
            out, rows = run_call(g, args, kwargs)
            flags = iter(g.flags[len(tree.leaves(out)):])
            return out, [state.merge(before, value, [next(flags) for _ in tree.leaves(value)])
                         for state, before, value in zip(lifted.states, lifted.values, rows)]
        return call

    def _batch(self, inputs: Sequence[Any], in_tree: tree.TreeDef, mapped: Sequence[_MappedArg],
               size: int, name: Any) -> tuple[ClosedFunction, list[tuple[UOp, bool]]]:
        """Trace the function for one element, and return its results for the batch."""
        axis = None if name is None else scope.new_axis(name, size, self._sums_cotangents)
        closed = trace(self._f, inputs, in_tree, transform=self.kind, name=self._name,
                       axis=axis).close()
        return closed, preserving_locs(_batch_all, closed, size, axis,
                                       [m.batch_first() for m in mapped])

    def _in_axes(self, in_axes: Any, in_tree: tree.TreeDef) -> list[int | None]:
        """Return the mapped axis of each leaf of (args, kwargs)."""
        args, kwargs = in_tree.subtrees
        if isinstance(in_axes, tuple) and len(in_axes) != len(args.subtrees):
            raise ArgumentError(
                f"vmap of {self._name}: expected in_axes for {len(args.subtrees)} positional "
                f"arguments, got {len(in_axes)}: {in_axes}",
                hint="give one entry for each: an axis, None if not mapped, or a pytree of these; "
                     "keyword arguments are mapped over axis 0")
        return [*_axis_per_leaf(in_axes, args, f"in_axes of vmap of {self._name}"),
                *[0] * kwargs.num_leaves]

    def _map_leaf(self, x: Any, axis: int, in_tree: tree.TreeDef, i: int) -> _MappedArg:
        """Check leaf ``i`` of (args, kwargs), which is mapped."""
        first, *rest = tree.paths(in_tree)[i]
        where = f"{'kwargs' if first.idx else 'args'}{tree.keystr(tuple(rest))}"
        if isinstance(x, State):
            raise StateUsedError(x)
        try:
            array = asarray(x)
        except FnxError as e:
            raise ArgumentError(
                f"vmap of {self._name}: expected an array to map over at {where}, got "
                f"{type(x).__name__}: {e.message}",
                hint=non_array_hint(x, "", "use None in in_axes for arguments that are not mapped",
                                    e)) from None
        if not -array.ndim <= axis < array.ndim:
            raise AxisError(f"vmap of {self._name}: expected an axis {axis} to map over at "
                            f"{where}, got {array._aval}",
                            hint="use another axis, or None, in in_axes")
        return _MappedArg(i, where, array, axis % array.ndim)

    def _size(self, mapped: Sequence[_MappedArg]) -> int:
        """Return the batch size."""
        size: int | None = self._options["axis_size"]
        sizes = {m.size for m in mapped} | ({size} if size is not None else set())
        if not sizes:
            raise ArgumentError(
                f"vmap of {self._name}: expected at least one mapped argument, got none",
                hint="give some argument an axis in in_axes, or pass axis_size=")
        if len(sizes) > 1:
            listed = [f"{m.size} at {m.where} ({m.aval}, axis {m.axis})" for m in mapped]
            if size is not None:
                listed.insert(0, f"axis_size={size}")
            ellipsis = ["..."] * (len(listed) > MAX_LISTED)
            error = ShapeError(f"vmap of {self._name}: expected one size of all mapped axes, got "
                               f"{', '.join(listed[:MAX_LISTED] + ellipsis)}",
                               hint="use another axis in in_axes, or None to not map an argument")
            error.function = self._f
            raise error
        return sizes.pop()

    def _out(self, node: tuple[UOp, bool], axis: int | None, aval: Aval, out_tree: tree.TreeDef,
             i: int, size: int) -> Array:
        """Return a result with its batch axis moved to the requested position."""
        def where() -> str:
            return f"vmap of {self._name}: result{tree.keystr(tree.paths(out_tree)[i])}"

        x, batched = node
        if axis is None:
            if batched:
                raise ArgumentError(
                    f"{where()}, {aval}: expected an unbatched result for out_axes=None, got one "
                    "that depends on a mapped argument",
                    hint="give an axis in out_axes, or reduce the result over the batch axis")
            return Array(x, aval.weak)
        n = len(aval.shape) + 1
        if not -n <= axis < n:
            raise AxisError(f"{where()}, {aval}: expected out_axes from {-n} to {n - 1}, "
                            f"got {axis}", hint="the batched results have one more axis")
        order = [*range(1, n)]
        order.insert(axis % n, 0)
        batched_x = x if batched else build.expand(x, (size, *x.shape))
        return Array(build.permute(batched_x, order), aval.weak)


class _VmappedWithStates(Vmapped[P, R]):
    """A vmapped function that also records which leaves of its results differ in the batch."""

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.flags: list[bool] = []
        return super().apply(args, kwargs)

    def _out(self, node: tuple[UOp, bool], axis: int | None, aval: Aval, out_tree: tree.TreeDef,
             i: int, size: int) -> Array:
        self.flags.append(node[1])
        return super()._out(node, axis, aval, out_tree, i, size)


class _MappedArg(Record):
    """A mapped argument: its leaf number, its path for messages, the array, and the mapped axis."""

    index: int
    where: str
    array: Array
    axis: int

    @property
    def aval(self) -> Aval:
        return self.array._aval

    @property
    def size(self) -> int:
        return self.array._shape[self.axis]

    @property
    def element(self) -> Aval:
        """The aval of one batch element."""
        shape, dtype, weak = self.array._aval
        return Aval(shape[:self.axis] + shape[self.axis + 1:], dtype, weak)

    def batch_first(self) -> UOp:
        """Return the array with the mapped axis moved to the front."""
        others = [i for i in range(self.array.ndim) if i != self.axis]
        return build.permute(self.array._node, (self.axis, *others))


def _batch_all(closed: ClosedFunction, size: int, axis: op_args.Axis | None, mapped: Sequence[UOp]
               ) -> list[tuple[UOp, bool]]:
    """Return the results for the batch, and which of them have the batch axis in front."""
    captures = closed.operands()
    flags = (True,) * len(mapped) + (False,) * len(captures)
    function, batched = batching.batch(closed.function, size, flags, axis)
    nodes = inline_function(function, [*mapped, *captures])
    closed.advance_token(nodes)
    return list(zip(nodes, batched))


# ---- axes for the leaves of a tree --------------------------------------------------------------


def _axis_per_leaf(axes: Any, structure: tree.TreeDef, what: str) -> list[int | None]:
    """Return an axis for each leaf: an int or None in ``axes`` applies to all leaves below it."""
    out: list[int | None] = []
    _collect_axes(axes, structure, what, (), out)
    return out


def _collect_axes(axes: Any, structure: tree.TreeDef, what: str, path: Path, out: list[int | None]
                  ) -> None:
    row = pytree_type(type(axes))
    if axes is None or row is None:
        out += [None if axes is None else _check_axis(axes, what, path)] * structure.num_leaves
        return
    children, data = row.flatten(axes)
    if row is not structure.pytree_type or data != structure.data or \
            len(children) != len(structure.subtrees):
        raise PytreeError(f"{what}: expected an int, None or a tree like {structure} at "
                          f"{tree.keystr(path) or 'the root'}, got {axes!r}",
                          hint="an int or None applies to all arrays below it")
    for key, inner, child in zip(row.keys(data, len(children)), structure.subtrees, children):
        _collect_axes(child, inner, what, (*path, key), out)


def _check_axis(x: Any, what: str, path: Path) -> int:
    try:
        if isinstance(x, bool):
            raise TypeError
        return operator.index(x)
    except TypeError:
        raise ArgumentError(f"{what}: expected ints and None, got {x!r} at "
                            f"{tree.keystr(path) or 'the root'}") from None

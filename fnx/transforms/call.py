"""call: a function as one unit, either a named boundary or a hand-written kernel.

    f(x) under fnx.call              CALL(FUNCTION, x): traced once a signature, lowered once
    f(x, o) under fnx.call(out=...)  CALL(KERNEL, x): f says what is computed at each place

How a kernel is tiled is ``schedule=``, a list of transforms (core/tiling.py) that lower applies;
without one the compiler chooses. So one source runs on the interpreter and on the machine, and
with another schedule at other tiles.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import build, dtypes, ops
from fnx.core.array import array, trace, tree
from fnx.core.array.array import Array
from fnx.core.config import config
from fnx.core.dtypes import DType
from fnx.core.errors import ArgumentError, KernelError, NotBuiltError
from fnx.core.ops import Shape
from fnx.core.tiling import Schedule, Transform
from fnx.core.uop import UOp
from fnx.transforms.kernels.kernel_trace import Reference, trace_kernel
from fnx.transforms.replay.captures import Captures

_MAX_ENTRIES = 256
Out = tuple[Shape, DType]


def call(f: Callable[..., Any] | None = None, *, name: str | None = None,
         vjp: Callable[..., Any] | None = None, jvp: Callable[..., Any] | None = None,
         vmap: Callable[..., Any] | None = None, out: Callable[..., Any] | None = None,
         schedule: Sequence[Transform] | None = None) -> Any:
    """Make a function one unit: a boundary, or (with ``out``) a hand-written kernel.

    Args:
        f: the function. A kernel gets references (``fnx.kernel``): its inputs, then its outputs.
        name: what profiles and stages call it; by default f's name.
        out: called like f without the outputs; returns an array, or anything with ``shape``
            and ``dtype``, for each output.
        schedule: how to tile the kernel; without one the compiler's own choice.
        vjp, jvp, vmap: rules of its own. Not there yet.

    Returns:
        A function like f. That of a kernel takes the inputs and returns the outputs.

    >>> import fnx
    >>> import fnx.kernel as k
    >>> @fnx.call(out=lambda a, x, y: x)
    ... def saxpy(a, x, y, o):
    ...     i = k.range(o.shape[0], "i")
    ...     o[i] = a[()] * x[i] + y[i]
    >>> saxpy(2.0, fnx.numpy.arange(3.0), fnx.numpy.ones(3))
    Array([1., 3., 5.], dtype=float32)
    """
    if f is None:
        return functools.partial(call, name=name, vjp=vjp, jvp=jvp, vmap=vmap, out=out,
                                 schedule=schedule)
    for rule, given in (("vjp", vjp), ("jvp", jvp), ("vmap", vmap)):
        if given is not None:
            raise NotBuiltError(f"call: expected no {rule}= rule, got one",
                                hint="rules of one's own are not there yet")
    label = name or str(getattr(f, "__name__", type(f).__name__))
    if out is None:
        if schedule is not None:
            raise ArgumentError("call: expected schedule= only with out=, which makes f a kernel")
        return _Boundary(f, label)
    return _Kernel(f, label, out, tuple(schedule or ()))


class _Unit:
    """What both kinds share: traced once for each signature, anew when a global changed."""

    def __init__(self, f: Callable[..., Any], name: str) -> None:
        functools.update_wrapper(self, f)
        self._f, self._name = f, name
        self._entries: dict[Any, tuple[Captures, Any]] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<call of {self._name}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _run(self, args, kwargs)

    def _entry(self, signature: Any, make: Callable[[], Any], keeps: Callable[[Any], bool]) -> Any:
        key = signature, config.key()
        with self._lock:
            found = self._entries.get(key)
            if found is not None and found[0].changed() is None:
                return found[1]
            made = make()
            if keeps(made):
                if len(self._entries) >= _MAX_ENTRIES:
                    self._entries.clear()
                self._entries[key] = Captures(self._f), made
            return made

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


@array.public
def _run(unit: _Unit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return unit.apply(args, kwargs)


class _Boundary(_Unit):
    """A pure function as a CALL."""

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, in_tree = tree.flatten((args, kwargs))
        arrays = [array.asarray(x) for x in leaves]
        avals = tuple([trace.Aval(x._dtype, x._shape, x.weak) for x in arrays])
        traced: trace.Traced = self._entry(
            (in_tree, avals), lambda: trace.trace(self._f, avals, in_tree, None, self._name),
            lambda made: not made.captures)
        nodes = build.call(traced.function, [x._node for x in arrays] + traced.captures,
                           self._name)
        return tree.unflatten(traced.out_tree,
                              [Array(n, a.weak) for n, a in zip(nodes, traced.out_avals)])


class _Kernel(_Unit):
    """A hand-written kernel as a CALL."""

    def __init__(self, f: Callable[..., Any], name: str, out: Callable[..., Any],
                 schedule: Schedule) -> None:
        super().__init__(f, name)
        for step in schedule:
            if not isinstance(step, Transform):
                raise KernelError(f"schedule of {name}: expected transforms as k.split(...), "
                                  f"got {step!r}")
        self._out, self._schedule = out, schedule

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs:
            raise ArgumentError(f"kernel {self._name}: expected positional arguments, got "
                                f"{', '.join(kwargs)} by name")
        leaves, in_tree = tree.flatten(args)
        arrays = [array.asarray(x) for x in leaves]
        specs, out_tree = tree.flatten(self._out(*tree.unflatten(in_tree, arrays)))
        outs = tuple([self._spec(s) for s in specs])
        key = (in_tree, tuple([(x._dtype, x._shape) for x in arrays]), outs, out_tree)
        kernel: UOp = self._entry(key, lambda: self._trace(arrays, in_tree, outs, out_tree),
                                  lambda made: True)
        node = UOp(ops.CALL, dtypes.void, (kernel, *[x._node for x in arrays]),
                   ops.Call(self._name, outs, self._schedule))
        return tree.unflatten(out_tree, [Array(n) for n in build.results(node)])

    def _spec(self, given: Any) -> Out:
        if not (hasattr(given, "shape") and hasattr(given, "dtype")):
            raise KernelError(f"out= of {self._name}: expected something with shape and dtype, "
                              f"got {type(given).__name__}",
                              hint="return fnx.ShapeDtypeStruct(shape, dtype)")
        dtype = given._dtype if isinstance(given, Array) else dtypes.as_dtype(given.dtype)
        return tuple(given.shape), dtype

    def _trace(self, arrays: Sequence[Array], in_tree: tree.TreeDef, outs: Sequence[Out],
               out_tree: tree.TreeDef) -> UOp:
        def make_args(reference: Callable[[DType, Shape, bool, str], Reference]) -> list[Any]:
            names = iter(self._names(in_tree, out_tree))
            given = [reference(x._dtype, x._shape, False, next(names)) for x in arrays]
            written = tree.unflatten(out_tree, [reference(dtype, shape, True, next(names))
                                                for shape, dtype in outs])
            several = isinstance(written, tuple | list)
            return [*tree.unflatten(in_tree, given), *(written if several else (written,))]
        return trace_kernel(self._f, self._name, make_args)

    def _names(self, in_tree: tree.TreeDef, out_tree: tree.TreeDef) -> list[str]:
        """A name for each leaf: the parameter's, where that is a single array."""
        code = getattr(self._f, "__code__", None)
        parameters = () if code is None else code.co_varnames[:code.co_argcount]
        inputs = tree.unflatten(in_tree, range(in_tree.num_leaves))
        written = tree.unflatten(out_tree, range(out_tree.num_leaves))
        outputs = written if isinstance(written, tuple | list) else (written,)
        out: list[str] = []
        for i, part in enumerate((*inputs, *outputs)):
            leaves = tree.leaves(part)
            label = parameters[i] if i < len(parameters) else ""
            out += [label] if len(leaves) == 1 else [label and f"{label}{n}"
                                                     for n in range(len(leaves))]
        return out

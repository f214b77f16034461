"""call: make a function one unit, either a named call boundary or a user-written kernel.

    f(x) under fnx.call              CALL(FUNCTION, x): traced and lowered once per signature
    f(x, o) under fnx.call(out=...)  CALL(KERNEL, x): f says what is computed at each index

``schedule=`` says how a kernel is tiled: a list of transforms (core/ir/tiling.py) that lower
applies; without one the compiler chooses. So the same source runs on the interpreter and as machine
code, and another schedule gives it other tiles.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from fnx.core.array import tree
from fnx.core.array.api_boundary import evaluate_pending
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.array.call_validation import validate_call
from fnx.core.ir import bounds_checks, build, dtypes, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Shape
from fnx.core.ir.tiling import Schedule, Search, Transform
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.config import config
from fnx.core.support.errors import ArgumentError, KernelError
from fnx.core.support.process import lazy_import
from fnx.core.tracing import host_callbacks
from fnx.core.tracing.trace import ClosedFunction, trace
from fnx.transforms.dispatch.signature import ArgFlattener, parameters_of
from fnx.transforms.dispatch.trace_cache import TraceCache
from fnx.transforms.kernel_lang.kernel_prints import Prints
from fnx.transforms.kernel_lang.references import Reference
from fnx.transforms.kernel_lang.trace import trace_kernel
from fnx.transforms.transformed import Transformed

custom_vmap = lazy_import("fnx.transforms.custom.vmap")

P = ParamSpec("P")
R = TypeVar("R")
_Rule = Callable[..., Any] | None
_Vjp = Callable[..., Any] | tuple[Callable[..., Any], Callable[..., Any]] | None


@overload
def call(f: Callable[P, R], *, name: str | None = None, vjp: _Vjp = None, jvp: _Rule = None,
         vmap: _Rule = None) -> Transformed[P, R]: ...


@overload
def call(f: None = None, *, name: str | None = None, vjp: _Vjp = None, jvp: _Rule = None,
         vmap: _Rule = None) -> Callable[[Callable[P, R]], Transformed[P, R]]: ...


@overload
def call(f: Callable[..., None] | None = None, *, out: Callable[P, R], name: str | None = None,
         vjp: _Vjp = None, jvp: _Rule = None, vmap: _Rule = None,
         schedule: Sequence[Transform] | None = None, search: bool | float = False
         ) -> Callable[[Callable[..., None]], Transformed[P, Any]]: ...


@validate_call
def call(f: Callable[..., Any] | None = None, *, name: str | None = None,
         vjp: _Vjp = None, jvp: _Rule = None, vmap: _Rule = None,
         out: Callable[..., Any] | None = None, schedule: Sequence[Transform] | None = None,
         search: bool | float = False) -> Any:
    """Make a function one unit: a call boundary, or (with ``out``) a user-written kernel.

    Args:
        f: the function. A kernel gets references (``fnx.kernel``): its inputs, then its outputs;
            its keyword-only parameters are options, plain values that belong to the trace.
        name: the name shown in profiles; by default f's name.
        out: called like f without the outputs (and with the options that it names); returns an
            array, or anything with ``shape`` and ``dtype``, for each output.
        schedule: how to tile the kernel; by default the compiler chooses.
        search: find the schedule by timing, before the first call on a device that compiles:
            the seconds that this may take (True: 3). All candidates give the same bits; the best
            is kept in the disk cache and shown by ``lower(*args).show("schedules")``.
        vjp: the derivative for reverse mode: ``vjp(args, out, ct)`` returns a tuple of cotangents,
            one for each argument (None: zero); or a pair (fwd, bwd), as for ``custom_vjp``. It
            may itself call kernels. Without one, the derivative of a kernel is derived from what
            it computes: its loops become array operations again, which the compiler tiles.
        jvp: the derivative for forward mode, ``jvp(primals, tangents) -> (out, tangent)``. Either
            of the two serves both modes, provided that it is linear.
        vmap: ``vmap(axis_size, in_batched, *args) -> (out, out_batched)``, as for ``custom_vmap``;
            without one a batch is one more loop.

    Returns:
        A function like f, with ``lower(*args)``. For a kernel it takes the inputs and returns
        the outputs.

    Raises:
        ArgumentError: a schedule or a search without ``out``, both at once, or an ``out`` or a
            rule that is not a function.
        RuleError: a rule returns values of the wrong structure or type.

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
                                 schedule=schedule, search=search)
    for rule, value in (("jvp", jvp), ("vmap", vmap)):
        if value is not None and not callable(value):
            raise ArgumentError(f"call: expected a function as {rule}=, got "
                                f"{type(value).__name__}")
    if out is not None and not callable(out):
        raise ArgumentError(f"call: expected a function as out=, got {type(out).__name__}",
                            hint="return the shapes and dtypes of the outputs from the inputs: "
                                 "out=lambda x: x")
    if schedule is not None and out is None:
        raise ArgumentError("call: expected schedule= only with out=, which makes f a kernel")
    if search is not False:
        schedule = _search_schedule(search, schedule, out)
    result: Any = _FunctionCall(f, name=name) if out is None else \
        _KernelCall(f, name=name, out=out, schedule=tuple(schedule or ()))
    if vjp is None and jvp is None and vmap is None:
        return result
    return custom_vmap.CallWithRules(result, jvp, vjp, vmap)


def _search_schedule(search: bool | float, schedule: Sequence[Transform] | None, out: Any
                     ) -> Sequence[Transform]:
    """Return the schedule that requests a search."""
    if out is None or schedule is not None:
        raise ArgumentError("call: expected search= with out= and without schedule=, got "
                            f"{'schedule=' if out is not None else 'no out='}")
    seconds = 3.0 if search is True else search
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ArgumentError(f"call: expected search=True or seconds > 0, got {search!r}")
    return [Search(float(seconds))]


class _FunctionCall(Transformed[P, R]):
    """A pure function as a CALL."""

    kind = "call"

    def __init__(self, f: Callable[..., Any], name: str | None = None) -> None:
        super().__init__(f, name=name)
        self._name = name or self._name
        self._arguments = ArgFlattener(f, self._name)
        self._traces: TraceCache[ClosedFunction] = TraceCache(lambda: f)

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arrays, key = self._arguments.key(args, kwargs)

        def make() -> tuple[ClosedFunction, list[UOp]]:
            try:
                closed = trace(self._f, key.avals, key.in_tree, transform="call",
                               name=self._name).close()
            except TypeError:
                self._check(args, kwargs)
                raise
            return closed, closed.captures

        variant = self._traces.find(key, make)
        return variant.value.call(arrays)

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise if the function does not take these arguments."""
        try:
            self._arguments.check(args, kwargs)
        except ArgumentError as e:
            e.hint = f"{e.hint}; declare the outputs of a kernel with fnx.call(out=...)"
            raise


class _KernelCall(Transformed[P, R]):
    """A user-written kernel as a CALL."""

    kind = "call"

    def __init__(self, f: Callable[..., Any], out: Callable[..., Any], schedule: Schedule,
                 name: str | None = None) -> None:
        super().__init__(f, name=name, out=out, schedule=schedule)
        self._name = name or self._name
        for step in schedule:
            if not isinstance(step, Transform):
                raise KernelError(f"schedule of {self._name}: expected transforms as "
                                  f"k.split(...), got {step!r}")
        self._out, self._schedule = out, schedule
        params = parameters_of(out)
        options = [p for p in parameters_of(f) if p.kind is p.KEYWORD_ONLY]
        self._keywords = tuple([p.name for p in options])
        self._out_options = frozenset(self._keywords) if params and params[-1].kind is \
            inspect.Parameter.VAR_KEYWORD else frozenset(self._keywords) & {p.name for p in params}
        self._defaults = {p.name: p.default for p in options if p.default is not p.empty}
        self.__signature__ = inspect.Signature(
            [p for p in params if p.name not in self._keywords and p.kind is not p.VAR_KEYWORD]
            + options)
        self._arguments = ArgFlattener(f, self._name, (), self._keywords)
        self._traces: TraceCache[tuple[UOp, Prints]] = TraceCache(lambda: f)

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, static = self._bind(args, kwargs)
        for option, value in static.items():
            if type(value) is Array:
                raise KernelError(f"kernel {self._name}: expected a Python value as the option "
                                  f"{option!r}, got {value._aval}: an array is an input",
                                  hint=f"make it one: def kernel(x, {option}, o) with "
                                  f"out=lambda x, {option}: x, read it as {option}[()]")
        arrays, key = self._arguments.key(args, static)
        in_tree = key.in_tree.subtrees[0]
        specs, out_tree = tree.flatten(self._out(
            *tree.unflatten(in_tree, arrays),
            **{name: value for name, value in {**self._defaults, **static}.items()
               if name in self._out_options}))
        if not specs:
            raise KernelError(f"kernel {self._name}: expected out= to return the type of at least "
                              f"one output, got {tree.describe_structure(out_tree)}",
                              hint="write out=lambda x: x for an output like x, or "
                              "fnx.ShapeDtypeStruct(shape, dtype)")
        outs = tuple([self._out_aval(s) for s in specs])
        variant = self._traces.find(key._replace(extra=(outs, out_tree)), lambda: (
            self._trace(arrays, in_tree, outs, out_tree, static), []))
        kernel, prints = variant.value
        fault_outs = (((), dtypes.int32),) * (
            bounds_checks.count_faults(kernel) if config.check_index else 0)
        out_types = tuple([a[:2] for a in outs]) + fault_outs
        node = UOp(ops.CALL, dtypes.void, (kernel, *[x._node for x in arrays]),
                   op_args.Call(self._name, out_types + prints.outs,
                                () if fault_outs or prints.all else self._schedule))
        results = [Array(n) for n in build.results(node)]
        if prints.all:
            self._print(prints, results, results[len(out_types):])
        return tree.unflatten(out_tree, results[:len(outs)])

    def _print(self, prints: Prints, results: Sequence[Array], hidden: Sequence[Array]) -> None:
        """Print the kernel's recorded lines after it has run."""
        if config.device not in ("interp", "trace"):
            raise KernelError(f'print: expected device="interp", got {config.device!r}: compiled '
                              "kernels do not print", loc=prints.all[0].call.loc,
                              hint='set fnx.config.device = "interp"')
        if not scope.is_open():
            evaluate_pending(list(results))
        host_callbacks.call_python(prints.show, tuple(hidden), {}, None, f"print of {self._name}",
                                   effect=True)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]
              ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the inputs in the order in which the kernel takes them, and its options by name.
        """
        signature = self.__signature__
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as e:
            raise ArgumentError(f"kernel {self._name}: expected arguments of {signature}: {e}",
                                hint="the parameters of out= are the inputs of the kernel; make "
                                     "options keyword-only: def kernel(x, o, *, block)") from None
        return bound.args, bound.kwargs

    def _out_aval(self, spec: Any) -> Aval:
        if not (hasattr(spec, "shape") and hasattr(spec, "dtype")):
            raise KernelError(f"out= of {self._name}: expected something with shape and dtype, "
                              f"got {type(spec).__name__}",
                              hint="return fnx.ShapeDtypeStruct(shape, dtype)")
        return Aval(tuple(spec.shape), dtypes.as_dtype(spec.dtype))

    def _trace(self, arrays: Sequence[Array], in_tree: tree.TreeDef, outs: Sequence[Aval],
               out_tree: tree.TreeDef, static: dict[str, Any]
               ) -> tuple[UOp, Prints]:
        def make_args(reference: Callable[[DType, Shape, bool, str], Reference]) -> list[Any]:
            names = iter(self._names(in_tree, out_tree))
            inputs = [reference(x._dtype, x._shape, False, next(names)) for x in arrays]
            outputs = tree.unflatten(out_tree, [reference(dtype, shape, True, next(names))
                                                for shape, dtype, _ in outs])
            is_tuple = isinstance(outputs, tuple | list)
            return [*tree.unflatten(in_tree, inputs), *(outputs if is_tuple else (outputs,))]
        f = functools.partial(self._f, **static) if static else self._f
        return trace_kernel(f, self._name, make_args)

    def _names(self, in_tree: tree.TreeDef, out_tree: tree.TreeDef) -> list[str]:
        """Return a name for each leaf: the parameter's name if the parameter is a single array."""
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

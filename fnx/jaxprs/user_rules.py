"""Primitives of the user's in a graph: a CUSTOM whose rules are traced when they are needed.

    p.bind(x, y)            ->  CUSTOM(FUNCTION of p's lowering, x, y), with arg.rule_maker
    forward mode meets it   ->  the same with its "jvp", from primitive_jvps
    reverse mode meets it   ->  the same; the jvp is transposed. Calls of primitives in it that are
                                linear in tangents are marked (transforms/autodiff/linear_calls.py)
    transposition meets a
    marked one              ->  the same with "fwd" and "bwd", from primitive_transposes
    vmap meets it           ->  a CALL of what its batching rule returns

Outside of all traces, binding calls ``impl``. A primitive without a lowering calls ``impl`` in
eager transforms: traced if possible, else as a callback, which its own rules cannot bind; under jit
it raises, as in JAX.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fnx.core.array import tree
from fnx.core.array.abstract_values import ShapedArray
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval, ShapeDtypeStruct
from fnx.core.ir import accessors, build, build_calls, dtypes, op_args, ops
from fnx.core.ir.derivations import recent_forms
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError, FnxError, NotBuiltError, RuleError
from fnx.core.tracing.trace import (
    TracedFunction,
    close,
    preserving_locs,
    trace,
    with_arrays_inside,
)
from fnx.jaxprs import lowering_context, registries
from fnx.jaxprs.effects import effects_of_primitive
from fnx.jaxprs.registries import AxisData, UndefinedPrimal, Zero
from fnx.transforms.custom.check_results import RuleInfo
from fnx.transforms.custom.custom_function import is_hashable
from fnx.transforms.host_callbacks import pure_callback

if TYPE_CHECKING:
    from fnx.jaxprs.primitive import Primitive
    from fnx.transforms.batching.patterns import BatchAxis


class BoundPrimitive:
    """A primitive with its params.

    Attributes:
        primitive: the primitive.
        params: its static arguments.
        weak: of the operands, whether their dtypes are weak.
        linear: of the operands, which depend on tangents; empty: it is not marked.
    """

    is_linear = True  # in what its transpose rule takes

    def __init__(self, primitive: Primitive, params: dict[str, Any], weak: tuple[bool, ...],
                 linear: tuple[bool, ...] = ()) -> None:
        self.primitive, self.params, self.weak, self.linear = primitive, params, weak, linear

    def __repr__(self) -> str:
        return f"BoundPrimitive({self.primitive})"

    def with_jvp(self, node: UOp, active: Sequence[bool]) -> UOp:
        """Return the node with the jvp rule for tangents of these operands."""
        arg, p = node.arg, self.primitive
        rule = registries.primitive_jvps.get(p)
        if rule is None:
            raise NotBuiltError(f"Differentiation rule for '{p}' not implemented",
                                hint=f"define one: ad.primitive_jvps[{p}_p] = rule, or "
                                     f"ad.deflinear({p}_p, transpose_rule)", loc=node.loc)
        info = _info(rule, "jvp", p)
        avals = self._avals(node)
        flags = active[arg.n_captures + arg.effects:]

        def run(primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
            floats = iter(tangents)
            all_tangents: list[Any] = []
            for a, is_active in zip(avals, flags):
                t = next(floats) if a.dtype.is_inexact else None
                all_tangents.append(t if is_active and t is not None else
                                    Zero(registries.tangent_aval(a.shape, a.dtype)))
            out, out_tangent = _pair(_call(rule, info, tuple(primals), tuple(all_tangents),
                                           **self.params), info)
            values = _check(self._listed(out), _outs(arg), info)
            out_tangents = self._listed(out_tangent)
            expected = [o for o in _outs(arg) if o[1].is_inexact]
            inexact = [t for t, (_, dtype) in zip(out_tangents, _outs(arg)) if dtype.is_inexact]
            if len(out_tangents) != len(_outs(arg)):
                raise info.error(f"{len(_outs(arg))} tangents", str(len(out_tangents)),
                                 "return one for each result")
            return [*values, *_check(inexact, expected, info, "tangents")]

        floats = [a for a in avals if a.dtype.is_inexact]
        traced = _trace(run, [list(avals), floats], f"the jvp of {p}")
        return _with_rules(node, {"jvp": _function(traced, arg, info)}, ())

    def marked(self, node: UOp, linear: Sequence[bool]) -> UOp:
        """Return the node for operands of which these depend on tangents."""
        skipped = node.arg.n_captures + node.arg.effects
        return node.replace(arg=node.arg.replace(rule_maker=bound(
            self.primitive, self.params, self.weak, tuple(linear[skipped:]))))

    def with_vjp(self, node: UOp, active: Sequence[bool], outs: Sequence[bool]) -> UOp:
        """Return the node with a rule for reverse mode, for cotangents of these results."""
        has_jvp = self.primitive in registries.primitive_jvps
        if self.linear or not has_jvp and self.primitive in registries.primitive_transposes:
            return self._with_transpose(node, active, outs)
        return self.with_jvp(node, active)

    def _with_transpose(self, node: UOp, active: Sequence[bool], out_flags: Sequence[bool]) -> UOp:
        arg, p = node.arg, self.primitive
        rule = registries.primitive_transposes.get(p)
        if rule is None:
            raise NotBuiltError(
                f"Transpose rule (for reverse-mode differentiation) for '{p}' not implemented",
                hint=f"define one: ad.primitive_transposes[{p}_p] = rule", loc=node.loc)
        info = _info(rule, "transpose", p)
        skipped = arg.n_captures + arg.effects
        avals, flags = self._avals(node), tuple(active[skipped:])
        saved = [i for i, is_active in enumerate(flags) if not is_active]
        floats = [i for i, (_, dtype) in enumerate(_outs(arg)) if dtype.is_inexact]

        def run(residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
            values, ct_of = dict(zip(saved, residuals)), dict(zip(floats, cts))
            args = [values[i] if i in values else UndefinedPrimal(ShapedArray.of(a))
                    for i, a in enumerate(avals)]
            ct_list = [ct_of[i] if i in ct_of and out_flags[i + arg.effects] else
                       Zero(registries.tangent_aval(*o)) for i, o in enumerate(_outs(arg))]
            ct = ct_list if p.multiple_results else ct_list[0]
            in_cts = _call(rule, info, ct, *args, **self.params)
            if isinstance(in_cts, Array) or not isinstance(in_cts, Iterable):
                raise info.error("a list of cotangents", type(in_cts).__name__,
                                 "return one for each operand, None for those with values")
            in_cts = list(in_cts)
            if len(in_cts) != len(avals):
                raise info.error(f"{len(avals)} cotangents", str(len(in_cts)),
                                 "return one for each operand, None for those with values")
            linear = [i for i in range(len(avals)) if flags[i]]
            return _check([in_cts[i] for i in linear],
                          [(avals[i].shape, avals[i].dtype) for i in linear], info, "cotangents")

        groups = [[avals[i] for i in saved], [Aval(*_outs(arg)[i]) for i in floats]]
        bwd = _function(_trace(run, groups, f"the transpose of {p}"), arg, info)
        args = build_calls.params_like(accessors.operands(node))
        outs = build_calls.call(node.src[0], args)
        fwd = build.function([*outs, *[args[skipped + i] for i in saved]], len(args), f"{p}.fwd")
        order = iter(range(arg.effects, len(flags) + 1))
        indices = tuple([next(order) if is_active else -1 for is_active in flags])
        return _with_rules(node, {"fwd": fwd, "bwd": bwd}, (-1,) * arg.effects + indices)

    def batched(self, node: UOp, batch: BatchAxis, flags: Sequence[bool]
                ) -> tuple[UOp, list[bool]]:
        """Return the FUNCTION of a batch of operands, without captures, and which of its results
        have a batch axis."""
        arg, p = node.arg, self.primitive
        rule = registries.fancy_primitive_batchers.get(p)
        if rule is None:
            raise NotBuiltError(f"Batching rule for '{p}' not implemented",
                                hint=f"define one: batching.primitive_batchers[{p}_p] = rule",
                                loc=node.loc)
        info = _info(rule, "batching", p)
        axis = AxisData(None if batch.axis is None else batch.axis.name, batch.size)
        batched = list(flags[arg.effects:])
        avals = [Aval((batch.size, *a.shape) if b else a.shape, a.dtype, a.weak)
                 for a, b in zip(self._avals(node), batched)]
        differ: list[bool] = []

        def run(args: Sequence[Any]) -> list[Any]:
            dims = tuple([0 if b else None for b in batched])
            out, out_dims = _pair(_call(rule, info, axis, tuple(args), dims, **self.params), info)
            values = self._listed(out)
            dims_out = list(out_dims) if isinstance(out_dims, tuple | list) else \
                [out_dims] * len(values)
            if len(dims_out) != len(values):
                raise info.error("a batch dimension for each result",
                                 f"{len(dims_out)} for {len(values)}", "return None for results "
                                 "that do not depend on the batch")
            for x, d in zip(values, dims_out):
                if not _is_axis(d, x):
                    raise info.error("batch dimensions that its results have",
                                     f"{d!r} for {asarray(x)._aval}",
                                     "return the axis of each result that is the batch, or None")
            differ[:] = [d is not None for d in dims_out]
            expected = [((batch.size, *shape) if b else shape, dtype)
                        for (shape, dtype), b in zip(_outs(arg), differ)]
            return _check([_to_front(x, d) for x, d in zip(values, dims_out)], expected, info)

        traced = _trace(run, [avals], f"the batching of {p}")
        no_captures = arg.replace(n_captures=0)
        return _function(traced, no_captures, info), [False] * arg.effects + differ

    def _avals(self, node: UOp) -> list[Aval]:
        operands = accessors.operands(node)[node.arg.n_captures + node.arg.effects:]
        return [Aval(x.shape, x.dtype, w) for x, w in zip(operands, self.weak)]

    def _listed(self, out: Any) -> list[Any]:
        return list(out) if self.primitive.multiple_results else [out]


# ---- binding ------------------------------------------------------------------------------------


def bind(primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply a primitive of the user's: outside of all traces call ``impl``, else build a node."""
    for x in args:
        if x is None or isinstance(x, (str, bytes)):
            asarray(x)  # raises
    if not scope.is_traced([x._node for x in args if type(x) is Array]):
        return primitive.impl(*args, **params)
    out = _bind_in_trace(primitive, args, params)
    return out if primitive.multiple_results else out[0]


def bound(primitive: Primitive, params: dict[str, Any], weak: tuple[bool, ...],
          linear: tuple[bool, ...] = ()) -> BoundPrimitive:
    """Return the primitive with params; the same object for equal params."""
    key = primitive, tuple(sorted(params.items(), key=lambda item: item[0])), weak, linear
    try:
        hash(key)
    except TypeError:
        name = next((name for name, x in params.items() if not is_hashable(x)), "a param")
        raise ArgumentError(
            f"{primitive}: expected params that can be hashed and compared, got "
            f"{name}={params.get(name)!r:.60}",
            hint="pass a tuple for a list, tuple(sorted(d.items())) for a dict, and arrays as "
                 "operands") from None
    cached: BoundPrimitive = recent_forms.get_or_make(
        (BoundPrimitive, key), lambda: BoundPrimitive(primitive, params, weak, linear))
    return cached


@public_api
def _bind_in_trace(primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]
                   ) -> list[Array]:
    arrays = [asarray(x) for x in args]
    avals = tuple([x._aval for x in arrays])
    of = bound(primitive, params, tuple([a.weak for a in avals]))
    key = (_bind_in_trace, of, avals, primitive.abstract_eval, _lowering_rule(primitive),
           _under_jit())
    cached = recent_forms.get(key)
    captures: list[UOp] = []
    if cached is None:
        traced, outs, info = _value(of, avals)
        fn, captures = _with_captures(traced, info)
        arg = op_args.Custom(primitive.name, tuple([(x.shape, x.dtype) for x in fn.src]), (),
                             len(captures), effects=bool(traced.tokens), rule_maker=of)
        cached = fn, arg, outs
        if not captures:
            recent_forms.put(key, cached)
    fn, arg, outs = cached
    token = [scope.current_token()] if arg.effects else []
    nodes = build_calls.custom((fn,), arg, [*captures, *token, *[x._node for x in arrays]])
    if token:
        scope.set_token(nodes[0])
    return [Array(x, a.weak) for x, a in zip(nodes[arg.effects:], outs)]


def result_types(primitive: Primitive, avals: Sequence[Any], params: dict[str, Any]
                 ) -> tuple[Aval, ...]:
    """Return the types of the results, by the abstract rule of a primitive.

    Raises:
        RuleError: it returns something else.
    """
    rule = primitive.abstract_eval
    info = _info(rule, "abstract evaluation", primitive)
    out = _call(rule, info, *avals, **params)
    types = list(out) if primitive.multiple_results and isinstance(out, tuple | list) else out
    if primitive.multiple_results is not isinstance(types, list) or any(
            not (hasattr(a, "shape") and hasattr(a, "dtype"))
            for a in (types if isinstance(types, list) else [types])):
        raise info.error("a list of ShapedArrays" if primitive.multiple_results else
                         "a ShapedArray", type(out).__name__,
                         "return core.ShapedArray(shape, dtype) for each result, in a list if "
                         "multiple_results is set")
    return tuple([Aval(tuple(a.shape), dtypes.as_dtype(a.dtype),
                       bool(getattr(a, "weak_type", False)))
                  for a in (types if isinstance(types, list) else [types])])


def _lowering_rule(primitive: Primitive) -> Callable[..., Any] | None:
    rules = registries.lowerings.get(primitive, {})
    return rules.get("cpu", rules.get(None))


def lowered_function(primitive: Any, params: dict[str, Any], avals: Sequence[Any],
                     outs: Sequence[Any]) -> Callable[..., list[Any]] | None:
    """Return how a primitive of the user's is computed by its lowering rule; None without one.

    Args:
        primitive: any primitive.
        params: those of an equation.
        avals, outs: the types of its operands and results.
    """
    rule = _lowering_rule(primitive)
    if rule is None:
        return None
    context = lowering_context.LoweringRuleContext(primitive, list(avals), list(outs))

    def f(*args: Any) -> list[Any]:
        out = rule(context, *args, **params)
        return [getattr(x, "result", x) for x in (out if isinstance(out, tuple | list) else [out])]
    return f


def _under_jit() -> bool:
    """Whether a compiled function is traced, not only looked at."""
    names = [s.name.partition(" of ")[0] for s in scope.open_scopes()]
    return "jit" in names and not {"make_jaxpr", "eval_shape"} & set(names)


def _value(of: BoundPrimitive, avals: Sequence[Aval]
           ) -> tuple[TracedFunction, tuple[Aval, ...], RuleInfo]:
    """Trace the value of a primitive, and check its types."""
    p = of.primitive
    outs = result_types(p, [ShapedArray.of(a) for a in avals], of.params)
    expected = [(a.shape, a.dtype) for a in outs]
    has_effects = bool(effects_of_primitive(p, [ShapedArray.of(a) for a in avals], of.params))

    def traced(f: Callable[..., list[Any]], what: str) -> TracedFunction:
        def in_order(args: Sequence[Any]) -> list[Any]:
            if has_effects:
                scope.current_token()  # so that it takes one, and is ordered
            return f(args)
        return _trace(in_order, [list(avals)], f"the {what} of {p}")
    rule = _lowering_rule(p)
    if rule is not None:
        info = _info(rule, "lowering", p)
        context = lowering_context.LoweringRuleContext(
            p, [ShapedArray.of(a) for a in avals], [ShapedArray.of(a) for a in outs])
        lower = rule

        def run(args: Sequence[Any]) -> list[Any]:
            out = _call(lower, info, context, *args, **of.params)
            results = list(out) if isinstance(out, tuple | list) else [out]
            return _check([getattr(x, "result", x) for x in results], expected, info)
        return traced(run, "lowering"), outs, info
    info = _info(p.impl, "implementation", p)
    if _under_jit():
        others = [str(name) for name in registries.lowerings.get(p, {})]
        raise NotBuiltError(f"MLIR translation rule for primitive '{p}' not found for platform cpu"
                            + (f", only for {', '.join(others)}" if others else ""),
                            hint=f"define one: mlir.register_lowering({p}_p, "
                                 "mlir.lower_fun(f, multiple_results=False))")

    def traced_impl(args: Sequence[Any]) -> list[Any]:
        return _check(of._listed(p.impl(*args, **of.params)), expected, info)

    def called_impl(args: Sequence[Any]) -> list[Any]:
        structs = [ShapeDtypeStruct(a.shape, a.dtype) for a in outs]
        return list(pure_callback(lambda *values: of._listed(p.impl(*values, **of.params)),
                                  structs, *args))
    if "impl" not in vars(p):  # rules and jaxprs need the types only; its value raises
        return traced(called_impl, "value"), outs, info
    try:
        return traced(traced_impl, "value"), outs, info
    except NotBuiltError:
        raise
    except Exception:  # it is no code for traced arrays
        return traced(called_impl, "value"), outs, info


# ---- tracing rules ------------------------------------------------------------------------------


def _info(rule: Callable[..., Any], kind: str, primitive: Primitive) -> RuleInfo:
    plain = getattr(rule, "__wrapped__", rule)
    return RuleInfo(plain, kind, f"the primitive {primitive}")


def _call(rule: Callable[..., Any], info: RuleInfo, *args: Any, **params: Any) -> Any:
    """Call a rule; an error of the user's says which rule of which primitive it is from."""
    try:
        return rule(*args, **params)
    except Exception as error:
        if isinstance(error, TypeError):
            _check_signature(rule, info, args, params)
        error.add_note(f"in {info.text}")
        raise


def _check_signature(rule: Callable[..., Any], info: RuleInfo, args: Sequence[Any],
                     params: dict[str, Any]) -> None:
    """Raise if a rule, or the function of a lowering, does not take these arguments."""
    of_function = info.kind == "lowering" and rule is not info.rule
    try:
        inspect.signature(info.rule if of_function else rule, follow_wrapped=False).bind(
            *args[of_function:], **params)
    except TypeError as error:
        raise RuleError(f"expected {info.text} to take its {len(args) - of_function} arguments"
                        + "".join([f", {name}=" for name in params])
                        + f", got one that does not: {error}",
                        hint="take arguments by position and all params by name") from None
    except ValueError:  # a callable without a signature
        pass


def _pair(out: Any, info: RuleInfo) -> tuple[Any, Any]:
    if not isinstance(out, tuple | list) or len(out) != 2:
        raise info.error("a pair", type(out).__name__, "return two values")
    return out[0], out[1]


def _check(values: Sequence[Any], expected: Sequence[tuple[Any, Any]], info: RuleInfo,
           what: str = "results") -> list[Array]:
    """Return what a rule returned as arrays: of the right types, and zeros for Zero and None."""
    if len(values) != len(expected):
        raise info.error(f"{len(expected)} {what}", str(len(values)),
                         "return one for each that the abstract evaluation rule gives")
    arrays = []
    for x, (shape, dtype) in zip(values, expected):
        if x is None or isinstance(x, Zero):
            arrays.append(Array(build.const(0, dtype, shape)))
            continue
        try:
            array = asarray(x)
        except FnxError as error:
            raise info.error(f"arrays as {what}", type(x).__name__, error.message) from None
        node = array._node
        if array.weak and dtype.is_inexact and dtype is not array._dtype:
            node = build.cast(node, dtype)
        if node.shape != tuple(shape) or node.dtype is not dtype:
            raise info.error(f"{what} of type {dtype}{list(shape)}",
                             f"{node.dtype}{list(node.shape)}",
                             "make it agree with the abstract evaluation rule and the operands")
        arrays.append(Array(node))
    return arrays


def _is_axis(dim: Any, x: Any) -> bool:
    """Whether a batch dimension is None or an axis of a result."""
    if dim is None or isinstance(x, Zero) or x is None:
        return True
    n = len(asarray(x).shape)
    return isinstance(dim, int) and -n <= dim < n


def _to_front(x: Any, dim: int | None) -> Any:
    if dim is None or dim == 0 or isinstance(x, Zero) or x is None:
        return x
    node = asarray(x)._node
    n = len(node.shape)
    return Array(build.permute(node, (dim % n, *[i for i in range(n) if i != dim % n])))


def _trace(run: Callable[..., list[Any]], groups: Sequence[Sequence[Aval]], by: str
           ) -> TracedFunction:
    """Trace a function of lists of arrays."""
    structure = tree.structure((tuple([[0] * len(group) for group in groups]), {}))
    transform, _, name = by.partition(" of ")
    return trace(run, [a for group in groups for a in group], structure, transform=transform,
                 name=name)


def _with_captures(traced: TracedFunction, info: RuleInfo) -> tuple[UOp, list[UOp]]:
    """Close the value of a primitive, whose captures and token come first."""
    leaves = [*traced.tokens[:1], *traced.leaves]
    n = len(traced.outs)
    nodes = [*traced.nodes[n:], *traced.nodes[:n]]
    fn, captures = preserving_locs(close, nodes, leaves, traced.name, front=True)
    return fn, captures


def _function(traced: TracedFunction, arg: op_args.Custom, info: RuleInfo) -> UOp:
    """Close the trace of a rule to a FUNCTION of captures, which it does not read, a token, if
    there are effects, and its leaves. Arrays that it closes over stay inside
    (core/ir/inner_arrays.py)."""
    n = len(traced.outs)
    if traced.tokens and not arg.effects:
        raise RuleError(f"expected {info.text} to have effects only if the primitive has, got one",
                        hint="print in the lowering rule, too, or in none")
    unused = [UOp(ops.LEAF, dtypes.bool_, (), op_args.Leaf(-2 - i, (0,)))
              for i in range(arg.n_captures + arg.effects)]
    first = unused[:arg.n_captures]
    tokens = (traced.tokens or (unused[-1], unused[-1])) if arg.effects else ()
    outs = [*tokens[1:], *traced.nodes[:n]]
    leaves = [*first, *tokens[:1], *traced.leaves]
    fn, captures = preserving_locs(close, outs, leaves, traced.name)
    if any(c.op is not ops.BUFFER for c in captures):
        raise RuleError(f"expected {info.text} to read its arguments only, got an array that it "
                        "closes over", hint="pass it as an operand of the primitive")
    return with_arrays_inside(fn, len(leaves), captures)


def _outs(arg: op_args.Custom) -> Sequence[tuple[Any, Any]]:
    """Return the types of the results, without a token."""
    return arg.outs[arg.effects:]


def _with_rules(node: UOp, rules: dict[str, UOp], ct_indices: tuple[int, ...]) -> UOp:
    """Return a CUSTOM of a primitive with rules, as those of any other function."""
    arg = node.arg.replace(rules=tuple(rules), cotangent_indices=ct_indices, rule_maker=None)
    return node.replace(src=(node.src[0], *rules.values(), *accessors.operands(node)), arg=arg)

"""Ops with several results as equations, and back: calls, loops, branches, rules, callbacks.

    op            primitive                            its bodies, as jaxprs in params
    CALL          jit, remat2, name                    jaxpr
    SCAN          scan                                 jaxpr
    WHILE         while                                cond_jaxpr, body_jaxpr
    COND          cond                                 branches
    CUSTOM        custom_jvp_call, custom_vjp_call     call_jaxpr; a primitive of the user's: none
    CALLBACK      pure_callback, io_callback, ...
    SORT, LINALG  sort; the name of the routine

Binding one of them traces its jaxprs again by the public function (jit, scan, ...), so params may
hold other jaxprs than before. Tokens are neither operands nor results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array.abstract_values import ShapedArray
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.ir import accessors, build, build_calls, dtypes, op_args, ops
from fnx.core.ir.cache import memos_of
from fnx.core.ir.expr import Expr, maximum, minimum
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import Composite, UOp, set_composite
from fnx.core.scope import scope
from fnx.jaxprs import evaluate, op_rows
from fnx.jaxprs.callbacks import callback_view
from fnx.jaxprs.primitive import built_in, define
from fnx.jaxprs.registries import labelled
from fnx.jaxprs.signature_names import recorded_names
from fnx.jaxprs.syntax import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, aval_of
from fnx.jaxprs.templates import View
from fnx.jaxprs.view import function_to_jaxpr
from fnx.transforms.autodiff import policies
from fnx.transforms.checkpoint import checkpoint, checkpoint_name
from fnx.transforms.control_flow import branches as branches_module
from fnx.transforms.control_flow import scan, while_loop
from fnx.transforms.jit import jit

# the view, its results (by its aval one that is left out), and the token that it takes, if any
MultiView = tuple[View, Sequence[UOp | ShapedArray], UOp | None]


def multi_view(node: UOp) -> MultiView:
    """Return an op with several results as an equation, its results, and the token it takes."""
    operands = accessors.operands(node) if node.op in ops.HIGHER_ORDER else node.src
    token = next((x for x in operands if build_calls.is_token(x)), None)
    view = _view(node, OpBodies(node)) if node.op in ops.HIGHER_ORDER else _leaf_view(node)
    view = view.replace(operands=[x for x in view.operands if not build_calls.is_token(x)])
    results = build.results(node)
    if node.op is ops.SCAN and _counter_start(node) is not None:
        return view, [ShapedArray((), "int32"), *results], token
    if node.op is ops.SORT:
        n = len(node.src)
        by_position = {n if i < 0 else i: x for i, x in zip(node.arg.outputs, results)}
        return view, [by_position.get(i, aval_of(x)) for i, x in enumerate(view.operands)], None
    return view, [x for x in results if not build_calls.is_token(x)], token


def _closed(fn: UOp, params: Sequence[UOp], traced_for: str = "jit") -> ClosedJaxpr:
    """Return the jaxpr of a body; equal bodies have the same."""
    key = function_to_jaxpr, traced_for, tuple([(x.shape, x.dtype) for x in params])
    memos = memos_of(fn)
    if key not in memos:
        memos[key] = ClosedJaxpr(function_to_jaxpr(fn, params), ())
        memos[key].jaxpr.debug_info.traced_for = traced_for
    closed: ClosedJaxpr = memos[key]
    names = recorded_names(fn)
    if names is not None:
        closed.jaxpr.debug_info.set_names(names)
    return closed


def _view(node: UOp, op: OpBodies) -> View:
    params = op.params(op.split(op.operands))
    if not op.bodies or node.op is ops.CUSTOM and node.arg.recursion_depth >= 0:
        return _as_it_is(node)
    if node.op is ops.CALL:
        return _call(node, op, params)
    if node.op is ops.COND:
        closed = tuple([_closed(fn, params, "cond") for fn in op.bodies])
        return View(built_in("cond"), [*map(_clamped(len(closed)), op.selector), *op.operands],
                    {"branches": closed})
    if node.op is ops.SCAN:
        return _scan(node, op, params)
    return _while(op, params) if node.op is ops.WHILE else _custom(node, op, params)


# ---- calls --------------------------------------------------------------------------------------


def _call(node: UOp, op: OpBodies, params: Sequence[UOp]) -> View:
    body, policy = op.bodies[0], node.arg.policy
    if policies.is_name_call(node):
        return View(built_in("name"), op.operands,
                    {"name": policies.name_of_call(node)})
    for prefix, row in labelled.items():
        if node.arg.name.startswith(prefix) and (said := row.params(node.arg.name)) is not None:
            return View(define(row.primitive, row.build), op.operands, said)
    closed = _closed(body, params, "jit" if policy is None else "checkpoint / remat")
    if policy is not None:
        return View(built_in("remat2"), op.operands,
                    {"jaxpr": closed.jaxpr, "prevent_cse": policy.prevent_cse,
                     "differentiated": False,
                     "policy": None if policy.kind == "nothing" else policy})
    n = len(op.operands)
    names = recorded_names(body)
    donated = () if names is None else names.donated
    return View(built_in("jit"), op.operands, {
        "jaxpr": closed, "in_shardings": (), "out_shardings": (), "in_layouts": (None,) * n,
        "out_layouts": (), "donated_invars": tuple([i in donated for i in range(n)]),
        "ctx_mesh": None, "name": node.arg.name, "keep_unused": False, "inline": False,
        "compiler_options_kvs": ()})


def _build_jit(*args: Any, jaxpr: ClosedJaxpr, name: str = "jaxpr", **_: Any) -> Any:
    jitted = memos_of(jaxpr).get(_build_jit)
    if jitted is None:
        f = evaluate.jaxpr_as_fun(jaxpr)
        f.__name__ = f.__qualname__ = name
        jitted = memos_of(jaxpr)[_build_jit] = jit(f)
    return jitted(*args)


def _build_remat(*args: Any, jaxpr: Jaxpr, prevent_cse: bool = True, policy: Any = None,
                 **_: Any) -> Any:
    f = evaluate.jaxpr_as_fun(ClosedJaxpr(jaxpr, ()))
    f.__name__ = jaxpr.debug_info.func_name or "jaxpr"
    return checkpoint(f, prevent_cse=prevent_cse, policy=policy)(*args)


def _build_name(x: Any, *, name: str) -> Any:
    return checkpoint_name(x, name)


# ---- control flow -------------------------------------------------------------------------------


def _clamped(n: int) -> Callable[[UOp], UOp]:
    """Return the function that clamps the number of one of n branches, which COND does itself."""
    def clamped(which: UOp) -> UOp:
        is_predicate = which.op is ops.CAST and which.src[0].dtype.is_bool
        record = which.composite
        if which.op is ops.CONST or is_predicate or record is not None and record.name == "clamp":
            return which
        low, high = (build.const_like(which, i) for i in (0, n - 1))
        return set_composite(_clamp_node(low, which, high), "clamp", _clamp, [low, which, high])
    return clamped


def _clamp_node(low: UOp, x: UOp, high: UOp) -> UOp:
    return minimum(maximum(Expr(x), Expr(low)), Expr(high)).node


def _clamp(low: Any, x: Any, high: Any) -> Array:
    node = asarray(x)._node
    bounds = [build.expand(build.cast(asarray(bound)._node, node.dtype), node.shape)
              for bound in (low, high)]
    return Array(_clamp_node(bounds[0], node, bounds[1]))


def _build_cond(index: Any, *args: Any, branches: Sequence[ClosedJaxpr], **_: Any) -> Any:
    functions = [evaluate.jaxpr_as_fun(b) for b in branches]
    which = asarray(index)
    number = branches_module.predicate(which) if which._dtype.is_bool else \
        branches_module.branch_number(which, len(branches))
    return branches_module.branch(number, functions, args, "cond")


def _scan(node: UOp, op: OpBodies, params: Sequence[UOp]) -> View:
    consts, carries, _ = op.split([not build_calls.is_token(x) for x in op.operands])
    extra = {"checkpoint": node.arg.checkpoint} if node.arg.checkpoint else {}
    closed, operands = _closed(op.bodies[0], params, "scan"), op.operands
    start = _counter_start(node)
    if start is not None:
        n = len(consts)
        closed = _with_counter(closed, n)
        operands = *operands[:n], start, *operands[n:-1]
    return View(built_in("scan"), operands, {
        "reverse": node.arg.reverse, "length": node.arg.length,
        "jaxpr": closed, "num_consts": sum(consts),
        "num_carry": sum(carries) + (start is not None), "unroll": 1, **extra})


def unrolled_scan_view(composite: Composite) -> View:
    """Return a SCAN that is unrolled in the graph as the equation that it is recorded as."""
    params = dict(composite.params)
    n = params["num_consts"] + params["num_carry"]
    rows = [build.shrink(x, [(0, 1), *[(0, m) for m in x.shape[1:]]])
            for x in composite.operands[n:]]
    like = [*composite.operands[:n], *[build.reshape(x, x.shape[1:]) for x in rows]]
    body = params.pop("body")
    return View(built_in("scan"), composite.operands, {
        "jaxpr": _closed(body, build_calls.params_like(like), "scan"), **params})


def _counter_start(node: UOp) -> UOp | None:
    """Return the first number of a loop over numbers, ``fori_loop``, whose counter is a carry in
    JAX; None of other loops."""
    if op_args.FORI_LOOP not in node.arg.name or node.arg.reverse or node.arg.checkpoint:
        return None
    op = OpBodies(node)
    consts, _, xs = op.split(op.operands)
    if len(xs) != 1 or any(map(build_calls.is_token, op.operands)) or \
            xs[0].op is not ops.ADD or xs[0].dtype is not dtypes.int32:
        return None
    parts = sorted(xs[0].src, key=lambda x: x.op is ops.IOTA)
    return op_rows.literal_of(parts[0]) if parts[1].op is ops.IOTA else None


def _with_counter(closed: ClosedJaxpr, n_consts: int) -> ClosedJaxpr:
    """Return a body whose last argument, the counter, is the first carry; equal bodies have the
    same."""
    memos = memos_of(closed)
    if _with_counter not in memos:
        inner = closed.jaxpr
        counter, following = inner.invars[-1], Var(ShapedArray((), "int32"))
        one = Literal(1, ShapedArray((), "int32"))
        step = JaxprEqn([counter, one], [following], built_in("add"), {})
        memos[_with_counter] = ClosedJaxpr(inner.replace(
            invars=[*inner.invars[:n_consts], counter, *inner.invars[n_consts:-1]],
            outvars=[following, *inner.outvars], eqns=[step, *inner.eqns]), closed.consts)
    out: ClosedJaxpr = memos[_with_counter]
    return out


def _build_scan(*args: Any, jaxpr: ClosedJaxpr, num_consts: int, num_carry: int, length: int,
                reverse: bool = False, unroll: int = 1, checkpoint: int = 0, **_: Any) -> Any:
    consts, rest = args[:num_consts], args[num_consts:]
    step = evaluate.jaxpr_as_fun(jaxpr)

    def f(carry: Any, x: Any) -> Any:
        outs = step(*consts, *carry, *x)
        return tuple(outs[:num_carry]), tuple(outs[num_carry:])
    last, ys = scan.scan(f, tuple(rest[:num_carry]), tuple(rest[num_carry:]), length, reverse,
                         unroll, checkpoint, False)
    return [*last, *ys]


def _while(op: OpBodies, params: Sequence[UOp]) -> View:
    condition, body = op.bodies
    n = op.n_consts
    used = [sorted(i for i in build.params(fn) if i < n and not build_calls.is_token(params[i]))
            for fn in (condition, body)]
    forms = []
    for fn, consts, part in zip((condition, body), used, ("while_cond", "while_body")):
        captured = [params[i] for i in consts]
        forms.append(_closed(fn, [*captured, *params[n:]], part))
    operands = [op.operands[i] for consts in used for i in consts]
    return View(built_in("while"), [*operands, *op.operands[n:]], {
        "cond_nconsts": len(used[0]), "cond_jaxpr": forms[0],
        "body_nconsts": len(used[1]), "body_jaxpr": forms[1]})


def _build_while(*args: Any, cond_jaxpr: ClosedJaxpr, cond_nconsts: int, body_jaxpr: ClosedJaxpr,
                 body_nconsts: int) -> Any:
    n = cond_nconsts + body_nconsts
    test, step = evaluate.jaxpr_as_fun(cond_jaxpr), evaluate.jaxpr_as_fun(body_jaxpr)
    out = while_loop.while_loop(
        lambda carry: test(*args[:cond_nconsts], *carry)[0],
        lambda carry: tuple(step(*args[cond_nconsts:n], *carry)), tuple(args[n:]))
    return list(out)


# ---- rules --------------------------------------------------------------------------------------


class TracedRule:
    """A derivative rule of a function; it prints as its name."""

    def __init__(self, node: UOp, name: str) -> None:
        self.functions, self.arg, self.name = accessors.bodies(node), node.arg, name

    def __repr__(self) -> str:
        return self.name


def _custom(node: UOp, op: OpBodies, params: Sequence[UOp]) -> View:
    arg = node.arg
    names = arg.rules
    if arg.rule_maker is not None and arg.rule_maker.primitive is None:
        names = arg.rule_maker.rule_names
    elif arg.rule_maker is not None:
        return View(arg.rule_maker.primitive, op.operands[arg.n_captures:], arg.rule_maker.params)
    closed, n = _closed(op.steps[0], params), arg.n_captures
    if "bwd" in names:
        fwd, bwd = (TracedRule(node, label) for label in _labels(arg, ("fwd", "bwd")))
        return View(built_in("custom_vjp_call"), op.operands, {
            "call_jaxpr": closed, "fwd_jaxpr_thunk": fwd, "num_consts": n, "bwd": bwd,
            "out_trees": None, "symbolic_zeros": False})
    if not names:
        return View(built_in("custom_vmap_call"), op.operands, {
            "call": closed, "rule": TracedRule(node, arg.name)})
    rule = TracedRule(node, *_labels(arg, ("jvp",)))
    return View(built_in("custom_jvp_call"), op.operands, {
        "call_jaxpr": closed, "jvp_jaxpr_fun": rule, "num_consts": n, "symbolic_zeros": False})


def _labels(arg: op_args.Custom, rules: Sequence[str]) -> Sequence[str]:
    """Return the names of rules: those of the user's functions, if these are known."""
    labels: Sequence[str] = getattr(arg.rule_maker, "rule_labels", ())
    return labels if len(labels) == len(rules) else [f"{arg.name}.{rule}" for rule in rules]


def _build_custom(*args: Any, **params: Any) -> list[Array]:
    rule = next(x for x in params.values() if isinstance(x, TracedRule))
    closed: ClosedJaxpr = params["call"] if "call" in params else params["call_jaxpr"]
    arg, functions = rule.arg, list(rule.functions)
    nodes = [asarray(x)._node for x in args]
    if arg.effects:
        nodes.insert(arg.n_captures, scope.current_token())
    if _closed(functions[0], build_calls.params_like(nodes)) is not closed:
        functions[0] = _function_of(closed, nodes, arg)
    outs = build_calls.custom(functions, arg, nodes)
    if arg.effects:
        scope.set_token(outs[0])
    return [Array(x) for x in outs[arg.effects:]]


def _function_of(closed: ClosedJaxpr, nodes: Sequence[UOp], arg: op_args.Custom) -> UOp:
    """Return another function for a CUSTOM, from its jaxpr."""
    return evaluate.jaxpr_to_function(closed, nodes, arg.name)


# ---- ops without bodies -------------------------------------------------------------------------


def _leaf_view(node: UOp) -> View:
    arg = node.arg
    if node.op is ops.CALLBACK:
        return callback_view(node)
    if node.op is ops.SORT:
        last = len(arg.ins[0][0]) - 1
        positions = [op_rows.indices_along(arg.ins[0][0], last, dtypes.int32)] \
            if -1 in arg.outputs else []
        return View(built_in("sort"), [*node.src, *positions], {
            "dimension": last, "is_stable": True, "num_keys": arg.n_keys})
    return _as_it_is(node)


def _build_sort(*args: Any, dimension: int, num_keys: int = 1, is_stable: bool = True
                ) -> list[Array]:
    nodes = [asarray(x)._node for x in args]
    last = len(nodes[0].shape) - 1
    order = [*[i for i in range(last + 1) if i != dimension], dimension]
    back = sorted(range(last + 1), key=order.__getitem__)
    outs = build_calls.sort([build.permute(x, order) for x in nodes], num_keys)
    return [Array(build.permute(x, back)) for x in outs]


def _as_it_is(node: UOp) -> View:
    """Return any op with several results as an equation; its bodies are params."""
    first = len(node.src) - len(accessors.operands(node)) if node.op in ops.HIGHER_ORDER else 0
    name = node.arg.routine if node.op is ops.LINALG else f"{node.op.name.lower()}_op"
    return View(define(name, _rebuild(node.op), True), node.src[first:],
                {"bodies": node.src[:first], "arg": node.arg})


def _rebuild(op: ops.Op) -> Callable[..., list[Array]]:
    def compute(*args: Any, bodies: tuple[UOp, ...], arg: Any) -> list[Array]:
        nodes = [asarray(x)._node for x in args]
        return [Array(x) for x in build.results(UOp(op, dtypes.void, (*bodies, *nodes), arg))]
    return compute


_BUILDERS: dict[str, Callable[..., Any]] = {
        "jit": _build_jit, "remat2": _build_remat, "name": _build_name, "cond": _build_cond,
        "scan": _build_scan, "while": _build_while, "custom_jvp_call": _build_custom,
        "custom_vjp_call": _build_custom, "custom_vmap_call": _build_custom,
        "sort": _build_sort}
for _name, _build in _BUILDERS.items():
    define(_name, _build, multiple_results=_name != "name")

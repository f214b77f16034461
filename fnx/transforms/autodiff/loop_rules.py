"""The common base of the rules of SCAN, WHILE and COND: they are derived like a FUNCTION.

    SCAN(body, operands)   is   CALL(FUNCTION(SCAN(body, PARAMs)), operands)

So the forward form is a CALL that also returns the residuals, and the backward pass is a CALL too,
whatever loops these contain. In forward mode the op remains: it takes consts, carries and rest
(core/ir/op_bodies.py), each followed by its tangents. Masks of cotangents and tangents do not cross
the loop's boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import TypeVar

from fnx.core.ir import accessors, build, build_calls, dtypes, op_args, ops
from fnx.core.ir.build_calls import Nodes, body_function, build_function
from fnx.core.ir.derivations import Derivation, forms_with_body, lines_of
from fnx.core.ir.dtypes import DType
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record
from fnx.core.tracing.trace import inline_function
from fnx.transforms.autodiff import carry_fixpoints as fixpoints
from fnx.transforms.autodiff.carry_fixpoints import Carries
from fnx.transforms.autodiff.drop_effects import drop_effects
from fnx.transforms.autodiff.higher_order import (
    Activity,
    DependenceKey,
    HigherOrderRule,
    JvpForm,
    JvpKey,
    Linearized,
    MaskedTangents,
    Source,
)
from fnx.transforms.autodiff.rules import Cotangent, Tangent, zeros_like

T = TypeVar("T")

Reader = Callable[[Source], UOp]
# A cotangent for each active operand; the token after the last effect, if there are any.
VjpOuts = tuple[Sequence[UOp | None], UOp | None]


class _LoopKey(Record):
    """The cache key: a higher-order node with the types of its operands (also of those that no
    body reads), and which operands and results are active."""

    bodies: tuple[UOp, ...]
    arg: op_args.Scan | op_args.While | op_args.Cond
    types: tuple[tuple[ops.Shape, DType], ...]
    in_layout: Activity


class LoopRule(HigherOrderRule):
    """The base class of the rules of SCAN, WHILE and COND."""

    def depends(self, node: UOp) -> Derivation[Sequence[frozenset[int]]]:
        op = OpBodies(node)
        deps = yield from step_deps(op)
        may_skip = op.node.op is ops.WHILE or op.node.op is ops.SCAN and not node.arg.length
        first = len(op.selector)
        return [frozenset([first + i for i in d]) for d in
                fixpoints.transitive_deps(deps, carries_of(op), zero_steps=may_skip)]

    def vjp_forms(self, node: UOp, out_cts: Mapping[int, Cotangent], active: Container[UOp],
                  needs_mask: Container[UOp], nonfinite: Container[UOp]) -> Derivation[Linearized]:
        args = accessors.operands(node)
        activity = Activity(tuple([i for i, a in enumerate(args) if a in active]),
                            tuple(sorted(out_cts)))
        types = tuple([(x.shape, x.dtype) for x in args])
        key = _LoopKey(accessors.bodies(node), node.arg, types, activity)
        # not a form of the body: the backward pass of a loop may contain the body itself
        forms, lines = forms_with_body(key.bodies[0]), lines_of(*key.bodies)
        linearized: Linearized | None = forms.get((key, lines))
        if linearized is None:
            linearized = forms.put(
                (key, lines), (yield from self.linearize_uncached(node, args, activity)))
        return linearized

    def linearize_uncached(self, node: UOp, args: Nodes,
                           activity: Activity) -> Derivation[Linearized]:
        """Return the forward and the backward form of the node, for operands like ``args``."""
        raise NotImplementedError

    def jvp_all(self, node: UOp, tangents: MaskedTangents, needs_mask: Sequence[int],
                nonfinite: Container[UOp]
                ) -> Derivation[tuple[Sequence[UOp], MaskedTangents]]:
        op = OpBodies(node)
        args = op.operands
        dots = {i: t.value for i, t in enumerate(tangents[len(node.src) - len(args):])
                if t is not None}
        deps = yield from step_deps(op)
        inputs = sorted(fixpoints.active_params(deps, carries_of(op), dots))
        active = [o for o in range(op.n_carries) if op.n_consts + o in inputs]
        if len(op.steps) > 1:  # all have the same results
            active = [o for o, d in enumerate(deps) if not d.isdisjoint(inputs)]
        forms: list[JvpForm] = []
        for step in op.steps:
            forms.append((yield step, JvpKey(tuple(inputs), instantiate=tuple(active))))
        if len(op.steps) == 1:
            active += [o for o in forms[0].active if o >= op.n_carries]
        dots = {i: or_zeros(dots.get(i), args[i]) for i in inputs}
        n = len(node.arg.outs)
        outs = dict(zip(_with_tangents(op, n, active),
                        build.results(_jvp_node(op, forms, dots, active))))
        return [outs[o, False] for o in range(n)], [
            Tangent(outs[o, True]) if (o, True) in outs else None for o in range(n)]


def carries_of(op: OpBodies) -> Carries:
    return Carries(op.n_consts, op.n_carries)


def step_deps(op: OpBodies) -> Derivation[Sequence[frozenset[int]]]:
    """Return the PARAMs that each result of a step depends on, whichever is selected."""
    deps: list[Sequence[frozenset[int]]] = []
    for step in op.steps:
        deps.append((yield step, DependenceKey()))
    return [frozenset[int]().union(*each) for each in zip(*deps)]


def reverse_activity(op: OpBodies, deps: Sequence[frozenset[int]], activity: Activity
                     ) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the PARAMs and the results of the body of a loop that have a cotangent."""
    carries = carries_of(op)
    active = fixpoints.active_params(deps, carries, activity.inputs)
    with_ct = {c for c in fixpoints.ct_carries(deps, carries, activity.outputs)
               if carries.first + c in active}
    inputs = sorted(i for i in active if i not in carries.params or i - carries.first in with_ct)
    return tuple(inputs), (*sorted(with_ct), *[o for o in activity.outputs if o >= carries.n])


def _jvp_node(op: OpBodies, forms: Sequence[JvpForm], dots: Mapping[int, UOp],
              active: Sequence[int]) -> UOp:
    """Return the op on consts, carries and rest, each followed by its tangents."""
    name, n = op.node.arg.name, len(op.operands)
    order = [[*[(i, False) for i in group], *[(i, True) for i in group if i in dots]]
             for group in op.split(range(n))]
    position = {key: k for k, key in enumerate([key for group in order for key in group])}
    groups = [[dots[i] if is_dot else op.operands[i] for i, is_dot in group] for group in order]
    params = op.params(groups)
    primals = [params[position[i, False]] for i in range(n)]
    bodies = [body_function(partial(inline_function, condition, primals), len(params),
                            f"{name}.jvp.goes_on") for condition in op.conditions]

    def outs(form: JvpForm) -> list[UOp]:
        results, tangents = inline_jvp(form, primals, [params[position[i, True]] for i in dots])
        return [tangents[o] if is_dot else results[o]
                for o, is_dot in _with_tangents(op, len(results), active)]
    bodies += [body_function(partial(outs, form), len(params), form.function.arg.name
                             if op.selector else f"{name}.jvp") for form in forms]
    return op.rebuild(bodies, groups, f"{name}.jvp")


def _with_tangents(op: OpBodies, n_outs: int, active: Sequence[int]) -> list[tuple[int, bool]]:
    """Return the order of the results of a jvp: carries, their tangents, the others, theirs."""
    order: list[tuple[int, bool]] = []
    for group in (range(op.n_carries), range(op.n_carries, n_outs)):
        order += [*[(o, False) for o in group], *[(o, True) for o in active if o in group]]
    return order


class Sources:
    """The operands of a backward pass, in order of first use.

    >>> sources = Sources()
    >>> sources.add(("input", 3)), sources.add(("cotangent", 0)), sources.add(("input", 3))
    (('input', 3), ('cotangent', 0), ('input', 3))
    >>> sources.operands
    (('input', 3), ('cotangent', 0))
    """

    def __init__(self) -> None:
        self._number: dict[Source, int] = {}

    @property
    def operands(self) -> tuple[Source, ...]:
        return tuple(self._number)

    def add(self, source: Source) -> Source:
        self._number.setdefault(source, len(self._number))
        return source

    def build(self, forward: UOp | None, types: Mapping[str, Nodes],
              backward: Callable[[Reader], VjpOuts], name: str) -> Linearized:
        """Return the form whose backward pass is ``backward(read)``.

        Args:
            types: nodes with the types of the inputs, results and cotangents.
        """
        result_indices: list[tuple[int | None, int | None]] = []
        token: list[int] = []

        def outs(params: Nodes) -> list[UOp]:
            flat: list[UOp] = []
            cts, last = backward(lambda source: params[self._number[source]])
            for ct in cts:
                result_indices.append((None, None) if ct is None else (len(flat), None))
                if ct is not None:
                    flat.append(ct)
            if last is not None:
                token.append(len(flat))
                flat.append(last)
            return flat

        types = {**types, "token": [build_calls.initial_token()]}
        like = [types[kind][i] for kind, i in self._number]
        backward_fn = build_function(outs, like, f"{name}.backward")
        return Linearized(forward, backward_fn, self.operands, tuple(result_indices), *token)


def inline_backward(form: Linearized, read: Reader) -> VjpOuts:
    """Inline the backward pass of a body, with its sources supplied by ``read``."""
    results = inline_function(form.backward, [read(source) for source in form.sources])
    return [None if value is None else results[value] for value, _ in form.result_indices], \
        None if form.token is None else results[form.token]


def recompute_form(body: UOp, form: Linearized, n_cotangents: int) -> Linearized:
    """Return a form without residuals, whose backward pass recomputes the body."""
    def backward(read: Reader) -> VjpOuts:
        inputs = {i: read(("input", i)) for i in params}
        results = inline_function(rerun,
                                  [inputs.get(i, placeholder) for i in range(body.arg.n_params)])

        def lookup(source: Source) -> UOp:
            kind, i = source
            return results[i] if kind == "result" else read(source)
        return inline_backward(form, lookup)

    rerun = drop_effects(form.forward_of(body))
    placeholder = build.const(0, dtypes.int32)  # placeholder for operands that are not read
    params = build.params(body) | build.params(form.forward_of(body))
    sources = Sources()
    for i in params:
        sources.add(("input", i))
    for source in form.sources:
        if source[0] != "result":
            sources.add(source)
    like = {"input": [params.get(i, placeholder) for i in range(body.arg.n_params)],
            "cotangent": _cotangents_like(form, n_cotangents)}
    return sources.build(None, like, backward, body.arg.name)


def _cotangents_like(form: Linearized, n: int) -> list[UOp]:
    """Return nodes with the types of the cotangents, as far as they are read."""
    params = build.params(form.backward)
    like = {i: params[slot] for slot, (kind, i) in enumerate(form.sources)
            if kind == "cotangent" and slot in params}
    return [like.get(i, build.const(0, dtypes.int32)) for i in range(n)]


def optional_list(x: T | None) -> list[T]:
    """Return [x], or [] for None."""
    return [] if x is None else [x]


def or_zeros(value: UOp | None, like: UOp) -> UOp:
    """Return a cotangent or tangent, materializing a symbolic zero."""
    return zeros_like(like) if value is None else value


def inline_jvp(form: JvpForm, args: Nodes, tangents: Nodes) -> tuple[list[UOp], dict[int, UOp]]:
    """Inline the jvp form of a body; return its results and their tangents."""
    results, out_tangents = form.results(inline_function(form.function, [*args, *tangents]))
    return results, {o: t.value for o, t in enumerate(out_tangents) if t is not None}

"""Forward mode: one walk over the graph in topological order, propagating tangents.

    y = MUL(x, SIN(x)),  t   ->   y,  ADD(MUL(t, SIN(x)), MUL(x, MUL(t, COS(x))))

The result is a graph like any other, so the pushforward of a pushforward is the same walk again.
Only *active* nodes get a tangent: floats that depend on a source with one. A zero tangent is None.

**Symbolic zeros** (rules.py). A tangent is zero, whatever it is multiplied by, where no operand
with a tangent was selected: in the padding of PAD, the constant branch of a WHERE. Its mask is
propagated only if an operation with a singular partial lies ahead, and is applied there. So
forward and reverse mode agree, also where sqrt(pad(x)) has an infinite partial.

**Bodies.** A higher-order op is replaced by one with the jvp form of its body, which computes
results and tangents together. A jvp form is derived once for each activity pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.derivations import Derivation, derive, register_derivation, run_derivation
from fnx.core.ir.uop import UOp, current_loc, toposort
from fnx.core.support.line_visits import recording
from fnx.transforms.autodiff.dependence import ActivityAnalysis
from fnx.transforms.autodiff.derivatives import DERIVATIVES, is_singular
from fnx.transforms.autodiff.higher_order import (
    GetTupleRule,
    HigherOrderRule,
    JvpForm,
    JvpKey,
    MaskedTangents,
)
from fnx.transforms.autodiff.rules import DerivativeRule, Tangent, add_all, zeros_like

PushforwardOuts = tuple[list[UOp], list[Tangent | None]]


def jvp_form(body: UOp, key: JvpKey) -> JvpForm:
    """Return a FUNCTION that computes the results of ``body`` and their tangents.

    >>> from fnx.core.ir import ops
    >>> x = build.param(0, dtypes.float32, ())
    >>> pushed = jvp_form(build.function([build.elementwise(ops.SIN, x)], 1, "f"), JvpKey((0,)))
    >>> pushed.function.arg.n_params, pushed.result_indices
    (2, ((1, None),))
    """
    derived: JvpForm = derive(body, key)
    return derived


def pushforward(outs: Sequence[UOp], tangents: Mapping[UOp, UOp]
                ) -> tuple[list[UOp], list[UOp | None]]:
    """Return the outs, and their tangents for tangents of sources (LEAF or PARAM); None: zero.

    Raises:
        GradError: a user-written kernel without a derivative.
    """
    nodes, dots = run_derivation(_jvp_steps(outs, {x: Tangent(t) for x, t in tangents.items()}))
    return nodes, [None if t is None else t.value for t in dots]


def _jvp_steps(outs: Sequence[UOp], tangents: Mapping[UOp, Tangent], nonfinite: Iterable[UOp] = (),
               needs_mask: Iterable[UOp] = ()) -> Derivation[PushforwardOuts]:
    """The steps of ``pushforward``. ``nonfinite`` are sources whose value may be infinite or NaN,
    ``needs_mask`` the outs whose tangents need their masks."""
    walk = _ForwardWalk(outs, tangents, nonfinite, needs_mask)
    yield from walk.run()
    return [walk.primals[o] for o in outs], [walk.tangents.get(o) for o in outs]


class _ForwardWalk:
    """One walk: each node gets its primal in the new graph, and its tangent if it is active."""

    kind = "tangent"

    def __init__(self, outs: Sequence[UOp], tangents: Mapping[UOp, Tangent],
                 nonfinite: Iterable[UOp], needs_mask: Iterable[UOp]) -> None:
        self.order = toposort(outs)
        self.primals: dict[UOp, UOp] = {}
        self.tangents: dict[UOp, Tangent] = dict(tangents)
        self.active: set[UOp] = set(tangents)
        self.may_be_nonfinite: set[UOp] = set(nonfinite)
        self.singular: set[UOp] = set()
        self.only_summed: set[UOp] = set()  # products that only sums read
        self.needs_mask: set[UOp] = set(needs_mask)  # a singular partial lies ahead
        self.results: dict[UOp, tuple[Sequence[UOp], MaskedTangents]] = {}  # of higher-order nodes
        self.read: set[UOp] = set()  # those with an active result that is read
        self.masked_results: dict[UOp, list[int]] = {}  # results of these that need masks
        self._classify(outs)

    def _classify(self, outs: Iterable[UOp]) -> None:
        activity = ActivityAnalysis(self.active)
        for node in self.order:
            rule = DERIVATIVES.get(node.op)
            if not node.src or rule is None or not rule.is_active(node):
                continue
            if is_singular(node):
                self.singular.add(node)
            if (node in self.singular or any(s in self.may_be_nonfinite for s in node.src)) \
                    and not rule.blocks_masks(node):
                self.may_be_nonfinite.add(node)
            if any(node.src[i] in self.active for i in rule.operands(node)) and not (
                    isinstance(rule, GetTupleRule) and not activity.is_active(node)):
                self.active.add(node)
                self._track_products(node)
                if isinstance(rule, GetTupleRule):
                    self.read.add(node.src[0])
        self.only_summed.difference_update(outs)
        for node in reversed(self.order):
            if node not in self.active or not node.src:
                continue
            rule = DERIVATIVES[node.op]
            if self._masks_matter(rule, node) or (
                    node in self.needs_mask and not rule.blocks_masks(node)):
                self.needs_mask.update([node.src[i] for i in rule.operands(node)])
                if isinstance(rule, GetTupleRule) and node in self.needs_mask:
                    self.masked_results.setdefault(node.src[0], []).append(node.arg)

    def _track_products(self, node: UOp) -> None:
        """Track products that are only summed: an infinity in one shows in the sum, so no mask
        is needed."""
        if node.op is ops.MUL:
            self.only_summed.add(node)
        if node.op is not ops.REDUCE or node.arg.monoid is not ops.ADD:
            self.only_summed.difference_update(node.src)

    def _masks_matter(self, rule: DerivativeRule, node: UOp) -> bool:
        """Whether masks of tangents matter at the node."""
        return node in self.singular or (
            rule.multiplies_operand(node) and node not in self.only_summed
            and any(s in self.may_be_nonfinite for s in node.src))

    def run(self) -> Derivation[None]:
        for node in self.order:
            rule = DERIVATIVES.get(node.op)
            if rule is None or node.op.is_isolated or not node.src:
                self.primals[node] = node
                continue
            current_loc.set_from(node)
            if isinstance(rule, GetTupleRule) and node.src[0] in self.results:
                primals, tangents = self.results[node.src[0]]
                self.primals[node], t = primals[node.arg], tangents[node.arg]
                if t is not None:
                    self.tangents[node] = t
                    if recording.recorder is not None:
                        recording.recorder.name_derivative(t.value, node, self)
                continue
            src = tuple([self.primals[s] for s in node.src])
            primal = self.primals[node] = node.with_operands(src)
            if node not in self.active:
                continue
            current_loc.set_from(node, self)
            in_dots = [self.tangents.get(s) for s in node.src]
            if primal.src != src:  # a commutative op orders its operands
                in_dots.reverse()
            if isinstance(rule, HigherOrderRule):
                if node not in self.read:
                    in_dots = list(rule.effect_tangents(primal, in_dots))
                if any(t is not None for t in in_dots):
                    nonfinite = {self.primals[s] for s in node.src if s in self.may_be_nonfinite}
                    needs_mask = sorted(self.masked_results.get(node, ()))
                    self.results[node] = yield from rule.jvp_all(
                        primal, in_dots, needs_mask, nonfinite)
            else:
                t = self._tangent(rule, node, primal, in_dots)
                if t is not None:
                    self.tangents[node] = t
                    if recording.recorder is not None:
                        recording.recorder.name_derivative(t.value, node, self)

    def _tangent(self, rule: DerivativeRule, node: UOp, primal: UOp,
                 in_dots: MaskedTangents) -> Tangent | None:
        values = [None if t is None else t.value for t in in_dots]
        masks = [None if t is None else t.mask for t in in_dots]
        value: UOp | None
        if any(m is not None for m in masks) and self._masks_matter(rule, node):
            value = add_all([_masked_jvp(rule, primal, i, values, masks)
                             for i in rule.operands(node)
                             if values[i] is not None])
        else:
            value = rule.jvp(primal, values)
        if value is None:
            return None
        mask = rule.jvp_mask(primal, values, masks) \
            if node in self.needs_mask and not rule.blocks_masks(node) else None
        return Tangent(value, mask)


def _masked_jvp(rule: DerivativeRule, node: UOp, i: int, values: Sequence[UOp | None],
                masks: Sequence[UOp | None]) -> UOp | None:
    """Return what the tangent of one operand adds to that of the node, zeroed outside of its
    mask."""
    single = [t if j == i else None for j, t in enumerate(values)]
    value = rule.jvp(node, single)
    if value is None or masks[i] is None:
        return value
    mask = rule.jvp_mask(node, single, masks)
    return value if mask is None else build.where(mask, value, zeros_like(value))


# ---- bodies -------------------------------------------------------------------------------------


@register_derivation(JvpKey)
def _derive(body: UOp, key: JvpKey) -> Derivation[JvpForm]:
    n, params = body.arg.n_params, build.params(body)
    slots = {i: n + k for k, i in enumerate(key.inputs)}
    masks = {i: n + len(slots) + k for k, i in enumerate(key.masked)}

    def tangent(i: int) -> Tangent:
        node = params[i]
        return Tangent(build.param(slots[i], node.dtype, node.shape), build.param(
            masks[i], dtypes.bool_, node.shape) if i in masks else None)

    tangent_of = {params[i]: tangent(i) for i in key.inputs if i in params}
    outs, dots = yield from _jvp_steps(body.src, tangent_of,
                                       [params[i] for i in key.may_be_nonfinite if i in params],
                                       [body.src[o] for o in key.needs_mask])
    for o in key.instantiate:
        dots[o] = dots[o] or Tangent(zeros_like(outs[o]))
    flat = list(outs)

    def add_result(node: UOp | None) -> int | None:
        if node is None:
            return None
        flat.append(node)
        return len(flat) - 1

    indices = tuple([(None, None) if t is None else
                     (add_result(t.value), add_result(t.mask) if o in key.needs_mask else None)
                     for o, t in enumerate(dots)])
    function = build.function(flat, n + len(slots) + len(masks), f"{body.arg.name}.jvp")
    return JvpForm(function, indices)

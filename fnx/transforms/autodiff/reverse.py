"""Reverse mode: one walk over the graph in reverse order, propagating cotangents.

    y = MUL(x, SIN(x)),  ct   ->   ADD(MUL(ct, SIN(x)), MUL(MUL(ct, x), COS(x)))

The result is a graph like any other, so the derivative of a derivative is the same walk again.
Only *active* nodes are visited: floats that depend on a differentiated source. Each node is
visited once, after all its readers, and sums their contributions in that order.

**Symbolic zeros** (see rules.py). A mask is propagated with a cotangent only if an operation with a
*singular* partial lies further back, and is applied there: WHERE(mask, ct * partial, 0). A partial
is singular if it can be infinite or NaN for finite operands (LOG at 0), or if it multiplies by a
*wild* value: one that may be infinite or NaN as it depends on such an operation (x * log(x)).
Masks do not pass a contraction (REDUCE ADD over MUL of EXPANDs): that would need a second
contraction over bools, for an infinity that its own forward value shows already.

**Effects** of the backward pass (from user-defined rules) are ordered after those of the forward
pass: the walk has a token, which it threads through all ops with effects. A node is visited after
all its successors in the forward pass, so effects happen in reverse order.

**Calls.** An active CALL becomes a call of its backward FUNCTION, and the CALL itself is
replaced by its forward form, which also returns the residuals (residuals.py). So the forward
runs once. Both forms are derived once for each body and activity pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fnx.core.ir import build, build_calls, build_named_axes, dtypes, ops
from fnx.core.ir.accessors import consumers
from fnx.core.ir.derivations import (
    Derivation,
    derive,
    register_derivation,
    run_derivation,
    set_derivation_context,
)
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp, current_loc, rebuild, toposort
from fnx.core.scope import scope
from fnx.core.support.config import config
from fnx.core.support.line_visits import recording
from fnx.core.support.process import lazy_import
from fnx.transforms.autodiff.dependence import ActivityAnalysis
from fnx.transforms.autodiff.derivatives import DERIVATIVES, is_singular
from fnx.transforms.autodiff.higher_order import (
    TOKEN,
    Activity,
    GetTupleRule,
    HigherOrderRule,
    Linearized,
    Source,
)
from fnx.transforms.autodiff.residuals import split
from fnx.transforms.autodiff.rules import Cotangent, sum_cotangents, zeros_like


def _context() -> tuple[Any, ...]:
    """What derivatives depend on besides their keys: the open axes, and which there are."""
    return scope.summing_axes(), config.derivatives


set_derivation_context(_context)
remat_partial_eval = lazy_import("fnx.transforms.autodiff.remat_partial_eval")

# The outs, the cotangents of ``wrt``, and the last token.
PullbackOuts = tuple[list[UOp], list[Cotangent | None], UOp | None]


def pullback(outs: Sequence[UOp], cts: Sequence[Cotangent | None], wrt: Sequence[UOp]
             ) -> tuple[list[UOp], list[Cotangent | None]]:
    """Return the cotangents of ``wrt`` for cotangents of ``outs``.

    Args:
        outs: results of the graph; also those without cotangent, if they are needed.
        cts: their cotangents, None for zero.
        wrt: sources (LEAF or PARAM) to differentiate with respect to.

    Returns:
        The outs, with CALLs in their forward forms; and a cotangent for each of wrt, None if
        it is a symbolic zero.

    Raises:
        GradError: a user-written kernel without a derivative.
    """
    return run_derivation(pullback_steps(outs, cts, wrt))[:2]


def linearize(body: UOp, activity: Activity) -> Linearized:
    """Return the forward and the backward form of a FUNCTION."""
    linearized: Linearized = derive(body, activity)
    return linearized


def pullback_steps(outs: Sequence[UOp], cts: Sequence[Cotangent | None], wrt: Sequence[UOp],
                   nonfinite: Iterable[UOp] = (), needs_mask: Iterable[UOp] = (),
                   token: UOp | None = None
                   ) -> Derivation[PullbackOuts]:
    """The steps of ``pullback``. ``nonfinite`` are sources whose value may be infinite or NaN,
    ``needs_mask`` those whose cotangents need their masks. ``token`` is the out that the effects of
    the backward pass follow; None: these are dropped."""
    walk = _ReverseWalk(outs, wrt, nonfinite, needs_mask, token)
    for out, ct in zip(outs, cts):
        walk.add_cotangent(out, ct)
    yield from walk.run()
    wrt_cts = [walk.take_source_cotangent(w) for w in wrt]
    flat = [n for ct in wrt_cts if ct is not None for n in ct if n is not None]
    if walk.token is not None:
        flat.append(walk.token)
    rebuilt = rebuild([*outs, *flat], walk.forward) if walk.vjp_forms else [*outs, *flat]
    new = dict(zip(flat, rebuilt[len(outs):]))
    grads = [None if ct is None else
             Cotangent(new[ct.value], None if ct.mask is None else new[ct.mask]) for ct in wrt_cts]
    return rebuilt[:len(outs)], grads, None if walk.token is None else new[walk.token]


class _ReverseWalk:
    """One walk. ``pending`` holds what the readers of a node have contributed so far."""

    kind = "derivative"

    def __init__(self, outs: Sequence[UOp], wrt: Sequence[UOp], nonfinite: Iterable[UOp],
                 needs_mask: Iterable[UOp], token: UOp | None) -> None:
        self.order = toposort(outs)
        self.token = token  # the token for the next effect of the backward
        self.active: set[UOp] = set(wrt)
        self.activity = ActivityAnalysis(self.active)
        self.may_be_nonfinite: set[UOp] = set(nonfinite)
        self.needs_mask: set[UOp] = set(needs_mask)  # a singular partial at or behind them
        self.pending: dict[UOp, list[Cotangent]] = {}
        self.results: dict[UOp, dict[int, Cotangent]] = {}  # of higher-order nodes
        self.vjp_forms: dict[UOp, Linearized] = {}  # which replace these
        self.sources = frozenset(wrt)
        self.of_integers = any(w.dtype.is_integer for w in wrt)  # a transpose of integers
        self.readers: dict[UOp, list[UOp]] | None = None  # of all nodes, for ``recording``
        for node in self.order:
            if node.src and node.op in DERIVATIVES:
                self._classify(node)

    def _classify(self, node: UOp) -> None:
        rule = DERIVATIVES[node.op]
        if not (rule.is_active(node) or self.of_integers and node.dtype.is_integer):
            return
        singular = is_singular(node)
        nonfinite_here = singular or any(s in self.may_be_nonfinite for s in node.src)
        if nonfinite_here and not rule.blocks_masks(node):
            self.may_be_nonfinite.add(node)
        active_src = [s for i in rule.operands(node) if (s := node.src[i]) in self.active]
        if not active_src or isinstance(rule, GetTupleRule) and not self.activity.is_active(node):
            return
        self.active.add(node)
        if singular or (nonfinite_here and rule.multiplies_operand(node)) or (
                any(s in self.needs_mask for s in active_src) and not rule.blocks_masks(node)):
            self.needs_mask.add(node)

    def forward(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        """Return the replacement of a node over these operands; None: the node itself.

        Its first results are those of the node, so its readers stay valid. A node that was
        already built with the residuals becomes identical to it, whatever was replaced before
        it.
        """
        form, rule = self.vjp_forms.get(node), DERIVATIVES.get(node.op)
        return rule.forward(node, src, form) if form and isinstance(rule, HigherOrderRule) else None

    def add_cotangent(self, node: UOp, ct: Cotangent | None) -> None:
        """Add a contribution to the cotangent of a node."""
        if ct is not None and node in self.active:
            self.pending.setdefault(node, []).append(ct)

    def take_cotangent(self, node: UOp) -> Cotangent | None:
        """Remove and return the sum of the contributions to a node."""
        parts = self.pending.pop(node, None)
        if parts is None:
            return None
        if len(parts) == 1:
            return parts[0]
        masks = [part.mask for part in parts if part.mask is not None]
        values = [part.value for part in parts]
        for axis in scope.summing_axes():  # of what varies, before it is added to what does not
            values, masks = [[build_named_axes.psum_like(x, node, axis) for x in xs]
                             for xs in (values, masks)]
        return Cotangent(sum_cotangents(values),
                         sum_cotangents(masks) if len(masks) == len(parts) else None)

    def take_source_cotangent(self, source: UOp) -> Cotangent | None:
        """Remove and return the cotangent of a source."""
        recorder = recording.recorder
        if recorder is None:
            return self.take_cotangent(source)
        if self.readers is None:
            self.readers = consumers(self.order)
        active = [node for node in self.readers.get(source, ()) if node in self.active]
        at = recorder.source_location(active, self)
        current_loc.loc = at or current_loc.loc
        ct = self.take_cotangent(source)
        if ct is not None:
            recorder.name_source_derivative(ct.value, source, at, self)
        return ct

    def run(self) -> Derivation[None]:
        for node in reversed(self.order):
            rule = DERIVATIVES.get(node.op)
            if isinstance(rule, HigherOrderRule):
                out_cts = self.results.pop(node, None)
                if out_cts is not None:
                    current_loc.set_from(node, self)
                    form = yield from rule.vjp_forms(
                        node, out_cts, self.active, self.needs_mask, self.may_be_nonfinite)
                    self.vjp_forms[node] = form
                    cts, self.token = rule.vjp_all(node, out_cts, self.active, form, self.token)
                    for operand, ct in cts:
                        self.add_cotangent(operand, ct)
            elif node in self.pending and node not in self.sources:
                current_loc.set_from(node, self)
                products = self._split_contributions(node)
                ct = self.take_cotangent(node)
                if isinstance(rule, GetTupleRule):
                    assert ct is not None
                    if recording.recorder is not None:
                        recording.recorder.name_derivative(ct.value, node, self)
                    self.results.setdefault(node.src[0], {})[node.arg] = ct
                    continue
                if recording.recorder is not None and ct is not None:
                    recording.recorder.name_derivative(ct.value, node, self)
                for part in products if ct is None else (*products, ct):
                    self._vjp_operands(node, part)

    def _split_contributions(self, node: UOp) -> list[Cotangent]:
        """Split off contributions that are cheaper to sum after they are pulled through the
        node.

        A weight that many products use is expanded once: each product's cotangent is a product,
        too, and becomes a contraction by itself, but their sum would be an array of all terms.
        """
        parts = self.pending.get(node, [])
        if node.op is not ops.EXPAND or len(parts) < 2:
            return []
        products = [p for p in parts if p.value.op is ops.MUL
                    and all(s.op is ops.EXPAND for s in p.value.src)]
        self.pending[node] = [p for p in parts if p not in products]
        if not self.pending[node]:
            del self.pending[node]
        return products

    def _vjp_operands(self, node: UOp, ct: Cotangent) -> None:
        rule = DERIVATIVES[node.op]
        apply = ct.mask is not None and (
            rule.singular(node) or
            (rule.multiplies_operand(node) and any(s in self.may_be_nonfinite for s in node.src)))
        for i in rule.operands(node):
            operand = node.src[i]
            if operand not in self.active:
                continue
            value = rule.vjp(node, i, ct.value)
            mask = None
            if apply or operand in self.needs_mask:
                mask = rule.vjp_mask(node, i, ct.mask)
                if apply and mask is not None:
                    value = build.where(mask, value, zeros_like(value))
            self.add_cotangent(operand,
                               Cotangent(value, mask if operand in self.needs_mask else None))


# ---- bodies -------------------------------------------------------------------------------------

@register_derivation(Activity)
def _derive(body: UOp, activity: Activity) -> Derivation[Linearized]:
    n = body.arg.n_params
    params = build.params(body)
    inputs: dict[UOp, Source] = {node: ("input", i) for i, node in params.items()}

    def cotangent(o: int, dtype: DType) -> UOp:
        node = build.param(len(inputs) - len(params) + n, dtype, body.src[o].shape)
        inputs[node] = "cotangent", len(inputs) - len(params)
        return node

    values = {o: cotangent(o, body.src[o].dtype) for o in activity.outputs}
    masks = {o: cotangent(o, dtypes.bool_) for o in activity.masked}
    cts = [Cotangent(values[o], masks.get(o)) if o in values else None
           for o in range(len(body.src))]

    def those(slots: Iterable[int]) -> list[UOp]:
        return [params[i] for i in slots if i in params]

    wrt = those(activity.inputs)
    first = build.param(n + len(inputs) - len(params), build_calls.TOKEN[1], build_calls.TOKEN[0])
    inputs[first] = TOKEN
    outs, input_cts, last = yield from pullback_steps(body.src, cts, wrt,
                                                      those(activity.may_be_nonfinite),
                                                      those(activity.needs_mask), first)
    by_param = dict(zip(wrt, input_cts))
    flat: list[UOp] = []

    def add_result(node: UOp | None) -> int | None:
        if node is None:
            return None
        flat.append(node)
        return len(flat) - 1

    grads = [by_param.get(params[i]) if i in params else None for i in activity.inputs]
    indices = tuple([(None, None) if ct is None else (add_result(ct.value), add_result(ct.mask))
                     for ct in grads])
    token = add_result(None if last is first else last)
    saved: Sequence[UOp] | None = None
    if activity.policy is not None:
        outs, flat, saved = yield from remat_partial_eval.partial_eval(
            outs, flat, inputs, activity.policy)
    forward, backward, sources = split(outs, flat, inputs, n, body.arg.name, saved,
                                       activity.policy is not None and activity.policy.prevent_cse)
    return Linearized(None if forward is body else forward, backward, sources, indices, token)

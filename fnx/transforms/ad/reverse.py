"""Reverse mode: one walk over the graph, results first, from cotangents to cotangents.

    y = MUL(x, SIN(x)),  ct   ->   ADD(MUL(ct, SIN(x)), MUL(MUL(ct, x), COS(x)))

The result is a graph like any other, so the derivative of a derivative is the same walk again.
Only *active* nodes are visited: floats that depend on what is differentiated. Each node is
visited once, after all that read it, and adds up what they hand to it in that order.

**Structural zeros** (see rules.py). A mask travels with a cotangent only where an operation
with a *singular* partial lies further back, and is applied there: WHERE(mask, ct * partial, 0).
A partial is singular if it can be infinite or NaN for finite operands (LOG at 0), or if it
multiplies by something *wild*: a value that such an operation had a hand in (x * log(x)).
A contraction (REDUCE ADD over MUL of EXPANDs) lets no mask through: it would have to compute
another contraction over bools for an infinity that its own forward value shows already.

**Calls.** An active CALL becomes a call of its backward FUNCTION, and the CALL itself is
replaced by its forward form, which also returns the residuals (residuals.py). So the forward
runs once. Both forms are made once for each body and pattern of activity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fnx.core import build, dtypes, ops
from fnx.core.errors import GradError
from fnx.core.uop import UOp, current_site, toposort
from fnx.transforms.ad.derivatives import DERIVATIVES
from fnx.transforms.ad.residuals import Forms, call_node, rebuild, split
from fnx.transforms.ad.rules import zeros


class Cotangent(NamedTuple):
    """A value, and the mask outside of which it is structurally zero (None: none)."""

    value: UOp
    mask: UOp | None = None


def pullback(outs: Sequence[UOp], cts: Sequence[Cotangent | None], wrt: Sequence[UOp],
             wild: Iterable[UOp] = (), guarded: Iterable[UOp] = ()
             ) -> tuple[list[UOp], list[Cotangent | None]]:
    """The cotangents of ``wrt`` for cotangents of ``outs``.

    Args:
        outs: results of the graph; also those without cotangent, if they are to be computed.
        cts: their cotangents, None for zero.
        wrt: sources (LEAF or PARAM) to differentiate in.
        wild: sources whose value may be infinite or NaN.
        guarded: sources whose cotangents are to come with their masks.

    Returns:
        The outs, with CALLs in their forward forms; and a cotangent for each of wrt, None where
        it is structurally zero everywhere.

    Raises:
        GradError: a hand-written kernel without a derivative.
    """
    walk = _Walk(outs, wrt, wild, guarded)
    site = current_site.site
    try:
        for out, ct in zip(outs, cts):
            walk.give(out, ct)
        walk.run()
    finally:
        current_site.site = site
    found = [walk.take(w) for w in wrt]
    flat = [n for ct in found if ct is not None for n in ct if n is not None]
    done = rebuild([*outs, *flat], walk.forms)
    new = dict(zip(flat, done[len(outs):]))
    grads = [None if ct is None else
             Cotangent(new[ct.value], None if ct.mask is None else new[ct.mask]) for ct in found]
    return done[:len(outs)], grads


class _Walk:
    """One walk. ``pending`` holds what the readers of a node have handed to it so far."""

    def __init__(self, outs: Sequence[UOp], wrt: Sequence[UOp], wild: Iterable[UOp],
                 guarded: Iterable[UOp]) -> None:
        self.order = toposort(outs)
        self.active: set[UOp] = set(wrt)
        self.wild: set[UOp] = set(wild)
        self.guarded: set[UOp] = set(guarded)  # a singular partial at the node or further back
        self.pending: dict[UOp, list[Cotangent]] = {}
        self.results: dict[UOp, dict[int, Cotangent]] = {}  # of CALLs
        self.forms: dict[UOp, UOp] = {}  # CALL -> the FUNCTION to call instead
        self.sources = frozenset(wrt)
        for node in self.order:
            if node.src and node.op in DERIVATIVES and node.op is not ops.FUNCTION:
                self._classify(node)

    def _classify(self, node: UOp) -> None:
        op, wild, active, guarded = node.op, self.wild, self.active, self.guarded
        if op is ops.CALL or op is ops.GET:
            read: Sequence[UOp] = node.src if op is ops.GET else node.src[1:]
            singular = op is ops.CALL and may_be_singular(node.src[0])
            inner = singular or any(s in wild for s in read)
            if inner:
                wild.add(node)
        elif not node.dtype.is_float:
            return
        else:
            rule = DERIVATIVES[op]
            singular = rule.singular(node)
            inner = singular or any(s in wild for s in node.src)
            if inner and not _is_contraction(node):
                wild.add(node)
            singular = singular or (inner and rule.scales(node))
            read = [node.src[i] for i in rule.operands(node)]
        read = [s for s in read if s in active]
        if not read or (op is ops.GET and not node.dtype.is_float):
            return
        active.add(node)
        if singular or (any(s in guarded for s in read) and not _is_contraction(node)):
            guarded.add(node)

    def give(self, node: UOp, ct: Cotangent | None) -> None:
        """Hand a cotangent to a node."""
        if ct is not None and node in self.active:
            parts = self.pending.get(node)
            if parts is None:
                self.pending[node] = [ct]
            else:
                parts.append(ct)

    def take(self, node: UOp) -> Cotangent | None:
        """The sum of what was handed to a node."""
        parts = self.pending.get(node)
        if parts is None:
            return None
        value, mask = parts[0]
        for part in parts[1:]:
            value = build.add(value, part.value)
            mask = None if mask is None or part.mask is None else build.or_(mask, part.mask)
        return Cotangent(value, mask)

    def run(self) -> None:
        for node in reversed(self.order):
            if node.op is ops.CALL:
                if node in self.results:
                    self._pull_call(node, self.results.pop(node))
                continue
            if node in self.sources or node not in self.pending:
                continue
            if node.sites:
                current_site.site = node.sites[0]
            ct = self.take(node)
            del self.pending[node]
            assert ct is not None
            if node.op is ops.GET:
                self.results.setdefault(node.src[0], {})[node.arg] = ct
            else:
                self._pull(node, ct)

    def _pull(self, node: UOp, ct: Cotangent) -> None:
        rule = DERIVATIVES[node.op]
        apply = ct.mask is not None and (
            rule.singular(node) or (rule.scales(node) and any(s in self.wild for s in node.src)))
        for i in rule.operands(node):
            operand = node.src[i]
            if operand not in self.active:
                continue
            value = rule.pull(node, i, ct.value)
            mask = None
            if apply or operand in self.guarded:
                mask = rule.pull_mask(node, i, ct.mask)
                if apply and mask is not None:
                    value = build.where(mask, value, zeros(value))
            self.give(operand, Cotangent(value, mask if operand in self.guarded else None))

    def _pull_call(self, node: UOp, got: dict[int, Cotangent]) -> None:
        body, args = node.src[0], node.src[1:]
        if body.op is not ops.FUNCTION:
            raise GradError(f"expected a derivative for the kernel {node.arg.name}, it has none",
                            hint="give fnx.call a vjp=, itself made of kernels",
                            site=node.sites[0] if node.sites else None)
        outputs = tuple(sorted(got))
        masked = tuple([o for o in outputs if got[o].mask is not None])
        pattern = Pattern(
            tuple([i for i, a in enumerate(args) if a in self.active]), outputs, masked,
            tuple([i for i, a in enumerate(args) if a in self.guarded]),
            tuple([i for i, a in enumerate(args) if a in self.wild]) if masked else ())
        forms, given = call_forms(body, pattern)
        self.forms[node] = forms.forward
        cts = [got[o].value for o in outputs]
        cts += [m for o in outputs if (m := got[o].mask) is not None]
        results = build.results(call_node(forms.forward, args))
        found = build.call(forms.backward, forms.operands(args, results, cts))
        for i, (value, mask) in zip(pattern.inputs, given):
            if value is not None:
                self.give(args[i], Cotangent(found[value],
                                             None if mask is None else found[mask]))


class Pattern(NamedTuple):
    """Which operands and results of a call take part: key of its forms."""

    inputs: tuple[int, ...]             # active operands
    outputs: tuple[int, ...]            # results with a cotangent
    masked: tuple[int, ...] = ()        # results whose cotangent has a mask
    guarded: tuple[int, ...] = ()       # operands whose cotangent is wanted with its mask
    wild: tuple[int, ...] = ()          # operands that may be infinite or NaN


Given = tuple[tuple[int | None, int | None], ...]  # for each input: its value, its mask
_forms: WeakKeyDictionary[UOp, dict[Pattern, tuple[Forms, Given]]] = WeakKeyDictionary()
_singular: WeakKeyDictionary[UOp, bool] = WeakKeyDictionary()


def call_forms(body: UOp, pattern: Pattern) -> tuple[Forms, Given]:
    """Forward and backward form of a FUNCTION, and which results of the latter are for whom."""
    known = _forms.setdefault(body, {})
    if pattern not in known:
        known[pattern] = _derive(body, pattern)
    return known[pattern]


def _derive(body: UOp, pattern: Pattern) -> tuple[Forms, Given]:
    n, name = body.arg.n_params, body.arg.name
    params = {node.arg.slot: node for node in toposort(body.src) if node.op is ops.PARAM}
    values = [build.param(n + k, body.src[o].dtype, body.src[o].shape)
              for k, o in enumerate(pattern.outputs)]
    first = n + len(values)
    masks = {o: build.param(first + k, dtypes.bool_, body.src[o].shape)
             for k, o in enumerate(pattern.masked)}
    cts: list[Cotangent | None] = [None] * len(body.src)
    for o, value in zip(pattern.outputs, values):
        cts[o] = Cotangent(value, masks.get(o))
    wrt = [params[i] for i in pattern.inputs if i in params]
    outs, found = pullback(body.src, cts, wrt, [params[i] for i in pattern.wild if i in params],
                           [params[i] for i in pattern.guarded if i in params])
    by_param = dict(zip(wrt, found))
    flat: list[UOp] = []
    given: list[tuple[int | None, int | None]] = []
    for i in pattern.inputs:
        ct = by_param.get(params[i]) if i in params else None
        parts: Sequence[UOp | None] = ct if ct is not None else (None, None)
        given.append(tuple([None if p is None else len(flat) + k  # type: ignore[arg-type]
                            for k, p in enumerate(parts)]))
        flat += [p for p in parts if p is not None]
    return split(outs, flat, n, name), tuple(given)


def may_be_singular(body: UOp) -> bool:
    """Whether a body has an operation with a singular partial."""
    found = _singular.get(body)
    if found is None:
        found = body.op is not ops.FUNCTION or any(
            may_be_singular(node.src[0]) if node.op is ops.CALL else
            node.dtype.is_float and DERIVATIVES[node.op].singular(node)
            for node in toposort(body.src))
        _singular[body] = found
    return found


def _is_contraction(node: UOp) -> bool:
    """REDUCE ADD over the product of two arrays that were repeated for it."""
    if node.op is not ops.REDUCE or node.arg.monoid is not ops.ADD:
        return False
    product = node.src[0]
    return product.op is ops.MUL and all(_is_repeated(s) for s in product.src)


def _is_repeated(node: UOp) -> bool:
    while node.op is ops.PERMUTE or node.op is ops.RESHAPE:
        node = node.src[0]
    return node.op is ops.EXPAND

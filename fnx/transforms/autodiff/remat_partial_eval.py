"""Rematerialization inside of loops, branches and calls: save some values, recompute the rest.

    forward     ys = SCAN(body, xs)            ->   ys, kept = SCAN(body that also returns them, xs)
    backward    reads ys, recomputed           ->   SCAN(body that takes them, xs, kept)

A policy (policies.py) applies to values in bodies too. Saved values of a body become additional
results of its node, one for each step of a SCAN; where the node is recomputed, its body takes
them as operands and computes only the rest. A WHILE has an unbounded number of them, and a CALL or
SCAN with its own checkpoint has its own policy: these are recomputed entirely.

Results of Python callbacks are always saved: callbacks do not run again.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.derivations import Derivation, register_derivation
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.core.support.record import Record
from fnx.transforms.autodiff import policies
from fnx.transforms.autodiff.cond_rules import shared_slots
from fnx.transforms.autodiff.derivatives import DERIVATIVES
from fnx.transforms.autodiff.drop_effects import drop_effects
from fnx.transforms.autodiff.higher_order import GetTupleRule
from fnx.transforms.autodiff.policies import Policy
from fnx.transforms.autodiff.rules import zeros_like


class RematKey(Record):
    """The key of both forms of a body: the policy, and the results to recompute."""

    policy: Policy
    needed: tuple[int, ...]


class SavedAndRecomputed(Record):
    """Two FUNCTIONs for a body, or None if no value in it is saved.

    ``saving`` returns ``n`` saved values after its results; ``recompute_form`` takes them after its
    operands, and returns the wanted results.
    """

    saving: UOp | None
    recompute_form: UOp | None
    n: int


def partial_eval(outs: Sequence[UOp], later: Sequence[UOp], sources: Container[UOp], policy: Policy
                 ) -> Derivation[tuple[list[UOp], list[UOp], list[UOp]]]:
    """Split a graph into a forward pass that returns saved values, and a recomputation from them.

    Args:
        outs: results of the forward pass.
        later: nodes of the backward pass, which read its values again.
        sources: sources that only the backward pass has.
        policy: which values are saved.

    Returns:
        The results; ``later``, recomputed from the saved values; and the saved values.
    """
    primal = set(toposort(outs))

    def saves(node: UOp) -> bool:
        rule = DERIVATIVES.get(node.op)
        producer = node.src[0] if isinstance(rule, GetTupleRule) else node
        return node not in sources and rule is not None and producer in primal and \
            bool(node.src) and policy.saves(node, rule)

    needed = toposort(later, stop=saves)
    nodes: dict[UOp, _Split] = {}
    for node in needed:
        if node in primal and node.op in _SPLIT_OPS and not policies.has_own_policy(node):
            wanted = tuple(sorted({g.arg for g in needed
                                   if g.op is ops.GETTUPLE and g.src[0] is node
                                   and not saves(g)}))
            split = yield from _split(node, wanted, policy)
            if split is not None:
                nodes[node] = split
    at_once = [node for node in needed if saves(node)]
    rebuilt = rebuild([*outs, *at_once], lambda node, src: _save_node(nodes, node, src))
    saved = dict(zip(at_once, rebuilt[len(outs):]))
    rerun = rebuild(later, lambda node, src: _rerun_node(nodes, node, src)
                    if (node.src[0] if node.op is ops.GETTUPLE else node) in primal else None,
                    saved)
    saved_in_bodies = [x for both in nodes.values() for x in both.x_factors]
    return rebuilt[:len(outs)], rerun, [*saved.values(), *saved_in_bodies]


class _Split:
    """A node in two versions: with the bodies ``saving`` it also returns saved values, with the
    bodies ``recomputing`` it takes them, and returns the results ``needed``."""

    def __init__(self, node: UOp, saving: Sequence[UOp], recomputing: Sequence[UOp],
                 needed: Sequence[int]) -> None:
        self.node, self.saving, self.recomputing, self.needed = node, saving, recomputing, needed
        self.results: Sequence[UOp] = ()
        self.x_factors: Sequence[UOp] = ()
        self.recomputed: Mapping[int, UOp] = {}

    def save(self, src: tuple[UOp, ...]) -> UOp:
        node = self._rebuild(self.saving, src, ())
        results, n = build.results(node), len(self.node.arg.outs)
        self.results, self.x_factors = results[:n], results[n:]
        return node

    def recompute(self, src: tuple[UOp, ...]) -> None:
        node = self._rebuild(self.recomputing, src, self.x_factors)
        self.recomputed = dict(zip(self.needed, build.results(node)))

    def _rebuild(self, bodies: Sequence[UOp], src: tuple[UOp, ...], saved: Sequence[UOp]) -> UOp:
        op = OpBodies(self.node.with_operands(src))
        consts, carries, rest = op.split(op.operands)
        return op.rebuild(bodies, [consts, carries, [*rest, *saved]])


def _save_node(nodes: Mapping[UOp, _Split], node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    split = nodes.get(node)
    if split is not None:
        return split.save(src)
    if node.op is ops.GETTUPLE and node.src[0] in nodes:
        result: UOp = nodes[node.src[0]].results[node.arg]
        return result
    return None


def _rerun_node(nodes: Mapping[UOp, _Split], node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    split = nodes.get(node)
    if split is not None:
        split.recompute(src)
        return node  # dead: its GETTUPLEs are replaced
    if node.op is ops.GETTUPLE and node.src[0] in nodes:
        result: UOp = nodes[node.src[0]].recomputed[node.arg]
        return result
    if node.op is ops.GETTUPLE and src[0].op is ops.CALLBACK and src[0].arg.effect:
        token: UOp = src[0].src[1]
        return token  # the effect has already happened
    if node.op in ops.HIGHER_ORDER and any(map(build_calls.is_token, src)):
        silenced = [drop_effects(s, "a loop in a checkpoint", "move it out of the checkpoint")
                    if s.op is ops.FUNCTION else s for s in src]
        return node.with_operands(tuple(silenced))
    return None


@register_derivation(RematKey)
def _derive_remat(body: UOp, key: RematKey) -> Derivation[SavedAndRecomputed]:
    recomputed = [body.src[o] for o in key.needed]
    outs, recomputed, saved = yield from partial_eval(body.src, recomputed, (), key.policy)
    needed = set(toposort(recomputed, stop=set(saved).__contains__))
    saved = [x for x in saved if x in needed]
    if not saved:
        return SavedAndRecomputed(None, None, 0)
    n, name = body.arg.n_params, body.arg.name
    saving = build.function([*outs, *saved], n, f"{name}.keeping")
    params = {x: build.param(n + i, x.dtype, x.shape) for i, x in enumerate(saved)}
    rerun = build.function(rebuild(recomputed, known=params), n + len(saved), f"{name}.again")
    return SavedAndRecomputed(saving, rerun, len(saved))


# ---- nodes --------------------------------------------------------------------------------------


_SPLIT_OPS = (ops.CALL, ops.SCAN, ops.COND)


def _split(node: UOp, wanted: tuple[int, ...], policy: Policy) -> Derivation[_Split | None]:
    """Split a node whose results ``wanted`` are recomputed, unless nothing in it is saved."""
    op, n_outs = OpBodies(node), len(node.arg.outs)
    needed = (*range(op.n_carries), *[o for o in wanted if o >= op.n_carries])
    forms: list[SavedAndRecomputed] = []
    for step in op.steps:
        forms.append((yield step, RematKey(policy, needed)))
    if not any(form.n for form in forms):
        return None
    saved = [[] if form.saving is None else list(form.saving.src[n_outs:]) for form in forms]
    like, slots = shared_slots(saved)
    n = len(op.operands)

    def saving(branch: UOp, form: SavedAndRecomputed, to_slot: Sequence[int]) -> UOp:
        function = branch if form.saving is None else form.saving
        values = [zeros_like(x) for x in like]
        for slot, x in zip(to_slot, function.src[n_outs:]):
            values[slot] = x
        return build.function([*function.src[:n_outs], *values], n, function.arg.name)

    def again(branch: UOp, form: SavedAndRecomputed, to_slot: Sequence[int]) -> UOp:
        if form.recompute_form is None:
            outs = [branch.src[o] for o in needed]
        else:
            params = build.params(form.recompute_form)
            to = {x: build.param(n + to_slot[i - n], x.dtype, x.shape) for i, x in params.items()
                  if i >= n}
            outs = rebuild(form.recompute_form.src, known=to)
        return build.function(outs, n + len(like), f"{branch.arg.name}.again")

    each = list(zip(op.steps, forms, slots))
    return _Split(node, [saving(*b) for b in each], [again(*b) for b in each], needed)

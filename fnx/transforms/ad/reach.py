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

from collections.abc import Callable, Container, Mapping, Sequence

from fnx.core import build, build_calls, ops, parts
from fnx.core.derived import Steps, derives
from fnx.core.record import Record
from fnx.core.uop import UOp, rebuild, toposort
from fnx.transforms.ad import policies
from fnx.transforms.ad.cond import shared_places
from fnx.transforms.ad.derivatives import DERIVATIVES
from fnx.transforms.ad.policies import Policy
from fnx.transforms.ad.rules import zeros
from fnx.transforms.ad.silent import silent
from fnx.transforms.ad.structural import ResultRule


class Kept(Record):
    """The key of both forms of a body: the policy, and the results to recompute."""

    policy: Policy
    wanted: tuple[int, ...]


class Keeping(Record):
    """Two FUNCTIONs for a body, or None if no value in it is saved.

    ``saving`` returns ``n`` saved values after its results; ``again`` takes them after its
    operands, and returns the wanted results.
    """

    saving: UOp | None
    again: UOp | None
    n: int


def reached(outs: Sequence[UOp], later: Sequence[UOp], sources: Container[UOp], policy: Policy
            ) -> Steps[tuple[list[UOp], list[UOp], list[UOp]]]:
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
        there = node.src[0] if isinstance(rule, ResultRule) else node
        return node not in sources and rule is not None and there in primal and \
            bool(node.src) and policy.saves(node, rule)

    read = toposort(later, stop=saves)
    nodes: dict[UOp, _Both] = {}
    for node in read:
        if node in primal and node.op in _NODES and not policies.is_apart(node):
            wanted = tuple(sorted({g.arg for g in read if g.op is ops.GET and g.src[0] is node
                                   and not saves(g)}))
            both = yield from _NODES[node.op](node, wanted, policy)
            if both is not None:
                nodes[node] = both
    at_once = [node for node in read if saves(node)]
    done = rebuild([*outs, *at_once], lambda node, src: _saving(nodes, node, src))
    kept = dict(zip(at_once, done[len(outs):]))
    again = rebuild(later, lambda node, src: _again(nodes, node, src)
                    if (node.src[0] if node.op is ops.GET else node) in primal else None, kept)
    more = [x for both in nodes.values() for x in both.kept]
    return done[:len(outs)], again, [*kept.values(), *more]


class _Both:
    """A node in two versions: ``save`` builds the one that returns saved values, ``repeat`` the
    one that takes them."""

    def __init__(self, n_outs: int, wanted: Sequence[int],
                 save: Callable[[Sequence[UOp]], Sequence[UOp]],
                 repeat: Callable[[Sequence[UOp], Sequence[UOp]], Mapping[int, UOp]]) -> None:
        self.n_outs, self.wanted, self.save, self.repeat = n_outs, wanted, save, repeat
        self.results: Sequence[UOp] = ()
        self.kept: Sequence[UOp] = ()
        self.later: Mapping[int, UOp] = {}


def _saving(nodes: Mapping[UOp, _Both], node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    both = nodes.get(node)
    if both is not None:
        found = both.save(src)
        both.results, both.kept = found[:both.n_outs], found[both.n_outs:]
        made: UOp = found[0].src[0]
        return made
    if node.op is ops.GET and node.src[0] in nodes:
        result: UOp = nodes[node.src[0]].results[node.arg]
        return result
    return None


def _again(nodes: Mapping[UOp, _Both], node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    both = nodes.get(node)
    if both is not None:
        both.later = both.repeat(src, both.kept)
        return node  # dead: its GETs are replaced
    if node.op is ops.GET and node.src[0] in nodes:
        result: UOp = nodes[node.src[0]].later[node.arg]
        return result
    if node.op is ops.GET and src[0].op is ops.HOST and src[0].arg.effect:
        token: UOp = src[0].src[1]
        return token  # the effect has already happened
    if node.op in ops.STRUCTURAL and any(map(build_calls.is_token, src)):
        quiet = [silent(s, "a loop in a checkpoint", "move it out of the checkpoint")
                 if s.op is ops.FUNCTION else s for s in src]
        return node.over(tuple(quiet))
    return None


@derives(Kept, "what checkpoints keep in bodies")
def _keep(body: UOp, asked: Kept) -> Steps[Keeping]:
    later = [body.src[o] for o in asked.wanted]
    outs, later, kept = yield from reached(body.src, later, (), asked.policy)
    read = set(toposort(later, stop=set(kept).__contains__))
    kept = [x for x in kept if x in read]
    if not kept:
        return Keeping(None, None, 0)
    n, name = body.arg.n_params, body.arg.name
    saving = build.function([*outs, *kept], n, f"{name}.keeping")
    params = {x: build.param(n + i, x.dtype, x.shape) for i, x in enumerate(kept)}
    again = build.function(rebuild(later, known=params), n + len(kept), f"{name}.again")
    return Keeping(saving, again, len(kept))


# ---- nodes --------------------------------------------------------------------------------------


def _call(node: UOp, wanted: tuple[int, ...], policy: Policy) -> Steps[_Both | None]:
    body, arg = node.src[0], node.arg
    if body.op is not ops.FUNCTION:
        return None
    made: Keeping = yield body, Kept(policy, wanted)
    saving, again = made.saving, made.again
    if saving is None or again is None:
        return None
    return _Both(len(arg.outs), wanted, lambda src: build_calls.call(saving, src[1:], arg.name),
                 lambda src, kept: dict(zip(wanted, build_calls.call(again, [*src[1:], *kept],
                                                                     arg.name))))


def _scan(node: UOp, wanted: tuple[int, ...], policy: Policy) -> Steps[_Both | None]:
    body, arg = node.src[0], node.arg
    n = arg.n_carries
    ys = tuple([o for o in wanted if o >= n])
    made: Keeping = yield body, Kept(policy, (*range(n), *ys))
    saving, again = made.saving, made.again
    if saving is None or again is None:
        return None

    def scan(fn: UOp, src: Sequence[UOp], kept: Sequence[UOp]) -> tuple[UOp, ...]:
        args = src[1:]
        first, rows = arg.n_consts, arg.n_consts + n
        return build_calls.scan(fn, arg.length, args[:first], args[first:rows],
                                [*args[rows:], *kept], arg.reverse, arg.name)

    def repeat(src: Sequence[UOp], kept: Sequence[UOp]) -> Mapping[int, UOp]:
        return dict(zip((*range(n), *ys), scan(again, src, kept)))
    return _Both(len(arg.outs), wanted, lambda src: scan(saving, src, ()), repeat)


def _cond(node: UOp, wanted: tuple[int, ...], policy: Policy) -> Steps[_Both | None]:
    branches, arg = parts.bodies(node), node.arg
    k, n_outs = len(branches), len(arg.outs)
    made: list[Keeping] = []
    for branch in branches:
        made.append((yield branch, Kept(policy, wanted)))
    if not any(m.n for m in made):
        return None
    kept = [[] if m.saving is None else list(m.saving.src[n_outs:]) for m in made]
    like, places = shared_places(kept)
    n = branches[0].arg.n_params

    def saving(branch: UOp, own: Keeping, at: Sequence[int]) -> UOp:
        found = branch if own.saving is None else own.saving
        values = [zeros(x) for x in like]
        for place, x in zip(at, found.src[n_outs:]):
            values[place] = x
        return build.function([*found.src[:n_outs], *values], n, branch.arg.name)

    def again(branch: UOp, own: Keeping, at: Sequence[int]) -> UOp:
        if own.again is None:
            outs = [branch.src[o] for o in wanted]
        else:
            given = build.params(own.again)
            to = {x: build.param(n + at[i - n], x.dtype, x.shape) for i, x in given.items()
                  if i >= n}
            outs = rebuild(own.again.src, known=to)
        return build.function(outs, n + len(like), f"{branch.arg.name}.again")

    each = list(zip(branches, made, places))
    first, second = [saving(*b) for b in each], [again(*b) for b in each]
    return _Both(n_outs, wanted,
                 lambda src: build_calls.cond(first, src[k], src[k + 1:], arg.name),
                 lambda src, kept: dict(zip(wanted, build_calls.cond(
                     second, src[k], [*src[k + 1:], *kept], arg.name))))


_NODES: Mapping[ops.Op, Callable[[UOp, tuple[int, ...], Policy], Steps[_Both | None]]] = {
    ops.CALL: _call, ops.SCAN: _scan, ops.COND: _cond}

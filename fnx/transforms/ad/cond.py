"""Derivatives of COND, from those of its branches.

    forward mode    COND of the jvp forms of the branches
    reverse mode    COND of the forward forms, then COND of the backward passes

All branches return the same types: zeros where one has no tangent or cotangent but another one
does, and zeros for the residuals of other branches. Residuals of equal type share a slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fnx.core import build, build_calls
from fnx.core.bodies import Nodes, function_over
from fnx.core.derived import Steps
from fnx.core.uop import UOp
from fnx.transforms.ad.loop import LoopRule, Pulled, Read, Sources, pull_back, pushed_body
from fnx.transforms.ad.rules import zeros
from fnx.transforms.ad.structural import TOKEN, Activity, Depends, Linearized, Push, Pushed, Source


class CondRule(LoopRule):
    """COND; its first operand selects the branch, and has no derivative."""

    def depends(self, node: UOp) -> Steps[Sequence[frozenset[int]]]:
        found = yield from self._depends(node)
        return [frozenset(i + 1 for i in d) for d in found]

    def _depends(self, node: UOp) -> Steps[Sequence[frozenset[int]]]:
        """The dependence in terms of the PARAMs of the branches."""
        found = []
        for branch in self.bodies(node):
            found.append((yield branch, Depends()))
        return [frozenset[int]().union(*each) for each in zip(*found)]

    def push_values(self, node: UOp, args: Nodes, tangents: Mapping[int, UOp]
                    ) -> Steps[tuple[Nodes, Mapping[int, UOp]]]:
        inputs = [i - 1 for i in tangents]
        depends = yield from self._depends(node)
        moving = tuple([o for o, d in enumerate(depends) if not d.isdisjoint(inputs)])
        operands = [*args[1:], *tangents.values()]
        branches = []
        for branch in self.bodies(node):
            pushed: Pushed = yield branch, Push(tuple(inputs), full=moving)
            branches.append(_pushed_branch(pushed, len(inputs), moving, operands))
        found = build_calls.cond(branches, args[0], operands, f"{node.arg.name}.jvp")
        n = len(node.arg.outs)
        return found[:n], dict(zip(moving, found[n:]))

    def linearize(self, node: UOp, args: Nodes, takes: Activity) -> Steps[Linearized]:
        inputs = tuple([i - 1 for i in takes.inputs])
        forms = []
        for branch in self.bodies(node):
            forms.append((yield branch, Activity(inputs, takes.outputs)))
        return _CondReverse(node, args, takes, forms).linearized()


def _pushed_branch(pushed: Pushed, n_tangents: int, moving: Sequence[int], like: Nodes) -> UOp:
    def outs(params: Nodes) -> list[UOp]:
        n = len(params) - n_tangents
        results, found = pushed_body(pushed, params[:n], params[n:])
        return [*results, *[found[o] for o in moving]]
    return function_over(outs, like, pushed.function.arg.name)


class _CondReverse:
    """Both passes of a COND, from the derived forms of its branches."""

    def __init__(self, node: UOp, args: Nodes, takes: Activity, forms: Sequence[Linearized]
                 ) -> None:
        self.arg, self.args, self.takes, self.forms = node.arg, args, takes, forms
        self.n = len(node.arg.outs)
        self.branches = [form.forward_of(branch) for form, branch in zip(forms, node.src)]
        self.saved, self.places = shared_places([b.src[self.n:] for b in self.branches])

    def linearized(self) -> Linearized:
        sources = Sources()
        sources.want(("input", 0))
        for form, places in zip(self.forms, self.places):
            for source in form.sources:
                sources.want(self._place(source, places))
        self.effects = TOKEN in sources.all
        forward = function_over(self.forward, self.args, self.arg.name)
        like = {"input": self.args, "result": forward.src, "cotangent":
                [forward.src[o] for o in self.takes.outputs]}
        return sources.linearized(forward if self.saved else None, like,
                                  lambda read: self.backward(read, sources.all), self.arg.name)

    def _place(self, source: Source, places: Sequence[int]) -> Source:
        """Map a source of a branch's backward pass to a source of the COND's."""
        kind, i = source
        if kind == "input":
            return kind, i + 1
        return (kind, self.n + places[i - self.n]) if kind == "result" and i >= self.n else source

    def forward(self, ins: Nodes) -> Iterable[UOp]:
        """Return the results and the residuals."""
        branches = []
        for branch, places in zip(self.branches, self.places):
            saved = [zeros(node) for node in self.saved]
            for place, node in zip(places, branch.src[self.n:]):
                saved[place] = node
            branches.append(build.function([*branch.src[:self.n], *saved], branch.arg.n_params,
                                           branch.arg.name))
        return build_calls.cond(branches, ins[0], ins[1:], self.arg.name)

    def backward(self, read: Read, sources: Sequence[Source]) -> Pulled:
        """Return the cotangents of the active operands."""
        operands = [read(source) for source in sources]
        given = [k for k in range(len(self.takes.inputs))
                 if any(form.given[k][0] is not None for form in self.forms)]
        found = build_calls.cond([self._pulled(form, places, given, sources, operands)
                                  for form, places in zip(self.forms, self.places)],
                           read(("input", 0)), operands, f"{self.arg.name}.backward")
        by_number = dict(zip(given, found))
        return [by_number.get(k) for k in range(len(self.takes.inputs))], \
            found[len(given)] if self.effects else None

    def _pulled(self, form: Linearized, places: Sequence[int], given: Sequence[int],
                sources: Sequence[Source], operands: Nodes) -> UOp:
        """Build the backward pass of one branch, as a function of the operands of all branches."""
        def outs(params: Nodes) -> list[UOp]:
            at = dict(zip(sources, params))
            cts, token = pull_back(form, lambda source: at[self._place(source, places)])
            last = [at[TOKEN] if token is None else token] if self.effects else []
            like = [self.args[self.takes.inputs[k]] for k in given]
            return [*[zeros(x) if (ct := cts[k]) is None else ct for k, x in zip(given, like)],
                    *last]
        return function_over(outs, operands, form.backward.arg.name)


def shared_places(saved: Sequence[Sequence[UOp]]) -> tuple[list[UOp], list[list[int]]]:
    """Assign residuals to slots that all branches share, by type; return the slots, and those of
    each branch."""
    places: list[UOp] = []
    found = []
    for nodes in saved:
        free = list(range(len(places)))
        of_branch = []
        for node in nodes:
            place = next((p for p in free if places[p].shape == node.shape
                          and places[p].dtype is node.dtype), None)
            if place is None:
                place = len(places)
                places.append(node)
            else:
                free.remove(place)
            of_branch.append(place)
        found.append(of_branch)
    return places, found



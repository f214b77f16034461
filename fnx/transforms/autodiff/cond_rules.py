"""Derivatives of COND, from those of its branches.

    forward mode    COND of the jvp forms of the branches
    reverse mode    COND of the forward forms, then COND of the backward passes

All branches return the same types: zeros where one has no tangent or cotangent but another one
does, and zeros for the residuals of other branches. Residuals of equal type share a slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fnx.core.ir import build, build_calls
from fnx.core.ir.build_calls import Nodes, build_function, derived_function
from fnx.core.ir.derivations import Derivation
from fnx.core.ir.uop import UOp
from fnx.transforms.autodiff.higher_order import (
    TOKEN,
    Activity,
    Linearized,
    Source,
)
from fnx.transforms.autodiff.loop_rules import (
    LoopRule,
    Reader,
    Sources,
    VjpOuts,
    inline_backward,
)
from fnx.transforms.autodiff.rules import zeros_like


class CondRule(LoopRule):
    """COND; its first operand selects the branch, and has no derivative."""

    def linearize_uncached(self, node: UOp, args: Nodes,
                           activity: Activity) -> Derivation[Linearized]:
        inputs = tuple([i - 1 for i in activity.inputs])
        forms = []
        for branch in self.bodies(node):
            forms.append((yield branch, Activity(inputs, activity.outputs)))
        return _CondReverse(node, args, activity, forms).build()


class _CondReverse:
    """Both passes of a COND, from the derived forms of its branches."""

    def __init__(self, node: UOp, args: Nodes, activity: Activity, vjp_forms: Sequence[Linearized]
                 ) -> None:
        self.arg, self.args, self.in_layout, self.vjp_forms = node.arg, args, activity, vjp_forms
        self.n = len(node.arg.outs)
        self.branches = [form.forward_of(branch) for form, branch in zip(vjp_forms, node.src)]
        self.saved, self.slots = shared_slots([b.src[self.n:] for b in self.branches])

    def build(self) -> Linearized:
        sources = Sources()
        sources.add(("input", 0))
        for form, slots in zip(self.vjp_forms, self.slots):
            for source in form.sources:
                sources.add(self._map_source(source, slots))
        self.effects = TOKEN in sources.operands
        forward = build_function(self.forward, self.args, self.arg.name)
        like = {"input": self.args, "result": forward.src, "cotangent":
                [forward.src[o] for o in self.in_layout.outputs]}
        return sources.build(forward if self.saved else None, like,
                             lambda read: self.backward(read, sources.operands), self.arg.name)

    def _map_source(self, source: Source, slots: Sequence[int]) -> Source:
        """Map a source of a branch's backward pass to a source of the COND's."""
        kind, i = source
        if kind == "input":
            return kind, i + 1
        return (kind, self.n + slots[i - self.n]) if kind == "result" and i >= self.n else source

    def forward(self, ins: Nodes) -> Iterable[UOp]:
        """Return the results and the residuals."""
        branches = []
        for branch, slots in zip(self.branches, self.slots):
            saved = [zeros_like(node) for node in self.saved]
            for slot, node in zip(slots, branch.src[self.n:]):
                saved[slot] = node
            branches.append(derived_function(build.function(
                [*branch.src[:self.n], *saved], branch.arg.n_params, branch.arg.name), branch))
        return build_calls.cond(branches, ins[0], ins[1:], self.arg.name)

    def backward(self, read: Reader, sources: Sequence[Source]) -> VjpOuts:
        """Return the cotangents of the active operands."""
        operands = [read(source) for source in sources]
        active = [k for k in range(len(self.in_layout.inputs))
                  if any(form.result_indices[k][0] is not None for form in self.vjp_forms)]
        outs = build_calls.cond([self._vjp_branch(form, slots, active, sources, operands)
                                 for form, slots in zip(self.vjp_forms, self.slots)],
                                read(("input", 0)), operands, f"{self.arg.name}.backward")
        by_number = dict(zip(active, outs))
        return [by_number.get(k) for k in range(len(self.in_layout.inputs))], \
            outs[len(active)] if self.effects else None

    def _vjp_branch(self, form: Linearized, slots: Sequence[int], active: Sequence[int],
                    sources: Sequence[Source], operands: Nodes) -> UOp:
        """Build the backward pass of one branch, as a function of the operands of all branches."""
        def outs(params: Nodes) -> list[UOp]:
            values = dict(zip(sources, params))
            cts, token = inline_backward(form,
                                         lambda source: values[self._map_source(source, slots)])
            last = [values[TOKEN] if token is None else token] if self.effects else []
            like = [self.args[self.in_layout.inputs[k]] for k in active]
            return [*[zeros_like(x) if (ct := cts[k]) is None else ct
                      for k, x in zip(active, like)],
                    *last]
        return build_function(outs, operands, form.backward.arg.name)


def shared_slots(saved: Sequence[Sequence[UOp]]) -> tuple[list[UOp], list[list[int]]]:
    """Assign residuals to slots that all branches share, by type; return the slots, and those of
    each branch."""
    slots: list[UOp] = []
    slots_per_branch = []
    for nodes in saved:
        free = list(range(len(slots)))
        branch_slots = []
        for node in nodes:
            slot = next((p for p in free if slots[p].shape == node.shape
                         and slots[p].dtype is node.dtype), None)
            if slot is None:
                slot = len(slots)
                slots.append(node)
            else:
                free.remove(slot)
            branch_slots.append(slot)
        slots_per_branch.append(branch_slots)
    return slots, slots_per_branch



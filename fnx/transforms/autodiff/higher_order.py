"""Ops with bodies (CALL, SCAN, WHILE, COND), and their derivative rules in both modes.

A walk goes over one graph. At such an op it needs a derived form of the body, and requests it:
``yield body, key`` hands out the FUNCTION and its activity pattern, and returns the derived
form (core/ir/derivations.py). So the nesting depth is not limited by Python's stack.

    forward   jvp_all(node, tangents, ...)      yields (body, JvpKey)      -> JvpForm
    reverse   vjp_forms, forward, vjp_all       yields (body, Activity)    -> Linearized

A loop makes several requests, until the activity of its carries is a fixpoint.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fnx.core.ir import accessors, build, build_calls, dtypes, op_args, ops
from fnx.core.ir.derivations import Derivation
from fnx.core.ir.uop import UOp
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.transforms.autodiff.drop_effects import drop_effects
from fnx.transforms.autodiff.policies import Policy
from fnx.transforms.autodiff.rules import Cotangent, DerivativeRule, Tangent

kernel_to_function = lazy_import("fnx.transforms.kernel_lang.kernel_to_function")

MaskedTangents = Sequence[Tangent | None]           # for each operand of a node, or each result
TOKEN = "token", 0                          # the source of effects of a backward pass


class Activity(Record):
    """The activity pattern of a body in reverse mode: the key of its linearized forms."""

    inputs: tuple[int, ...]             # active operands
    outputs: tuple[int, ...]            # results with a cotangent
    masked: tuple[int, ...] = ()        # results whose cotangent has a mask
    needs_mask: tuple[int, ...] = ()       # operands whose cotangent needs its mask
    may_be_nonfinite: tuple[int, ...] = ()          # operands that may be infinite or NaN
    policy: Policy | None = None        # which values a checkpoint saves


class Linearized(Record):
    """A linearized FUNCTION: ``forward`` returns its results and residuals, ``backward`` the vjp.

    ``forward`` is None if there are no residuals: call the FUNCTION itself, which owns this.
    ``sources`` are the operands of ``backward``: ("input", operand of the forward),
    ("result", result of the forward), ("cotangent", number). ``result_indices`` says which of its
    results are the cotangent and the mask of each active operand. If the backward pass has
    effects, it reads TOKEN, and its result ``token`` is what the next effect follows.
    """

    forward: UOp | None
    backward: UOp
    sources: tuple[tuple[str, int], ...]
    result_indices: tuple[tuple[int | None, int | None], ...]
    token: int | None = None

    def forward_of(self, body: UOp) -> UOp:
        """Return the FUNCTION to call instead of the body."""
        return body if self.forward is None else self.forward

    def vjp(self, args: Sequence[UOp], results: Sequence[UOp], cts: Sequence[UOp],
            token: UOp | None) -> tuple[list[Cotangent | None], UOp | None]:
        """Return the cotangents of the active operands, and the token after the effects.

        Args:
            token: what the effects of the backward pass follow; None: drop the effects.
        """
        backward = self.backward if token is not None else drop_effects(self.backward)
        by_kind = {"input": args, "result": results, "cotangent": cts,
                   "token": [build_calls.initial_token() if token is None else token]}
        outs = build_calls.call(backward, [by_kind[kind][i] for kind, i in self.sources])
        if token is not None and self.token is not None:
            token = outs[self.token]
        return [None if value is None else
                Cotangent(outs[value], None if mask is None else outs[mask])
                for value, mask in self.result_indices], token


class JvpKey(Record):
    """The activity pattern of a body in forward mode: the key of its jvp forms."""

    inputs: tuple[int, ...]             # operands with a tangent
    masked: tuple[int, ...] = ()        # operands whose tangent has a mask
    needs_mask: tuple[int, ...] = ()       # results whose tangent needs its mask
    may_be_nonfinite: tuple[int, ...] = ()          # operands that may be infinite or NaN
    instantiate: tuple[int, ...] = ()          # results whose zero tangent is materialized


class JvpForm(Record):
    """The jvp form of a FUNCTION, which also computes tangents.

    ``function`` takes the operands of the body, the tangents of ``inputs``, the masks of
    ``masked``; it returns the results of the body, then tangents and masks. ``result_indices`` says
    which of its results are the tangent and the mask of each result of the body; None: zero, no
    mask.
    """

    function: UOp
    result_indices: tuple[tuple[int | None, int | None], ...]

    @property
    def active(self) -> tuple[int, ...]:
        """The results that have a tangent."""
        return tuple([o for o, (value, _) in enumerate(self.result_indices) if value is not None])

    def results(self, outs: Sequence[UOp]) -> tuple[list[UOp], list[Tangent | None]]:
        """Split what ``function`` returned into the results of the body and their tangents."""
        return list(outs[:len(self.result_indices)]), [
            None if value is None else Tangent(outs[value], None if mask is None else outs[mask])
            for value, mask in self.result_indices]


Source = tuple[str, int]  # an operand of a backward pass: its kind and number


class DependenceKey(Record):
    """The key of the dependence of a body: for each result, the PARAMs it depends on
    (dependence.py)."""

    derivative: bool = True


class HigherOrderRule(DerivativeRule):
    """An op with a body and with several results, each read by a GETTUPLE.

    The reverse walk gets the linearized node from ``vjp_forms``, passes it to ``vjp_all``, and
    replaces the node by ``forward``.
    """

    def bodies(self, node: UOp) -> Sequence[UOp]:
        return accessors.bodies(node)

    def operands(self, node: UOp) -> Sequence[int]:
        return range(len(node.src) - len(accessors.operands(node)), len(node.src))

    def is_active(self, node: UOp) -> bool:
        return True

    def jvp_all(self, node: UOp, tangents: MaskedTangents, needs_mask: Sequence[int],
                nonfinite: Container[UOp]
                ) -> Derivation[tuple[Sequence[UOp], MaskedTangents]]:
        """Return the results of the node and their tangents.

        Requests jvp forms of bodies by ``form = yield body, JvpKey(...)``.

        Args:
            node: the node over the operands of the new graph.
            tangents: one for each of ``node.src``; None: zero.
            needs_mask: results whose tangents need their masks, if they have one.
            nonfinite: values that may be infinite or NaN.
        """
        raise NotImplementedError

    def effect_tangents(self, node: UOp, tangents: MaskedTangents) -> MaskedTangents:
        """Return the tangents to propagate if no tangent of the results is read: effects may read
        them."""
        return tangents

    def depends(self, node: UOp) -> Derivation[Sequence[frozenset[int]]]:
        """Return, for each result, which of the ``operands`` it has a derivative in.

        Requests the dependence of a body by ``yield body, DependenceKey()``.
        """
        yield from ()
        return [frozenset(range(len(self.operands(node))))] * len(node.arg.outs)

    def vjp_forms(self, node: UOp, out_cts: Mapping[int, Cotangent], active: Container[UOp],
                  needs_mask: Container[UOp], nonfinite: Container[UOp]) -> Derivation[Linearized]:
        """Linearize the node, as a FUNCTION of its operands.

        Requests linearized bodies by ``form = yield body, Activity(...)``. The cotangents are those
        of the results in ``out_cts``, in order, then their masks.
        """
        raise NotImplementedError

    def forward(self, node: UOp, src: Sequence[UOp], form: Linearized) -> UOp:
        """Return the node that also returns the residuals, over these operands."""
        if form.forward is None:
            return node.with_operands(tuple(src))
        outs = tuple([(o.shape, o.dtype) for o in form.forward.src])
        args = [src[i] for i in self.operands(node)]
        return UOp(ops.CALL, dtypes.void, (form.forward, *args),
                   op_args.Call(form.forward.arg.name, outs))

    def vjp_all(self, node: UOp, out_cts: Mapping[int, Cotangent], active: Container[UOp],
                form: Linearized, token: UOp | None
                ) -> tuple[list[tuple[UOp, Cotangent | None]], UOp | None]:
        """Return what the cotangents of the results contribute to those of the operands, and the
        token after the effects."""
        args = [node.src[i] for i in self.operands(node)]
        active_cts = [out_cts[o] for o in sorted(out_cts)]
        cts = [ct.value for ct in active_cts] + \
            [ct.mask for ct in active_cts if ct.mask is not None]
        results = build.results(self.forward(node, node.src, form))
        arg_cts, token = form.vjp(args, results, cts, token)
        return list(zip([a for a in args if a in active], arg_cts)), token


class GetTupleRule(DerivativeRule):
    """GETTUPLE: one result of a higher-order op; its cotangent goes to that op as a whole."""

    save_residual = True

    def operands(self, node: UOp) -> Sequence[int]:
        return (0,)


_SAVE_NOTHING = Policy("nothing", prevent_cse=False)


def kernel_as_function(call: UOp) -> UOp:
    """Return what a user-written kernel computes, as a FUNCTION. (Loaded late: rarely needed.)"""
    function: UOp = kernel_to_function.kernel_to_function(call)
    return function


class CallRule(HigherOrderRule):
    """CALL of a FUNCTION, or of a user-written kernel.

    A kernel always computes its own results. Its derivative is that of its array equivalent
    (kernel_lang/kernel_to_function.py), from which a backward pass recomputes what it needs.
    """

    def singular(self, node: UOp) -> bool:
        return node.src[0].op is not ops.FUNCTION  # unknown: assume so

    def _body(self, node: UOp) -> UOp:
        return node.src[0] if node.src[0].op is ops.FUNCTION else kernel_as_function(node)

    def jvp_all(self, node: UOp, tangents: MaskedTangents, needs_mask: Sequence[int],
                nonfinite: Container[UOp]
                ) -> Derivation[tuple[Sequence[UOp], MaskedTangents]]:
        body, args, arg_tangents = self._body(node), node.src[1:], tangents[1:]
        active = tuple([i for i, t in enumerate(arg_tangents) if t is not None])
        masked = tuple([i for i, t in enumerate(arg_tangents)
                        if t is not None and t.mask is not None])
        risky = tuple([i for i, a in enumerate(args) if a in nonfinite]) \
            if masked or needs_mask else ()
        form: JvpForm = yield body, JvpKey(active, masked, tuple(needs_mask), risky)
        values = [t.value for t in arg_tangents if t is not None]
        masks = [t.mask for t in arg_tangents if t is not None and t.mask is not None]
        outs = build_calls.call(form.function, [*args, *values, *masks], node.arg.name,
                                node.arg.policy)
        primals, result_tangents = form.results(outs)
        return primals if self.bodies(node) else build.results(node), result_tangents

    def depends(self, node: UOp) -> Derivation[Sequence[frozenset[int]]]:
        deps: Sequence[frozenset[int]] = yield self._body(node), DependenceKey()
        return deps

    def forward(self, node: UOp, src: Sequence[UOp], form: Linearized) -> UOp:
        return super().forward(node, src, form) if self.bodies(node) else \
            node.with_operands(tuple(src))

    def vjp_forms(self, node: UOp, out_cts: Mapping[int, Cotangent], active: Container[UOp],
                  needs_mask: Container[UOp], nonfinite: Container[UOp]) -> Derivation[Linearized]:
        body, args = self._body(node), node.src[1:]

        def those(nodes: Container[UOp]) -> tuple[int, ...]:
            return tuple([i for i, a in enumerate(args) if a in nodes])

        outputs = tuple(sorted(out_cts))
        masked = tuple([o for o in outputs if out_cts[o].mask is not None])
        policy = node.arg.policy if self.bodies(node) else _SAVE_NOTHING
        form: Linearized = yield body, Activity(those(active), outputs, masked, those(needs_mask),
                                                those(nonfinite) if masked else (), policy)
        return form

"""Ops with bodies (CALL, SCAN, WHILE, COND), and what both modes ask of them.

A walk goes over one graph. Where it meets a structural node it needs a derived form of its body,
and says so: ``yield body, key`` hands out the FUNCTION and what of it takes part, and comes back
with the form (core/derived.py). So bodies may nest as deep as they like.

    forward   push_all(node, tangents, ...)     yields (body, Push)      -> Pushed
    reverse   forms, forward, pull_all          (body, Activity)         -> Linearized

A loop asks more than once, until the activity of its carries does not grow any more.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fnx.core import build, build_calls, dtypes, op_args, ops
from fnx.core.derived import Steps
from fnx.core.process import load
from fnx.core.record import Record
from fnx.core.uop import UOp
from fnx.transforms.ad.policies import Policy
from fnx.transforms.ad.rules import Cotangent, DerivativeRule, Tangent
from fnx.transforms.ad.silent import silent

Pushes = Sequence[Tangent | None]           # of the operands of a node, or of its results
TOKEN = "token", 0                          # what effects of a backward pass follow: its source


class Activity(Record):
    """Which operands and results of a body take part: the key of its derived forms."""

    inputs: tuple[int, ...]             # active operands
    outputs: tuple[int, ...]            # results with a cotangent
    masked: tuple[int, ...] = ()        # results whose cotangent has a mask
    guarded: tuple[int, ...] = ()       # operands whose cotangent is wanted with its mask
    wild: tuple[int, ...] = ()          # operands that may be infinite or NaN
    policy: Policy | None = None        # what a checkpoint keeps


class Linearized(Record):
    """A FUNCTION for differentiation: ``forward`` returns its results and residuals.

    It is None where there are none: then it is the FUNCTION itself, with which this dies.
    ``sources`` says what to call ``backward`` with: ("input", operand of the forward),
    ("result", result of the forward), ("cotangent", number). ``given`` says which of its
    results are the cotangent and the mask of each active operand. Where the backward pass has
    effects, it reads TOKEN, and its result ``token`` is what the next effect follows.
    """

    forward: UOp | None
    backward: UOp
    sources: tuple[tuple[str, int], ...]
    given: tuple[tuple[int | None, int | None], ...]
    token: int | None = None

    def forward_of(self, body: UOp) -> UOp:
        """The FUNCTION to call instead of the body."""
        return body if self.forward is None else self.forward

    def pull(self, args: Sequence[UOp], results: Sequence[UOp], cts: Sequence[UOp],
             token: UOp | None) -> tuple[list[Cotangent | None], UOp | None]:
        """The cotangents of the active operands; and the token behind the effects.

        Args:
            token: what the effects of the backward pass follow; None: it has none.
        """
        backward = self.backward if token is not None else silent(self.backward)
        read = {"input": args, "result": results, "cotangent": cts,
                "token": [build_calls.first_token() if token is None else token]}
        found = build_calls.call(backward, [read[kind][i] for kind, i in self.sources])
        if token is not None and self.token is not None:
            token = found[self.token]
        return [None if value is None else
                Cotangent(found[value], None if mask is None else found[mask])
                for value, mask in self.given], token


class Push(Record):
    """Which operands and results of a body take part in forward mode: the key of its pushed form.
    """

    inputs: tuple[int, ...]             # operands with a tangent
    masked: tuple[int, ...] = ()        # those of them whose tangent has a mask
    guarded: tuple[int, ...] = ()       # results whose tangent is wanted with its mask
    wild: tuple[int, ...] = ()          # operands that may be infinite or NaN
    full: tuple[int, ...] = ()          # results whose tangent is wanted also where it is zero


class Pushed(Record):
    """A FUNCTION that also computes tangents.

    ``function`` takes the operands of the body, the tangents of ``inputs``, the masks of
    ``masked``; it returns the results of the body, then tangents and masks. ``given`` says which
    of its results are the tangent and the mask of each result of the body; None: zero, or none.
    """

    function: UOp
    given: tuple[tuple[int | None, int | None], ...]

    @property
    def active(self) -> tuple[int, ...]:
        """The results that have a tangent."""
        return tuple([o for o, (value, _) in enumerate(self.given) if value is not None])

    def results(self, found: Sequence[UOp]) -> tuple[list[UOp], list[Tangent | None]]:
        """What ``function`` returned: the results of the body, and their tangents."""
        return list(found[:len(self.given)]), [
            None if value is None else Tangent(found[value], None if mask is None else found[mask])
            for value, mask in self.given]


Source = tuple[str, int]  # of what a backward pass reads: which kind, and which of them


class Depends(Record):
    """Asks what each result of a body has a derivative in: sets of PARAMs (dependence.py)."""

    derivative: bool = True


class Structural(DerivativeRule):
    """An op with a body and with several results, each read by a Part.

    The reverse walk asks ``forms`` what of which body to derive, gives the derived form to
    ``pull_all``, and puts ``forward`` in the place of the node.
    """

    def is_active(self, node: UOp) -> bool:
        return True

    def push_all(self, node: UOp, tangents: Pushes, guarded: Sequence[int], wild: Container[UOp]
                 ) -> Steps[tuple[Sequence[UOp], Pushes]]:
        """The results of the node and their tangents.

        Asks for pushed bodies by ``pushed = yield body, Push(...)``.

        Args:
            node: over the operands as they are in the pushed graph.
            tangents: one for each of ``node.src``; None: zero.
            guarded: results whose tangents are wanted with their masks, if they have one.
            wild: values that may be infinite or NaN.
        """
        raise NotImplementedError

    def unread(self, node: UOp, tangents: Pushes) -> Pushes:
        """The tangents that are pushed where nobody reads a tangent of its results: for effects."""
        return tangents

    def depends(self, node: UOp) -> Steps[Sequence[frozenset[int]]]:
        """For each result, which of the ``operands`` it has a derivative in.

        Asks for what depends on what in a body by ``yield body, Depends()``.
        """
        yield from ()
        return [frozenset(range(len(self.operands(node))))] * len(node.arg.outs)

    def forms(self, node: UOp, got: Mapping[int, Cotangent], active: Container[UOp],
              guarded: Container[UOp], wild: Container[UOp]) -> Steps[Linearized]:
        """The derived form of the node, as of a FUNCTION of its operands.

        Asks for derived bodies by ``form = yield body, Activity(...)``. The cotangents are those
        of the results in ``got``, in order, then their masks.
        """
        raise NotImplementedError

    def forward(self, node: UOp, src: Sequence[UOp], form: Linearized) -> UOp:
        """The node that also has the residuals, over these operands."""
        if form.forward is None:
            return node.over(tuple(src))
        outs = tuple([(o.shape, o.dtype) for o in form.forward.src])
        args = [src[i] for i in self.operands(node)]
        return UOp(ops.CALL, dtypes.void, (form.forward, *args),
                   op_args.Call(form.forward.arg.name, outs))

    def pull_all(self, node: UOp, got: Mapping[int, Cotangent], active: Container[UOp],
                 form: Linearized, token: UOp | None
                 ) -> tuple[list[tuple[UOp, Cotangent | None]], UOp | None]:
        """What the cotangents of the results add to those of the operands; the token behind it.
        """
        args, given = [node.src[i] for i in self.operands(node)], [got[o] for o in sorted(got)]
        cts = [ct.value for ct in given] + [ct.mask for ct in given if ct.mask is not None]
        results = build.results(self.forward(node, node.src, form))
        found, token = form.pull(args, results, cts, token)
        return list(zip([a for a in args if a in active], found)), token


class ResultRule(DerivativeRule):
    """One result of a structural op; its cotangent goes to that as a whole."""

    dear = True

    def operands(self, node: UOp) -> Sequence[int]:
        return (0,)


_NOTHING = Policy("nothing", apart=False)


def computed_by(call: UOp) -> UOp:
    """What a hand-written kernel computes, as a FUNCTION. (Few programs ask: loaded late.)"""
    found: UOp = load("fnx.transforms.kernels.arrays").function_of(call)
    return found


class CallRule(Structural):
    """CALL: of a FUNCTION, or of a hand-written kernel.

    A kernel computes its results in any case. Its derivative is that of what it computes as
    arrays (kernels/arrays.py), of which a backward pass computes again what it needs.
    """

    def bodies(self, node: UOp) -> Sequence[UOp]:
        return node.src[:1] if node.src[0].op is ops.FUNCTION else ()

    def singular(self, node: UOp) -> bool:
        return node.src[0].op is not ops.FUNCTION  # who knows

    def operands(self, node: UOp) -> Sequence[int]:
        return range(1, len(node.src))

    def _body(self, node: UOp) -> UOp:
        return node.src[0] if node.src[0].op is ops.FUNCTION else computed_by(node)

    def push_all(self, node: UOp, tangents: Pushes, guarded: Sequence[int], wild: Container[UOp]
                 ) -> Steps[tuple[Sequence[UOp], Pushes]]:
        body, args, given = self._body(node), node.src[1:], tangents[1:]
        masked = tuple([i for i, t in enumerate(given) if t is not None and t.mask is not None])
        strange = tuple([i for i, a in enumerate(args) if a in wild]) if masked or guarded else ()
        pushed: Pushed = yield body, Push(tuple([i for i, t in enumerate(given) if t is not None]),
                                  masked, tuple(guarded), strange)
        values = [t.value for t in given if t is not None]
        masks = [t.mask for t in given if t is not None and t.mask is not None]
        found = build_calls.call(pushed.function, [*args, *values, *masks], node.arg.name,
                                 node.arg.policy)
        primals, given = pushed.results(found)
        return primals if self.bodies(node) else build.results(node), given

    def depends(self, node: UOp) -> Steps[Sequence[frozenset[int]]]:
        found: Sequence[frozenset[int]] = yield self._body(node), Depends()
        return found

    def forward(self, node: UOp, src: Sequence[UOp], form: Linearized) -> UOp:
        return super().forward(node, src, form) if self.bodies(node) else node.over(tuple(src))

    def forms(self, node: UOp, got: Mapping[int, Cotangent], active: Container[UOp],
              guarded: Container[UOp], wild: Container[UOp]) -> Steps[Linearized]:
        body, args = self._body(node), node.src[1:]

        def those(chosen: Container[UOp]) -> tuple[int, ...]:
            return tuple([i for i, a in enumerate(args) if a in chosen])

        outputs = tuple(sorted(got))
        masked = tuple([o for o in outputs if got[o].mask is not None])
        policy = node.arg.policy if self.bodies(node) else _NOTHING
        form: Linearized = yield body, Activity(those(active), outputs, masked, those(guarded),
                                                those(wild) if masked else (), policy)
        return form

"""CUSTOM: user-defined derivative rules, in both modes.

                forward                                reverse
    jvp         the rule itself                        its tangents, transposed
    fwd, bwd    bwd, transposed                        the rules themselves

Both transpositions are the same step: a function that is linear in some of its operands is
linearized with respect to these. A rule that is not linear in them is an error.

Rules that call their own function are unrolled (core/again.py) where they are applied.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fnx.core import build, build_calls, dtypes, op_args, ops, parts
from fnx.core.again import unrolled
from fnx.core.derived import Steps
from fnx.core.errors import GradError, show_site
from fnx.core.uop import UOp, substitute, toposort
from fnx.transforms.ad.linear import LinearIn
from fnx.transforms.ad.rules import Cotangent, Tangent, zeros
from fnx.transforms.ad.silent import silent
from fnx.transforms.ad.structural import TOKEN, CallRule, Linearized, Pushes, Structural


class CustomOpRule(Structural):
    """CUSTOM: a function with derivative rules of its own."""

    def bodies(self, node: UOp) -> Sequence[UOp]:
        return [node.src[1 if "jvp" in node.arg.rules else 0]]

    def operands(self, node: UOp) -> Sequence[int]:
        return range(len(node.src) - len(parts.operands(node)), len(node.src))

    # ---- forward mode

    def unread(self, node: UOp, tangents: Pushes) -> Pushes:
        """Drop the tangents of captures: no rule reads them."""
        first = len(node.src) - len(parts.operands(node))
        to = first + node.arg.n_captures
        return [None if first <= i < to else t for i, t in enumerate(tangents)]

    def push_all(self, node: UOp, tangents: Pushes, guarded: Sequence[int], wild: Container[UOp]
                 ) -> Steps[tuple[Sequence[UOp], Pushes]]:
        if not node.arg.rules:
            return (yield from _CALL.push_all(_plain(node), (None, *tangents[1:]), guarded, wild))
        args = parts.operands(node)
        given = tangents[len(node.src) - len(args):]
        _refuse_captures(node, [t is not None for t in given])
        first, n = node.arg.n_captures, len(node.arg.outs)
        along = [zeros(a) if t is None else t.value
                 for a, t in zip(args[first:], given[first:]) if a.dtype.is_float]
        if "jvp" in node.arg.rules:
            found = build_calls.call(self._rule(node, "jvp"), [*args, *along])
            return found[:n], _spread(node, found[n:])
        return (yield from self._turned(node, given[first:]))

    def _turned(self, node: UOp, tangents: Pushes) -> Steps[tuple[Sequence[UOp], Pushes]]:
        """Compute the tangents by the transpose of the vjp, which is linear in the cotangent.

        Effects of the vjp are dropped: they belong to backward passes, and there is none here.
        """
        args, arg, bwd = parts.operands(node), node.arg, silent(self._rule(node, "bwd"))
        n, found = len(arg.outs), build_calls.call(self._rule(node, "fwd"), args)
        along = [(i, t.value) for i, t in zip(arg.pulled, tangents) if t is not None and i >= 0]
        if not along:
            return found[:n], [None] * n
        saved = [*args[:arg.n_captures + arg.effects], *found[n:]]
        slots = tuple(range(len(saved), bwd.arg.n_params))
        form: Linearized = yield bwd, LinearIn(
            slots, slots, tuple([i for i, _ in along]), f"the vjp of {arg.name}",
            "its transpose would be the jvp: write it linear in its cotangent, give the function "
            "a jvp, or use reverse mode")
        operands = [*saved, *[build.const(0, dtype, shape) for shape, dtype in _floats(node)]]
        turned, _ = form.pull(operands, build_calls.call(form.forward_of(bwd), operands),
                              [t for _, t in along], None)
        return found[:n], _spread(node, [None if t is None else t.value for t in turned])

    # ---- reverse mode

    def depends(self, node: UOp) -> Steps[Sequence[frozenset[int]]]:
        yield from ()
        first, n = node.arg.n_captures, len(parts.operands(node))
        read = [i for i in range(n) if i >= first or _reads(node.src[0], i)]
        return [frozenset(read)] * len(node.arg.outs)

    def forms(self, node: UOp, got: Mapping[int, Cotangent], active: Container[UOp],
              guarded: Container[UOp], wild: Container[UOp]) -> Steps[Linearized]:
        if not node.arg.rules:
            return (yield from _CALL.forms(_plain(node), got, active, guarded, wild))
        _refuse_captures(node, [a in active for a in parts.operands(node)])
        if "bwd" in node.arg.rules:
            yield from ()
            return self._given(node, got, active)
        return (yield from self._transposed(node, got, active, guarded, wild))

    def _given(self, node: UOp, got: Container[int], active: Container[UOp]) -> Linearized:
        """Return the user's fwd and bwd, restricted to the active results and arguments."""
        arg, n, floats = node.arg, len(node.arg.outs), _tangent_places(node)
        name = op_args.pullback([k for k, o in enumerate(floats) if o in got], len(floats))
        fwd = self._rule(node, "fwd")
        bwd = self._rule(node, name if name in arg.rules else "bwd")
        has_effects = bool(arg.effects) and bwd.src[0].op is not ops.PARAM
        sources = [("input", i) for i in range(arg.n_captures)]
        sources += [TOKEN] * has_effects
        sources += [("result", i) for i in range(n, len(fwd.src))]
        left_out = arg.effects - has_effects  # a token that it takes and only passes through
        first, given = len(sources) + left_out, [o for o in floats if o in got]
        to: dict[UOp, UOp] = {}
        for i, x in build.params(bwd).items():
            if i >= first:
                o = list(floats)[i - first]
                to[x] = build.param(len(sources) + given.index(o), x.dtype, x.shape) \
                    if o in got else zeros(x)
            elif left_out and i >= arg.n_captures:
                to[x] = zeros(x) if i == arg.n_captures else build.param(i - 1, x.dtype, x.shape)
        sources += [("cotangent", k) for k in range(len(given))]
        backward = build.function(substitute(bwd.src, to), len(sources), bwd.arg.name)
        args = parts.operands(node)[arg.n_captures:]
        wanted = [None if i < 0 else i for i, a in zip(arg.pulled, args) if a in active]
        given_to = (*_captured(node, active), *[(i, None) for i in wanted])
        return Linearized(fwd, backward, tuple(sources), given_to, 0 if has_effects else None)

    def _transposed(self, node: UOp, got: Mapping[int, Cotangent], active: Container[UOp],
                    guarded: Container[UOp], wild: Container[UOp]) -> Steps[Linearized]:
        """Transpose the tangents of the jvp."""
        args, slots, places = parts.operands(node), _tangent_slots(node), _tangent_places(node)

        def those(chosen: Container[UOp]) -> tuple[int, ...]:
            return tuple([slots[i] for i in sorted(slots) if args[i] in chosen])

        outputs = tuple([places[o] for o in sorted(got)])
        masked = tuple([places[o] for o in sorted(got) if got[o].mask is not None])
        strange = tuple([i for i, a in enumerate(args) if a in wild]) if masked else ()
        rule = self._rule(node, "jvp")
        _refuse_telling(node, rule, tuple(slots.values()))
        form: Linearized = yield rule, LinearIn(
            tuple(slots.values()), those(active), outputs, f"the jvp of {node.arg.name}",
            "reverse mode transposes it: write it linear in its tangents, or give it a vjp",
            masked, those(guarded), strange)
        forward = form.forward_of(rule)  # its results and residuals do not read tangents
        to = {x: zeros(x) for i, x in build.params(forward).items() if i >= len(args)}
        backward, sources = _without_inputs(form, slots.values())
        return Linearized(build.function(substitute(forward.src, to), len(args),
                                         forward.arg.name),
                          backward, sources, (*_captured(node, active), *form.given), form.token)

    def _rule(self, node: UOp, name: str) -> UOp:
        """Return a rule, with the calls of its own function unrolled."""
        if name not in node.arg.rules:
            raise GradError(f"expected a rule for {node.arg.name}, it has none that serves here: "
                            f"{', '.join(node.arg.rules) or 'none'}", site=node.site)
        return unrolled(node, node.src[1 + node.arg.rules.index(name)])


_CALL = CallRule()


def _plain(node: UOp) -> UOp:
    """Turn a CUSTOM without derivative rules into a CALL of its function."""
    return node.replace(op=ops.CALL, arg=op_args.Call(node.arg.name, node.arg.outs))


# ---- operands and results ------------------------------------------------------------------------


def _refuse_captures(node: UOp, active: Sequence[bool]) -> None:
    """Raise if a capture is active: no rule differentiates with respect to captures."""
    for i in range(node.arg.n_captures):
        if active[i] and _reads(node.src[0], i):
            x = parts.operands(node)[i]
            raise GradError(
                f"expected {node.arg.name} to be differentiated in its arguments only, got a "
                f"derivative in {x.dtype}{list(x.shape)} that it closes over"
                f"{f' (of {show_site(x.site)})' if x.site else ''}",
                hint="its rules say nothing of that: pass the array as an argument, or wrap it in "
                     "lax.stop_gradient", site=node.site)


def _refuse_telling(node: UOp, rule: UOp, tangents: Container[int]) -> None:
    """Raise if an effect of a jvp rule reads tangents, of which reverse mode has none."""
    if not node.arg.effects:
        return
    read = {x for i, x in build.params(rule).items() if i in tangents}
    for n in toposort(rule.src):
        if read.isdisjoint(n.src):
            continue
        if n.op in ops.STRUCTURAL | {ops.HOST} and any(map(build_calls.is_token, n.src)):
            raise GradError(f"expected the jvp of {node.arg.name} to have effects that read no "
                            f"tangent, got {n.arg.name}, which reads one: reverse mode, which "
                            "transposes the rule, has none",
                            hint="print the arguments or the result, or give the function a vjp",
                            site=n.site or node.site)
        read.add(n)


def _reads(fn: UOp, slot: int) -> bool:
    """Whether a result has a derivative in a PARAM."""
    stopped = toposort(fn.src, stop=lambda n: n.op is ops.STOP or n.dtype.kind in ("int", "bool",
                                                                                  "uint"))
    return any(n.op is ops.PARAM and n.arg.slot == slot for n in stopped)


def _captured(node: UOp, active: Container[UOp]) -> list[tuple[None, None]]:
    """Return no cotangents for the active captures: only rules read these."""
    return [(None, None) for x in parts.operands(node)[:node.arg.n_captures] if x in active]


def _floats(node: UOp) -> list[tuple[ops.Shape, dtypes.DType]]:
    return [out for out in node.arg.outs if out[1].is_float]


def _without_inputs(form: Linearized, slots: Container[int]
                    ) -> tuple[UOp, tuple[tuple[str, int], ...]]:
    """Return a backward pass and its sources, with zeros for some inputs: a loop may read more
    than it uses."""
    gone = [source[0] == "input" and source[1] in slots for source in form.sources]
    kept = [slot for slot, out in enumerate(gone) if not out]
    to = {x: zeros(x) if gone[i] else build.param(kept.index(i), x.dtype, x.shape)
          for i, x in build.params(form.backward).items()}
    return build.function(substitute(form.backward.src, to), len(kept), form.backward.arg.name), \
        tuple([form.sources[slot] for slot in kept])


def _spread(node: UOp, tangents: Sequence[UOp | None]) -> list[Tangent | None]:
    """Return the tangents of the float results, with None for the others."""
    rest = iter(tangents)
    found = [next(rest) if dtype.is_float else None for _, dtype in node.arg.outs]
    return [None if t is None else Tangent(t) for t in found]


def _tangent_slots(node: UOp) -> dict[int, int]:
    """Map each float argument (counted with the captures) to the PARAM that is its tangent."""
    args = parts.operands(node)
    floats = [i for i in range(node.arg.n_captures, len(args)) if args[i].dtype.is_float]
    return {i: len(args) + k for k, i in enumerate(floats)}


def _tangent_places(node: UOp) -> dict[int, int]:
    """Map each float result to the result of the jvp that is its tangent."""
    floats = [o for o, (_, dtype) in enumerate(node.arg.outs) if dtype.is_float]
    return {o: len(node.arg.outs) + k for k, o in enumerate(floats)}

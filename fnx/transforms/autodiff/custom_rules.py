"""CUSTOM: user-defined derivative rules, in both modes.

                forward                                reverse
    jvp         the rule itself                        its tangents, transposed
    fwd, bwd    bwd, transposed                        the rules themselves

Both transpositions are the same step: a function that is linear in some of its operands is
linearized with respect to these. A rule that is not linear in them is an error.

The rules of primitives of the user's, and of functions that were called outside of all derivatives,
are traced here, when they are first needed.

Rules that call their own function are unrolled (core/ir/recursive_rules.py) where they are applied.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fnx.core.ir import accessors, build, build_calls, dtypes, op_args, ops
from fnx.core.ir.derivations import Derivation
from fnx.core.ir.recursive_rules import unroll_recursion
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.support.config import config
from fnx.core.support.errors import GradError, format_location
from fnx.transforms.autodiff.drop_effects import drop_effects
from fnx.transforms.autodiff.higher_order import (
    TOKEN,
    CallRule,
    HigherOrderRule,
    Linearized,
    MaskedTangents,
)
from fnx.transforms.autodiff.linear_calls import mark_linear_calls
from fnx.transforms.autodiff.rules import Cotangent, Tangent, zeros_like
from fnx.transforms.autodiff.transpose_rules import TransposeRuleKey


class CustomOpRule(HigherOrderRule):
    """CUSTOM: a function with derivative rules of its own."""

    def bodies(self, node: UOp) -> Sequence[UOp]:
        return [node.src[1 if "jvp" in node.arg.rules else 0]]

    # ---- forward mode

    def effect_tangents(self, node: UOp, tangents: MaskedTangents) -> MaskedTangents:
        """Drop the tangents of captures: no rule reads them."""
        first = len(node.src) - len(accessors.operands(node))
        to = first + node.arg.n_captures
        return [None if first <= i < to else t for i, t in enumerate(tangents)]

    def jvp_all(self, node: UOp, tangents: MaskedTangents, needs_mask: Sequence[int],
                nonfinite: Container[UOp]
                ) -> Derivation[tuple[Sequence[UOp], MaskedTangents]]:
        if node.arg.rule_maker is not None:
            operands = tangents[len(node.src) - len(accessors.operands(node)):]
            node = node.arg.rule_maker.with_jvp(node, [t is not None for t in operands])
            tangents = (*[None] * (len(node.src) - len(operands)), *operands)
        if not node.arg.rules:
            return (yield from _CALL.jvp_all(_as_call(node), (None, *tangents[1:]), needs_mask,
                                             nonfinite))
        args = accessors.operands(node)
        arg_tangents = tangents[len(node.src) - len(args):]
        _reject_active_captures(node, [t is not None for t in arg_tangents])
        first, n = node.arg.n_captures, len(node.arg.outs)
        tangent_values = [zeros_like(a) if t is None else t.value
                          for a, t in zip(args[first:], arg_tangents[first:]) if a.dtype.is_inexact]
        if "jvp" in node.arg.rules:
            rule = self._rule(node, "jvp")
            outs = build_calls.call(build_calls.derived_function(rule, rule, rule="jvp"),
                                    [*args, *tangent_values])
            return outs[:n], _fill_none(node, outs[n:])
        return (yield from self._jvp_by_transpose(node, arg_tangents[first:]))

    def _jvp_by_transpose(self, node: UOp,
                tangents: MaskedTangents) -> Derivation[tuple[Sequence[UOp], MaskedTangents]]:
        """Compute the tangents by the transpose of the vjp, which is linear in the cotangent.

        Effects of the vjp are dropped: they belong to backward passes, and there is none here.
        """
        if config.derivatives == "jax":
            raise GradError(f"expected no forward mode of {node.arg.name}, which has a custom_vjp "
                            "and no jvp", hint="use grad or vjp, or define the rule by custom_jvp; "
                            'fnx.config.derivatives = "all" transposes the vjp', loc=node.loc)
        args, arg, bwd = accessors.operands(node), node.arg, self._rule(node, "bwd")
        bwd = build_calls.derived_function(drop_effects(bwd), bwd)
        n, outs = len(arg.outs), build_calls.call(self._rule(node, "fwd"), args)
        active = [(i, t.value) for i, t in zip(arg.cotangent_indices, tangents)
                  if t is not None and i >= 0]
        if not active:
            return outs[:n], [None] * n
        saved = [*args[:arg.n_captures + arg.effects], *outs[n:]]
        slots = tuple(range(len(saved), bwd.arg.n_params))
        form: Linearized = yield bwd, TransposeRuleKey(
            slots, slots, tuple([i for i, _ in active]), f"the vjp of {arg.name}",
            "forward mode transposes it: make it linear in its cotangent, define a jvp, or use "
            "reverse mode")
        operands = [*saved, *[build.const(0, dtype, shape) for shape, dtype in _float_outs(node)]]
        transposed, _ = form.vjp(operands, build_calls.call(form.forward_of(bwd), operands),
                                 [t for _, t in active], None)
        return outs[:n], _fill_none(node, [None if t is None else t.value for t in transposed])

    # ---- reverse mode

    def depends(self, node: UOp) -> Derivation[Sequence[frozenset[int]]]:
        yield from ()
        first, n = node.arg.n_captures, len(accessors.operands(node))
        differentiable = [i for i in range(n) if i >= first or _has_derivative_in(node.src[0], i)]
        return [frozenset(differentiable)] * len(node.arg.outs)

    def vjp_forms(self, node: UOp, out_cts: Mapping[int, Cotangent], active: Container[UOp],
                  needs_mask: Container[UOp], nonfinite: Container[UOp]) -> Derivation[Linearized]:
        if node.arg.rule_maker is not None:
            node = node.arg.rule_maker.with_vjp(node, [a in active
                                                      for a in accessors.operands(node)],
                                               [o in out_cts for o in range(len(node.arg.outs))])
        if not node.arg.rules:
            return (yield from _CALL.vjp_forms(_as_call(node), out_cts, active, needs_mask,
                                               nonfinite))
        _reject_active_captures(node, [a in active for a in accessors.operands(node)])
        if "fwd" in node.arg.rules:
            yield from ()
            return self._user_rules(node, out_cts, active)
        return (yield from self._vjp_by_transpose(node, out_cts, active, needs_mask, nonfinite))

    def _user_rules(self, node: UOp, out_cts: Container[int], active: Container[UOp]) -> Linearized:
        """Return the user's fwd and bwd, restricted to the active results and arguments."""
        arg, n, floats = node.arg, len(node.arg.outs), _tangent_outs(node)
        name = op_args.bwd_rule_name([k for k, o in enumerate(floats) if o in out_cts], len(floats))
        fwd = self._rule(node, "fwd")
        bwd = self._rule(node, name if name in arg.rules else "bwd")
        has_effects = bool(arg.effects) and bwd.src[0].op is not ops.PARAM
        sources = [("input", i) for i in range(arg.n_captures)]
        sources += [TOKEN] * has_effects
        sources += [("result", i) for i in range(n, len(fwd.src))]
        left_out = arg.effects - has_effects  # a token that it takes and only passes through
        first_ct, cts_of_outs = len(sources) + left_out, [o for o in floats if o in out_cts]
        to: dict[UOp, UOp] = {}
        for i, x in build.params(bwd).items():
            if i >= first_ct:
                o = list(floats)[i - first_ct]
                to[x] = build.param(len(sources) + cts_of_outs.index(o), x.dtype, x.shape) \
                    if o in out_cts else zeros_like(x)
            elif left_out and i >= arg.n_captures:
                to[x] = zeros_like(x) if i == arg.n_captures else \
                    build.param(i - 1, x.dtype, x.shape)
        sources += [("cotangent", k) for k in range(len(cts_of_outs))]
        backward = build_calls.derived_function(
            build.function(substitute(bwd.src, to), len(sources), bwd.arg.name), bwd,
            _new_slots(bwd, to), rule="bwd")
        args = accessors.operands(node)[arg.n_captures:]
        ct_indices = [None if i < 0 else i
                      for i, a in zip(arg.cotangent_indices, args) if a in active]
        result_indices = (*_capture_cts(node, active), *[(i, None) for i in ct_indices])
        return Linearized(fwd, backward, tuple(sources), result_indices, 0 if has_effects else None)

    def _vjp_by_transpose(self, node: UOp, out_cts: Mapping[int, Cotangent], active: Container[UOp],
                          needs_mask: Container[UOp],
                          nonfinite: Container[UOp]) -> Derivation[Linearized]:
        """Transpose the tangents of the jvp."""
        args, slots, outs = accessors.operands(node), _tangent_slots(node), _tangent_outs(node)

        def those(nodes: Container[UOp]) -> tuple[int, ...]:
            return tuple([slots[i] for i in sorted(slots) if args[i] in nodes])

        outputs = tuple([outs[o] for o in sorted(out_cts)])
        masked = tuple([outs[o] for o in sorted(out_cts) if out_cts[o].mask is not None])
        risky = tuple([i for i, a in enumerate(args) if a in nonfinite]) if masked else ()
        plain = self._rule(node, "jvp")
        rule = build_calls.derived_function(mark_linear_calls(plain, slots.values()), plain)
        _reject_tangent_effects(node, rule, tuple(slots.values()))
        form: Linearized = yield rule, TransposeRuleKey(
            tuple(slots.values()), those(active), outputs, f"the jvp of {node.arg.name}",
            "reverse mode transposes it: make it linear in its tangents, or define a vjp",
            masked, those(needs_mask), risky)
        forward = form.forward_of(rule)  # its results and residuals do not read tangents
        to = {x: zeros_like(x) for i, x in build.params(forward).items() if i >= len(args)}
        backward, sources = _drop_inputs(form, slots.values())
        primal = build_calls.derived_function(build.function(
            substitute(forward.src, to), len(args), forward.arg.name), forward)
        return Linearized(primal, backward, sources, (
            *_capture_cts(node, active), *form.result_indices), form.token)

    def _rule(self, node: UOp, name: str) -> UOp:
        """Return a rule, with the calls of its own function unrolled."""
        if name not in node.arg.rules:
            raise GradError(f"expected a {name} rule for {node.arg.name}, got rules: "
                            f"{', '.join(node.arg.rules) or 'none'}", loc=node.loc)
        rule = node.src[1 + node.arg.rules.index(name)]
        return build_calls.derived_function(unroll_recursion(node, rule), rule)


_CALL = CallRule()


def _as_call(node: UOp) -> UOp:
    """Turn a CUSTOM without derivative rules into a CALL of its function."""
    return node.replace(op=ops.CALL, arg=op_args.Call(node.arg.name, node.arg.outs))


# ---- operands and results ------------------------------------------------------------------------


def _reject_active_captures(node: UOp, active: Sequence[bool]) -> None:
    """Raise if a capture is active: no rule differentiates with respect to captures."""
    for i in range(node.arg.n_captures):
        if active[i] and _has_derivative_in(node.src[0], i):
            x = accessors.operands(node)[i]
            raise GradError(
                f"expected {node.arg.name} to be differentiated with respect to its arguments "
                f"only, got a derivative for {x.dtype}{list(x.shape)} that it closes over"
                f"{f' (of {format_location(x.loc)})' if x.loc else ''}",
                hint="its rules do not cover closed-over arrays: pass the array as an argument, "
                     "or wrap it in lax.stop_gradient", loc=node.loc)


def _reject_tangent_effects(node: UOp, rule: UOp, tangents: Container[int]) -> None:
    """Raise if an effect of a jvp rule reads tangents, of which reverse mode has none."""
    if not node.arg.effects:
        return
    tangent_dependent = {x for i, x in build.params(rule).items() if i in tangents}
    for n in toposort(rule.src):
        if tangent_dependent.isdisjoint(n.src):
            continue
        if n.op in ops.HIGHER_ORDER | {ops.CALLBACK} and any(map(build_calls.is_token, n.src)):
            raise GradError(f"expected the jvp of {node.arg.name} to have effects that read no "
                            f"tangent, got {n.arg.name}, which reads one: reverse mode, which "
                            "transposes the rule, has none",
                            hint="print the arguments or the result, or give the function a vjp",
                            loc=n.loc or node.loc)
        tangent_dependent.add(n)


def _has_derivative_in(fn: UOp, slot: int) -> bool:
    """Whether a result has a derivative in a PARAM."""
    stopped = toposort(fn.src,
                       stop=lambda n: n.op is ops.STOP_GRADIENT or n.dtype.kind in ("int", "bool",
                                                                                   "uint"))
    return any(n.op is ops.PARAM and n.arg.slot == slot for n in stopped)


def _capture_cts(node: UOp, active: Container[UOp]) -> list[tuple[None, None]]:
    """Return no cotangents for the active captures: only rules read these."""
    return [(None, None) for x in accessors.operands(node)[:node.arg.n_captures] if x in active]


def _float_outs(node: UOp) -> list[tuple[ops.Shape, dtypes.DType]]:
    return [out for out in node.arg.outs if out[1].is_inexact]


def _drop_inputs(form: Linearized, slots: Container[int]
                 ) -> tuple[UOp, tuple[tuple[str, int], ...]]:
    """Return a backward pass and its sources, with zeros for some inputs: a loop may read more
    than it uses."""
    dropped = [source[0] == "input" and source[1] in slots for source in form.sources]
    left = [slot for slot, out in enumerate(dropped) if not out]
    to = {x: zeros_like(x) if dropped[i] else build.param(left.index(i), x.dtype, x.shape)
          for i, x in build.params(form.backward).items()}
    backward = build.function(substitute(form.backward.src, to), len(left), form.backward.arg.name)
    return build_calls.derived_function(backward, form.backward, _new_slots(form.backward, to)), \
        tuple([form.sources[slot] for slot in left])


def _new_slots(function: UOp, to: Mapping[UOp, UOp]) -> dict[int, int]:
    """Return the slots of those PARAMs that remain where PARAMs are replaced."""
    replaced = {i: to.get(x, x) for i, x in build.params(function).items()}
    return {i: x.arg.slot for i, x in replaced.items() if x.op is ops.PARAM}


def _fill_none(node: UOp, tangents: Sequence[UOp | None]) -> list[Tangent | None]:
    """Return the tangents of the float results, with None for the others."""
    remaining = iter(tangents)
    padded = [next(remaining) if dtype.is_inexact else None for _, dtype in node.arg.outs]
    return [None if t is None else Tangent(t) for t in padded]


def _tangent_slots(node: UOp) -> dict[int, int]:
    """Map each float argument (counted with the captures) to the PARAM that is its tangent."""
    args = accessors.operands(node)
    floats = [i for i in range(node.arg.n_captures, len(args)) if args[i].dtype.is_inexact]
    return {i: len(args) + k for k, i in enumerate(floats)}


def _tangent_outs(node: UOp) -> dict[int, int]:
    """Map each float result to the result of the jvp that is its tangent."""
    floats = [o for o, (_, dtype) in enumerate(node.arg.outs) if dtype.is_inexact]
    return {o: len(node.arg.outs) + k for k, o in enumerate(floats)}

"""Transpose a FUNCTION that is linear in some operands.

    body: p0, p1 -> MUL(p0, p1), linear in p1       transpose: p0, _, ct -> MUL(ct, p0)

It is the reverse walk from cotangents of the results to the linear operands. The residuals do not
depend on these operands, so zeros are substituted for them.

The linear map of a function that is not linear (``linearize``) is the transpose of its pullback:
so it reads the residuals that reverse mode saves, and splits loops as reverse mode does.
"""

from __future__ import annotations

from fnx.core.ir import build, build_calls
from fnx.core.ir.derivations import Derivation, derive, register_derivation
from fnx.core.ir.uop import UOp, substitute
from fnx.core.support.record import Record
from fnx.transforms.autodiff.drop_effects import drop_effects
from fnx.transforms.autodiff.higher_order import Linearized
from fnx.transforms.autodiff.reverse import pullback_steps
from fnx.transforms.autodiff.rules import Cotangent


class TransposeKey(Record):
    """The linear operands, and the results that have a cotangent: the key of a transpose.

    ``effects``: whether effects of rules take place (for ``linearize`` they do not: it is no
    backward pass).
    """

    linear: tuple[int, ...]
    outputs: tuple[int, ...]
    effects: bool = False


class TransposeForm(Record):
    """``function`` takes the operands of the body (it does not read the linear ones), then the
    cotangents, then a token if it has effects; ``result_indices`` says which of its results is the
    cotangent of each linear operand; None: zero. ``token`` is the result after the effects."""

    function: UOp
    result_indices: tuple[int | None, ...]
    token: int | None = None


def transpose(body: UOp, linear: tuple[int, ...], outputs: tuple[int, ...],
              effects: bool = False) -> TransposeForm:
    """Return the transpose of a FUNCTION that is linear in these operands (linearity.py).

    >>> from fnx.core.ir import dtypes
    >>> w, x = (build.param(i, dtypes.float32, ()) for i in range(2))
    >>> transpose(build.function([build.mul(w, x)], 2, "f"), (1,), (0,)).function.src
    (<MUL float32[] of 2>,)
    """
    transposed: TransposeForm = derive(body, TransposeKey(linear, outputs, effects))
    return transposed


def transpose_to_jvp(linearized: Linearized) -> tuple[TransposeForm, tuple[int, ...]]:
    """Return the map from tangents of the active operands to those of the results with a
    cotangent.

    Its FUNCTION takes the operands of ``backward``, then tangents of those active operands that
    have one; the numbers of these come second. Effects of the backward pass are dropped.
    """
    linear = tuple([i for i, (kind, _) in enumerate(linearized.sources) if kind == "cotangent"])
    active = tuple([
        k for k, (value, _) in enumerate(linearized.result_indices) if value is not None])
    outputs = tuple([v for v, _ in linearized.result_indices if v is not None])
    backward = drop_effects(linearized.backward, "a linear map", "use vjp, whose pullback calls it")
    return transpose(backward, linear, outputs), active


@register_derivation(TransposeKey)
def _transpose(body: UOp, key: TransposeKey) -> Derivation[TransposeForm]:
    n, params = body.arg.n_params, build.params(body)
    cts = [build.param(n + k, body.src[o].dtype, body.src[o].shape)
           for k, o in enumerate(key.outputs)]
    wrt = [params[i] for i in key.linear if i in params]
    outs = [body.src[o] for o in key.outputs]
    shape, dtype = build_calls.TOKEN
    first = build.param(n + len(cts), dtype, shape) if key.effects else None
    _, input_cts, last = yield from pullback_steps(outs, [Cotangent(ct) for ct in cts], wrt,
                                                   token=first)
    by_param = {x: ct.value for x, ct in zip(wrt, input_cts) if ct is not None}
    results = substitute([*by_param.values(), *([] if last is None else [last])],
                         {x: build.const_like(x, 0) for x in wrt})
    number = {x: k for k, x in enumerate(by_param)}
    function = build.function(results, n + len(cts) + key.effects,
                              f"{body.arg.name}.transpose")
    return TransposeForm(function, tuple([number.get(params[i]) if i in params else None
                                          for i in key.linear]),
                         None if last is None else len(number))



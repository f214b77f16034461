"""Transpose user-defined rules that are linear in some of their operands.

    f(x, t) = cos(x) * t,  ct        ->    cos(x) * ct        reads x and ct, but no t

The derivative of a linear function is the function itself, so its transpose is its pullback. A
function that is not linear in them (MUL of two such operands, a comparison, a clip) would have a
pullback that reads them, or a wrong one: it raises, naming the op and the user's line.
"""

from __future__ import annotations

from fnx.core.ir import build
from fnx.core.ir.derivations import Derivation, register_derivation
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import GradError
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.transforms.autodiff.higher_order import Activity, Linearized

linearity = lazy_import("fnx.transforms.autodiff.linearity")


class TransposeRuleKey(Record):
    """The key of a transposed rule: the ``linear`` operands, the fields of Activity, and texts
    for messages."""

    linear: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    what: str
    hint: str
    masked: tuple[int, ...] = ()
    needs_mask: tuple[int, ...] = ()
    may_be_nonfinite: tuple[int, ...] = ()


@register_derivation(TransposeRuleKey)
def _transpose_rule(body: UOp, key: TransposeRuleKey) -> Derivation[Linearized]:
    try:  # loaded late: few programs transpose rules
        yield from linearity.check_linear_steps(
            [body.src[o] for o in key.outputs],
            [x for i, x in build.params(body).items() if i in key.linear])
    except GradError as e:
        raise GradError(f"{key.what}: {e.message}", hint=key.hint, loc=e.loc) from None
    linearized: Linearized = yield body, Activity(key.inputs, key.outputs, key.masked,
                                                  key.needs_mask, key.may_be_nonfinite)
    return linearized

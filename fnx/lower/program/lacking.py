"""lacking: decompose for a target without 64-bit types: what it lacks is rewritten, or refused.

    before   POW(x, y)                     of float32, elsewhere computed in float64
    after    ... basic operations of float32 and uint32 (elementary/single.py)

    before   STORE(o[i], float64(x))
    raises   DTypeError: the type, the user's line, what to write instead

Types of 16 and 8 bits are words in part, whatever computes with them; so all that is left to refuse
are numbers of 64 bits, and functions whose only formula is in float64.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.dtypes import DType
from fnx.core.errors import DTypeError
from fnx.core.expr import Expr, on_nodes
from fnx.core.formulas import FORMULAS
from fnx.core.ops import Op
from fnx.core.target import Target
from fnx.core.uop import UOp, toposort
from fnx.lower.program.decompose import EXPANSIONS, WITHOUT_FMA, rewritten
from fnx.lower.program.elementary import single

_CURES: dict[str, str] = {
    "float": "use float32", "int": "use int32", "uint": "use uint32",
    "key": "draw random numbers on another device, as under fnx.default_device"}


def lacking(root: UOp, target: Target) -> UOp:
    """The KERNEL without what the target lacks.

    >>> from fnx.core import build, dtypes, ops
    >>> x = build.var(0, dtypes.float32)
    >>> made = lacking(UOp(ops.POW, x.dtype, (x, x)), Target("small"))
    >>> {n.dtype for n in toposort([made])} <= {dtypes.float32, dtypes.int32, dtypes.uint32,
    ...                                         dtypes.bool_}
    True

    Raises:
        DTypeError: names the type, or the function, and the user's line.
    """
    for node in toposort([root]):
        if _is_wide(node.dtype):
            raise DTypeError(f"{target.name}: expected types of at most 32 bits, got {node.dtype}",
                             site=node.site, hint=_CURES[node.dtype.kind])
    found = rewritten(root, _ROWS)
    if not target.fma:
        found = rewritten(found, WITHOUT_FMA)
    for node in toposort([found]):
        if _is_wide(node.dtype):
            names = {n.op.name.lower() for n in toposort([root]) if n.op in FORMULAS}
            raise DTypeError(f"{target.name}: expected functions that have a formula in float32, "
                             f"got one of {', '.join(sorted(names)) or root.op}",
                             site=node.site or root.site, hint="compute it on another device")
    return found


def _is_wide(t: DType) -> bool:
    return t.bits == 64 and t.kind not in ("index", "void")


def _of_formula(node: UOp) -> UOp:
    made = FORMULAS[node.op].of(*[Expr(s) for s in node.src]).node
    return rewritten(made, _ROWS)


def _of_operands(formula: Callable[..., Expr]) -> Callable[[UOp], UOp]:
    of_nodes = on_nodes(formula)
    return lambda node: of_nodes(*node.src)


_ROWS: dict[Op, Callable[[UOp], UOp]] = {
    **EXPANSIONS, **{op: _of_operands(formula) for op, formula in single.FORMULAS.items()},
    **dict.fromkeys(FORMULAS, _of_formula)}

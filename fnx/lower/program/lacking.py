"""Legalize ops for a target without 64-bit types: rewrite what it lacks, or raise.

    before   POW(x, y)                     of float32, elsewhere computed in float64
    after    ... basic operations of float32 and uint32 (elementary/single.py)

    before   STORE(o[i], float64(x))
    raises   DTypeError: the type, the user's line, what to write instead

Types of 8 and 16 bits are parts of 32-bit words, whatever computes with them. Bit operations on
uint64 (move, select, test for equality, shift, combine: ``PAIRS``) work on pairs of 32-bit words,
as random keys need. So only 64-bit arithmetic raises, and functions whose only formula is in
float64. ``lgamma`` and ``digamma`` have one in float32.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core import ops
from fnx.core.dtypes import DType, uint64
from fnx.core.errors import DTypeError
from fnx.core.expr import Expr, on_nodes
from fnx.core.formulas import FORMULAS
from fnx.core.ops import Op
from fnx.core.target import Target
from fnx.core.uop import UOp, toposort
from fnx.lower.program.decompose import EXPANSIONS, WITHOUT_FMA, rewritten
from fnx.lower.program.elementary import single

_CURES: dict[str, str] = {
    "float": "use float32; what fnx computes in float64 itself, as betainc does: on another "
             "device, from where fnx.device_put brings it",
    "int": "use int32", "uint": "use uint32"}
PAIRS = {ops.CONST, ops.REF, ops.INDEX, ops.LOAD, ops.STORE, ops.STAGE, ops.CARRY, ops.ITER,
         ops.GET, ops.STEP, ops.KERNEL, ops.CAST, ops.BITCAST, ops.WHERE, ops.NOT, ops.AND, ops.OR,
         ops.XOR, ops.SHL, ops.SHR, ops.CMPEQ, ops.CMPNE}


def lacking(root: UOp, target: Target) -> UOp:
    """Return the KERNEL without ops that the target lacks.

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
        for t in (node.dtype, *[s.dtype for s in node.src]):
            if _is_wide(t) and not _is_pair(node, t):
                raise DTypeError(f"{target.name}: expected types of at most 32 bits, got {t}",
                                 site=node.site, hint=_CURES[t.kind])
    found = rewritten(root, _ROWS)
    if not target.fma:
        found = rewritten(found, WITHOUT_FMA)
    for node in toposort([found]):
        if _is_wide(node.dtype) and not _is_pair(node, node.dtype):
            names = {n.op.name.lower() for n in toposort([root]) if n.op in FORMULAS}
            raise DTypeError(f"{target.name}: expected functions that have a formula in float32, "
                             f"got one of {', '.join(sorted(names)) or root.op}",
                             site=node.site or root.site, hint="compute it on another device")
    return found


def _is_wide(t: DType) -> bool:
    return t.bits == 64 and t.kind not in ("index", "void")


def _is_pair(node: UOp, t: DType) -> bool:
    """Return whether a node treats a value of this type only as bits."""
    return t is uint64 and node.op in PAIRS and not (
        node.op is ops.CAST and (node.dtype.is_float or node.src[0].dtype.is_float))


def _of_formula(node: UOp) -> UOp:
    row = FORMULAS[node.op]
    made = (row.single or row.of)(*[Expr(s) for s in node.src]).node
    return rewritten(made, _ROWS)


def _of_operands(formula: Callable[..., Expr]) -> Callable[[UOp], UOp]:
    of_nodes = on_nodes(formula)
    return lambda node: of_nodes(*node.src)


_ROWS: dict[Op, Callable[[UOp], UOp]] = {
    **EXPANSIONS, **{op: _of_operands(formula) for op, formula in single.FORMULAS.items()},
    **dict.fromkeys(FORMULAS, _of_formula)}

"""Legalize ops for a target without 64-bit types: rewrite what it lacks, or raise.

    before   POW(x, y)                     of float32, elsewhere computed in float64
    after    ... basic operations of float32 and uint32 (elementary/single_precision.py)

    before   STORE(o[i], float64(x))
    raises   DTypeError: the type, the user's line, what to write instead

Types of 8 and 16 bits are parts of 32-bit words, whatever computes with them. Bit operations on
uint64 (move, select, test for equality, shift, combine: ``BIT_OPS``) work on pairs of 32-bit words,
as random keys need. So only 64-bit arithmetic raises, and functions whose only formula is in
float64. ``lgamma`` and ``digamma`` have one in float32.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.formulas.formulas import FORMULAS
from fnx.core.ir import ops
from fnx.core.ir.dtypes import DType, uint64
from fnx.core.ir.expr import Expr, as_node_function
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import DTypeError
from fnx.core.support.target import Target
from fnx.lower.legalize.decompose import EXPANSIONS, FMA_EXPANSION, expand_ops
from fnx.lower.legalize.elementary import single_precision

_HINTS: dict[str, str] = {
    "float": "use float32; what fnx computes in float64 itself, as betainc does: on another "
             "device, from where fnx.device_put brings it",
    "int": "use int32", "uint": "use uint32"}
BIT_OPS = {ops.CONST, ops.REF, ops.INDEX, ops.LOAD, ops.STORE, ops.STAGE, ops.CARRY, ops.LOOP,
           ops.GETTUPLE, ops.PER_ITERATION, ops.KERNEL, ops.CAST, ops.BITCAST, ops.WHERE, ops.NOT,
           ops.AND, ops.OR, ops.XOR, ops.SHL, ops.SHR, ops.CMPEQ, ops.CMPNE}


def decompose_unsupported(root: UOp, target: Target) -> UOp:
    """Return the KERNEL without ops that the target lacks.

    >>> from fnx.core.ir import build, dtypes, ops
    >>> x = build.var(0, dtypes.float32)
    >>> made = decompose_unsupported(UOp(ops.POW, x.dtype, (x, x)), Target("small"))
    >>> {n.dtype for n in toposort([made])} <= {dtypes.float32, dtypes.int32, dtypes.uint32,
    ...                                         dtypes.bool_}
    True

    Raises:
        DTypeError: names the type, or the function, and the user's line.
    """
    for node in toposort([root]):
        for t in (node.dtype, *[s.dtype for s in node.src]):
            if _is_64bit(t) and not _is_bit_op(node, t):
                raise DTypeError(f"{target.name}: expected types of at most 32 bits, got {t}",
                                 loc=node.loc, hint=_HINTS[t.kind])
    expanded = expand_ops(root, _EXPANSIONS)
    if not target.fma:
        expanded = expand_ops(expanded, FMA_EXPANSION)
    for node in toposort([expanded]):
        if _is_64bit(node.dtype) and not _is_bit_op(node, node.dtype):
            names = {n.op.name.lower() for n in toposort([root]) if n.op in FORMULAS}
            raise DTypeError(f"{target.name}: expected functions that have a formula in float32, "
                             f"got one of {', '.join(sorted(names)) or root.op}",
                             loc=node.loc or root.loc, hint="compute it on another device")
    return expanded


def _is_64bit(t: DType) -> bool:
    return t.bits == 64 and t.kind not in ("index", "void")


def _is_bit_op(node: UOp, t: DType) -> bool:
    """Return whether a node treats a value of this type only as bits."""
    return t is uint64 and node.op in BIT_OPS and not (
        node.op is ops.CAST and (node.dtype.is_float or node.src[0].dtype.is_float))


def _expand_formula(node: UOp) -> UOp:
    entry = FORMULAS[node.op]
    expansion = (entry.single or entry.formula)(*[Expr(s) for s in node.src]).node
    return expand_ops(expansion, _EXPANSIONS)


def _from_operands(formula: Callable[..., Expr]) -> Callable[[UOp], UOp]:
    of_nodes = as_node_function(formula)
    return lambda node: of_nodes(*node.src)


_EXPANSIONS: dict[Op, Callable[[UOp], UOp]] = {
    **EXPANSIONS,
    **{op: _from_operands(formula) for op, formula in single_precision.FORMULAS.items()},
    **dict.fromkeys(FORMULAS, _expand_formula)}

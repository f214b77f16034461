"""Choose which LINALGs compute a matrix in each lane, and fuse their neighbors into them.

    before  LINALG cholesky((x + x') / 2)                               x: (1000, 9, 9)
            LINALG lu(a), LINALG lu_solve(a, lu, order, b)
            LINALG lu(a), the diagonal of lu
            LINALG triangular_solve lower (a', b)
    after   LINALG cholesky symmetrize interleaved (x)
            LINALG solve interleaved (a, b)
            LINALG lu_diagonal interleaved (a)
            LINALG triangular_solve transpose (a, b)

Solutions and determinants need no factors in memory, whoever computes them; factors that something
else reads stay. A few matrices, or large ones, are left to LAPACK, which gets the symmetric part of
a real matrix while that is copied.

>>> a, b = [build.param(i, dtypes.float32, (1000, 9, n)) for i, n in enumerate((9, 1))]
>>> lu, _, order = build_calls.linalg("lu", [a])
>>> fn = build.function(build_calls.linalg("lu_solve", [a, lu, order, b]), 2)
>>> out, = interleave_linalg(fn, Target("cpu")).src
>>> out.src[0].arg.routine, out.src[0].arg.interleaved
('solve', True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fnx.core.formulas.matrices import matrix_diagonal
from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.accessors import consumers
from fnx.core.ir.op_bodies import replace_results
from fnx.core.ir.uop import UOp, copy_locs, rebuild, toposort
from fnx.core.support.target import Target
from fnx.lower.emit.linalg import is_interleaved, takes_symmetric_part


def interleave_linalg(fn: UOp, target: Target) -> UOp:
    """Return a FUNCTION in which LINALGs are fused, and marked if they are interleaved."""
    if target.kind != "host":
        return fn
    outs = _upper_factors(_read_diagonals(rebuild(fn.src, _factor_once)), target)
    readers = consumers(toposort(outs))

    def replace(node: UOp, src: tuple[UOp, ...]) -> Sequence[UOp] | None:
        if node.op is not ops.LINALG:
            return None
        routine, options, operands = node.arg.routine, node.arg.options, src
        if _only_solves(node, readers, outs):
            routine, operands = "solve", (src[1].src[0].src[0], src[3])
        if routine == "triangular_solve" and _is_transposed(operands[0]):
            operands = (operands[0].src[0], src[1])
            options = tuple(set(options) ^ {"lower", "transpose"})
        arg = build_calls.linalg_arg(routine, operands, options)
        arg = arg.replace(interleaved=is_interleaved(arg, target))
        if takes_symmetric_part(arg, target) and "upper" not in options:
            whole = symmetrized(operands[0])
            is_transposed = routine == "cholesky" and not arg.interleaved and \
                _is_transposed(operands[0])
            if whole is not None or is_transposed:
                operands = (operands[0].src[0] if whole is None else whole,)
                added = "transpose" if whole is None else "symmetrize"
                arg = arg.replace(options=tuple(sorted((*options, added))))
        return None if arg == node.arg else _results(arg, operands, node)
    return fn.with_operands(tuple(replace_results(outs, replace)))


def _factor_once(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """Remove what keeps factors of one matrix apart."""
    return src[0] if node.op is ops.STOP_GRADIENT else None


def _read_diagonals(outs: Sequence[UOp]) -> Sequence[UOp]:
    """Replace the factors of which only the diagonal is read."""
    nodes = toposort(outs)
    readers = consumers(nodes)
    diagonals: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is ops.GETTUPLE and node.arg == 0 and node.src[0].op is ops.LINALG and \
                node.src[0].arg.routine == "lu" and node.shape[-1] == node.shape[-2]:
            end = matrix_diagonal(node)
            if end in readers and _is_only_way(node, end, readers, outs):
                diagonals[end] = node.src[0]
    results: dict[UOp, Sequence[UOp]] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in diagonals.values():
            results[node] = build_calls.linalg("lu_diagonal", src)
            copy_locs(results[node][0].src[0], node)
        if node in diagonals:
            return results[diagonals[node]][0]
        is_index = node.op is ops.GETTUPLE and node.src[0] in results and node.arg
        return results[node.src[0]][node.arg] if is_index else None
    return rebuild(outs, visit) if diagonals else outs


def _upper_factors(outs: Sequence[UOp], target: Target) -> Sequence[UOp]:
    """Replace transposed Cholesky factors of transposed matrices, which LAPACK takes as they are,
    by the upper factors."""
    nodes = toposort(outs)
    readers = consumers(nodes)
    factors = {factor for factor in nodes
               if factor.op is ops.GETTUPLE and _is_cholesky_of_transposed(factor.src[0], target)
               and factor not in outs and all(map(_is_transposed, readers[factor]))}
    if not factors:
        return outs

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if not _is_transposed(node) or node.src[0] not in factors:
            return None
        arg = build_calls.linalg_arg("cholesky", src[0].src[0].src[0].src, ("upper",))
        return _results(arg, src[0].src[0].src[0].src, node.src[0].src[0])[0]
    return rebuild(outs, visit)


def _is_cholesky_of_transposed(node: UOp, target: Target) -> bool:
    return node.op is ops.LINALG and node.arg.routine == "cholesky" and not node.arg.options and \
        _is_transposed(node.src[0]) and not is_interleaved(node.arg, target)


def _is_only_way(start: UOp, end: UOp, readers: Mapping[UOp, list[UOp]], outs: Sequence[UOp]
                 ) -> bool:
    """Whether everything that reads a node does so through another one."""
    while start is not end:
        if start in outs or len(readers[start]) != 1:
            return False
        start = readers[start][0]
    return True


def _results(arg: op_args.Linalg, operands: Sequence[UOp], replaced: UOp) -> Sequence[UOp]:
    """Return the results of a LINALG at the lines of the one that it replaces."""
    return build.results(copy_locs(UOp(ops.LINALG, dtypes.void, tuple(operands), arg), replaced))


def _only_solves(node: UOp, readers: Mapping[UOp, list[UOp]], outs: Sequence[UOp]) -> bool:
    """Whether a LINALG solves by factors that nothing else reads."""
    if node.arg.routine != "lu_solve" or node.arg.options or node.src[1].op is not ops.GETTUPLE:
        return False
    factors = node.src[1].src[0]
    results = readers[factors]
    return factors.op is ops.LINALG and factors.arg.routine == "lu" and \
        node.src[1].arg == 0 and node.src[2] in results and node.src[2].arg == 2 and \
        all(readers[x] == [node] and x not in outs for x in results)


def _is_transposed(x: UOp) -> bool:
    n = len(x.shape)
    return x.op is ops.PERMUTE and x.arg == (*range(n - 2), n - 1, n - 2)


def symmetrized(x: UOp) -> UOp | None:
    """Return the matrices of which x is the symmetric part, if it is one."""
    total = x
    for op in (ops.COMPLEX, ops.DIV, ops.REAL) if x.dtype.is_complex else (ops.DIV,):
        if total.op is not op:
            return None
        total = total.src[0]
    if total.op is not ops.ADD:
        return None
    return next((whole for whole in total.src if _symmetric_part(whole) is x), None)


def _symmetric_part(whole: UOp) -> UOp:
    """Return half of the sum of matrices and their adjoints."""
    n = len(whole.shape)
    order = (*range(n - 2), n - 1, n - 2)
    make = build.elementwise
    if not whole.dtype.is_complex:
        total = build.add(whole, build.permute(whole, order))
        return make(ops.DIV, total, build.const_like(total, 2))
    conjugate = make(ops.COMPLEX, make(ops.REAL, whole), build.neg(make(ops.IMAG, whole)))
    total = build.add(whole, build.permute(conjugate, order))
    two = make(ops.REAL, build.const_like(total, 2))
    return make(ops.COMPLEX, *[make(ops.DIV, make(part, total), two)
                               for part in (ops.REAL, ops.IMAG)])

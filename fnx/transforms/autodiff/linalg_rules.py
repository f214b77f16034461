"""LINALG in both modes: it is differentiated as a CUSTOM with the rules below.

    l, = LINALG cholesky(a)     ->   CUSTOM(cholesky, jvp: (a, t) -> l, l phi(l^-1 t l^-T))(a)

A jvp is written with routines and products; reverse mode transposes it. Solvers are linear in their
right-hand side, and have a vjp too, with which the transposition ends. A rule contains LINALGs, so
derivatives of any order follow. Derivatives of eigenvectors and singular vectors divide by the gaps
between the values; where two values are equal the quotient counts as 0, so that functions of all
values have finite derivatives.

Sources: Giles, Collected matrix derivative results for forward and reverse mode (2008); Townsend,
Differentiating the singular value decomposition (2016); JAX's rules for QR and LU.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from fnx.core.formulas.matrices import (
    Matrix,
    as_column,
    as_row,
    identity,
    real_part,
    reciprocal_or_zero,
    row_sums,
    shift,
    shift_rows,
    triangular_solve,
)
from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.derivations import Derivation, recent_forms
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import GradError
from fnx.transforms.autodiff.custom_rules import CustomOpRule
from fnx.transforms.autodiff.higher_order import HigherOrderRule, Linearized, MaskedTangents
from fnx.transforms.autodiff.rules import Cotangent

Nodes = Sequence[UOp]
Options = Container[str]
JvpRule = Callable[[Options, Nodes, Nodes], tuple[Nodes, Sequence[Matrix | UOp]]]
VjpRule = Callable[[Options, Nodes, Nodes, Nodes], Sequence[Matrix | UOp | None]]


class LinalgRule(HigherOrderRule):
    """LINALG: differentiated as a CUSTOM."""

    def bodies(self, node: UOp) -> Sequence[UOp]:
        return ()  # only its derivative has bodies

    def singular(self, node: UOp) -> bool:
        return True

    def jvp_all(self, node: UOp, tangents: MaskedTangents, needs_mask: Sequence[int],
                nonfinite: Container[UOp]
                ) -> Derivation[tuple[Sequence[UOp], MaskedTangents]]:
        custom = _as_custom(node)
        padding = [None] * (len(custom.src) - len(node.src))
        return (yield from _CUSTOM.jvp_all(custom, (*padding, *tangents), needs_mask, nonfinite))

    def depends(self, node: UOp) -> Derivation[Sequence[frozenset[int]]]:
        yield from ()
        known = _CONSTANT_OPERANDS.get(node.arg.routine, ())
        active = frozenset(range(len(node.src))) - frozenset(known)
        return [frozenset() if t is dtypes.int32 else active for _, t in node.arg.outs]

    def vjp_forms(self, node: UOp, out_cts: Mapping[int, Cotangent], active: Container[UOp],
                  needs_mask: Container[UOp], nonfinite: Container[UOp]) -> Derivation[Linearized]:
        return (yield from _CUSTOM.vjp_forms(_as_custom(node), out_cts, active, needs_mask,
                                             nonfinite))


_CUSTOM = CustomOpRule()
_CONSTANT_OPERANDS = {"lu_solve": (1, 2)}  # factors of operand 0, which has the derivative


def _as_custom(node: UOp) -> UOp:
    """Return the CUSTOM with the derivative rules of a LINALG."""
    arg: op_args.Linalg = node.arg
    if arg.routine not in JVPS:
        raise GradError(f"expected a function with a derivative, got {arg.routine}, which has none",
                        hint="write what you differentiate with cholesky, qr, eigh or svd, or give "
                             "it a rule by fnx.custom_jvp", loc=node.loc)
    functions, rules, indices = recent_forms.get_or_make(
        ("linalg", arg), lambda: _make_rules(arg))
    custom = op_args.Custom(arg.name, arg.outs, rules, 0, indices)
    return UOp(ops.CUSTOM, dtypes.void, (*functions, *node.src), custom)


def _make_rules(arg: op_args.Linalg) -> tuple[tuple[UOp, ...], tuple[str, ...], tuple[int, ...]]:
    """Return the function and its rules as FUNCTIONs, their names, and the cotangent indices."""
    n = len(arg.ins)
    xs = [build.param(i, t, shape) for i, (shape, t) in enumerate(arg.ins)]
    floats = [x for x in xs if x.dtype.is_inexact]
    tangents = [build.param(n + i, x.dtype, x.shape) for i, x in enumerate(floats)]
    routine = build.function(build_calls.linalg(arg.routine, xs, arg.options), n, arg.name)
    results, rates = JVPS[arg.routine](arg.options, xs, tangents)
    jvp = build.function([*results, *map(_node, rates)], n + len(tangents), f"{arg.name}.jvp")
    vjp_rule = VJPS.get(arg.routine)
    if vjp_rule is None:
        return (routine, jvp), ("jvp",), ()
    outs = build_calls.linalg(arg.routine, xs, arg.options)
    fwd = build.function([*outs, *xs, *outs], n, f"{arg.name}.fwd")
    saved = build_calls.params_like([*xs, *outs])
    cts = [build.param(len(saved) + i, x.dtype, x.shape) for i, x in enumerate(outs)]
    arg_cts = vjp_rule(arg.options, saved[:n], saved[n:], cts)
    bwd = build.function([_node(ct) for ct in arg_cts if ct is not None], len(saved) + len(cts),
                         f"{arg.name}.bwd")
    numbers = iter(range(n))
    indices = tuple([-1 if ct is None else next(numbers) for ct in arg_cts])
    return (routine, jvp, fwd, bwd), ("jvp", "fwd", "bwd"), indices


def _node(x: Matrix | UOp) -> UOp:
    return x.node if isinstance(x, Matrix) else x


# ---- factorizations -----------------------------------------------------------------------------


def _phi(x: Matrix) -> Matrix:
    """Return the lower triangle with half of the diagonal."""
    half = Matrix(build.where(x.is_diagonal(), (0.5 * x).node, x.node))
    return half.lower()


def _cholesky(options: Options, xs: Nodes, tangents: Nodes) -> tuple[Nodes, Sequence[Matrix]]:
    factor, = build_calls.linalg("cholesky", xs)
    low, rate = Matrix(factor), Matrix(tangents[0])
    inner = triangular_solve(
        low, triangular_solve(low.conj, rate, "right", "lower", "transpose"), "lower")
    return [factor], [low @ _phi(inner)]


def _lu(options: Options, xs: Nodes, tangents: Nodes) -> tuple[Nodes, Sequence[Matrix]]:
    lu, pivots, order = build_calls.linalg("lu", xs)
    factors, (m, n) = Matrix(lu), lu.shape[-2:]
    k = min(m, n)
    low = factors.part(m, k).lower(-1).padded(m, m)
    low = low + identity(m, low)
    up = factors.part(k, n).upper().padded(n, n)
    up = up + (identity(n, up) - identity(k, up).padded(n, n))
    rate = Matrix(tangents[0]).take_rows(order)
    inner = triangular_solve(up, triangular_solve(low, rate, "lower", "unit"), "right")
    return [lu, pivots, order], [low @ inner.lower(-1) + inner.upper() @ up]


def _qr(options: Options, xs: Nodes, tangents: Nodes) -> tuple[Nodes, Sequence[Matrix]]:
    """Q' = Q (S - Q^T A' R^-1) + A' R^-1 with a skew S; of a wide matrix, from its first
    columns."""
    results = build_calls.linalg("qr", xs, [o for o in ("full", "pivoting") if o in options])
    q, r, rate = Matrix(results[0]), Matrix(results[1]), Matrix(tangents[0])
    m, n = rate.shape[-2:]
    if "pivoting" in options:
        rate = rate.T.take_rows(results[2]).T
    k = min(m, n)
    q = q.part(m, k)
    quotient = triangular_solve(r.part(k, k), rate.part(m, k), "right")
    inner = q.H @ quotient
    skew = inner.lower(-1) - inner.lower(-1).H
    skew = skew + inner.imaginary * identity(k, inner)  # the diagonal of R stays real
    q_rate = q @ (skew - inner) + quotient
    r_rate = (inner - skew) @ r.part(k, k) if m >= n else q.H @ rate + q_rate.H @ (q @ r)
    if "full" in options and m > n:
        return results, [_complete(Matrix(results[0]), q_rate), r_rate.padded(m, n)]
    return results, [q_rate, r_rate]


def _complete(q: Matrix, rate: Matrix) -> Matrix:
    """Return the rate of a basis of m columns, n of which have a known rate, as far as LAPACK's
    reflections determine the others: arXiv:2409.13374, equations 32 and 33."""
    m, n = rate.shape[-2:]
    columns, others = q.part(m, n), q.right_part(n)
    top, below = columns.part(n, n), columns.T.right_part(n).T
    a = top - identity(n, top)
    lu, _, order = build_calls.linalg("lu", [a.node])
    z = Matrix(build_calls.linalg("lu_solve", [a.node, lu, order, below.T.node],
                                  ("transpose",))[0]).T
    rest = rate.T.right_part(n).T - z @ rate.part(n, n)
    other_rates = rate @ z.H - (columns + others @ z) @ rest.H
    return Matrix(build.concat([rate.node, other_rates.node], len(rate.shape) - 1))


def _eigh(options: Options, xs: Nodes, tangents: Nodes
          ) -> tuple[Nodes, Sequence[Matrix | UOp]]:
    w, vectors = build_calls.linalg("eigh", xs, [o for o in ("lower",) if o in options])
    v, n = Matrix(vectors), w.shape[-1]
    inner = v.H @ Matrix(tangents[0]) @ v
    gaps = reciprocal_or_zero(as_row(w, n, v) - as_column(w, n, v))
    return [w, vectors], [real_part(inner.diagonal()), v @ (gaps * inner)]


def _eigvalsh(options: Options, xs: Nodes, tangents: Nodes) -> tuple[Nodes, Sequence[UOp]]:
    (w, _), (rate, _) = _eigh(options, xs, tangents)
    return [w], [_node(rate)]


def _svd(options: Options, xs: Nodes, tangents: Nodes) -> tuple[Nodes, Sequence[Matrix | UOp]]:
    rate = Matrix(tangents[0])
    m, n = rate.shape[-2:]
    if "full" in options and m != n:
        raise GradError(f"expected svd with full_matrices=False, got True for {m} x {n}: the "
                        "vectors that complete the basis have no derivative")
    results = build_calls.linalg("svd", xs)
    s, u, vt = results[0], Matrix(results[1]), Matrix(results[2])
    v, k = vt.H, s.shape[-1]
    inner = u.H @ rate @ v
    row, column = as_row(s, k, u), as_column(s, k, u)
    gaps = reciprocal_or_zero((row + column) * (row - column))
    left, right = row * inner, column * inner
    rotation = 0.5 * (inner - inner.H) * reciprocal_or_zero(row) * identity(k, inner)
    u_rate = u @ (gaps * (left + left.H) + rotation)
    v_rate = v @ (gaps * (right + right.H))
    if m > n:
        images = rate @ v
        u_rate = u_rate + (images - u @ (u.H @ images)) / as_row(s, m, u)
    if n > m:
        images = rate.H @ u
        v_rate = v_rate + (images - v @ (vt @ images)) / as_row(s, n, u)
    return results, [real_part(inner.diagonal()), u_rate, v_rate.H]


def _svdvals(options: Options, xs: Nodes, tangents: Nodes) -> tuple[Nodes, Sequence[UOp]]:
    s, u, vt = build_calls.linalg("svd", xs)
    return [s], [real_part((Matrix(u).H @ Matrix(tangents[0]) @ Matrix(vt).H).diagonal())]


def _eig(options: Options, xs: Nodes, tangents: Nodes) -> tuple[Nodes, Sequence[Matrix | UOp]]:
    """w' = diag(V^-1 A' V); the rates of the vectors keep their length and the phase of their
    largest element."""
    results = build_calls.linalg("eig", xs, [o for o in ("left",) if o in options])
    w, right = results[0], Matrix(results[-1])
    n = w.shape[-1]
    rate = Matrix(build.cast(tangents[0], w.dtype))
    inner = _solve(right, rate @ right)
    gaps = reciprocal_or_zero(as_row(w, n) - as_column(w, n))
    rates: list[Matrix | UOp] = [inner.diagonal(), _normalized(right, right @ (gaps * inner))]
    if "left" in options:
        left = Matrix(results[1])
        inner = _solve(left, rate.H @ left)
        rates.insert(1, _normalized(left, left @ (gaps.conj * inner)))
    return results, rates


def _solve(a: Matrix, b: Matrix) -> Matrix:
    lu, _, order = build_calls.linalg("lu", [build.stop_gradient(a.node)])
    return Matrix(build_calls.linalg("lu_solve", [a.node, lu, order, b.node])[0])


def _normalized(v: Matrix, rate: Matrix) -> Matrix:
    """Remove from the rates of vectors what changes length and phase."""
    n = v.shape[-1]
    along = real_part((v.H @ rate).diagonal())
    size = real_part((v * v.conj).node)
    largest = build.eq(size, build.expand(build.reshape(
        build.reduce(size, ops.MAX, (len(size.shape) - 2,)), (*size.shape[:-2], 1, n)), size.shape))
    turn = (rate * v.conj).imaginary / Matrix(build.cast(size, v.node.dtype))
    zero = build.const_like(turn.node, 0)
    picked = build.where(largest, turn.node, zero)
    count = build.reduce(build.cast(largest, size.dtype), ops.ADD, (len(size.shape) - 2,))
    phase = build.reduce(picked, ops.ADD, (len(size.shape) - 2,))
    phase = build.div(phase, build.cast(count, phase.dtype))
    return rate - v * (as_row(along, n, v) + as_row(phase, n))


def _eigvals(options: Options, xs: Nodes, tangents: Nodes) -> tuple[Nodes, Sequence[UOp]]:
    (w, *_), (rate, *_) = _eig((), xs, tangents)
    return [w], [_node(rate)]


# ---- solvers ------------------------------------------------------------------------------------


def _without(options: Options, *names: str) -> tuple[str, ...]:
    return tuple([o for o in ("lower", "right", "transpose", "unit")
                  if o in options and o not in names])


def _transposed(options: Options) -> tuple[str, ...]:
    """Return the options for the transposed matrix."""
    others = _without(options, "transpose")
    return others if "transpose" in options else (*others, "transpose")


def _triangle(options: Options, a: Matrix) -> Matrix:
    """Keep what the solver reads."""
    unit = "unit" in options
    return a.lower(-unit) if "lower" in options else a.upper(int(unit))


def _triangular_solve(options: Options, xs: Nodes, tangents: Nodes
                      ) -> tuple[Nodes, Sequence[Matrix]]:
    results = build_calls.linalg("triangular_solve", xs, _without(options))
    x, rate = Matrix(results[0]), _triangle(options, Matrix(tangents[0]))
    rate = rate.T if "transpose" in options else rate
    rest = Matrix(tangents[1]) - (x @ rate if "right" in options else rate @ x)
    return results, [triangular_solve(Matrix(xs[0]), rest, *_without(options))]


def _triangular_solve_vjp(options: Options, xs: Nodes, outs: Nodes, cts: Nodes
                          ) -> Sequence[Matrix]:
    x = Matrix(outs[0])
    b_ct = triangular_solve(Matrix(xs[0]), Matrix(cts[0]), *_transposed(options))
    a_ct = -(x.T @ b_ct) if "right" in options else -(b_ct @ x.T)
    return [_triangle(options, a_ct.T if "transpose" in options else a_ct), b_ct]


def _lu_solve(options: Options, xs: Nodes, tangents: Nodes) -> tuple[Nodes, Sequence[UOp]]:
    results = build_calls.linalg("lu_solve", xs, _without(options))
    rate = Matrix(tangents[0])
    rate = rate.T if "transpose" in options else rate
    rest = Matrix(tangents[2]) - rate @ Matrix(results[0])
    return results, build_calls.linalg("lu_solve", [*xs[:3], rest.node], _without(options))


def _lu_solve_vjp(options: Options, xs: Nodes, outs: Nodes, cts: Nodes
                  ) -> Sequence[Matrix | UOp | None]:
    b_ct, = build_calls.linalg("lu_solve", [*xs[:3], cts[0]], _transposed(options))
    a_ct = -(Matrix(b_ct) @ Matrix(outs[0]).T)
    return [a_ct.T if "transpose" in options else a_ct, None, None, b_ct]


def _tridiagonal_solve(options: Options, xs: Nodes, tangents: Nodes
                       ) -> tuple[Nodes, Sequence[UOp]]:
    chosen = ("perturb",) if "perturb" in options else ()
    results = build_calls.linalg("tridiagonal_solve", xs, chosen)
    x, r = Matrix(results[0]), xs[3].shape[-1]
    low, middle, up = [as_column(t, r) for t in tangents[:3]]
    rest = Matrix(tangents[3]) - (middle * x + low * shift_rows(x, 1) + up * shift_rows(x, -1))
    return results, build_calls.linalg("tridiagonal_solve", [*xs[:3], rest.node], chosen)


def _tridiagonal_solve_vjp(options: Options, xs: Nodes, outs: Nodes, cts: Nodes
                           ) -> Sequence[UOp]:
    low, middle, up, _ = xs
    b_ct, = build_calls.linalg("tridiagonal_solve",
                               [shift(up, 1), middle, shift(low, -1), cts[0]],
                               ("perturb",) if "perturb" in options else ())
    x, minus = Matrix(outs[0]), -Matrix(b_ct)
    return [row_sums(minus * shift_rows(x, 1)), row_sums(minus * x),
            row_sums(minus * shift_rows(x, -1)), b_ct]


def _solve_sylvester(options: Options, xs: Nodes, tangents: Nodes
                     ) -> tuple[Nodes, Sequence[UOp]]:
    results = build_calls.linalg("solve_sylvester", xs)
    x, (a, b, c) = Matrix(results[0]), map(Matrix, tangents)
    rest = c - a @ x - x @ b
    return results, build_calls.linalg("solve_sylvester", [*xs[:2], rest.node])


def _solve_sylvester_vjp(options: Options, xs: Nodes, outs: Nodes, cts: Nodes
                         ) -> Sequence[Matrix | UOp]:
    a, b, _ = map(Matrix, xs)
    c_ct, = build_calls.linalg("solve_sylvester", [a.T.node, b.T.node, cts[0]])
    x, y = Matrix(outs[0]), Matrix(c_ct)
    return [-(y @ x.T), -(x.T @ y), c_ct]


JVPS: dict[str, JvpRule] = {
    "cholesky": _cholesky, "lu": _lu, "qr": _qr, "eigh": _eigh, "eigvalsh": _eigvalsh,
    "svd": _svd, "svdvals": _svdvals, "eig": _eig, "eigvals": _eigvals,
    "triangular_solve": _triangular_solve,
    "lu_solve": _lu_solve, "tridiagonal_solve": _tridiagonal_solve,
    "solve_sylvester": _solve_sylvester,
}
VJPS: dict[str, VjpRule] = {
    "triangular_solve": _triangular_solve_vjp, "lu_solve": _lu_solve_vjp,
    "tridiagonal_solve": _tridiagonal_solve_vjp, "solve_sylvester": _solve_sylvester_vjp,
}

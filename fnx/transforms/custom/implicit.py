"""Implicit differentiation: derivatives of roots and of solutions of linear systems.

    f(x, a) = 0     ->  dx = -(df/dx)^-1 (df/da) da
    A(a) x = b      ->  dx = A^-1 (db - dA x),   in reverse: y = A^-T ct, to b: y, to a: -y dA x

The captures of ``f`` and ``A`` become arguments, so that derivatives reach them. The derivative
does not depend on how the equation was solved: captures of the solvers have no derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.ir import build, build_calls
from fnx.core.ir.ops import Shape
from fnx.core.support.errors import GradError, PytreeError, ShapeError
from fnx.core.support.record import Record
from fnx.core.tracing.trace import ClosedFunction, function_name, trace, unflatten_arrays
from fnx.transforms.autodiff.arguments import Float0, is_no_derivative
from fnx.transforms.custom.check_results import SymbolicZero
from fnx.transforms.custom.vmap import CallWithRules
from fnx.transforms.jvp import jvp
from fnx.transforms.vjp import linear_transpose, vjp

Solver = Callable[..., Any]


class _Equation(Record):
    """A function of x, whose captures are its other arguments."""

    closed: ClosedFunction
    f: Callable[..., Any]

    @property
    def name(self) -> str:
        """Its name, for messages."""
        return function_name(self.f)

    @property
    def consts(self) -> list[Array]:
        """Its captures."""
        return [Array(n) for n in self.closed.captures]

    def at(self, x: Any, consts: Sequence[Any]) -> Any:
        """Evaluate it."""
        closed, arrays = self.closed, [asarray(v) for v in tree.leaves(x)]
        const_nodes = [asarray(c)._node for c in consts]
        params = build.params(closed.function)
        if any(i in params and params[i].dtype != v._dtype for i, v in enumerate(arrays)):
            known = dict(zip(closed.captures, const_nodes))  # another dtype: 3 / 2
            closed = _trace(self.f, arrays, tree.structure(x), "an equation")
            const_nodes = [known.get(node, node) for node in closed.captures]
        nodes = build_calls.call(closed.function, [*[v._node for v in arrays], *const_nodes])
        return unflatten_arrays(closed.out_tree, nodes, closed.outs)


def _trace(f: Callable[..., Any], arrays: Sequence[Array], structure: tree.TreeDef, by: str
           ) -> ClosedFunction:
    args = tree.structure(((structure.unflatten(arrays),), {}))
    return trace(f, [v._aval for v in arrays], args, transform=by, name=function_name(f)).close()


def _trace_equation(f: Callable[..., Any], x: Any, by: str) -> _Equation:
    """Trace a function from x to a pytree like x."""
    leaves, structure = tree.flatten(x)
    arrays = [asarray(v) for v in leaves]
    closed = _trace(f, arrays, structure, by)
    _check_like(f"{by}: expected {function_name(f)} to return a result like its argument",
                (closed.out_tree, [out.shape for out in closed.outs]), x)
    return _Equation(closed, f)


def _check_like(expected: str, got: tuple[tree.TreeDef, Sequence[Shape]], like: Any) -> None:
    """Raise if the structure or the shapes differ from those of ``like``."""
    leaves, structure = tree.flatten(like)
    if got[0] != structure:
        raise PytreeError(f"{expected}, {structure}; got {got[0]}",
                          hint=tree.first_difference(structure, got[0]))
    for shape, want, path in zip(got[1], leaves, tree.paths(structure)):
        if shape != np.shape(want):
            raise ShapeError(f"{expected}, {list(np.shape(want))} at "
                             f"{tree.keystr(path) or 'the root'}; got {list(shape)}",
                             hint="as many equations as unknowns")


def _check_solution(by: str, solver: Solver, result: Any, like: Any, has_aux: bool = False) -> Any:
    """Check what a solver returned, which must be like the unknowns."""
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):
        raise PytreeError(f"{by}: expected {function_name(solver)} to return (solution, aux), as "
                          f"has_aux=True says, got {type(result).__name__}",
                          hint="return a tuple (solution, aux)")
    leaves, structure = tree.flatten(result[0] if has_aux else result)
    _check_like(f"{by}: expected {function_name(solver)} to return a solution that is like the "
                "unknowns", (structure, [asarray(v)._shape for v in leaves]), like)
    return result


def _split_aux(out: Any, has_aux: bool) -> tuple[Any, Any]:
    return out if has_aux else (out, None)


def _join(x: Any, aux: Any, has_aux: bool) -> Any:
    return (x, aux) if has_aux else x


def _zero_tangent(aux: Any) -> Any:
    """Return a zero tangent for aux."""
    return tree.map(lambda a: SymbolicZero(asarray(a)), aux)


def _float0(x: Array) -> Float0:
    return Float0.like(x.shape)


def _has_floats(x: Any) -> bool:
    return any(v._dtype.is_inexact for v in tree.leaves(x))


def _zeros_for_ints(tangent: Any, like: Any) -> Any:
    """Replace float0 and None in a tangent by zeros like the integers in ``like``, as solvers
    need."""
    by_place = iter(tree.leaves(tangent, is_leaf=is_no_derivative))
    return tree.map(lambda v: v * 0 if is_no_derivative(t := next(by_place)) else t, like)


def _float_tangent(dense: Any, like: Any, no_tangent: Callable[[Array], Any] = _float0) -> Any:
    """Replace the entries of a dense tangent that belong to integers in ``like``."""
    return tree.map(lambda t, v: t if v._dtype.is_inexact else no_tangent(v), dense, like)


def _negate(x: Any) -> Any:
    return tree.map(lambda v: -v, x)


def root(f: Callable[..., Any], guess: Any, solve: Solver, tangent_solve: Solver, has_aux: bool
         ) -> Any:
    """Implement ``lax.custom_root``."""
    guess = tree.map(asarray, guess)
    equation = _trace_equation(f, guess, "custom_root")

    def find(consts: Any, guess: Any) -> Any:
        return _check_solution("custom_root", solve, solve(lambda x: equation.at(x, consts), guess),
                               guess, has_aux)

    def rule(primals: Any, tangents: Any) -> Any:
        consts, _ = primals
        x, aux = _split_aux(find_root(*primals), has_aux)
        if not _has_floats(x):
            return _join(x, aux, has_aux), _zero_tangent(_join(x, aux, has_aux))
        _, moved = jvp(lambda *c: equation.at(x, c), consts, tangents[0])
        moved = _zeros_for_ints(moved, x)
        dx = _check_solution("custom_root", tangent_solve, tangent_solve(
            lambda v: _zeros_for_ints(jvp(lambda x: equation.at(x, consts), (x,),
                                          (_float_tangent(v, x),))[1], x), moved), moved)
        return _join(x, aux, has_aux), _join(
            _float_tangent(_negate(dx), x, SymbolicZero), _zero_tangent(aux), has_aux)

    find.__name__ = f"root of {equation.name}"
    find_root: Callable[..., Any] = CallWithRules(find, jvp=rule, stops=True)
    return find_root(tuple(equation.consts), guess)


def linear_solve(matvec: Callable[..., Any], b: Any, solve: Solver, transpose_solve: Solver | None,
                 symmetric: bool, has_aux: bool) -> Any:
    """Implement ``lax.custom_linear_solve``."""
    b = tree.map(asarray, b)
    equation = _trace_equation(matvec, b, "custom_linear_solve")

    def transpose_matvec(y: Any, consts: Any) -> Any:
        return linear_transpose(lambda x: equation.at(x, consts), y)(y)[0]

    linear = 0 if has_aux else len(tree.leaves(b))
    forward = _LinearSystem(equation.at, solve, has_aux, linear)
    backward: _LinearSystem | None = None
    if symmetric:
        backward = forward
    elif transpose_solve is not None:
        backward = _LinearSystem(transpose_matvec, transpose_solve, has_aux, linear)
        backward.solved = backward.with_rules(equation.name, forward)
    forward.solved = forward.with_rules(equation.name, backward)
    return forward.solved(tuple(equation.consts), b)


class _LinearSystem:
    """A linear map (x, consts) -> b, and the solver for x."""

    solved: Callable[..., Any]  # consts, b -> x

    def __init__(self, apply: Callable[..., Any], solve: Solver, has_aux: bool, linear: int
                 ) -> None:
        self.apply, self.solve, self.has_aux, self.linear = apply, solve, has_aux, linear

    def with_rules(self, name: str, adjoint: _LinearSystem | None) -> CallWithRules[..., Any]:
        """Return ``solved`` with derivative rules; ``adjoint`` is the transposed system."""
        def solved(consts: Any, b: Any) -> Any:
            return _check_solution("custom_linear_solve", self.solve,
                                   self.solve(lambda x: self.apply(x, consts), b), b, self.has_aux)

        def forward(primals: Any, tangents: Any) -> Any:
            (consts, _), (moved, db) = primals, tangents
            out = self.solved(*primals)
            x, aux = _split_aux(out, self.has_aux)
            if not _has_floats(x):
                return out, _zero_tangent(out)
            _, dax = jvp(lambda *c: self.apply(x, c), consts, moved)
            right = tree.map(lambda p, q: p - q, _zeros_for_ints(db, x), _zeros_for_ints(dax, x))
            dx, _ = _split_aux(self.solved(consts, right), self.has_aux)
            return out, _join(_float_tangent(dx, x, SymbolicZero), _zero_tangent(aux), self.has_aux)

        def saving(consts: Any, b: Any) -> Any:
            out = self.solved(consts, b)
            return out, (consts, _split_aux(out, self.has_aux)[0])

        def back(saved: Any, ct: Any) -> Any:
            if adjoint is None:
                raise GradError(f"expected a transpose_solve for {name} in reverse mode, got none",
                                hint="pass it to custom_linear_solve, or pass symmetric=True")
            consts, x = saved
            if not _has_floats(x):
                return _zero_tangent(consts), _zero_tangent(x)
            right = _zeros_for_ints(_split_aux(ct, self.has_aux)[0], x)
            y, _ = _split_aux(adjoint.solved(consts, right), self.has_aux)
            y = _float_tangent(y, x)
            _, pull = vjp(lambda *c: self.apply(x, c), *consts)
            return _negate(pull(y)), y

        solved.__name__ = f"solve of {name}"
        return CallWithRules(solved, jvp=forward, vjp=None if adjoint is None else (saving, back),
                             stops=True, linear=self.linear)

"""Cases of the transform matrix: functions of tuples of float64 arrays, and points to evaluate them
at."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.array import tree
from fnx.core.levels import interp
from fnx.core.tracing.trace import trace
from tests.public import test_arguments


class Case(NamedTuple):
    """A function from a tuple of float64 arrays to another, and the longest composition to
    check."""

    name: str
    f: Callable[[Any], Any]
    xs: tuple[Any, ...]
    longest: int = 3


ROOMS = ("fnx.numpy.", "fnx.lax.", "fnx.nn.", "fnx.scipy.")

# Domains where functions are smooth: mostly (0, 1), sometimes above 1.
DOMAINS: tuple[Callable[[Any], Any], ...] = (lambda x: x, lambda x: x + 1.0, lambda x: 3 * x - 0.9)


def generic(shape: tuple[int, ...], place: int) -> Any:
    """Return distinct numbers in (0.2, 0.8) that no other argument has."""
    n = int(np.prod(shape))
    mixed = np.argsort(np.sin(7.0 * np.arange(n) + place))
    return (0.23 + 0.5 * (mixed + 0.19 * place + 0.31) / (n + 1)).reshape(shape)


def regular(shape: tuple[int, ...], place: int) -> Any:
    """Return ``generic`` numbers; where they fill a square matrix of linear equations over several
    axes, one is added on its diagonal, or it would be singular within the accuracy of slopes."""
    x = generic(shape, place)
    n = math.isqrt(x.size)
    square = len(shape) > 2 and n * n == x.size and n in np.cumprod(shape)
    return x + np.eye(n).reshape(shape) if square else x


def floats(out: Any) -> tuple[Any, ...]:
    """Return the floats of a result, and the parts of its complex numbers."""
    found: list[Any] = []
    for x in tree.leaves(out):
        if isinstance(x, fnx.Array) and np.issubdtype(x.dtype, np.complexfloating):
            found += [x.real, x.imag]
        elif isinstance(x, fnx.Array) and np.issubdtype(x.dtype, np.floating):
            found.append(x)
    return tuple(found)


@cache
def public_cases() -> tuple[list[Case], list[str]]:
    """Return the functions with a float argument and a float result, and the names of the
    others."""
    cases, others = [], []
    for name, f in test_arguments.CALLABLES.items():
        if not name.startswith(ROOMS):
            continue
        case = None if name in LEFT_OUT else _case(name, f)
        if case is None:
            others.append(name)
        else:
            cases.append(case)
    cases += [Case(f"fnx.{name}", f, tuple([generic(shape, k) for k, shape in enumerate(shapes)]))
              for name, f, shapes in OTHERS]
    return cases, [n for n in others if n not in {case.name for case in cases}]


def _named(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return f over two elements of a named batch axis."""
    return lambda xs: (fnx.vmap(f, axis_name="lanes")(xs[0]),)


# With arguments that the argument table does not have.
_PICKED = np.array([[0, 1, 1], [1, 0, 0]], np.int32)
OTHERS: list[tuple[str, Callable[[Any], Any], tuple[tuple[int, ...], ...]]] = [
    ("numpy.astype", lambda xs: (jnp.astype(xs[0], np.float64) * xs[0],), ((3,),)),
    ("numpy.diag", lambda xs: (jnp.diag(xs[0]), jnp.diag(xs[1], 1)), ((3,), (3, 4))),
    ("numpy.full", lambda xs: (jnp.full((2, 3), xs[0]),), ((3,),)),
    ("numpy.linspace", lambda xs: (jnp.linspace(xs[0], xs[1], 4),), ((), ())),
    ("numpy.meshgrid", lambda xs: tuple(jnp.meshgrid(xs[0], xs[1] * xs[1])), ((3,), (2,))),
    ("numpy.take_along_axis", lambda xs: (jnp.take_along_axis(xs[0], _PICKED, 0),), ((2, 3),)),
    ("numpy.einsum", lambda xs: (jnp.einsum("ij,kj,k->i", *xs),), ((2, 3), (4, 3), (4,))),
    ("lax.convert_element_type", lambda xs: (
        lax.convert_element_type(xs[0], np.float64) * xs[0],), ((3,),)),
    *[(f"lax.{name}", _named(f), ((2, 2, 3),)) for name, f in {
        "psum_scatter": lambda x: lax.psum_scatter(x * x, "lanes"),
        "all_to_all": lambda x: lax.all_to_all(x * x, "lanes", 0, 1),
        "pswapaxes": lambda x: lax.pswapaxes(x * x, "lanes", 0)}.items()],
    ("lax.betainc", lambda xs: (lax.betainc(xs[0] + 1, xs[1] + 2, xs[2]),), ((3,),) * 3),
    ("lax.igamma", lambda xs: (lax.igamma(xs[0] + 1, xs[1] + 0.5),), ((3,), (3,))),
    ("lax.igammac", lambda xs: (lax.igammac(xs[0] + 1, xs[1] + 0.5),), ((3,), (3,))),
    ("numpy.geomspace", lambda xs: (jnp.geomspace(xs[0], xs[1] + 1, 4),), ((), ())),
    ("numpy.logspace", lambda xs: (jnp.logspace(xs[0], xs[1] + 1, 4),), ((), ())),
    ("numpy.kaiser", lambda xs: (jnp.kaiser(5, xs[0]),), ((),)),
    ("numpy.fromfunction", lambda xs: (jnp.fromfunction(lambda i: i * xs[0], (3,)),), ((),)),
    ("numpy.fill_diagonal", lambda xs: (
        jnp.fill_diagonal(xs[0] * xs[0], xs[1], inplace=False),), ((3, 3), (3,))),
    ("numpy.put", lambda xs: (
        jnp.put(xs[0] * xs[0], np.array([0, 2]), xs[1], inplace=False),), ((4,), (2,))),
    ("numpy.place", lambda xs: (jnp.place(
        xs[0] * xs[0], np.array([True, False, True, False]), xs[1], inplace=False),),
        ((4,), (2,))),
    ("numpy.vectorize", lambda xs: (jnp.vectorize(
        lambda a, b: a * jnp.sin(b).sum(), signature="(),(n)->()")(*xs),), ((2,), (2, 3))),
    ("lax.map", lambda xs: (lax.map(lambda x: jnp.sin(x) * x.sum(), xs[0]),), ((2, 3),)),
]


# Functions that no case is made of by their arguments alone.
LEFT_OUT = {"fnx.lax.stop_gradient": "its derivative is zero by definition",
            "fnx.lax.reduce_precision": "its derivative is 1 by definition",
            **{f"fnx.{name}": "it has none, as in JAX" for name in (
                "lax.linalg.hessenberg", "lax.linalg.householder_product",
                "lax.linalg.ormqr", "lax.linalg.schur", "lax.linalg.svd",
                "lax.linalg.tridiagonal", "scipy.linalg.funm", "scipy.linalg.hessenberg",
                "scipy.linalg.rsf2csf", "scipy.linalg.schur")},
            **{f"fnx.scipy.sparse.linalg.{name}": "systems of its own, in matrix_science"
               for name in ("bicgstab", "cg", "gmres")}}


def _case(name: str, f: Callable[..., Any]) -> Case | None:
    try:
        args = test_arguments.arguments(name, f)
    except KeyError:
        return None
    leaves, structure = tree.flatten(args)
    places = [i for i, x in enumerate(leaves) if isinstance(x, np.ndarray)
              and x.dtype.kind == "f" and x.size]
    if not places:
        return None

    def of_floats(xs: Any) -> Any:
        filled = list(leaves)
        for i, x in zip(places, xs):
            filled[i] = x
        return floats(f(*structure.unflatten(filled)))

    named = "axis_name" in inspect.signature(f).parameters
    whole = fnx.vmap(of_floats, axis_name="lanes") if named else of_floats
    draw = regular if "linalg" in name else generic
    for domain in DOMAINS:
        xs = tuple([domain(draw((2,) * named + leaves[i].shape, k))
                    for k, i in enumerate(places)])
        try:
            outs = values(whole, xs)
        except (ValueError, TypeError):
            return None
        if not outs or any(y.dtype != np.float64 for y in outs):
            return None
        if all(np.isfinite(y).all() for y in outs):
            return Case(name, whole, xs)
    return None


def values(f: Callable[[Any], Any], xs: tuple[Any, ...]) -> list[Any]:
    """Evaluate f(xs) in float64 by the interpreter."""
    given = tuple([jnp.asarray(x, np.float64) for x in xs])
    leaves, in_tree = tree.flatten(((given,), {}))
    closed = trace(f, [x._aval for x in leaves], in_tree, transform="matrix", name="f").close()
    captured = [np.asarray(fnx.Array(c)) for c in closed.captures]
    return interp.apply(closed.function, [*xs, *captured])[:len(closed.outs)]


# ---- higher-order functions ---------------------------------------------------------------------


def _scan(xs: Any) -> Any:
    c, rows = xs

    def step(carry: Any, row: Any) -> Any:
        total = jnp.tanh(carry * c.sum() + row)
        return total, total * row.sum()
    return lax.scan(step, c, rows)


def _scan_back(xs: Any) -> Any:
    c, rows = xs
    (a, b), ys = lax.scan(lambda s, row: ((s[1], jnp.sin(s[0]) + row * s[1]), s[0] * row), (c, c),
                          rows, reverse=True)
    return a, b, ys


def _nested_scan(xs: Any) -> Any:
    c, rows = xs

    def step(carry: Any, row: Any) -> Any:
        inner, _ = lax.scan(lambda s, x: (s * x + jnp.cos(carry), None), carry, row)
        return inner, inner
    return lax.scan(step, c[0], rows)


def _while(xs: Any) -> Any:
    x, = xs
    _, y = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.sin(s[1]) * x + s[1]),
                          (0, x))
    return (y,)


def _while_by_value(xs: Any) -> Any:
    x, = xs
    return (lax.while_loop(lambda y: jnp.sum(y * y) < 40.0, lambda y: y * y + x, x + 1.0),)


def _fori(xs: Any) -> Any:
    x, = xs
    return (lax.fori_loop(0, 3, lambda i, y: y * x + i, x),)


def _cond(xs: Any) -> Any:
    x, = xs
    return (lax.cond(x.sum() > 0.5, lambda x: jnp.sin(x) * x, lambda x: x * x, x),
            lax.cond(x.sum() < 0.5, lambda x: jnp.sin(x) * x, lambda x: x * x, x))


def _switch(xs: Any) -> Any:
    x, = xs
    which = (x[0] * 5).astype(np.int32) % 3
    return (lax.switch(which, [jnp.sin, jnp.square, lambda x: x * x.sum()], x),)


def _call(xs: Any) -> Any:
    x, y = xs
    f = fnx.call(lambda x, y: (jnp.tanh(x * y), x.sum() * y))
    return f(x, f(y, x)[0])


def _gather(xs: Any) -> Any:
    x, = xs
    i = jnp.asarray(np.array([[3, 0], [1, 3]], np.int32))
    return (x[i] * x[i + 1], jnp.take(x * x, i % 2))


def _scatter(xs: Any) -> Any:
    x, u = xs
    i = jnp.asarray(np.array([1, 3, 1], np.int32))
    return (x.at[i].set(u * u), x.at[i].add(u) * x, (x * x).at[i].multiply(u), x.at[i].max(u),
            x.at[i].min(u))


def _checkpoint(xs: Any) -> Any:
    x, = xs
    f = fnx.checkpoint(lambda x: jnp.sin(jnp.exp(x).sum() * x))
    return (f(f(x) * x),)


@fnx.custom_vjp
def _with_vjp(x: Any, y: Any) -> Any:
    return x * jnp.sin(y) + y.sum()


_with_vjp.defvjp(lambda x, y: (_with_vjp(x, y), (x, y)), lambda kept, ct: (
    ct * jnp.sin(kept[1]), ct * kept[0] * jnp.cos(kept[1]) + ct.sum()))


@fnx.custom_jvp
def _with_jvp(x: Any, y: Any) -> Any:
    return x * jnp.sin(y) + y.sum()


@_with_jvp.defjvp
def _pushed_rule(primals: Any, tangents: Any) -> Any:
    (x, y), (s, t) = primals, tangents
    return _with_jvp(x, y), s * jnp.sin(y) + x * jnp.cos(y) * t + t.sum()


def _custom_vjp(xs: Any) -> Any:
    x, y = xs
    return (_with_vjp(x, y), _with_vjp(y, _with_vjp(x, x * y)))


def _custom_jvp(xs: Any) -> Any:
    x, y = xs
    return (_with_jvp(x, y), _with_jvp(y, _with_jvp(x, x * y)))


def _scanned_rules(xs: Any) -> Any:
    """Return custom rules and recomputation in the body of a loop."""
    x, y = xs
    step = fnx.checkpoint(lambda c, t: (_with_vjp(c, _with_jvp(y, t * c)) / 3, c * t))
    last, path = lax.scan(step, x, jnp.stack([x, y]))
    return last, path


def structural_cases() -> list[Case]:
    """Return cases of bodies, indices and custom rules."""
    v, rows, w = generic((3,), 1), generic((4, 3), 2), generic((5,), 3)
    found = [
        Case("scan", _scan, (v, rows)), Case("scan reverse", _scan_back, (v, rows)),
        Case("nested scan", _nested_scan, (v[:2], rows)), Case("while", _while, (v,)),
        Case("while by value", _while_by_value, (v,)), Case("fori", _fori, (v,)),
        Case("cond", _cond, (v,)), Case("switch", _switch, (w,)), Case("call", _call, (v, v * v)),
        Case("gather", _gather, (w,)), Case("scatter", _scatter, (w, v)),
        Case("checkpoint", _checkpoint, (v,)), Case("custom_vjp", _custom_vjp, (v, v * v)),
        Case("custom_jvp", _custom_jvp, (v, v * v)),
        Case("rules in a scan", _scanned_rules, (v, v * v))]
    return [case._replace(longest=2) for case in found]

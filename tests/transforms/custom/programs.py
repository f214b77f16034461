"""Programs with custom rules that mean the same in fnx and in JAX: each takes the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

PROGRAMS: dict[str, Callable[[Any], Any]] = {}
X = np.linspace(0.25, 1.5, 4).astype(np.float32)


def program(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[f.__name__] = f
    return f


def kind(x: Any) -> str:
    return str(getattr(x, "dtype", type(x).__name__))


@program
def none_is_zero_anywhere(lib: Any) -> Any:
    f = lib.custom_vjp(lambda x, p: x * p["a"] + p["b"][0])
    f.defvjp(lambda x, p: (f(x, p), None), lambda saved, ct: (None, {"a": ct, "b": None}))
    return lib.grad(f, (0, 1))(2.0, {"a": 3.0, "b": [4.0]})


@program
def none_for_a_whole_argument(lib: Any) -> Any:
    f = lib.custom_vjp(lambda x, p: x * p["a"])
    f.defvjp(lambda x, p: (f(x, p), None), lambda saved, ct: (ct, None))
    return lib.grad(f, (0, 1))(2.0, {"a": 3.0})


@program
def integers_get_float0(lib: Any) -> Any:
    seen = []

    @lib.custom_jvp
    def f(x: Any, n: Any, flag: Any) -> Any:
        return x * n, n + 1

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        seen.append([kind(t) for t in tangents[1:]])
        out = f(*primals)
        return out, (tangents[0] * primals[1], np.zeros((), lib.float0))
    out, t = lib.jvp(lambda x: f(x, 3, True), (2.0,), (1.0,))
    return out, t[0], kind(t[1]), seen[-1]


@program
def cotangents_of_integers(lib: Any) -> Any:
    seen = []

    @lib.custom_vjp
    def f(x: Any, n: Any) -> Any:
        return {"y": x * n, "n": n}

    def bwd(saved: Any, ct: Any) -> Any:
        seen.append(kind(ct["n"]))
        return ct["y"] * saved, None
    f.defvjp(lambda x, n: (f(x, n), n), bwd)
    return lib.grad(lambda x: f(x, 3)["y"])(2.0), seen[-1]


@program
def a_float0_for_an_integer(lib: Any) -> Any:
    f = lib.custom_vjp(lambda x, n: x * n)
    f.defvjp(lambda x, n: (f(x, n), n),
             lambda n, ct: (ct * n, np.zeros((), lib.float0)))
    return lib.grad(f)(2.0, 3), lib.grad(f, allow_int=True, argnums=1)(2.0, 3).dtype == lib.float0


@program
def symbolic_zeros_of_a_vjp(lib: Any) -> Any:
    seen = []
    f = lib.custom_vjp(lambda x, y: x * y)

    def fwd(x: Any, y: Any) -> Any:
        seen.append((x.perturbed, y.perturbed))
        return f(x.value, y.value), (x.value, y.value)
    f.defvjp(fwd, lambda saved, ct: (ct * saved[1], ct * saved[0]), symbolic_zeros=True)
    first = lib.grad(f)(2.0, 3.0)
    alone = seen[0]
    seen.clear()
    both = lib.grad(f, (0, 1))(2.0, 3.0)
    return first, both, [[bool(p) for p in flags] for flags in (alone, seen[0])]


@program
def symbolic_zeros_of_results_without_cotangents(lib: Any) -> Any:
    def plain(x: Any) -> Any:
        return x * 2, x * 3, {"n": x.astype("int32"), "z": x * 5}
    f = lib.custom_vjp(plain)

    def is_zero(ct: Any) -> bool:
        return type(ct).__name__ == "SymbolicZero"

    def bwd(saved: Any, ct: Any) -> Any:
        a, b, rest = ct
        zeros = [is_zero(a), is_zero(b), is_zero(rest["n"]), is_zero(rest["z"])]
        mask = sum(16.0 * 2 ** i for i, zero in enumerate(zeros) if zero)
        return (sum((c for c, zero in zip((a, b, rest["z"]), zeros[:2] + zeros[3:]) if not zero),
                    saved * 0 + mask),)
    f.defvjp(lambda x: (plain(x.value), x.value), bwd, symbolic_zeros=True)
    x = lib.numpy.asarray(2.0, "float32")

    def some(*which: str) -> Any:
        def g(x: Any) -> Any:
            a, b, rest = f(x)
            return sum({"a": a, "b": b, "z": rest["z"]}[name] for name in which)
        return g

    def steps(x: Any) -> Any:
        return lib.lax.scan(lambda c, _: (f(c)[1], None), x, None, 2)[0]

    def branches(x: Any) -> Any:
        return lib.lax.cond(x > 0, some("z", "a"), some("b"), x)
    found = [lib.grad(some(*which))(x) for which in (
        "a", "b", "z", ("a", "b"), ("b", "z"), ("a", "z"), ("a", "b", "z"))]
    return [*found, lib.jit(lib.grad(some("b")))(x), lib.grad(lib.jit(some("a", "z")))(x),
            lib.vmap(lib.grad(some("z")))(x[None]), lib.grad(steps)(x), lib.grad(branches)(x),
            lib.grad(lib.checkpoint(some("b")))(x), lib.jvp(lib.grad(some("a")), (x,), (x,)),
            lib.vjp(lambda x: f(x)[:2], x)[1]((x, x))]


@program
def a_bwd_that_takes_no_symbolic_zeros(lib: Any) -> Any:
    f = lib.custom_vjp(lambda x: (x * 2, x * 3))
    f.defvjp(lambda x: (f(x.value), None), lambda _, ct: (ct[0] * 7 + ct[1] * 11,),
             symbolic_zeros=True)
    return lib.grad(lambda x: sum(f(x)))(2.0)


@program
def symbolic_zeros_of_a_jvp(lib: Any) -> Any:
    seen = []
    f = lib.custom_jvp(lambda x, y: x * y)

    def rule(primals: Any, tangents: Any) -> Any:
        seen.append([type(t).__name__ == "SymbolicZero" for t in tangents])
        return f(*primals), tangents[0] * primals[1]
    f.defjvp(rule, symbolic_zeros=True)
    return lib.jvp(lambda x: f(x, 3.0), (2.0,), (1.0,)), seen[0]


@program
def static_arguments(lib: Any) -> Any:
    f = lib.custom_jvp(lambda g, x, n: g(x) * n, nondiff_argnums=(0, 2))
    f.defjvp(lambda g, n, primals, tangents: (f(g, primals[0], n), tangents[0] * n * 7))
    h = lib.custom_vjp(lambda n, x: x ** n, nondiff_argnums=(0,))
    h.defvjp(lambda n, x: (h(n, x), x), lambda n, x, ct: (n * x ** (n - 1) * ct * 5,))
    return lib.grad(lambda x: f(lib.numpy.sin, x, 3))(1.0), lib.grad(h, 1)(3, 2.0), \
        lib.vmap(lib.grad(lambda x: h(2, x)))(X)


@program
def keywords_and_defaults(lib: Any) -> Any:
    f = lib.custom_vjp(lambda x, y=3.0: x * y)
    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda s, ct: (ct * s[1] * 10, ct * s[0] * 10))
    return lib.grad(f)(2.0), lib.grad(lambda x: f(y=4.0, x=x))(2.0)


@program
def defjvps_with_none(lib: Any) -> Any:
    f = lib.custom_jvp(lambda x, y, z: x * y + z)
    f.defjvps(lambda t, ans, x, y, z: 2 * t * y, None, lambda t, ans, x, y, z: t * ans)
    return lib.grad(f, (0, 1, 2))(2.0, 3.0, 1.0), lib.jvp(f, (2.0, 3.0, 1.0), (1.0, 1.0, 1.0))


@program
def unbatched_cotangents_are_summed(lib: Any) -> Any:
    f = lib.custom_vjp(lambda x, w: lib.numpy.sin(x) * w)
    f.defvjp(lambda x, w: (f(x, w), (x, w)),
             lambda s, ct: (lib.numpy.cos(s[0]) * s[1] * ct, lib.numpy.sin(s[0]) * ct))
    return lib.grad(lambda x, w: lib.vmap(f, (0, None))(x, w).sum(), (0, 1))(X, 2.0)


@program
def clipped_gradients_in_a_batch(lib: Any) -> Any:
    f = lib.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda s, ct: (lib.numpy.clip(ct, -0.5, 0.5),))
    return lib.vmap(lib.grad(lambda x: f(x) * x))(X)


@program
def second_order_through_the_rule(lib: Any) -> Any:
    f = lib.custom_vjp(lambda x: x ** 3)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (5 * x ** 2 * ct,))
    return lib.grad(lib.grad(f))(2.0), lib.jacrev(lib.grad(f))(2.0)


@program
def a_rule_inside_a_scan(lib: Any) -> Any:
    f = lib.custom_jvp(lambda x: lib.numpy.sin(x))
    f.defjvp(lambda p, t: (f(*p), 3 * t[0]))

    def run(x: Any) -> Any:
        return lib.lax.scan(lambda c, y: (f(c) + y, f(y)), x, X)
    return lib.jvp(run, (0.5,), (1.0,)), lib.grad(lambda x: run(x)[0])(0.5)


@program
def a_rule_in_a_branch(lib: Any) -> Any:
    f = lib.custom_vjp(lambda x: lib.numpy.sin(x))
    f.defvjp(lambda x: (f(x), None), lambda s, ct: (3 * ct,))

    def choose(x: Any) -> Any:
        return lib.lax.cond(x > 0.6, lambda x: f(x), lambda x: x * x, x)
    return lib.vmap(lib.grad(choose))(X)


@program
def sums_over_a_named_axis(lib: Any) -> Any:
    f = lib.custom_vjp(lambda x: lib.lax.psum(x, "i"))
    f.defvjp(lambda x: (f(x), None), lambda s, ct: (lib.lax.psum(ct, "i") * 10,))
    return lib.vmap(lib.grad(lambda x: f(x * x)), axis_name="i")(X)


@program
def collectives_in_a_jvp_rule(lib: Any) -> Any:
    f = lib.custom_jvp(lambda x: lib.lax.psum(x, "i"))
    f.defjvp(lambda p, t: (f(*p), lib.lax.psum(t[0] * 3, "i")))

    def lanes(x: Any) -> Any:
        return lib.vmap(lambda x: f(x) * x, axis_name="i")(x)
    return lib.jvp(lanes, (X,), (X,)), lib.grad(lambda x: lanes(x).sum())(X), \
        lib.vmap(lib.grad(lambda x: f(x) * x), axis_name="i")(X)


@program
def collectives_in_a_vjp_rule(lib: Any) -> Any:
    f = lib.custom_vjp(lambda x, w: x * w)
    f.defvjp(lambda x, w: (f(x, w), (x, w)),
             lambda s, ct: (lib.lax.psum(ct * s[1], "i"), ct * s[0] * lib.lax.axis_index("i")))
    return lib.vmap(lib.grad(f, (0, 1)), (0, None), axis_name="i")(X, 3.0), \
        lib.grad(lambda x, w: lib.vmap(f, (0, None), axis_name="i")(x, w).sum(), (0, 1))(X, 3.0)


@program
def collectives_in_branches_and_loops_of_lanes(lib: Any) -> Any:
    def branch(x: Any) -> Any:
        return lib.lax.cond(x > 0.7, lambda x: lib.lax.psum(x * x, "i"), lambda x: x, x)

    def number(x: Any) -> Any:
        return lib.lax.switch((x * 2).astype(int), [
            lambda x: lib.lax.pmean(x, "i"), lambda x: x, lambda x: lib.lax.ppermute(
                x, "i", [(0, 1), (1, 2), (2, 3), (3, 0)])], x)

    def loop(x: Any) -> Any:
        return lib.lax.while_loop(lambda s: s[0] < x * 4, lambda s: (
            s[0] + 1.0, s[1] + lib.lax.psum(s[0] * x, "i")), (0 * x, x))[1]

    def until(x: Any) -> Any:
        return lib.lax.while_loop(lambda s: lib.lax.psum(s, "i") * x < 20.0,
                                  lambda s: s * 1.3 + x, x)
    return [lib.vmap(f, axis_name="i")(X) for f in (branch, number, loop, until)]


@program
def custom_gradients(lib: Any) -> Any:
    f = lib.custom_gradient(lambda x: (x ** 2, lambda g: (g * x,)))
    g = lib.custom_gradient(lambda x, y: (x * y, lambda g: (y * 2, x * 3)))
    return lib.grad(f)(3.0), lib.grad(g, (0, 1))(2.0, 5.0)


@program
def a_root(lib: Any) -> Any:
    def newton(f: Any, x: Any) -> Any:
        return lib.lax.fori_loop(0, 20, lambda _, x: x - f(x) / lib.grad(f)(x), x)

    def root(a: Any) -> Any:
        return lib.lax.custom_root(lambda x: x ** 3 - a, 1.0, newton, lambda g, y: y / g(1.0))
    return root(8.0), lib.grad(root)(8.0), lib.jvp(root, (8.0,), (2.0,)), \
        lib.grad(lib.grad(root))(8.0)


@program
def a_linear_system(lib: Any) -> Any:
    def solve(a: Any, b: Any) -> Any:
        return lib.lax.custom_linear_solve(
            lambda x: a * x, b, lambda f, b: b / f(lib.numpy.ones_like(b)), symmetric=True)
    return lib.grad(lambda a, b: solve(a, b).sum(), (0, 1))(X, X), \
        lib.jvp(solve, (X, X), (X, X)), lib.vmap(lib.grad(lib.grad(solve)))(X, X)


@program
def checkpoints(lib: Any) -> Any:
    f = lib.checkpoint(lambda x: lib.numpy.sin(lib.numpy.sin(x)),
                       policy=lib.checkpoint_policies.dots_saveable)
    return lib.grad(f)(0.5), lib.grad(lib.grad(f))(0.5), lib.vmap(lib.grad(f))(X)


def refused(lib: Any) -> dict[str, Callable[[], Any]]:
    """Invalid programs: each raises."""
    bad = lib.custom_jvp(lambda x: x)
    three = lib.custom_vjp(lambda x: x)
    three.defvjp(lambda x: (x, None), lambda s, ct: (ct, ct, ct))
    naked = lib.custom_vjp(lambda x: x)
    naked.defvjp(lambda x: (x, None), lambda s, ct: ct)
    tree = lib.custom_jvp(lambda x: x)
    tree.defjvp(lambda p, t: ((p[0],), t[0]))
    shape = lib.custom_jvp(lambda x: x)
    shape.defjvp(lambda p, t: (p[0], lib.numpy.ones(3)))

    def closed(w: Any) -> Any:
        f = lib.custom_jvp(lambda x: x * w)
        f.defjvp(lambda p, t: (f(*p), t[0] * w))
        return f(2.0)
    return {
        "no rule": lambda: bad(1.0), "three for one": lambda: lib.grad(three)(1.0),
        "no tuple": lambda: lib.grad(naked)(1.0), "another tree": lambda: lib.grad(tree)(1.0),
        "another shape": lambda: lib.grad(shape)(1.0), "closes over": lambda: lib.grad(closed)(1.0),
    }


def flat(tree: Any) -> Any:
    """Return a flat list of numbers, strings and bools, for JSON."""
    if isinstance(tree, dict):
        return {key: flat(tree[key]) for key in sorted(tree)}
    if isinstance(tree, tuple | list):
        return [flat(x) for x in tree]
    if isinstance(tree, str | bool) or tree is None:
        return tree
    if isinstance(tree, float | int):
        tree = np.asarray(tree, np.float32 if isinstance(tree, float) else np.int32)
    return [str(tree.dtype), np.asarray(tree).tolist()]

"""Loops and branches equal Python's: values, inferred types, and what is traced when."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import toposort
from fnx.core.support import errors
from fnx.core.tracing import trace
from tests.helpers import assert_near

X = np.arange(6, dtype=np.float32).reshape(3, 2)


def python_scan(f: Callable[..., Any], init: Any, xs: Any, length: int,
                reverse: bool = False) -> tuple[Any, list[Any]]:
    """The definition of scan, on eager arrays."""
    ys: list[Any] = [None] * length
    for t in reversed(range(length)) if reverse else range(length):
        init, ys[t] = f(init, fnx.tree.map(lambda x, t=t: x[t], xs))
    return init, ys


def cell(c: Any, x: Any) -> tuple[Any, Any]:
    return {"h": c["h"] * 0.5 + x["a"], "n": c["n"] + 1}, (c["h"] + x["a"], None, c["n"])


@pytest.mark.cases(8)
@pytest.mark.parametrize("unroll", [1, 2, 3, 5, True, False])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 5, 6])
def test_scan_is_the_python_loop(length: int, reverse: bool, unroll: int) -> None:
    init = {"h": jnp.ones(2), "n": 0}
    xs = {"a": jnp.arange(2.0 * length).reshape(length, 2), "b": ()}
    last, ys = lax.scan(cell, init, xs, reverse=reverse, unroll=unroll)
    want, rows = python_scan(cell, init, xs, length, reverse)
    assert_near(last, want)
    stacked = fnx.tree.map(lambda *r: jnp.stack(r), *rows) if rows else (
        jnp.zeros((0, 2)), None, jnp.zeros(0, int))
    assert_near(ys, stacked)


def test_scan_of_nothing_but_a_length() -> None:
    last, ys = lax.scan(lambda c, _: (c * 2, c), 1, length=4)
    assert int(last) == 16
    assert ys.tolist() == [1, 2, 4, 8]
    assert lax.scan(lambda c, _: ((), None), (), None, 3) == ((), None)


def test_mixed_types_of_rows() -> None:
    xs = (jnp.asarray([True, False, True]), jnp.asarray([1, -2, 3], jnp.int8),
          jnp.asarray([0.5, 1.5, 2.5], np.float64), jnp.zeros((3, 0)))

    def step(c: Any, x: Any) -> tuple[Any, Any]:
        on, small, half, empty = x
        return c + jnp.where(on, small, 0), (~on, small * small, half * half, empty)
    last, (on, small, half, empty) = lax.scan(step, 0, xs)
    assert int(last) == 4
    assert on.tolist() == [False, True, False]
    assert (small.dtype, small.tolist()) == (np.int8, [1, 4, 9])
    assert (half.dtype, half.tolist()) == (np.float64, [0.25, 2.25, 6.25])
    assert empty.shape == (3, 0)


def test_captures_are_operands() -> None:
    @fnx.jit
    def f(w: Any, x: Any) -> Any:
        return lax.scan(lambda c, row: (c * w + row, (c * w).sum()), w, x)
    w = np.asarray([2.0, 3.0], np.float32)
    last, ys = f(w, X)
    c, want = w, []
    for row in X:
        want.append((c * w).sum())
        c = c * w + row
    assert_near((last, ys), (c, np.stack(want)))


def test_nested() -> None:
    def outer(c: Any, row: Any) -> Any:
        inner, ys = lax.scan(lambda s, x: (s + x * c, s), c, row)
        return lax.cond(inner > 4, lambda: inner - 4, lambda: inner), ys.sum()

    def outer_python(c: float, row: Any) -> Any:
        s, total = c, 0.0
        for x in row:
            total += s
            s = s + x * c
        return (s - 4 if s > 4 else s), total
    last, ys = lax.scan(outer, 1.0, X)
    c, want = 1.0, []
    for row in X:
        c, y = outer_python(c, row)
        want.append(y)
    assert_near((last, ys), (np.float32(c), np.asarray(want, np.float32)))


@pytest.mark.parametrize("bounds", [(0, 5), (2, 6), (3, 3), (4, 1), (-2, 2)])
def test_fori_loop(bounds: tuple[int, int]) -> None:
    want = np.float32(0.5)
    for i in range(*bounds):
        want = want * np.float32(1.5) + np.float32(i)
    for low, high in (bounds, map(np.int32, bounds), map(jnp.asarray, bounds)):
        got = lax.fori_loop(low, high, lambda i, x: x * 1.5 + i, 0.5)
        assert_near(got, want)
    got = fnx.jit(lambda low, high: lax.fori_loop(low, high, lambda i, x: x * 1.5 + i, 0.5))(
        *bounds)
    assert_near(got, want)
    assert_near(lax.fori_loop(*bounds, lambda i, x: x * 1.5 + i, 0.5, unroll=2), want)


def test_while_loop() -> None:
    limit = jnp.asarray(1000.0)
    step = jnp.asarray(3)
    got = lax.while_loop(lambda c: c["x"] < limit, lambda c: {"x": c["x"] * step, "n": c["n"] + 1},
                         {"x": 1.5, "n": 0})
    assert_near(got, {"x": np.float32(1093.5), "n": np.int32(6)})
    assert_near(lax.while_loop(lambda x: x < 0, lambda x: x * 2, 3.0), np.float32(3))


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9, np.uint32(2), np.uint32(2**31)])
def test_switch(index: Any) -> None:
    w = jnp.asarray([1.0, 2.0])
    u = jnp.asarray(5.0)
    branches = [lambda x: x, lambda x: x * w, lambda x: x * w + u]
    assert_near(lax.switch(index, branches, w), branches[min(max(int(index), 0), 2)](w))
    assert_near(fnx.jit(lambda i: lax.switch(i, branches, operand=w))(index),
         branches[min(max(int(index), 0), 2)](w))


def test_all_spellings_of_cond() -> None:
    w = jnp.asarray([1.0, 2.0])
    for holds in (True, False, jnp.asarray(True), 0, 2.5):
        want = w + 3 if holds else w * 3
        assert_near(lax.cond(holds, lambda x, y: x + y, lambda x, y: x * y, w, 3.0), want)
        assert_near(lax.cond(holds, lambda x: x + 3, lambda x: x * 3, operand=w), want)
        assert_near(lax.cond(holds, lambda: w + 3, lambda: w * 3), want)
        assert_near(lax.cond(holds, w, lambda x: x + 3, 3 * w, lambda x: x), want)


def test_map() -> None:
    scale = jnp.asarray(2.0)
    assert_near(lax.map(lambda row: (row * scale, {"sum": row.sum()}), X),
                (X * 2, {"sum": X.sum(1)}))
    assert lax.map(lambda x: x, jnp.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 20])
@pytest.mark.parametrize("n", [0, 1, 7, 8])
def test_map_of_several_rows_at_once(n: int, size: int) -> None:
    x = np.arange(3.0 * n, dtype=np.float32).reshape(n, 3)
    scale = jnp.asarray(2.0)

    def f(row: Any) -> Any:
        return jnp.where(row.sum() > 9, row * scale, -row), scale
    got = fnx.jit(lambda x: lax.map(f, x, batch_size=size))(x)
    assert_near(got, (np.where(x.sum(1, keepdims=True) > 9, x * 2, -x), np.full(n, 2, np.float32)))


# ---- inferred types ------------------------------------------------------------------------------


def test_a_python_number_takes_the_type_of_the_step() -> None:
    h = jnp.asarray([1.0, 2.0], np.float64)
    assert lax.scan(lambda c, x: (c + x, None), 0, h)[0].dtype == np.float64
    (a, b), _ = lax.scan(lambda c, x: ((c[1] + 1, c[0] * x), None), (0, 0), jnp.ones(3))
    assert a.dtype == b.dtype == np.float32
    assert lax.while_loop(lambda x: x < 3, lambda x: x + 0.5, 0).dtype == np.float32


def test_types_are_found_through_nested_loops() -> None:
    def outer(c: Any, x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, s: s + x, c), None
    last, _ = lax.scan(outer, 0, jnp.ones(2))
    assert (last.dtype, float(last)) == (np.float32, 6.0)


# ---- what is traced when ------------------------------------------------------------------------


def counting(f: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    calls: list[int] = []

    def counted(*args: Any) -> Any:
        calls.append(1)
        return f(*args)
    return counted, calls


def test_a_function_is_traced_once_for_a_signature() -> None:
    f, calls = counting(lambda c, x: (c + x, None))
    for _ in range(5):
        lax.scan(f, 0.0, jnp.ones(3))
    lax.scan(f, 1.0, jnp.ones(7))
    assert len(calls) == 1
    for _ in range(2):
        lax.scan(f, 0.0, jnp.ones(3, np.float64))
    assert len(calls) == 3  # on float32, then on float64
    g, calls = counting(lambda i, x: x + i)
    for n in range(5):
        lax.fori_loop(0, n, g, 1.0)
    assert len(calls) == 1


def test_a_rebound_capture_is_seen() -> None:
    w = jnp.asarray(2.0)

    def f(c: Any, x: Any) -> Any:
        return c * w + x, None
    assert float(lax.scan(f, 1.0, jnp.ones(1))[0]) == 3.0
    w = jnp.asarray(5.0)
    assert float(lax.scan(f, 1.0, jnp.ones(1))[0]) == 6.0


def test_bodies_die_with_their_functions() -> None:
    import gc
    import weakref

    def f(c: Any, x: Any) -> Any:
        return c + x, None
    lax.scan(f, 0.0, jnp.ones(3))
    dead = weakref.ref(f)
    del f
    gc.collect()
    assert dead() is None


# ---- bad input ----------------------------------------------------------------------------------


def grows(c: Any, x: Any) -> Any:
    return {"h": (c["h"] * 0.8128125)[None], "n": 1}, x  # a node that no other function has


def forgets(c: Any, x: Any) -> Any:
    return {"h": c["h"]}, x


def changes(c: Any, x: Any) -> Any:
    return {"h": c["h"], "n": c["n"] * 0.5}, x


CARRY = {"h": jnp.ones(()), "n": jnp.zeros((), int)}
BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "shape": (lambda: lax.scan(grows, CARRY, X), errors.ShapeError,
              r"scan: expected carry\['h'\] of grows to keep its type float32\[\], got "
              r"float32\[1\] \(computed at .*:\d+\) from one step"),
    "dtype": (lambda: lax.scan(changes, CARRY, X), errors.DTypeError,
              r"carry\['n'\] of changes to keep its type int32\[\], got float32\[\]"),
    "structure": (lambda: lax.scan(forgets, CARRY, X), errors.PytreeError,
                  r"expected forgets to return a carry .*'n'"),
    "no pair": (lambda: lax.scan(lambda c, x: c, 0.0, X), errors.PytreeError,
                r"to return \(carry, output of the step\), got an array"),
    "parameters": (lambda: lax.scan(lambda c: (c, c), 0.0, X), errors.ArgumentError,
                   "too many positional arguments"),
    "lengths": (lambda: lax.scan(cell, 0.0, {"a": X, "b": (X[:2],)}), errors.ShapeError,
                r"expected one length, got 3 of xs\['a'\] and 2 of xs\['b'\]\[0\]"),
    "length": (lambda: lax.scan(cell, 0.0, {"a": X}, length=4), errors.ShapeError,
               r"got 4 of length= and 3 of xs\['a'\]"),
    "no axis": (lambda: lax.scan(cell, 0.0, {"a": X, "b": 1.0}), errors.ShapeError,
                r"leading axis to scan over, got float32\[\] weak at xs\['b'\]"),
    "no length": (lambda: lax.scan(cell, 0.0), errors.ArgumentError, "or a length, got neither"),
    "negative": (lambda: lax.scan(cell, 0.0, length=-1), errors.ArgumentError,
                 "expected a length >= 0, got -1"),
    "no function": (lambda: lax.scan(None, 0.0, X), errors.ArgumentError,  # type: ignore[arg-type]
                    "expected a function as f, got NoneType"),
    "no array": (lambda: lax.scan(cell, {"h": "text"}, X), errors.DTypeError,
                 r"expected arrays or numbers, got str at init\['h'\]"),
    "if": (lambda: lax.scan(lambda c, x: (c if x > 1 else -c, None), 1.0, X[0]),
           errors.TracedValueError, "scan of <lambda> traces with abstract values"),
    "condition dtype": (lambda: lax.while_loop(lambda x: x, lambda x: x + 1, 1), errors.DTypeError,
                        "expected <lambda> to return a bool scalar, got int32"),
    "condition shape": (lambda: lax.while_loop(lambda x: x > 1, lambda x: x, X), errors.ShapeError,
                        r"got bool\[3, 2\]"),
    "condition tree": (lambda: lax.while_loop(lambda x: (x, x), lambda x: x, 1),
                       errors.PytreeError, r"bool scalar, got \(\*, \*\)"),
    "while": (lambda: lax.while_loop(lambda x: x < 3, lambda x: x + X, 1.0), errors.ShapeError,
              r"expected carry of <lambda> to keep its type float32\[\], got float32\[3, 2\]"),
    "predicate": (lambda: lax.cond(X > 1, lambda: 1, lambda: 2), errors.ShapeError,
                  r"expected a bool scalar as predicate, got bool\[3, 2\]"),
    "no predicate": (lambda: lax.cond(None, lambda: 1, lambda: 2), errors.ArgumentError,
                     "expected a bool scalar as predicate, got NoneType"),
    "branch types": (lambda: lax.cond(True, lambda x: {"a": x}, lambda x: {"a": x[:1] * 2}, X),
                     errors.ShapeError, r"float32\[1, 2\] \(computed at .*\) and float32\[3, 2\] "
                     r"as result\['a'\] of <lambda> and <lambda>"),
    "branch dtypes": (lambda: lax.switch(0, [lambda: 1, lambda: 1.0]), errors.DTypeError,
                      r"got int32\[\] and float32\[\] as result"),
    "branch trees": (lambda: lax.cond(True, lambda: (1, 2), lambda: [1, 2]), errors.PytreeError,
                     r"results of one structure, got \[\*, \*\]"),
    "index": (lambda: lax.switch(True, [lambda: 1, lambda: 2]), errors.DTypeError,
              r"expected an integer scalar as index, got bool\[\]"),
    "no branches": (lambda: lax.switch(0, []), errors.ArgumentError, "expected branches, got none"),
    "bounds": (lambda: lax.fori_loop(0, 2.5, lambda i, x: x, 0), errors.DTypeError,
               "expected upper as an integer scalar"),
    "unroll": (lambda: lax.fori_loop(0, jnp.asarray(3), lambda i, x: x, 0, unroll=2),
               errors.ArgumentError, "Python integers as bounds with unroll="),
    "unroll -1": (lambda: lax.scan(cell, CARRY, {"a": X}, unroll=-1), errors.ArgumentError,
                 "expected unroll >= 0, got -1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    call, kind, message = BAD[name]
    with pytest.raises(kind) as error:
        call()
    assert re.search(message, str(error.value))
    assert "test_loops.py:" in str(error.value)


def test_errors_name_every_open_transform() -> None:
    def step(c: Any, x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, s: s @ X, c), None
    with pytest.raises(errors.ShapeError) as error:
        fnx.jit(lambda c: lax.scan(step, c, X))(X[0])
    line = r"\([^()]*test_loops.py:\d+\)"
    assert re.search(rf"\n  Inside fori_loop of <lambda> {line} in scan of step {line} in "
                     rf"jit of <lambda> {line}\n", str(error.value))


@pytest.mark.parametrize("steps", [0, 1, 3, 40, 1000, 30_000])
def test_a_loop_that_a_condition_ends_goes_on_with_the_workers(steps: int) -> None:
    """The loop starts on the calling thread; nested loops, swapped carries and indices continue on
    workers."""
    def step(s: Any) -> Any:
        k, x, before, rows = s
        y = lax.fori_loop(0, k % 3, lambda i, z: z * 0.5 + i, x + 1)
        return k + 1, y, x, rows.at[k % 8].add(y)

    @fnx.jit
    def f(n: Any, x: Any) -> Any:
        return lax.while_loop(lambda s: (s[0] < n) & (s[1].sum() < 1e9), step,
                              (0, x, x, jnp.zeros((8, 20))))
    x = np.linspace(0, 1, 20).astype(np.float32)
    got = [f(steps, x) for _ in range(3)]  # repeated calls, also while workers are busy
    k, y, before, rows = 0, x, x, np.zeros((8, 20), np.float32)
    while k < steps:
        z = y + np.float32(1)
        for i in range(k % 3):
            z = z * np.float32(0.5) + np.float32(i)
        rows[k % 8] += z
        k, y, before = k + 1, z, y
    for one in got:
        assert_near(one[:3], (np.int32(k), y, before))
        np.testing.assert_allclose(one[3], rows, rtol=1e-3)


LOOPS: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "scan": lambda f, x: lax.scan(lambda c, _: (f(c), None), x, None, 3)[0],
    "while_loop": lambda f, x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, f(c[1])),
                                              (0, x))[1]}
BEFORE: dict[str, Callable[[Any], Any]] = {
    "a product": lambda m: m @ m.T, "a sum": lambda m: m - m.sum(0),
    "a loop": lambda m: lax.fori_loop(0, 2, lambda i, c: jnp.sin(c @ m), m),
    "a sort": lambda m: jnp.sort(m), "a gather": lambda m: m[jnp.argsort(m[0])],
    "a callback": lambda m: fnx.pure_callback(np.cos, m, m)}


@pytest.mark.cases(1)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("before", BEFORE)
def test_what_was_computed_before_a_loop_is_not_computed_in_its_steps(loop: str, before: str
                                                                     ) -> None:
    def f(m: Any) -> Any:
        made = BEFORE[before](m)

        def step(v: Any) -> Any:
            return jnp.tanh(made @ v + LOOPS[loop](lambda w: made.T @ w / 9, v))

        return LOOPS[loop](step, m[0])

    m = jnp.linspace(-1, 1, 16).reshape(4, 4)
    traced = trace.trace(f, [m._aval], fnx.tree.structure(((m,), {})), transform="test",
                         name="f").close()
    bodies = [b for n in toposort([traced.function], into_functions=True)
              if n.op in (ops.SCAN, ops.WHILE) for b in n.src if b.op is ops.FUNCTION]
    for body in bodies:
        inside = [n.op for n in toposort(body.src)]
        assert inside.count(ops.REDUCE) <= 1 or before == "a loop" and len(inside) < 20
        assert not {ops.SORT, ops.CALLBACK, ops.GATHER} & {*inside}
    made = np.asarray(BEFORE[before](m))
    v = np.asarray(m[0])
    for _ in range(3):
        w = v
        for _ in range(3):
            w = made.T @ w / 9
        v = np.tanh(made @ v + w)
    np.testing.assert_allclose(np.asarray(fnx.jit(f)(m)), v, rtol=2e-5)
    if before in ("a product", "a loop"):
        along = jnp.cos(jnp.arange(16.0)).reshape(4, 4)
        slope = jnp.sum(fnx.grad(lambda m: f(m).sum())(m) * along)
        _, tangent = fnx.jvp(lambda m: f(m).sum(), (m,), (along,))
        np.testing.assert_allclose(slope, tangent, rtol=1e-4)


INSIDE: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "jit": fnx.jit, "two jits": lambda g: fnx.jit(lambda v: fnx.jit(g)(v)),
    "vmap": lambda g: fnx.vmap(lambda row: g(row)[0]),
    "checkpoint": fnx.checkpoint, "call": lambda g: fnx.call(g), "remat of jit":
    lambda g: fnx.checkpoint(fnx.jit(g)), "grad": lambda g: fnx.grad(lambda v: g(v).sum()),
    "jit called before": fnx.jit, "jvp": lambda g: lambda v: fnx.jvp(g, (v,), (v,))[1],
    "cond": lambda g: lambda v: lax.cond(v[0, 0] > 0, g, lambda v: -g(v), v),
    "cond in jit": lambda g: fnx.jit(lambda v: lax.cond(v[0, 0] > 0, g, lambda v: -g(v), v))}


@pytest.mark.cases(5)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("inside", INSIDE)
def test_nor_by_functions_that_are_called_in_its_steps(loop: str, inside: str) -> None:
    def f(m: Any, loop: Callable[[Any, Any], Any]) -> Any:
        made = jnp.sin(m @ m) @ m
        g = INSIDE[inside](lambda v: jnp.tanh(made * v))
        return loop(g, g(m) if "before" in inside else m)

    def thrice(g: Any, x: Any) -> Any:
        return g(g(g(x)))

    m = jnp.cos(jnp.arange(16.0)).reshape(4, 4)
    graph = trace.trace(lambda m: f(m, LOOPS[loop]), [m._aval], fnx.tree.structure(((m,), {})),
                        transform="test", name="f").close().function
    bodies = [b for n in toposort([graph], into_functions=True)
              if n.op in (ops.SCAN, ops.WHILE) for b in n.src if b.op is ops.FUNCTION]
    assert bodies and ops.SIN not in {n.op for n in toposort(bodies, into_functions=True)}
    np.testing.assert_allclose(fnx.jit(lambda m: f(m, LOOPS[loop]))(m), f(m, thrice), rtol=1e-5)


def test_a_branch_alone_computes_what_it_alone_reads() -> None:
    """So a NaN in the derivative of the other branch does not leak."""
    def f(x: Any) -> Any:
        root = jnp.sqrt(x)
        return lax.cond(x > 0, lambda: root, lambda: 0.0)

    assert fnx.grad(f)(0.0) == 0

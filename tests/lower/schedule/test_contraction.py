"""Sums of products in every spelling are tiled as matrix products and keep their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import toposort
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import canonicalize
from fnx.lower.analysis.workload import extent, stride
from fnx.lower.kernel.coalesce import coalesce
from fnx.lower.kernel.hoist_scalar_factors import hoist_scalar_factors
from fnx.lower.schedule import contraction, contraction_tiling
from fnx.lower.schedule.generic_tiling import generic_schedule
from fnx.lower.schedule.knobs import HEURISTIC, TuningKnobs
from tests.lower.steps import AVX512, steps_of, tiled_kernels

Spelling = Callable[..., Any]
AVX2 = AVX512.replace(vector_bits=256, vector_registers=16)
M, K, N = 40, 24, 48

RANDOM = np.random.default_rng(0)
A, B = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((M, K), (K, N)))
S = np.float32(0.75)
V = {n: RANDOM.standard_normal(n).astype(np.float32) for n in (M, K, N)}
MASK = RANDOM.standard_normal((M, N)).astype(np.float32)



# Sums over m, k, n; ``xp`` is NumPy or fnx.numpy.
SPELLINGS: dict[str, Spelling] = {
    "a * b": lambda xp, a, b: a * b,
    "b * a": lambda xp, a, b: b * a,
    "a * b * s": lambda xp, a, b: a * b * S,
    "s * (a * b)": lambda xp, a, b: S * (a * b),
    "(a * s) * b": lambda xp, a, b: (a * S) * b,
    "a * (s * b)": lambda xp, a, b: a * (S * b),
    "a * b * v[m]": lambda xp, a, b: a * b * V[M][:, None, None],
    "a * b * v[k]": lambda xp, a, b: a * b * V[K][None, :, None],
    "v[n] * (a * b)": lambda xp, a, b: V[N][None, None, :] * (a * b),
    "(a * v[m]) * (b * v[n])": lambda xp, a, b: (a * V[M][:, None, None]) * (b * V[N]),
    "(a * mask[m, n]) * b": lambda xp, a, b: (a * MASK[:, None, :]) * b,
    "a * b * mask[m, n]": lambda xp, a, b: a * b * MASK[:, None, :],
    "-(a * b)": lambda xp, a, b: -(a * b),
    "(a * b) / s": lambda xp, a, b: a * b / np.float32(3),
    "where(a > 0, a, 0) * b": lambda xp, a, b: xp.where(a > 0, a, np.float32(0)) * b,
    "where(mask, a * b, 0)": lambda xp, a, b: xp.where(a > 0, a * b, np.float32(0)),
    "int(a) * b": lambda xp, a, b: a.astype("int32").astype("float32") * b,
    "double(a * b)": lambda xp, a, b: (a * b).astype("float64"),
    "double(a) * double(b)": lambda xp, a, b: a.astype("float64") * b.astype("float64"),
}

# Products of a: [batch, m, k] and b: [batch, k, n] with their axes in some order.
LAYOUTS: dict[str, Spelling] = {
    "a @ b": lambda xp, a, b: a @ b,
    "transposed a": lambda xp, a, b: xp.swapaxes(xp.swapaxes(a, -1, -2) * 2, -1, -2) @ b,
    "transposed b": lambda xp, a, b: a @ xp.swapaxes(xp.swapaxes(b, -1, -2) * 2, -1, -2),
    "transposed result": lambda xp, a, b: xp.swapaxes(a @ b, -1, -2),
    "batch": lambda xp, a, b: xp.stack([a, a + 1]) @ xp.stack([b, b * 2]),
    "batch of one operand": lambda xp, a, b: xp.stack([a, a + 1]) @ b,
    "scaled result": lambda xp, a, b: (a @ b) / S,
}


def contractions(f: Spelling, *args: Any) -> int:
    """Return how many kernels of f are scheduled as matrix products."""
    steps = steps_of(fnx.jit(f).lower(*args).simplified)
    return sum(contraction.match_contraction(canonicalize(coalesce(s.kernel))) is not None
               for s in steps)


@pytest.mark.parametrize("name", SPELLINGS)
def test_products_in_every_spelling_are_tiled(name: str) -> None:
    def f(a: Any, b: Any, xp: Any = jnp) -> Any:
        return xp.sum(SPELLINGS[name](xp, a[:, :, None], b[None]), 1)

    want = f(A.astype(np.float64), B.astype(np.float64), np)
    got = fnx.jit(f)(A, B)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5 if "int" not in name else 2e-4)
    assert contractions(f, A, B) == 1


@pytest.mark.parametrize("name", LAYOUTS)
def test_products_in_every_layout_are_tiled(name: str) -> None:
    def f(a: Any, b: Any, xp: Any = jnp) -> Any:
        return LAYOUTS[name](xp, a, b)

    np.testing.assert_allclose(fnx.jit(f)(A, B), f(A, B, np), rtol=2e-5, atol=4e-5)
    assert contractions(f, A, B) == 1


@pytest.mark.parametrize("name,f", [
    ("matrix times vector", lambda a, b: jnp.sum(a * b[:, 0], 1)),
    ("one factor has all of the result", lambda a, b: jnp.sum(
        (a[:, :, None] + b[None]) * b[None], 1)),
    ("a factor that is not summed over", lambda a, b: jnp.sum(
        (a[:, :1, None] * b[None]), 1)),
    ("a product of maxima", lambda a, b: jnp.max(a[:, :, None] * b[None], 1)),
])
def test_what_is_no_product_of_two_families_is_not(name: str, f: Spelling) -> None:
    assert contractions(f, A, B) == 0


BATCHES: dict[str, tuple[Spelling, int]] = {
    "matrix times each row": (lambda a, b: fnx.vmap(lambda x: x @ b)(a), 1),
    "columns": (lambda a, b: fnx.vmap(lambda x: b.T @ x, 1, 1)(a.T), 1),
    "products of lanes": (lambda a, b: fnx.vmap(lambda a, b: a @ b)(
        jnp.stack([a, a + 1]), jnp.stack([b, b * 2])), 1),
    "of every pair": (lambda a, b: fnx.vmap(lambda x: fnx.vmap(lambda y: x @ y, 1)(b))(a), 1),
    "gradient in the matrix": (lambda a, b: fnx.grad(lambda b: jnp.sum(jnp.sin(
        fnx.vmap(lambda x: x @ b)(a))))(b), 2),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_of_products_is_a_product(name: str) -> None:
    """A vmap of matrix times vector is matrix times matrix."""
    f, count = BATCHES[name]
    assert contractions(f, A, B) == count


def test_a_long_chain_of_factors_is_looked_at_in_part() -> None:
    def f(a: Any, b: Any) -> Any:
        total = a[:, :, None] * b[None]
        for i in range(100):
            total = total * (a[:, :, None] + i)
        return jnp.sum(total, 1)

    kernels = fnx.jit(f).lower(A, B).kernels
    assert any(n.op is ops.REDUCE for k in kernels for n in toposort(k.node.src))


def test_lanes_of_a_long_sum_go_where_reads_are_contiguous() -> None:
    """Packing would read the long factor once more, for a small result."""
    a, b = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((512, 20), (18, 512)))
    f = fnx.jit(lambda a, b: a.T @ b.T)
    assert [k.name.split()[0] for k in f.lower(a, b).kernels] == ["contract_mul"]
    np.testing.assert_allclose(f(a, b), a.T @ b.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "columns", "terms", "kernels"), [
    (2, 300, 400, 1), (6, 40, 70, 1), (13, 33, 600, 1), (90, 50, 515, 1), (90, 600, 100, 2)])
def test_few_rows_times_a_transposed_matrix_do_not_pack_it(
        rows: int, columns: int, terms: int, kernels: int) -> None:
    """They are dot products of contiguous rows: each row is read once, in place."""
    draw = np.random.default_rng(1)
    a, b = (draw.standard_normal((n, terms)).astype(np.float32) for n in (rows, columns))

    def f(a: Any, b: Any) -> Any:
        return jnp.einsum("mk,nk->mn", a + 1, b) * 2
    g = fnx.jit(f)
    assert len(g.lower(a, b).kernels) == kernels
    np.testing.assert_allclose(g(a, b), (a.astype(np.float64) + 1) @ b.T * 2, atol=1e-3)
    np.testing.assert_allclose(
        fnx.jit(lambda a, b: jnp.einsum("mk,nk->mn", a, b))(a, b),
        jnp.einsum("mk,nk->mn", jnp.asarray(a), jnp.asarray(b)), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("rows", [100, 128, 200, 256, 300, 791])
def test_few_rows_are_computed_that_are_not_there(rows: int) -> None:
    """Tiles are full, or nearly so, so that few out-of-bounds rows are computed."""
    a, b = jnp.ones((rows, 64)), jnp.ones((64, 256))
    *_, kernel = fnx.jit(lambda a, b: a @ b).lower(a, b).kernels
    assert kernel.flops < 2 * 1.12 * rows * 64 * 256


@pytest.mark.parametrize("columns", [2, 4, 10])
def test_few_columns_fill_lanes_along_contiguous_rows(columns: int) -> None:
    """The gradient of a weight with few outputs: lanes along its inputs, none of which is empty."""
    a, b = RANDOM.standard_normal((300, 128)), RANDOM.standard_normal((300, columns))
    a, b = a.astype(np.float32), b.astype(np.float32)
    f = fnx.jit(lambda a, b: a.T @ b)
    kernel, = f.lower(a, b).kernels
    assert kernel.flops < 2 * 1.12 * columns * 300 * 128
    np.testing.assert_allclose(f(a, b), a.T @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", [2, 4])
def test_few_columns_are_packed_for_dot_products(columns: int) -> None:
    """Lanes along the sum, in which the long factor is contiguous: none of them is empty."""
    a, b = RANDOM.standard_normal((400, 256)), RANDOM.standard_normal((256, columns))
    a, b = a.astype(np.float32), b.astype(np.float32)
    f = fnx.jit(lambda a, b: a @ b)
    *_, kernel = f.lower(a, b).kernels
    assert kernel.flops < 2 * 1.12 * columns * 400 * 256
    np.testing.assert_allclose(f(a, b), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(24, 300, 512), (64, 784, 512), (300, 300, 512)])
@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_products_of_any_lengths_share_panels(shape: tuple[int, int, int], target: Target) -> None:
    """Workers share column panels, which each packs: in place, the columns of a panel lie pages
    apart; blocks of rows are of a height that few lengths divide."""
    m, k, n = shape
    product, = steps_of(fnx.jit(lambda a, b: a @ b).lower(
        jnp.ones((m, k)), jnp.ones((k, n))).simplified)
    matmul = contraction.match_contraction(canonicalize(coalesce(product.kernel)))
    assert matmul is not None
    steps = generic_schedule(matmul, target)
    assert steps is not None
    text = [str(step) for step in steps]
    assert any(step.startswith("parallel(") and "_jr" in step for step in text), text
    assert any(step.startswith("stage(") and "PRIV" in step for step in text), text


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_few_terms_of_large_results_go_along_rows(target: Target) -> None:
    """An update of weights with the gradient of a small batch: down its columns, each line of the
    weights would be far from the one before. In long sums the factors count, not the results."""
    def schedule(batch: int) -> str:
        step, *_ = steps_of(fnx.jit(lambda x, d, w: w - 0.01 * (x.T @ d)).lower(
            jnp.ones((batch, 1024)), jnp.ones((batch, 1024)), jnp.ones((1024, 1024))).simplified)
        kernel = hoist_scalar_factors(canonicalize(coalesce(step.kernel)))
        matmul = contraction.match_contraction(kernel)
        assert matmul is not None and len(matmul.results) == 2
        order, = [str(t) for t in contraction_tiling.schedule(
            matmul, target, TuningKnobs(HEURISTIC)) if str(t).startswith("order")]
        return order

    few, many = schedule(16), schedule(2048)
    assert few.index("_ir'") < few.index("_jr'"), few
    assert many.index("_jr'") < many.index("_ir'"), many


def test_a_matrix_is_packed_in_transposed_blocks() -> None:
    """Rows of the right factor are read as vectors, like those of the left one."""
    draw = np.random.default_rng(2)
    a, b = (draw.standard_normal((n, 150)).astype(np.float32) for n in (130, 300))
    f = fnx.jit(lambda a, b: a @ b.T)
    pack, _ = tiled_kernels(f.lower(a, b).simplified, AVX512)
    kinds = [r.arg.kind for r in pack.src[0].ranges]
    assert "pack" in pack.arg.name and kinds.count("VEC") == kinds.count("UNROLL") == 1
    np.testing.assert_allclose(f(a, b), a.astype(np.float64) @ b.T, atol=1e-4)


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_a_transposed_left_factor_is_packed_line_by_line(target: Target) -> None:
    """Tiles that share lines of the source are packed together: alone, each would read a part of
    each line, and rows of 2 KB evict each other before the next tile."""
    draw = np.random.default_rng(3)
    for rows in (512, 504, 500):
        a, b = (draw.standard_normal((512, n)).astype(np.float32) for n in (rows, 512))
        f = fnx.jit(lambda a, b: a.T @ b)
        kernels = tiled_kernels(f.lower(a, b).simplified, target)
        packs = [k for k in kernels if "pack" in k.arg.name]
        for pack in packs:
            loads = [n for n in toposort(pack.src) if n.op is ops.LOAD]
            assert {r.arg.kind for n in loads for r in n.ranges} >= {"PAR", "SEQ", "UNROLL"}
        assert packs or rows != 512 or target is AVX2
        np.testing.assert_allclose(f(a, b), a.T.astype(np.float64) @ b, atol=1e-3)


@pytest.mark.parametrize("name", ["a * b", "a * b * s", "s * (a * b)", "(a * s) * b",
                                  "a * (s * b)", "(a * v[m]) * (b * v[n])", "-(a * b)",
                                  "(a * b) / s", "int(a) * b"])
def test_a_term_is_one_product_of_two(name: str) -> None:
    """Scalars are applied to the packed factors or after the sum; so are vectors that multiply a
    factor."""
    def f(a: Any, b: Any) -> Any:
        return jnp.sum(SPELLINGS[name](jnp, a[:, :, None], b[None]), 1)

    step, = steps_of(fnx.jit(f).lower(A, B).simplified)
    found = contraction.match_contraction(hoist_scalar_factors(coalesce(step.kernel)))
    assert found is not None
    term = found.reduce.src[0]
    assert term.op is ops.MUL and set(term.src) == {found.left, found.right}


@pytest.mark.parametrize("u", [np.inf, np.nan, 1e30, 1e-30])
@pytest.mark.parametrize("name", ["of all", "of rows", "of columns", "of both", "along"])
def test_a_factor_of_the_terms_is_a_factor_of_the_terms(name: str, u: float) -> None:
    """Infinities and overflow occur term by term, as in NumPy."""
    at = {"of all": (1, 1, 1), "of rows": (M, 1, 1), "of columns": (1, 1, N), "of both": (M, 1, N),
          "along": (1, K, 1)}[name]
    u_of = np.full(at, u, np.float32)

    def f(a: Any, b: Any, u: Any) -> Any:
        return (a[:, :, None] * b[None] * u).sum(1)

    a, b = (x * np.float32(1e-10 if u == 1e30 else 1e15) for x in (A, B))
    with np.errstate(all="ignore"):
        want = f(a, b, u_of)
    np.testing.assert_allclose(fnx.jit(f)(a, b, u_of), want, rtol=1e-4,
                               atol=1e-4 * np.abs(want[np.isfinite(want)]).max(initial=0))


@pytest.mark.parametrize("name", ["x @ x", "x.T @ x", "x @ x.T"])
def test_a_matrix_times_itself_is_packed_as_two_are(name: str) -> None:
    """A stage of the operand replaces one factor only: both are read from the operand."""
    def f(x: Any, y: Any) -> Any:
        return eval(name.replace(" x", " y"), {"x": x, "y": y})

    x = RANDOM.standard_normal((256, 256)).astype(np.float32)
    once, twice = fnx.jit(lambda x: f(x, x)), fnx.jit(f)
    made = [[sum(n.op is ops.STAGE for n in toposort(k.node.src)) for k in g.lower(*args).kernels]
            for g, args in ((once, (x,)), (twice, (x, x)))]
    assert made[0] == made[1]
    np.testing.assert_array_equal(once(x), twice(x, x.copy()))
    np.testing.assert_allclose(once(x), f(x, x), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("m", [1, 130, 600])
@pytest.mark.parametrize("name", ["left", "right", "both"])
def test_factors_that_are_in_no_memory(name: str, m: int) -> None:
    """They are computed from indices alone, so they have no strides."""
    k, n = 65, 40
    i, j = (np.arange(m * k) % 7).reshape(m, k), (np.arange(k * n) % 5).reshape(k, n)

    def f(x: Any, y: Any) -> Any:
        left = jnp.arange(m * k).reshape(m, k) % 7 if name != "right" else x
        right = jnp.arange(k * n).reshape(k, n) % 5 if name != "left" else y
        return left.astype("float32") @ right.astype("float32")

    x, y = i.astype(np.float32), j.astype(np.float32)
    np.testing.assert_array_equal(fnx.jit(f)(x, y), x @ y)


@pytest.mark.parametrize("columns", [4, 16, 256])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_computed_factor_is_computed_once_for_each_element(columns: int, side: str) -> None:
    """x * x + x of one load is packed as a whole: no product of it is in the sum."""
    x, w = jnp.ones((300, 64)), jnp.ones((64, columns))

    def f(x: Any, w: Any) -> Any:
        return (x * x + x) @ w if side == "left" else x @ (w * w * w + w)
    kernels = [k.node for k in fnx.jit(f).lower(x, w).kernels]
    sums = [n for kernel in kernels for n in toposort([kernel]) if n.op is ops.REDUCE]
    assert sums
    for n in sums:  # of two factors, which are read
        inside = toposort(n.src, stop=lambda m: m.op is ops.LOAD)
        assert sum(m.op is ops.MUL and m.dtype.is_float for m in inside) <= 1


def test_tiles_are_high_where_an_operand_beside_the_sum_is_transposed() -> None:
    """A line of it goes down the rows of a tile, and each lane of the tile waits for one."""
    def longest_unrolled(f: Any, *shapes: tuple[int, int]) -> int:
        kernel, = fnx.jit(f).lower(*[np.ones(s, np.float32) for s in shapes]).kernels
        return max(extent(n) for n in toposort(kernel.node.src)
                   if n.op is ops.RANGE and n.arg.kind == "UNROLL")

    factors = (512, 4), (4, 256)
    assert longest_unrolled(lambda a, b, c: a @ b + c, *factors, (512, 256)) <= 8
    assert longest_unrolled(lambda a, b, c: a @ b + c.T, *factors, (256, 512)) >= 10


@pytest.mark.parametrize("rows,shape,target,height", [
    (12, (1024, 1024), AVX512, 12), (16, (1024, 1024), AVX512, 16), (24, (1024, 1024), AVX512, 12),
    (12, (1024, 1024), AVX2, 6),  # a vector is half of a line
    (12, (64, 64), AVX512, 4),  # the second-level cache holds it
    (40, (1024, 1024), AVX512, 4),  # it is packed once
])
def test_few_rows_pass_once_over_a_large_right_factor(
        rows: int, shape: tuple[int, int], target: Target, height: int) -> None:
    """Its lines come from far: a tile has all rows, or half of them. The rows of the left factor
    are then packed, if they lie pages apart and would evict each other."""
    draw = np.random.default_rng(4)
    a, b = (draw.standard_normal(s).astype(np.float32) for s in ((rows, shape[0]), shape))
    f = fnx.jit(lambda a, b: a @ b)
    kernels = tiled_kernels(f.lower(a, b).simplified, target)
    product = next(k for k in kernels if any(n.op is ops.REDUCE for n in toposort(k.src)))
    unrolled = {extent(r) for s in product.src for r in s.ranges if r.arg.kind == "UNROLL"}
    assert height in unrolled, unrolled
    assert shape[0] < 1024 or height < 9 or len(kernels) > 1
    np.testing.assert_allclose(f(a, b), a.astype(np.float64) @ b, atol=1e-3)


@pytest.mark.parametrize("computed", [False, True])
def test_few_columns_are_dot_products_also_where_the_factor_is_computed(computed: bool) -> None:
    """It is computed once, along the sum: lanes along four columns would be idle."""
    draw = np.random.default_rng(5)
    a, b = (draw.standard_normal(s).astype(np.float32) for s in ((300, 512), (512, 4)))
    f = fnx.jit((lambda a, b: a @ (b * b + b)) if computed else (lambda a, b: a @ b))
    pack, product = tiled_kernels(f.lower(a, b).simplified, AVX512)
    assert "pack" in pack.arg.name
    lanes = {r for n in toposort(product.src) if n.op is ops.REDUCE
             for r in n.src[1:] if r.arg.kind == "VEC"}
    assert len(lanes) == 1
    want = a.astype(np.float64) @ ((b * b + b) if computed else b)
    np.testing.assert_allclose(f(a, b), want, atol=1e-3)


MIXED_FACTORS: dict[str, Spelling] = {
    "x * m.T": lambda x, m: x * m.T,
    "where(m.T > 0, x, 0)": lambda x, m: jnp.where(m.T > 0, x, 0),
    "(x * m).T": lambda x, m: (x * m).T,
    "x - m": lambda x, m: x - m,
    "x * exp(m.T) + m": lambda x, m: x * jnp.exp(m.T) + m,
    "outer products": lambda x, m: x[0][:, None] * m[0] + m[1][:, None] * x[1],
    "outer product, transposed": lambda x, m: (x[0][:, None] * m[:, 0]).T,
}


@pytest.mark.parametrize("rows", [8, 33, 200])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", MIXED_FACTORS)
def test_a_factor_of_several_arrays_is_packed_whole(name: str, side: str, rows: int) -> None:
    """Whatever their layouts: no strided load is left in the loops of a long sum."""
    draw, factor = np.random.default_rng(7), MIXED_FACTORS[name]
    x, m, y = (draw.standard_normal(s).astype(np.float32)
               for s in ((200, 200), (200, 200), (rows, 200)))

    def f(x: Any, m: Any, y: Any) -> Any:
        return y @ factor(x, m) if side == "right" else factor(x, m) @ y.T
    lowered = fnx.jit(f).lower(x, m, y)
    made = np.asarray(factor(*map(jnp.asarray, (x, m)))).astype(np.float64)
    want = y @ made if side == "right" else made @ y.T
    np.testing.assert_allclose(fnx.jit(f)(x, m, y), want, atol=2e-3)
    if rows == 200 and side == "right":
        *_, product = tiled_kernels(lowered.simplified, AVX512)
        sums = [n for n in toposort(product.src) if n.op is ops.REDUCE]
        loads = [n for s in sums for n in toposort(s.src, stop=lambda n: n.op is ops.STAGE)
                 if n.op is ops.LOAD]
        lanes = [r for r in product.src[0].ranges if r.arg.kind == "VEC"]
        assert sums and all(abs(stride(n, r)) <= 1 for n in loads for r in lanes if r in n.ranges)


def test_a_factor_made_of_parts_of_its_axes_is_packed() -> None:
    """The derivative of x @ w @ y for many w: no operand has all axes of the right factor."""
    draw = np.random.default_rng(8)
    a, b, w = (draw.standard_normal(s).astype(np.float32)
               for s in ((64, 32), (64, 48), (24, 32, 48)))

    def f(a: Any, b: Any, w: Any) -> Any:
        made = a[:, :, None] * b[:, None, :] + (a[:, :, None] + 1) * b[:, None, :]
        return jnp.einsum("okl,jkl->oj", w, made)
    pack, product = tiled_kernels(fnx.jit(f).lower(a, b, w).simplified, AVX512)
    assert "pack" in pack.arg.name
    sums = [n for n in toposort(product.src) if n.op is ops.REDUCE]
    assert sums and not any(n.op is ops.ADD for s in sums for n in toposort(
        s.src, stop=lambda n: n.op in (ops.LOAD, ops.RANGE)))
    made = a[:, :, None] * b[:, None, :] + (a[:, :, None] + 1) * b[:, None, :]
    np.testing.assert_allclose(fnx.jit(f)(a, b, w), np.einsum(
        "okl,jkl->oj", w, made.astype(np.float64)), rtol=1e-4, atol=2e-3)

"""FFT: lengths of every kind against NumPy, accuracy, derivatives, batching, devices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx import errors
from fnx.core.array.api_boundary import public_api
from fnx.core.array.array import Array
from fnx.core.formulas import fft_plan
from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp, spec
from fnx.core.support.target import Target
from fnx.lower.emit import fft as emit_fft
from fnx.lower.tensor.plan_fft import plan_fft
from fnx.numpy import fft_core


@public_api
def transform(x: Array, axis: int = -2, inverse: bool = False, scale: float = 1.0) -> Array:
    return Array(fft_core.transform(x._node, axis % x.ndim, inverse, scale))


def reference(x: np.ndarray, axis: int = -2, inverse: bool = False) -> np.ndarray:
    z = x[..., 0].astype(np.float64) + 1j * x[..., 1]
    at = axis % x.ndim
    z = np.fft.ifft(z, axis=at) * x.shape[at] if inverse else np.fft.fft(z, axis=at)
    return np.stack([z.real, z.imag], -1)


def error(found: Array, expected: np.ndarray) -> float:
    norm = np.sqrt(np.mean(expected ** 2)) or 1.0
    return float(np.sqrt(np.mean((np.asarray(found) - expected) ** 2)) / norm)


def values(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.cases(9)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 11, 13, 15, 16, 17, 24, 60, 77, 128, 169, 210,
                               256, 509, 1000, 1536, 2040, 4096, 16384])
def test_lengths(n: int) -> None:
    x = values((n, 2))
    assert error(fnx.jit(transform)(jnp.asarray(x)), reference(x)) < 3e-7
    assert error(transform(jnp.asarray(x), inverse=True), reference(x, inverse=True)) < 3e-7


@settings(max_examples=12, deadline=None)
@given(shape=st.lists(st.integers(1, 20), min_size=1, max_size=3), axis=st.integers(0, 2),
       inverse=st.booleans(), wide=st.booleans())
def test_any_axis(shape: list[int], axis: int, inverse: bool, wide: bool) -> None:
    axis %= len(shape)
    dtype = "float64" if wide else "float32"
    with fnx.enable_x64(True):
        x = values((*shape, 2), dtype)
        found = transform(jnp.asarray(x), axis, inverse)
        assert found.dtype == dtype
        assert error(found, reference(x, axis, inverse)) < (2e-15 if wide else 5e-7)


@pytest.mark.cases(1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_is_as_accurate_as_pocketfft(dtype: str) -> None:
    """scripts/fft_accuracy.py measures all lengths."""
    for n in (13, 17, 46, 97, 101, 720, 4096, 1 << 16):
        x = values((max(1, 512 // n), n, 2), dtype)
        z = x[..., 0] + 1j * x[..., 1]
        expected, pocket = [np.stack([y.real, y.imag], -1) for y in (
            scipy.fft.fft(z.astype(np.clongdouble)), scipy.fft.fft(z))]
        with fnx.enable_x64(True):
            assert error(transform(jnp.asarray(x)), expected) < 1.5 * error(pocket, expected)


def test_real_lengths_with_a_prime_factor_are_as_accurate_as_pocketfft() -> None:
    for n in (107, 127, 254):
        x = values((17, n))
        expected, pocket = scipy.fft.rfft(x.astype(np.longdouble)), scipy.fft.rfft(x)
        found = np.asarray(jnp.fft.rfft(jnp.asarray(x)))
        assert np.linalg.norm(found - expected) < 1.5 * np.linalg.norm(pocket - expected)


def test_derivatives_are_transforms() -> None:
    with fnx.enable_x64(True):
        x, t = values((3, 12, 2), "float64"), values((3, 12, 2), "float64")
        f = lambda x: transform(x, scale=0.5)
        _, tangent = fnx.jvp(f, (jnp.asarray(x),), (jnp.asarray(t),))
        assert error(tangent, 0.5 * reference(t)) < 1e-15
        _, pullback = fnx.vjp(f, jnp.asarray(x))
        assert error(pullback(jnp.asarray(t))[0], 0.5 * reference(t, inverse=True)) < 1e-15

        rows = values((16, 109, 2), "float64")  # a prime length
        _, pullback = fnx.vjp(transform, jnp.asarray(rows))
        assert error(pullback(jnp.asarray(rows))[0], reference(rows, inverse=True)) < 2e-15

        def energy(x: Array) -> Array:
            return jnp.sum(jnp.square(transform(x)))
        hessian = fnx.hessian(energy)(jnp.asarray(x[0, :4]))
        assert error(hessian.reshape(8, 8), 8 * np.eye(8)) < 1e-14


def test_batches() -> None:
    x = values((4, 3, 20, 2))
    expected = reference(x)
    for axis in (0, 1):
        found = fnx.vmap(transform, in_axes=axis, out_axes=axis)(jnp.asarray(x))
        assert error(found, expected) < 3e-7
    columns = fnx.vmap(lambda x: transform(x, 0), in_axes=2, out_axes=2)(jnp.asarray(x))
    assert error(columns, reference(x, 0)) < 3e-7


def test_in_a_loop() -> None:
    x = values((64, 2))

    def step(carry: Array, _: None) -> tuple[Array, None]:
        return transform(transform(carry), inverse=True, scale=1 / 64), None
    out, _ = fnx.jit(lambda x: fnx.lax.scan(step, x, None, length=3))(jnp.asarray(x))
    assert error(out, x) < 1e-6


def test_a_nan_spreads_over_its_row_only() -> None:
    x = values((2, 48, 2))
    x[0, 3, 1] = np.nan
    out = np.asarray(transform(jnp.asarray(x)))
    assert np.isnan(out[0]).all() and np.isfinite(out[1]).all()


def test_interpreter() -> None:
    x = values((2, 60, 2))
    with fnx.default_device("interp"):
        assert error(transform(jnp.asarray(x)), reference(x)) < 3e-7


@pytest.mark.cases(4)
@pytest.mark.parametrize("shape", [(16, 7), (37, 16), (20, 100), (3, 20, 2, 2), (17, 136),
                                   (16, 1000), (127, 18), (17, 113)])
def test_many_short_rows(shape: tuple[int, ...]) -> None:
    x = values((*shape, 2))
    assert error(transform(jnp.asarray(x)), reference(x)) < 3e-7
    assert error(transform(jnp.asarray(x), 0), reference(x, 0)) < 3e-7
    y = transform(jnp.asarray(x), inverse=True, scale=0.5)
    assert error(y, 0.5 * reference(x, inverse=True)) < 3e-7


@pytest.mark.parametrize("n", [2, 6, 35, 64, 1000])
def test_stages_as_graph_ops(n: int) -> None:
    """What targets without programs of vectors get: the same plan, table and values."""
    x = values((3, n, 2))
    node = build.param(0, dtypes.float32, x.shape)
    table = fft_plan.table(n, 1).astype("float32")
    param = build.param(1, dtypes.float32, table.shape)
    for inverse in (False, True):
        fft = build.function([build_calls.fft(node, param, 1, inverse, 0.5)], 2)
        expanded = plan_fft(fft, by_stages=True)
        spec.check([fft, expanded], "tensor")
        assert not {ops.FFT, ops.FFT_STEP} & {node.op for node in toposort(expanded.src)}
        found, = interp.apply(expanded, [x, table])
        assert error(found, 0.5 * reference(x, inverse=inverse)) < 3e-7


@pytest.mark.parametrize("shape", [(16, 2), (37, 6), (40, 130), (3, 20, 48), (17, 2048),
                                   (16, 272)])
def test_rows_of_real_numbers(shape: tuple[int, ...]) -> None:
    """A step goes between neighbors and half of the spectrum; ends of it have no imaginary part."""
    x = values(shape)
    z = np.fft.rfft(x)
    found = np.asarray(fnx.jit(jnp.fft.rfft)(jnp.asarray(x)))
    assert np.linalg.norm(found - z) < 3e-7 * np.linalg.norm(z)
    assert not found.imag[..., [0, -1]].any()
    z.imag[..., [0, -1]] = np.nan
    back = fnx.jit(lambda z: jnp.fft.irfft(z, norm="forward"))(jnp.asarray(z))
    assert error(back, x * shape[-1]) < 3e-7


@pytest.mark.parametrize("n", [1, 6, 1000])
def test_real_transforms_as_graph_ops(n: int) -> None:
    table = fft_plan.table(n, 1, True).astype("float32")
    param = build.param(1, dtypes.float32, table.shape)
    x = values((2, n, 2))
    exact = np.fft.rfft(x.reshape(2, -1).astype(np.float64))
    z = np.stack([exact.real, exact.imag], -1).astype("float32")
    for inverse, operand, expected in ((False, x, z), (True, z, 2 * n * x)):
        node = build.param(0, dtypes.float32, operand.shape)
        fft = build.function([build_calls.fft(node, param, 1, inverse, 0.5, True)], 2)
        for by_stages in (True, False):
            planned = plan_fft(fft, by_stages)
            spec.check([fft, planned], "tensor")
            found, = interp.apply(planned, [operand, table])
            assert error(found, 0.5 * expected) < 3e-7


@pytest.mark.parametrize("name", ["rfft", "irfft"])
@pytest.mark.parametrize("columns", [3, 16, 42])
def test_the_interpreter_transforms_many_real_columns(columns: int, name: str) -> None:
    """Many short rows are one step, whose scale is that of its result."""
    x = values((8, columns))
    f = fnx.jit(lambda x: getattr(jnp.fft, name)(x, axis=0), device="interp")
    np.testing.assert_allclose(f(jnp.asarray(x)), getattr(np.fft, name)(x, axis=0), rtol=1e-5,
                               atol=1e-5)


def test_tables_that_are_too_short_are_refused() -> None:
    x = build.param(0, dtypes.float32, (3, 60, 2))
    sizes = [(n, False) for n in (0, 1, fft_plan.table_size(60, 1) - 1)]
    for size, real in (*sizes, (fft_plan.table_size(60, 1), True)):
        node = build_calls.fft(x, build.param(1, dtypes.float32, (size,)), 1, real=real)
        with pytest.raises(errors.SpecError):
            spec.check([build.function([node], 2)], "tensor")
    arg = op_args.FftStep("fft", dtypes.float32, (1, 60, 1), (5, 4, 3), (5, 4, 3), 0)
    for changed in (arg.replace(table=9), arg.replace(radices=(5, 4)), arg.replace(kinds=(5, 4)),
                    arg.replace(twiddles=150), arg.replace(roots=0), arg.replace(
                        rows=True, roots=fft_plan.stage_table_size(60))):
        step = build_calls.fft_step(build.param(0, dtypes.float32, (1, 60, 1, 2)), build.param(
            1, dtypes.float32, (fft_plan.stage_table_size(60),)), changed)
        with pytest.raises(errors.SpecError):
            spec.check([build.function([step], 2)], "tensor")


def test_without_fused_multiply_add() -> None:
    arg = op_args.FftStep("fft", dtypes.float32, None, (8, 7), (), 0)
    step = build_calls.callee(UOp(ops.FFT_STEP, dtypes.void, (), arg))
    targets = [Target("cpu", fma=fma) for fma in (True, False)]
    found = [{line.op for line in emit_fft.program(step, target).src} for target in targets]
    assert [ops.MULACC in lines for lines in found] == [True, False]


def test_long_columns_and_three_steps() -> None:
    x = values((4096 * 2, 2, 2))
    assert error(transform(jnp.asarray(x), 0), reference(x, 0)) < 3e-7


@given(n=st.integers(2, 1 << 20))
def test_plans_multiply_to_the_length(n: int) -> None:
    plan = fft_plan.plan(n, 1)
    if plan is None:
        return
    assert np.prod([s.n for s in plan.steps], dtype=np.int64) == n
    for s in plan.steps:
        assert int(np.prod(fft_plan.radices(s.n))) == s.n <= fft_plan.MAX_STEP
        assert set(fft_plan.radices(s.n)) <= set(plan.kinds)


@given(n=st.integers(1, 10**6), t=st.integers(0, 10**6))
def test_roots_are_exact_to_half_an_ulp(n: int, t: int) -> None:
    angle = np.longdouble(2) * np.pi * np.longdouble(t % n) / n
    exact = complex(np.cos(angle)), complex(-np.sin(angle))
    got = complex(fft_plan.roots(np.array([t]), n)[0])
    assert abs(got.real - exact[0].real) < 4e-16 and abs(got.imag - exact[1].real) < 4e-16

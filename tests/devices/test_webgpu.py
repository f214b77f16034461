"""WebGPU computes what the cpu computes: integers bit for bit, floats within a bound."""

from __future__ import annotations

import importlib
import re
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx.backends import webgpu as backend
from fnx.backends.device.base import get_device
from fnx.backends.gpu.call_list import CallList
from fnx.backends.libwgpu import PreparedPass
from fnx.core.ir import build, dtypes, ops
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError, DTypeError, KernelError
from fnx.lower.pipeline import lower
from fnx.lower.render.wgsl_functions import HELPERS, UINT64_HELPERS
from tests.devices.conftest import found
from tests.devices.test_opencl import EXAMPLES, FUNCTIONS, W, X, train
from tests.graphs import Graph, graphs
from tests.helpers import assert_same
from tests.laws.test_jit_eager_interp import run
from tests.lower.fusion.test_bindings import most_bound, wide

INTEGERS = (dtypes.int32, dtypes.uint32, dtypes.bool_)
NARROW = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.bool_)


@settings(max_examples=EXAMPLES)
@given(st.integers(1, 3), st.integers(64, 2000), st.integers(0, 99))
def test_subgroups_change_no_bit(rows: int, columns: int, seed: int) -> None:
    """Compare the device with its subgroups to the device without them."""
    device = found("webgpu")
    if not device.target.subgroup:
        pytest.skip("this adapter has no subgroups")
    x = np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)
    p = build.param(0, dtypes.float32, x.shape)
    e = build.exp(p)
    fn = build.function([build.reduce(e, ops.ADD, (1,)), build.reduce(p, ops.MAX, (1,))], 1)
    with_them = run(fn, [x], device, False)
    kept = device.target
    assert "subgroupShuffleXor" in texts(fn, kept)
    device.target = kept.replace(subgroup=0)
    try:
        assert "subgroupShuffleXor" not in texts(fn, device.target)
        assert_same(with_them, run(fn, [x], device, False))
    finally:
        device.target = kept


def texts(fn: Any, target: Any) -> str:
    """Return the texts of a function's kernels."""
    return "".join([code.text() for code in lower(fn, target).code.values()])


def on_the_cpu(f: Any, *args: Any) -> list[Any]:
    with override(device="cpu"):
        return [np.asarray(v) for v in fnx.tree.leaves(fnx.jit(f)(*map(jnp.asarray, args)))]


@pytest.mark.cases(8)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_jitted_function(name: str, webgpu: Any) -> None:
    f = FUNCTIONS[name]
    got = fnx.tree.leaves(fnx.jit(f)(jnp.asarray(X), jnp.asarray(W)))
    for a, b in zip(map(np.asarray, got), on_the_cpu(f, X, W), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=3e-5, atol=2e-5)


@settings(max_examples=EXAMPLES)
@given(graphs(types=INTEGERS, steps=14))
def test_integers_have_the_cpus_bits(graph: Graph) -> None:
    want = run(graph.fn, graph.args, get_device("cpu"), False)
    for lengths_later in (False, True):
        assert_same(run(graph.fn, graph.args, found("webgpu"), lengths_later), want)


@settings(max_examples=EXAMPLES)
@given(graphs(types=NARROW, steps=14))
def test_parts_of_words_have_the_cpus_bits(graph: Graph) -> None:
    assert_same(run(graph.fn, graph.args, found("webgpu"), False),
                run(graph.fn, graph.args, get_device("cpu"), False))


# The largest allowed difference from the cpu in ulps, where the cpu's value is not subnormal.
ULP: dict[str, tuple[Any, float]] = {
    "exp": (jnp.exp, 1), "log": (lambda x: jnp.log(abs(x)), 1), "tanh": (jnp.tanh, 2),
    "sin": (jnp.sin, 2), "cos of large": (lambda x: jnp.cos(x * 1e4), 2), "expm1": (jnp.expm1, 2),
    "sin of huge": (lambda x: jnp.sin(x * 1e30), 3), "log1p": (lambda x: jnp.log1p(abs(x)), 1),
    "power": (lambda x: abs(x) ** 1.7, 1), "power to": (lambda x: 1.3 ** x, 1),
    "cbrt": (jnp.cbrt, 1), "arctan": (jnp.arctan, 1), "arcsin": (lambda x: jnp.arcsin(x / 100), 1),
    "sqrt": (lambda x: jnp.sqrt(abs(x)), 1), "reciprocal": (lambda x: 1 / x, 1),
    "fmod": (lambda x: jnp.fmod(x, 0.37), 0), "fmod of": (lambda x: jnp.fmod(1e30, x), 0),
    "maximum": (lambda x: jnp.maximum(x, x[::-1]), 0), "round": (jnp.round, 0),
    "minimum": (lambda x: jnp.minimum(x, x[::-1]), 0), "choice": (
        lambda x: jnp.where(jnp.isnan(x) | (x > x[::-1]), 1.5, x), 0), "sort": (jnp.sort, 0),
    "to int": (lambda x: x.astype(jnp.int32), 0), "to uint": (lambda x: x.astype(jnp.uint32), 0),
    "to int8": (lambda x: x.astype(jnp.int8), 0), "sign": (jnp.sign, 0),
    "bfloat16": (lambda x: (x.astype(jnp.bfloat16) * 3).astype(jnp.float32), 0),
    "float16": (lambda x: (x.astype(jnp.float16) + 1).astype(jnp.float32), 0),
    "whole": (lambda x: x.astype(jnp.int32) // x[::-1].astype(jnp.int32), 0),
    "rest": (lambda x: x.astype(jnp.int32) % x[::-1].astype(jnp.int32), 0),
}
_RNG = np.random.default_rng(7)
ARGUMENTS = np.concatenate([
    *(_RNG.normal(size=3000) * scale for scale in (1e-3, 1, 10, 80)),
    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 88.7, -87, 1e30, -1e30, 0.5, 2**31, -2**31, 2**32],
]).astype(np.float32)
_LEAST = np.finfo(np.float32).tiny


def ulps(got: Any, want: Any) -> float:
    """Return the largest difference in ulps, without subnormals."""
    a, b = (np.where(abs(v) < _LEAST, 0, v).astype(np.float64) for v in (got, want))
    unit = np.spacing(np.maximum(abs(b), _LEAST).astype(np.float32)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return float(np.where((a == b) | np.isnan(a) & np.isnan(b), 0, abs(a - b) / unit).max())


@pytest.mark.cases(4)
@pytest.mark.parametrize("name", ULP)
def test_bounds_of_functions(name: str, webgpu: Any) -> None:
    f, most = ULP[name]
    got, (want,) = np.asarray(fnx.jit(f)(jnp.asarray(ARGUMENTS))), on_the_cpu(f, ARGUMENTS)
    assert got.dtype == want.dtype
    assert ulps(got, want) <= most


@pytest.mark.parametrize("name", ["gammaln", "digamma"])
def test_gamma_in_single_precision(name: str, webgpu: Any) -> None:
    f, ends = getattr(fnx.scipy.special, name), [0, -0.0, 1, 2, 8, -1, -7, np.inf, -np.inf, np.nan]
    x = np.concatenate([_RNG.uniform(-9, 12, 2000), 10 ** _RNG.uniform(-30, 30, 500), ends]
                       ).astype(np.float32)
    got, (want,) = np.asarray(fnx.jit(f)(jnp.asarray(x))), on_the_cpu(f, x)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    with np.errstate(invalid="ignore"):
        off = np.where((got == want) | np.isnan(got), 0, abs(got - want) / np.maximum(1, abs(want)))
    assert off.max() <= 1e-6


def test_a_training_step_is_one_submit(webgpu: Any) -> None:
    counts = [webgpu.driver.submits]
    losses = train(6, lambda: counts.append(webgpu.driver.submits))
    assert list(np.diff(counts)[1:]) == [1] * 5
    with override(device="cpu"):
        np.testing.assert_allclose(losses, train(6), rtol=2e-5)


def kept_command_buffers() -> int:
    """Return how many encoders and what they encoded were not released."""
    helpers = importlib.import_module("wgpu.backends.wgpu_native._helpers")
    return int(helpers.generate_report()["hub"]["commandBuffers"]["kept"])


def test_a_call_is_encoded_by_machine_code_and_leaves_no_handles(
        webgpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f, x = fnx.jit(lambda x: x * 2 + 1), jnp.arange(12.0)
    for _ in range(4):
        f(x).block_until_ready()
    seen, before = list[str](), kept_command_buffers()  # of a device that other tests lost
    for kind, names in ((type(webgpu.driver.gpu), ("create_command_encoder", "create_buffer")),
                        (type(webgpu.driver.queue), ("submit", "write_buffer"))):
        for name in names:
            monkeypatch.setattr(kind, name, lambda *args, _name=name, **_: seen.append(_name))
    runs: list[int] = []
    run = webgpu.driver.runner.run
    monkeypatch.setattr(webgpu.driver.runner, "run", lambda *a: (runs.append(1), run(*a))[1])
    for _ in range(20):
        y = f(x)
        y.block_until_ready()
    monkeypatch.undo()
    assert not seen and len(runs) == 40  # one encodes, one submits
    assert kept_command_buffers() <= before
    np.testing.assert_array_equal(np.asarray(y), np.arange(12.0, dtype=np.float32) * 2 + 1)


def test_a_pass_that_cannot_be_encoded_is_an_error_and_others_run(
        webgpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, functions = webgpu.driver, webgpu.driver.functions
    calls = CallList(driver.runner, 0, 5)  # a pass begins and does not end
    calls.call("create", functions["DeviceCreateCommandEncoder"], functions.handle(driver.gpu), 0,
               returns=2)
    for name, returns in (("CommandEncoderBeginComputePass", 3), ("CommandEncoderFinish", 4)):
        calls.call(name, functions[name], 0, 0, memory=(2, 0), returns=returns)
    for i, name in enumerate(("CommandEncoderRelease", "ComputePassEncoderRelease"), 2):
        calls.call(name, functions[name], 0, memory=(i, 0), has_status=False)
    prepared = PreparedPass(calls, SimpleNamespace(destroy=lambda: None), [])
    f, x = fnx.jit(lambda x: x * 2 + 1), jnp.arange(12.0)
    with monkeypatch.context() as patch:
        patch.setattr(driver, "_prepare", lambda linked, buffers: prepared)
        with pytest.raises(driver.wgpu.GPUError):
            f(x)
    y = fnx.jit(lambda x: x * 2 + 1)(x)
    np.testing.assert_array_equal(np.asarray(y), np.arange(12.0, dtype=np.float32) * 2 + 1)


def test_a_kernel_takes_little_python(webgpu: Any) -> None:
    def chain(x: Any) -> Any:
        for i in range(20):
            x = jnp.cumsum(x[::-1]) * 0.01 + i
        return x

    f, x = fnx.jit(chain), jnp.asarray(np.ones(64, np.float32))
    f(x)
    spent = []
    for _ in range(20):
        webgpu.synchronize()
        start = time.thread_time()
        f(x)
        spent.append((time.thread_time() - start) / 20)
    assert min(spent) < 100e-6  # 20 us on an idle machine


def test_types_of_64_bits_are_refused_with_the_cure(webgpu: Any) -> None:
    with pytest.raises(DTypeError, match="at most 32 bits, got float64") as why:
        np.asarray(fnx.jit(lambda x: x.astype("float64") * 2)(jnp.asarray(X)))
    assert "use float32" in str(why.value) and "test_webgpu.py" in str(why.value)

    def f(x: Any) -> Any:
        return fnx.scipy.special.betainc(1.0, 2.0, x)
    for call in (f, fnx.jit(f)):
        with pytest.raises(DTypeError, match="at most 32 bits, got float64") as why:
            fnx.tree.map(np.asarray, call(jnp.asarray(X)))
        assert "test_webgpu.py" in str(why.value) and "on another device" in str(why.value)
    assert float(jnp.asarray(X).sum()) == pytest.approx(float(X.sum()), rel=1e-5)


@pytest.mark.parametrize("f", [
    lambda x: jnp.linspace(x[0, 0], 1.3, 1001), lambda x: jnp.histogram(x, bins=20),
    lambda x: jnp.arange(0.1, 300.0, 0.1) + x[0, 0]])
def test_numbers_at_equal_distances_are_those_of_the_processor(webgpu: Any, f: Any) -> None:
    on_cpu = fnx.jit(f, device="cpu")(X)
    for call in (f, fnx.jit(f)):
        got, want = (fnx.tree.leaves(t) for t in (call(jnp.asarray(X)), on_cpu))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_memory_is_pieces_of_few_buffers(webgpu: Any) -> None:
    xs = [jnp.asarray(np.full(100, i, np.float32)) for i in range(30)]
    assert float(sum(x.sum() for x in xs)) == 100 * sum(range(30))
    got = fnx.jit(lambda xs: jnp.stack(xs).sum(0))(xs)
    assert (np.asarray(got) == sum(range(30))).all()


@settings(max_examples=max(1, EXAMPLES // 3))
@given(st.integers(0, 1 << 30))
def test_wide_programs_are_kernels_of_few_buffers(seed: int) -> None:
    device: Any = found("webgpu")
    graph = wide(seed, 14)
    assert most_bound(graph.fn, device) <= backend.ROW.max_buffers
    assert_same(run(graph.fn, graph.args, device, False),
                run(graph.fn, graph.args, get_device("cpu"), False))


def test_large_arrays_beyond_the_bindings(webgpu: Any) -> None:
    rows = backend.MAX_PIECE // 4 + 1
    xs = [jnp.asarray(np.full(rows, i, np.float32)) for i in range(12)]
    total, product = fnx.jit(lambda xs: (sum(xs[1:], xs[0]), xs[0] * xs[-1] + 1))(xs)
    assert (np.asarray(total) == sum(range(12))).all() and (np.asarray(product) == 1).all()


def added(*refs: Any) -> None:
    *xs, out = refs
    i = k.range(4)
    total = xs[0][i]
    for x in xs[1:]:
        total = total + x[i]
    out[i] = total


@pytest.mark.parametrize("operands", [7, 8])
def test_a_hand_written_kernel_has_as_many_buffers_as_can_be_bound(operands: int, webgpu: Any
                                                                  ) -> None:
    xs = [jnp.arange(4, dtype="float32") + i for i in range(operands)]
    f = fnx.jit(fnx.call(added, out=lambda *xs: xs[0]))
    if operands < backend.ROW.max_buffers:
        np.testing.assert_array_equal(np.asarray(f(*xs)), sum(np.asarray(x) for x in xs))
        return
    with pytest.raises(DeviceError, match="a kernel of at most 8 buffers, got 9 for added") as why:
        np.asarray(f(*xs))
    assert "test_webgpu.py" in str(why.value) and "calls with fewer arrays" in str(why.value)


def test_indices_beyond_what_counts_both_ways_read_the_last(webgpu: Any) -> None:
    x, at = (build.param(i, t, (s,)) for i, t, s in ((0, dtypes.int32, 9), (1, dtypes.uint32, 4)))
    fn = build.function([build.gather(x, at)], 2, "read")
    given = [np.arange(9, dtype=np.int32), np.array([0, 2**32 - 1, 2**31, 8], np.uint32)]
    got, = run(fn, given, webgpu, False)
    assert list(got) == [0, 8, 8, 8]


def test_without_the_module_the_cure_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(DeviceError, match="looked for the module wgpu") as why:
        backend.WebGpuDriver()
    assert "pip install wgpu" in str(why.value)


def drawn(seed: Any) -> Any:
    """Random numbers from keys that are split, stacked, selected, looped over and compared."""
    def step(carry: Any, _: Any) -> Any:
        carry, other = fnx.random.split(carry)
        return carry, fnx.random.uniform(other)

    key = fnx.random.key(seed)
    keys = fnx.random.split(fnx.random.fold_in(key, 3), 6)
    last, path = fnx.lax.scan(step, keys[2], None, length=9)
    mixed = jnp.where(jnp.arange(6) % 2 == 0, jnp.concatenate([keys[4:], keys[:4]]), last)
    counted, _ = fnx.lax.while_loop(lambda s: s[1] < seed, lambda s: (
        fnx.random.split(s[0])[1], s[1] + 1), (last, 0))
    return (path, fnx.random.key_data(mixed), mixed == keys, fnx.random.key_data(counted),
            fnx.vmap(lambda k: fnx.random.normal(k, (3,)))(mixed), fnx.random.permutation(key, 9),
            fnx.random.key_data(keys.at[1].set(last)), fnx.random.gamma(key, 2.0, (4,)))


@pytest.mark.cases(1)
@pytest.mark.parametrize("jitted", [True, False])
def test_random_numbers_are_those_of_the_cpu(jitted: bool, webgpu: Any) -> None:
    f = fnx.jit(drawn) if jitted else drawn
    for got, want in zip(map(np.asarray, f(5)), on_the_cpu(drawn, 5), strict=True):
        assert got.dtype == want.dtype
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(got, want)


def test_kernels_have_no_branch_on_values(webgpu: Any) -> None:
    """For each use of a value, Mesa traces branch conditions back to constants; with the rounds of
    a random number this never ends."""
    assert not re.search(r"\bif\b|&&|\|\|", HELPERS + UINT64_HELPERS)
    f = fnx.jit(lambda: fnx.random.normal(fnx.random.key(5), ()))
    np.testing.assert_allclose(f(), on_the_cpu(f)[0], rtol=1e-5)


EDGES = np.array([0, 1, -1, np.inf, np.nan, -0.0, 3e38, 1e-30], np.float32)


@pytest.mark.parametrize("f", [
    lambda x, y: 0.0 / x, lambda x, y: x / 0.0, lambda x, y: x / x, lambda x, y: x - x,
    lambda x, y: x * 0.0, lambda x, y: jnp.arange(8) / 0.0, lambda x, y: jnp.log(x * 0.0),
    lambda x, y: x * 3e38 * 10.0, lambda x, y: x * 1e-30 * 1e-30 * 1e30, lambda x, y: x / y,
    lambda x, y: (x * 1e30) / 1e-30, lambda x, y: jnp.cov(jnp.stack([x[:1], y[:1]]))])
def test_what_is_no_number_is_none(f: Any, webgpu: Any) -> None:
    """WGSL compilers may take 0 * x for 0, and (x * a) * b for x * (a * b)."""
    args = EDGES, np.zeros(8, np.float32)
    want, = on_the_cpu(f, *args)
    np.testing.assert_allclose(np.asarray(fnx.jit(f)(*args)), want, rtol=1e-6)


@pytest.mark.cases(4)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("t", ["int8", "int16", "bool", "bfloat16"])
def test_rows_that_are_parts_of_words(t: str, reverse: bool, webgpu: Any) -> None:
    """Python reads such rows, and writes between adjacent ones."""
    x = (jnp.arange(7) % 3).astype(t)

    def step(carry: Any, row: Any) -> Any:
        made = fnx.pure_callback(lambda v: np.asarray(v) + np.asarray(v),
                                 fnx.ShapeDtypeStruct((), t), row)
        return carry, (made, row)

    doubled, rows = fnx.jit(lambda x: fnx.lax.scan(step, 0, x, reverse=reverse)[1])(x)
    assert rows.tolist() == x.tolist() and doubled.tolist() == (x + x).tolist()


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 70))
def test_bits_of_64_are_pairs_of_words(a: int, b: int, by: int) -> None:
    x, y, count = (build.param(i, dtypes.uint64, (3,)) for i in range(3))
    small = build.cast(x, dtypes.uint32)
    outs = [build.and_(x, y), build.or_(x, y), build.elementwise(ops.XOR, x, y),
            build.elementwise(ops.SHL, x, count), build.elementwise(ops.SHR, x, count), small,
            build.elementwise(ops.NOT, x), build.eq(x, y), build.ne(x, y),
            build.where(build.eq(x, y), x, build.and_(y, build.const_like(y, (1 << 40) + 5))),
            build.cast(small, dtypes.uint64), build.cast(x, dtypes.bool_),
            build.cast(build.bitcast(small, dtypes.int32), dtypes.uint64),
            build.cast(build.eq(x, y), dtypes.uint64)]
    fn = build.function(outs, 3, "bits")
    given = [np.array(v, np.uint64) for v in ([a, b, a], [b, b, a ^ 1 << 63], [by, 32, 33])]
    assert_same(run(fn, given, found("webgpu"), False), run(fn, given, get_device("cpu"), False))


@pytest.mark.parametrize("f", [lambda x: x + x, lambda x: x * 3, lambda x: x < 5,
                               lambda x: x.astype("float32"), lambda x: x.sum()])
def test_arithmetic_of_64_bits_is_refused(f: Any, webgpu: Any) -> None:
    with pytest.raises(DTypeError, match="at most 32 bits, got uint64") as why:
        np.asarray(fnx.jit(lambda x: f(x.astype("uint64")))(jnp.arange(5)))
    assert "test_webgpu.py" in str(why.value) and "use uint32" in str(why.value)


@pytest.mark.cases(1)
@pytest.mark.parametrize("axes", [6, 7, 9])
def test_a_place_in_as_many_axes_as_an_array_has(axes: int, webgpu: Any) -> None:
    x = np.arange(2**axes, dtype=np.float32).reshape((2,) * axes)
    at = [np.random.default_rng(i).integers(-2, 2, 5).astype(np.int32) for i in range(axes)]
    for f in (lambda x, *at: x[at], lambda x, *at: x.at[at].add(1.0),
              lambda x, *at: x.at[at].get(mode="promise_in_bounds"),
              lambda x, *at: x.at[at].set(x[at[::-1]], mode="drop")):
        given = [x, *(np.abs(i) if "promise" in str(f.__code__.co_consts) else i for i in at)]
        for got, want in zip([np.asarray(fnx.jit(f)(*map(jnp.asarray, given)))],
                             on_the_cpu(f, *given), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("indices", [6, 7])
def test_a_node_that_reads_more_than_can_be_bound_is_refused(indices: int, webgpu: Any) -> None:
    """Public functions never build such a node, as they compute on each index first."""
    x = build.param(0, dtypes.float32, (2,) * indices)
    at = [build.param(i + 1, dtypes.int32, (5,)) for i in range(indices)]
    fn = build.function([build.gather(x, *at)], indices + 1, "taken")
    given = [np.zeros((2,) * indices, np.float32), *(np.zeros(5, np.int32) for _ in at)]
    if indices + 2 <= backend.ROW.max_buffers:
        assert not run(fn, given, webgpu, False)[0].any()
        return
    with pytest.raises(DeviceError, match="at most 8 buffers, got 9") as why:
        run(fn, given, webgpu, False)
    assert "concatenate arrays" in str(why.value)


def counted(outer: int, inner: int) -> Any:
    """A kernel whose threads each run so many steps, in a loop and one nested in it."""
    def kernel(x: Any, out: Any) -> None:
        i = k.range(4)
        out[i] = k.loop(outer, lambda t, s: k.loop(inner, lambda u, r: r + x[i], s),
                        k.cast(0, "int32"))
    return fnx.jit(fnx.call(kernel, out=lambda x: x))


@pytest.mark.parametrize("loops", [(1, 65_530), (3, 21_842), (250, 260), (1, 65_536), (3, 21_845),
                                   (300, 300)])
def test_loops_that_a_driver_would_end_are_refused(loops: Any, webgpu: Any) -> None:
    """Mesa's lavapipe silently ends a thread's loops after 65,535 iterations in total."""
    x, (outer, inner) = jnp.ones(4, "int32"), loops
    if webgpu.target.max_steps and outer * (inner + 1) >= webgpu.target.max_steps:
        with pytest.raises(KernelError, match="at most 65,535 iterations in a thread") as why:
            counted(outer, inner)(x)
        assert "test_webgpu.py" in str(why.value) and "split the computation" in str(why.value)
    else:
        assert (np.asarray(counted(outer, inner)(x)) == outer * inner).all()


LENGTH = 66_000  # more than one loop of a thread may run there
LOOPS: dict[str, Any] = {
    "scan": lambda x: fnx.lax.scan(lambda c, v: (c + v, None), 0, x)[0],
    "fori_loop": lambda x: fnx.lax.fori_loop(0, LENGTH, lambda i, s: s + i % 3, x[0]),
    "while_loop": lambda x: fnx.lax.while_loop(lambda s: s < LENGTH, lambda s: s + 1, x[0]),
    "sum": lambda x: x.sum(), "product": lambda x: x.astype("float32") @ x.astype("float32"),
    "largest": lambda x: (x.max(), x.argmax()),
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_any_length(name: str, webgpu: Any) -> None:
    x = (np.arange(LENGTH) % 7).astype(np.int32)
    got = fnx.tree.leaves(fnx.jit(LOOPS[name])(jnp.asarray(x)))
    for a, b in zip(map(np.asarray, got), on_the_cpu(LOOPS[name], x), strict=True):
        np.testing.assert_array_equal(a, b)


RUNNING: dict[str, Any] = {
    "cumsum": jnp.cumsum, "rows": lambda x: jnp.cumsum(x.reshape(-1, 300), 1),
    "columns": lambda x: jnp.cumsum(x.reshape(300, -1), 0), "reverse": lambda x: fnx.lax.cumsum(
        x, reverse=True), "products": lambda x: jnp.cumprod(1 + x * 1e-3),
    "slope": fnx.grad(lambda x: (jnp.cumsum(x) ** 2).sum() * 1e-3),
}


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", RUNNING)
def test_running_folds_are_near_those_that_carry_float64(name: str, webgpu: Any) -> None:
    f, x = RUNNING[name], np.random.default_rng(1).normal(size=6000).astype(np.float32) + 3
    (want,) = on_the_cpu(f, x)
    for jitted in (True, False):
        got = np.asarray((fnx.jit(f) if jitted else f)(jnp.asarray(x)))
        assert got.dtype == want.dtype == np.float32
        assert ulps(got, want) <= (400 if name == "products" else 64 if name == "slope" else 1)


def test_infinities_run_on(webgpu: Any) -> None:
    x = np.ones(300, np.float32)
    x[100], x[200] = np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.asarray(jnp.cumsum(jnp.asarray(x))), np.cumsum(x))

"""One COMMANDS node on every device; the registry; what the null device records."""

import io
import subprocess
import sys

import numpy as np
import pytest

from fnx.backends.device.base import get_device
from fnx.core.support.errors import ArgumentError, KernelError, SpecError
from tests.backends import kit


def results(name, commands, code, arena, x):
    device = get_device(name)
    out = device.alloc(x.nbytes)
    device.encode(commands, code, arena).submit([device.upload(x)], [out])
    return out.view(x.dtype, x.shape)


@pytest.mark.parametrize("n, length, repeats", [(1, 1, 1), (17, 1, 3), (1000, 4, 2), (33, 7, 1)])
def test_cpu_and_interp_agree(n, length, repeats):
    x = np.linspace(-3, 3, n, dtype=np.float32)
    program = kit.chain(n, length, repeats, 0.5)
    cpu, interp = (results(name, *program, x) for name in ("cpu", "interp"))
    np.testing.assert_array_equal(cpu, interp)
    np.testing.assert_array_equal(interp, kit.expected(x, 0.5, repeats * length))


def test_null_records_and_computes_nothing():
    null = get_device("null")
    commands, code, arena = kit.chain(100, 3)
    before = null.stats()
    buffer = null.encode(commands, code, arena)
    for _ in range(2):
        out = null.alloc(400)
        buffer.submit([null.upload(np.ones(100, np.float32))], [out])
    after = null.stats()
    assert {k: after[k] - before[k] for k in after} == {
        "submissions": 2, "allocated": 1600, "commands": 6}
    assert null.submissions[-1] is buffer and buffer.arena == arena
    assert [c.slots[1].arg.kind for c in buffer.commands] == ["arena", "arena", "out"]
    assert next(iter(code.values())).asked == 0
    assert np.isnan(out.view(np.float32, (10, 10))).all() and out.ptr == 0
    assert out.view(np.int32, (100,)).tolist() == [0] * 100


def test_trace_says_what_ran_on_what():
    trace = get_device("trace")
    x = np.linspace(-3, 3, 33, dtype=np.float32)
    with trace.redirect_log(file := io.StringIO()):
        traced = results("trace", *kit.chain(33, 2), x)
    np.testing.assert_array_equal(traced, results("interp", *kit.chain(33, 2), x))
    assert [(line.position, line.written, line.read) for line in list(trace.log)[-2:]] == [
        (place, ("float32[33]",), ("float32[33]",)) for place in ("1/2", "2/2")]
    assert all(line.microseconds > 0 for line in trace.log)
    assert len(file.getvalue().splitlines()) == 2


@pytest.mark.parametrize("name", ["cpu", "interp", "null", "trace"])
def test_missing_arguments_are_refused(name):
    device = get_device(name)
    buffer = device.encode(*kit.chain(4))
    with pytest.raises(SpecError, match="expected 1 arguments of kind 'out', got 0"):
        buffer.submit([device.upload(np.ones(4, np.float32))], [])


def test_the_interpreter_refuses_what_hardware_would_do_silently():
    from fnx.core.ir import build, dtypes

    i = build.range_(8, 0)
    o = build.ref(0, dtypes.float32, (4,))
    kernel = build.kernel([build.store(build.index_into(o, i), build.const(1.0, dtypes.float32))],
                          "k")
    interp = get_device("interp")
    commands = kit.commands(kit.execute(kernel, [kit.slot("out", 0, 16)]))
    with pytest.raises(KernelError):
        interp.encode(commands, {}, 0).submit([], [interp.alloc(16)])


def test_an_unknown_device():
    with pytest.raises(ArgumentError,
                       match="cpu, cuda, interp, null, opencl, soft, trace, webgpu; got 'tpu'"):
        get_device("tpu")


def test_a_device_is_made_once():
    assert get_device("cpu") is get_device("cpu")


def test_importing_the_registry_loads_no_device_and_no_llvm():
    code = "import sys, fnx.backends.device.base; print(" \
           "[m for m in sys.modules if 'llvmlite' in m or m.startswith('fnx.backends.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "['fnx.backends.device', 'fnx.backends.device.base']\n", done.stderr


def test_llvmlites_python_side_is_never_loaded():
    code = "import sys; from fnx.backends.device.base import get_device; get_device('cpu'); " \
           "print('llvmlite' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["cpu", "interp", "null", "trace"])
def test_a_function_is_jitted_for_a_device_and_arrays_are_placed_there(name):
    """In a process of its own: once an array has been placed, calls check devices from then on."""
    code = f"""
import numpy as np, fnx, fnx.numpy as jnp
x = jnp.arange(3.0)
for f in (lambda x: x + 1, lambda x: x):
    y = fnx.jit(f, device={name!r})(x)
    assert {{d.platform for d in y.devices()}} == {{{name!r}}}
    assert {{d.platform for d in fnx.device_put(y, fnx.devices({name!r})[0]).devices()}} == {{
        {name!r}}}
    got, want = np.asarray(y * 2), np.asarray(f(x)) * 2
    np.testing.assert_array_equal(got, want * np.nan if {name!r} == "null" else want)
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

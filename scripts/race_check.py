"""Run kernels on a simulated device, to find races between threads and out-of-bounds accesses.

    python scripts/race_check.py                  all functions, in oclgrind
    python scripts/race_check.py softmax product  some of them
    python scripts/race_check.py --laws 400       so many public functions and random graphs

Oclgrind (Debian: apt-get install oclgrind) is loaded as the only OpenCL driver: together with PoCL
a process would load two versions of LLVM, and crash in clBuildProgram. Extents are small, since it
interprets each instruction. The script first runs kernels with a race and with an out-of-bounds
store, which must be detected. Its test kernels are those that the laws generate
(tests/laws/collected.py).
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import fnx
import fnx.numpy as jnp
from fnx.backends import libopencl, opencl
from fnx.backends.device import base
from fnx.backends.gpu.device import GpuDevice
from fnx.backends.gpu.driver import QueuedLaunch
from fnx.core.support.errors import DeviceError
from tests.helpers import numbers
from tests.laws.collected import collected
from tests.laws.test_jit_eager_interp import run

LIBRARIES = "/usr/lib*/oclgrind/liboclgrind-rt-icd.so", "/usr/lib/*/oclgrind/liboclgrind-rt-icd.so"
_RNG = np.random.default_rng(0)


def data(*shape: int) -> Any:
    """Return normally distributed values."""
    return _RNG.normal(size=shape).astype(np.float32)


def network(x: Any, w: Any, v: Any) -> Any:
    """Return the gradient of a small network's loss."""
    return fnx.grad(lambda p: -fnx.nn.log_softmax(fnx.nn.relu(x @ p[0]) @ p[1])[:, 3].mean())(
        (w, v))


def attention(q: Any, k: Any, v: Any) -> Any:
    """Softmax of products, times values."""
    return fnx.nn.softmax(q @ k.T / 4, axis=-1) @ v


def steps(x: Any) -> Any:
    """A scan and a loop of unknown length."""
    carry, ys = fnx.lax.scan(lambda c, row: (c * 0.5 + row, c.sum()), x[0], x)
    return fnx.lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2 + 1, abs(carry)), ys


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (lambda x: jnp.tanh(x) ** 2 + jnp.exp(-x), (data(33, 70),)),
    "softmax": (lambda x: fnx.nn.softmax(x), (data(7, 300),)),
    "layer_norm": (lambda x: fnx.nn.standardize(x, axis=1), (data(6, 270),)),
    "columns": (lambda x: (x.sum(0), x.max(0), x.argmax(0)), (data(90, 40),)),
    "all": (lambda x: (x.sum(), x.mean(), x.argmin()), (data(50, 70),)),
    "product": (lambda x, w: x @ w, (data(70, 40), data(40, 66))),
    "products": (lambda x, w: jnp.einsum("bij,bjk->bik", x, w), (data(3, 20, 18), data(3, 18, 24))),
    "attention": (attention, (data(24, 16), data(20, 16), data(20, 16))),
    "network": (network, (data(16, 40), data(40, 24), data(24, 10))),
    "convolution": (lambda x, w: fnx.lax.conv_general_dilated(x, w, (1, 1), "SAME"),
                    (data(2, 3, 10, 10), data(8, 3, 3, 3))),
    "windows": (lambda x: fnx.lax.reduce_window(x, -jnp.inf, fnx.lax.max, (1, 2), (1, 2), "VALID"),
                (data(8, 30),)),
    "cumsum": (lambda x: jnp.cumsum(x, 1), (data(12, 200),)),
    "scatter": (lambda x: jnp.zeros(70).at[jnp.arange(33) % 7].add(x[:, 0]), (data(33, 3),)),
    "sort": (lambda x: jnp.sort(x, axis=1), (data(5, 40),)),
    "concat": (lambda x, w: jnp.concatenate([x, x[::-1] * 2, w]), (data(9, 8), data(4, 8))),
    "loops": (steps, (data(9, 24),)),
    "narrow": (lambda x: x.astype(jnp.bfloat16) * 3, (data(17, 9),)),
}
PLANTED = {
    "race": "local[0] = (float)get_local_id(0); barrier(CLK_LOCAL_MEM_FENCE); b0[0] = local[0];",
    "bounds": "b0[get_global_id(0) + 4096] = 1.0f;"}


_LACKED = re.compile(r"OCLGRIND FATAL ERROR [^\n]*\nUndefined external function[^\n]*\n"
                     r"When creating kernel[^\n]*\n?")  # built once more


class SimulatedDriver(opencl.OpenClDriver):
    """The only device, whatever it reports about its arithmetic."""

    def _select_device(self) -> tuple[int, int]:
        platform, = self._ids("clGetPlatformIDs")
        device, = self._ids("clGetDeviceIDs", platform, libopencl.ALL_DEVICES)
        return platform, device

    def load(self, texts: Mapping[str, str]) -> Mapping[str, opencl.OpenClKernel]:
        """Build again without optimization if the optimizer used something that the simulator
        lacks."""
        try:
            return super().load(texts)
        except DeviceError as error:
            if "clCreateKernel" not in error.message:
                raise
            before, self.options = self.options, self.options + b" -cl-opt-disable"
            try:
                return super().load(texts)
            finally:
                self.options = before


def planted(device: GpuDevice, body: str) -> None:
    """Run a faulty kernel."""
    text = ("__kernel void wrong(__global uchar* g0, ulong at0) {\n  __local float local_[1];\n"
            "  __global float* const b0 = (__global float*)(g0 + at0);\n"
            f"  {body.replace('local[', 'local_[')}\n}}\n")
    kernel = device.driver.load({"wrong": text})["wrong"]
    memory = device.driver.alloc(1024)
    device.driver.exec(QueuedLaunch(kernel, 2, 8, ((memory, 0),), ()))
    device.synchronize()


def near(a: Any, b: Any) -> bool:
    """Whether two arrays are equal up to the association of sums."""
    a, b = numbers(a), numbers(b)
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    scale = float(np.abs(b, where=np.isfinite(b), out=np.zeros_like(b)).max(initial=1.0))
    with np.errstate(all="ignore"):
        return bool(np.allclose(a, b, rtol=1e-4, atol=1e-4 * scale, equal_nan=True))


def checks(names: list[str], laws: int, device: GpuDevice
           ) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Return the functions, each with whether its result agrees with the cpu or the interpreter."""
    def function(name: str) -> bool:
        f, args = FUNCTIONS[name]
        with fnx.core.support.config.override(device="opencl"):
            got = [np.asarray(x) for x in fnx.tree.leaves(fnx.jit(f)(*args))]
        want = [np.asarray(x) for x in fnx.tree.leaves(fnx.jit(f)(*args))]
        return all(map(near, got, want))

    for name in names or ([] if laws else FUNCTIONS):
        yield name, partial(function, name)

    def law(fn: Any, args: list[Any]) -> bool:
        given = run(fn, args, base.get_device("interp"), False)
        return all(map(near, run(fn, args, device, False), given))

    for found in collected(laws // 2):
        yield found.name, partial(law, found.fn, found.args)


def inside(names: list[str], laws: int, log: Path) -> int:
    """Run in the process in which oclgrind is the driver."""
    device = GpuDevice(SimulatedDriver())
    base._devices["opencl"] = device
    print(f"device: {device.driver.kind}")
    wrong = seen = count = missing = 0

    def said() -> str:
        nonlocal seen
        text = log.read_text() if log.exists() else ""
        seen, before = len(text), seen
        return _LACKED.sub("", text[before:])

    for name, body in PLANTED.items():
        planted(device, body)
        if not said().strip():
            print(f"planted {name}: not found")
            wrong += 1
    for name, check in checks(names, laws, device):
        start = time.perf_counter()
        try:
            equal = check()
        except DeviceError as error:
            if "clCreateKernel" not in error.message:
                raise
            said()
            print(f"{name:<34} not run: the simulator lacks a function of LLVM's", flush=True)
            missing += 1
            continue
        text = said().strip()
        print(f"{name:<34} {time.perf_counter() - start:6.1f} s  "
              f"{'clean' if not text and equal else text[:2000] or 'other numbers'}", flush=True)
        count += 1
        wrong += bool(text) or not equal
    print(f"{count} functions, {wrong} wrong; {missing} not run")
    return bool(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", nargs="*", help="all, where none is named")
    parser.add_argument("--laws", type=int, default=0, help="functions of the laws in their place")
    options = parser.parse_args()
    log = os.environ.get("OCLGRIND_LOG")
    if log is not None:
        return inside(options.functions, options.laws, Path(log))
    found = [path for pattern in LIBRARIES for path in glob.glob(pattern)]
    if not found:
        print("expected oclgrind: apt-get install oclgrind", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "oclgrind.icd").write_text(found[0] + "\n")
        environment = {**os.environ, "OCL_ICD_VENDORS": folder, "OCLGRIND_DATA_RACES": "1",
                       "OCLGRIND_LOG": str(Path(folder, "log"))}
        return subprocess.run([sys.executable, *sys.argv], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())

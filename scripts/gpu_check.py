"""Assemble every kernel of the workloads for a GPU that need not be present; count its registers.

    python scripts/gpu_check.py                       all workloads, for sm_80 and sm_90
    python scripts/gpu_check.py softmax mlp_step      some of them
    python scripts/gpu_check.py --laws 400            so many public functions and random graphs

Each distinct kernel goes through LLVM to PTX and through ``ptxas -v`` (of the wheel
nvidia-cuda-nvcc-cu12, or on the path). A table lists registers, spilled bytes, and shared memory of
a group. The script fails if a kernel is refused, or a matrix product spills. Its test kernels are
those that the laws generate (tests/laws/collected.py).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from workloads import WORKLOADS

import fnx
from fnx.backends.cuda import target_of_chip
from fnx.backends.llvm import binding
from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.pipeline import lower
from fnx.transforms.link import preprocess
from tests.laws.collected import collected

CHIPS = ("sm_80", "sm_90")
_USED = re.compile(r"Used (\d+) registers")
_SPILLED = re.compile(r"(\d+) bytes spill stores")
_SHARED = re.compile(r"(\d+) bytes smem")
_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SYMBOL = re.compile(r"define ptx_kernel void @(\w+)")
_HEAD = ".version", ".target", ".address_size"
BATCH = 16  # kernels per process


class Assembled(Record):
    """What ptxas reports on a kernel."""

    registers: int
    spilled: int
    shared: int


def target(chip: str) -> Target:
    """Return a chip as the lowering's target."""
    return target_of_chip(int(chip.removeprefix("sm_")))


def product(dtype: str) -> Callable[[Any], tuple[Any, tuple[Any, ...]]]:
    """A workload: a product with an epilogue, in a dtype that matrix units support."""
    def build(ns: Any) -> tuple[Any, tuple[Any, ...]]:
        x, w = (ns.jnp.zeros(shape, dtype) for shape in ((512, 384), (384, 1000)))
        return ns.jax.jit(lambda x, w: ns.jnp.maximum(x @ w, 0)), (x, w)
    return build


CHECKED = {**WORKLOADS, "product_bfloat16": product("bfloat16"),
           "product_float16": product("float16")}


def assembler() -> str:
    """Return the path of ptxas."""
    found = shutil.which("ptxas")
    if found is None:
        for folder in sys.path:
            path = os.path.join(folder, "nvidia", "cuda_nvcc", "bin", "ptxas")
            if os.path.exists(path):
                return path
        sys.exit("expected ptxas: pip install nvidia-cuda-nvcc-cu12")
    return found


def traced(build: Callable[[Any], tuple[Any, tuple[Any, ...]]]) -> Any:
    """Return the FUNCTION of a workload."""
    ns = types.SimpleNamespace(jax=fnx, jnp=fnx.numpy, lax=fnx.lax, random=fnx.random)
    f, args = build(ns)
    jitted: Any = f if isinstance(f, fnx.transforms.jit.Jitted) else fnx.jit(f)
    _, key = jitted._arguments.key(args, {})
    return jitted._find_trace(key, args, {}).value.closed.function


def functions(names: list[str], laws: int) -> Iterator[tuple[str, UOp]]:
    """Return workloads, or the functions that the laws generate."""
    for name in names or ([] if laws else CHECKED):
        yield name, traced(CHECKED[name])
    for found in collected(laws // 2):
        yield found.name, found.fn


def kernels(found: Iterator[tuple[str, UOp]], chip: str) -> Iterator[tuple[str, str, str]]:
    """Return workload, kernel and text of all distinct kernels."""
    device = types.SimpleNamespace(target=target(chip))
    seen = set()
    for name, fn in found:
        function = preprocess(fn, device)
        for kernel, code in lower(function, device.target).code.items():
            if kernel.op is ops.KERNEL and code.key not in seen:
                seen.add(code.key)
                yield name, kernel.arg.name, code.text()


class Ptxas:
    """The assembler for a chip: several kernels per process, two processes at a time, and kernels
    with equal text once."""

    def __init__(self, path: str, chip: str) -> None:
        self.path, self.chip, self.pool = path, chip, ThreadPoolExecutor(2)
        self.known: dict[str, Assembled | str] = {}  # by the text, under one name

    def all(self, texts: Sequence[str]) -> list[Assembled | str]:
        """Return ptxas's report on each text, or why the text is refused."""
        named = [self._named(f"kernel_{i}_", text) for i, text in enumerate(texts)]
        new: dict[str, int] = {}
        for i, (name, ptx) in enumerate(named):
            if name and self._key(name, ptx) not in self.known:
                new.setdefault(self._key(name, ptx), i)
        batches = [list(new.values())[i:i + BATCH] for i in range(0, len(new), BATCH)]
        for found in self.pool.map(lambda batch: self._batch([named[i] for i in batch]), batches):
            self.known.update(found)
        return [self.known[self._key(name, ptx)] if name else ptx for name, ptx in named]

    def _key(self, name: str, ptx: str) -> str:
        return hashlib.sha256(ptx.replace(name, "NAME").encode()).hexdigest()

    def _named(self, name: str, text: str) -> tuple[str, str]:
        """Return a kernel's name and its PTX; or no name, and the reason."""
        symbol = _SYMBOL.search(text)
        assert symbol is not None
        try:
            return name, binding.assembly(text, target(self.chip)).replace(symbol[1], name)
        except fnx.errors.FnxError as error:
            return "", str(error)

    def _batch(self, named: Sequence[tuple[str, str]]) -> dict[str, Assembled | str]:
        """Assemble all in one process; if it fails, each in its own."""
        head, body = [], []
        for _, ptx in named:
            lines = ptx.splitlines()
            head = [x for x in lines if x.startswith(_HEAD)]
            body += [x for x in lines if not x.startswith(_HEAD)]
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write("\n".join([*head, *body]))
            file.flush()
            done = subprocess.run([self.path, "-v", f"-arch={self.chip}", "-o", os.devnull,
                                   file.name], capture_output=True, text=True)
        if done.returncode:
            if len(named) == 1:
                return {self._key(*named[0]): done.stderr.strip()}
            return {key: found for one in named for key, found in self._batch([one]).items()}
        said = dict(zip(_ENTRY.findall(done.stderr), _ENTRY.split(done.stderr)[2::2]))
        return {self._key(name, ptx): Assembled(*[
            next(map(int, p.findall(said[name])), 0) for p in (_USED, _SPILLED, _SHARED)])
            for name, ptx in named}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", help="all, where none is named")
    parser.add_argument("--laws", type=int, default=0, help="functions of the laws in their place")
    options = parser.parse_args()
    path, wrong, count = assembler(), [], 0
    print(f"{'workload':<18} {'kernel':<34} {'chip':<6} registers spilled shared")
    for chip in CHIPS:
        chosen = functions(options.workloads, options.laws)
        made, ptxas = list(kernels(chosen, chip)), Ptxas(path, chip)
        for (workload, kernel, _), found in zip(made, ptxas.all([text for *_, text in made])):
            count += 1
            if isinstance(found, str):
                wrong.append(f"{workload}: {kernel} for {chip}: {found}")
                print(f"{workload:<18} {kernel[:34]:<34} {chip:<6} refused")
                continue
            print(f"{workload:<18} {kernel[:34]:<34} {chip:<6} {found.registers:>9} "
                  f"{found.spilled:>7} {found.shared:>6}")
            if found.spilled and kernel.startswith("contract"):
                wrong.append(f"{workload}: {kernel} for {chip} spills {found.spilled} bytes")
    print(f"{count} kernels, {len(wrong)} wrong")
    for line in wrong:
        print(line, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

"""Schedule candidates for thread groups: all are legal, generate code and compute the same values,
also for devices that this machine lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.backends import cuda, webgpu
from fnx.backends.llvm import binding
from fnx.core.ir.low_precision import encode
from fnx.core.ir.uop import UOp
from fnx.core.levels.interp_kernel import run_kernel
from fnx.core.support.config import override
from fnx.core.support.target import Target
from fnx.lower.candidates import candidates, first
from fnx.lower.code_generation import kernel_code
from fnx.lower.driver import Driver
from fnx.lower.pipeline import lower
from fnx.lower.schedule.workgroup_heuristics import choose_workgroups
from fnx.lower.target_lowerings import TARGET_LOWERINGS, ScheduleInput
from fnx.transforms.dispatch.schedule_search import Outcome, _decode, _encode
from fnx.transforms.dispatch.schedule_trials import almost_equal, call_of_kernel

OPENCL = Target("opencl", kind="opencl", threads=256, shared=32 << 10, private=1 << 10,
                vector_bits=128, vector_registers=64, max_chunks=1024)
TARGETS = {"opencl": OPENCL, "webgpu": webgpu.ROW, "sm_80": cuda.target_of_chip(80)}
CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str]] = {
    "product": (lambda x, w: jnp.tanh(x @ w), ((70, 50), (50, 90)), "float32"),
    "narrow": (lambda x, w: x @ w, ((64, 48), (48, 64)), "bfloat16"),
    "rows": (lambda x: x - x.max(1, keepdims=True), ((9, 300),), "float32"),
    "columns": (lambda x: x.sum(0), ((300, 40),), "float32"),
    "map": (lambda x: x.T * 2, ((60, 128),), "float32"),
}


def kernels(name: str, target: Target) -> list[UOp]:
    """Return the kernels of a program on a target, with ranges named as schedules name them."""
    f, shapes, dtype = CASES[name]
    with override(device="interp"):
        graph = fnx.jit(f).lower(*[jnp.zeros(s, dtype) for s in shapes]).graph
    found: list[UOp] = []
    lower(graph, target, schedules=found.append)
    return found


def tiled(kernel: UOp, schedule: Any, target: Target) -> Any:
    made = ScheduleInput(kernel, schedule)
    driver = Driver(target)
    return driver.run(TARGET_LOWERINGS[target.kind].tiling, made)


def computed(kernel: UOp, schedule: Any) -> list[Any]:
    """Return the interpreter's results of a kernel under a schedule, for fixed data."""
    call = call_of_kernel(kernel)
    assert call is not None
    rng = np.random.default_rng(0)
    target = Target("interp", kind="kernels")
    refs = [(p.shape, p.dtype) for p in call.src[1:]] + list(call.arg.outs)
    memory = [encode(rng.uniform(0.1, 1, shape), dtype) for shape, dtype in refs]
    made = tiled(kernel, schedule, target)
    whole = memory + [np.zeros([int(d.arg) for d in t.src], t.dtype.np) for t in made.temporaries]
    for part in made.parts:
        run_kernel(part.kernel, [whole[i] for i in part.refs], [])
    return [(memory[len(call.src) - 1 + i].view(np.uint8), dtype)
            for i, (_, dtype) in enumerate(call.arg.outs)]


@pytest.mark.cases(1)
@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
@pytest.mark.parametrize("name", CASES)
def test_what_is_listed_is_code_that_computes_the_same(name: str, target: Target) -> None:
    tried = 0
    for kernel in kernels(name, target):
        made, model = first(kernel, target)
        assert model.schedule == choose_workgroups(made, target)
        want = computed(made, model.schedule)
        listed = {c.schedule for c in candidates(made, target)}
        for schedule in listed:
            for (a, dtype), (b, _) in zip(computed(made, schedule), want):
                assert almost_equal(a, b, dtype, 300), schedule
            for part in tiled(made, schedule, target).parts:
                text = kernel_code(part.kernel, Driver(target)).text()
                if target.triple:
                    assert ".entry" in binding.assembly(text, target)
        tried += len(listed)
    assert tried > len(kernels(name, target))


def test_schedules_of_groups_are_read_as_they_were_written() -> None:
    kernel, = kernels("product", OPENCL)
    for candidate in candidates(first(kernel, OPENCL)[0], OPENCL):
        kept = Outcome(candidate.schedule, 2.0, 1.0, 3, ("one",))
        assert _decode(_encode(kept)) == kept


@pytest.mark.parametrize("data", [
    None, b"", b"{", b"[1]", b"null", b"3", b"\xff\x00", b'[[["Twist", 1]],1,1,1,[]]',
    b'[[["Split", 1]],1,1,1,[]]', b'[[],"x",1,1,[]]'])
def test_what_cannot_be_read_is_as_nothing(data: bytes | None) -> None:
    assert _decode(data) is None

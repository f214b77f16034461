"""The whole training step of examples/digits.py: one replay, on every device, in any process.

The batches are random numbers, so that the test needs no data.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import fnx
from fnx.backends.device.base import get_device
from fnx.core.support.config import override
from tests.test_examples import digits as digits  # a fixture

ROOT = Path(__file__).resolve().parents[2]
BATCH = 64


def batch(size: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((size, 64)).astype(np.float32),
            rng.integers(0, 10, size).astype(np.int32))


def first_state(digits: ModuleType) -> Any:
    params = digits.init(fnx.random.key(3))
    zeros = fnx.tree.map(fnx.numpy.zeros_like, params)
    return params, zeros, fnx.tree.map(fnx.numpy.zeros_like, params), fnx.numpy.asarray(0.0)


def numbers(tree: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(x) for x in fnx.tree.leaves(tree)]


def test_a_step_is_one_replay_of_at_most_20_kernels(digits: ModuleType) -> None:
    with override(device="null"):
        null = get_device("null")
        state, step = first_state(digits), fnx.jit(digits.adam_step)
        x, y = batch(BATCH)
        step(state, x, y, 0.1)
        for rate in (0.1, 0.2, 0.3):
            before = null.stats()
            _, state = step(state, x, y, rate)
            after = null.stats()
            buffer = null.submissions[-1]
            assert after["submissions"] - before["submissions"] == 1
            assert after["commands"] - before["commands"] == len(buffer.commands) <= 20
        assert step.cache_info().traces == 1
        assert len(step.lower(state, x, y, 0.1).kernels) == len(buffer.commands)


def test_the_same_commands_run_on_cpu_and_interp_and_are_recorded_on_null(
        digits: ModuleType) -> None:
    args = (first_state(digits), *batch(29), 0.1)
    step = fnx.jit(digits.adam_step)
    stages = step.lower(*args)
    want = [np.asarray(x) for x in numbers(step(*args))]
    leaves = [np.asarray(fnx.numpy.asarray(x)) for x in fnx.tree.leaves(args)]
    found = {}
    for name in ("cpu", "interp", "null"):
        device = get_device(name)
        outs = [device.alloc(w.nbytes) for w in want]
        buffer = device.encode(stages.commands, stages._code, stages.arena)
        buffer.submit([device.upload(x) for x in leaves], outs)
        found[name] = [o.view(w.dtype, w.shape) for o, w in zip(outs, want)]
    assert get_device("null").submissions[-1] is buffer
    assert len(buffer.commands) == len(stages.kernels) <= 20
    for cpu, interp, again in zip(found["cpu"], found["interp"], want):
        np.testing.assert_array_equal(cpu, again)
        np.testing.assert_allclose(interp, cpu, rtol=2e-4, atol=2e-6)


SCRIPT = """
import hashlib, json, sys
import numpy as np
import fnx, importlib.util
from tests.laws import test_training_step as t
from tests.test_examples import EXAMPLES
from fnx.backends.device.base import get_device

spec = importlib.util.spec_from_file_location("digits_example", EXAMPLES / "digits.py")
digits = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = digits
spec.loader.exec_module(digits)
step = fnx.jit(digits.adam_step)
state, hashes = t.first_state(digits), []
for size in (64, 29, 2000, 2000):  # the last are long enough for workers
    value, state = step(state, *t.batch(size, size), 0.01)
    hashes += [hashlib.sha256(x.tobytes()).hexdigest() for x in t.numbers((value, state))]
stats = get_device("cpu").stats()
print(json.dumps([stats["compiled"], stats["disk"], stats["submitted"], hashes]))
"""


def process(cache: Path, workers: int) -> Any:
    """Return (kernels compiled, kernels from disk, submissions to workers, digests of results)."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, text=True,
                          capture_output=True, check=False,
                          env=os.environ | {"FNX_CACHE_DIR": str(cache),
                                            "FNX_WORKERS": str(workers)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_other_processes_compile_nothing_and_any_number_of_workers_gives_the_same_bits(
        tmp_path: Path) -> None:
    compiled, _, _, hashes = process(tmp_path, 1)
    assert compiled > 10 and len(set(hashes)) > 60
    again, from_disk, submitted, others = process(tmp_path, 3)
    assert (again, from_disk) == (0, compiled)
    assert submitted > 0  # work went to workers instead of running inline
    assert others == hashes


def test_a_step_on_no_images(digits: ModuleType) -> None:
    value, state = fnx.jit(digits.adam_step)(first_state(digits), *batch(0), 0.1)
    assert np.isnan(float(value))
    assert [s.shape for s in numbers(state)] == [s.shape for s in numbers(first_state(digits))]

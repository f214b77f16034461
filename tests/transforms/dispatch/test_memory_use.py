"""f.memory: the memory of a call, compared with the pool after it; and no_tracing."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import RetracedError

PROGRAM = """
import numpy as np, fnx, fnx.numpy as jnp
from fnx.backends.device.base import get_device
def mlp(w, x):
    for a in w:
        x = jnp.tanh(x @ a)
    return (x ** 2).mean()
def rnn(w, x):
    def step(h, x):
        h = jnp.tanh(h @ w[0] + x)
        return h, h
    return fnx.lax.scan(step, x[0], x)[1].sum()
w = [jnp.asarray(np.full((256, 256), 0.01, np.float32)) for _ in range(3)]
x = jnp.ones({shape})
f = fnx.jit({program})
use = f.memory(w, x)
fnx.block_until_ready(f(w, x))
print(use.total, get_device("cpu").pool.stats()["held"])
"""


@pytest.mark.cases(1)
@pytest.mark.parametrize(("program", "shape"), [
    ("fnx.value_and_grad(mlp)", (4096, 256)), ("fnx.grad(rnn)", (40, 512, 256)),
    ("lambda w, x: x + 1", (2048, 1024))])
def test_what_is_said_is_what_the_pool_holds(program: str, shape: tuple[int, ...]) -> None:
    source = PROGRAM.format(program=program, shape=shape)
    out = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True,
                         env={**os.environ, "PYTHONPATH": os.getcwd()}).stdout
    said, held = map(int, out.split())
    assert said == pytest.approx(held, rel=0.1)


def test_buffers_are_of_lines_and_live_for_a_while() -> None:
    def f(x: Any) -> Any:
        y = jnp.sort(x @ x, axis=0)
        return (y @ y).sum()

    use = fnx.jit(f).memory(jnp.ones((64, 64)))
    assert use.arguments == 64 * 64 * 4 and use.results == 4
    assert use.buffers and all(0 <= b.first <= b.last for b in use.buffers)
    assert all(b.offset + b.nbytes <= use.temporaries for b in use.buffers)
    assert {line.partition(":")[0] for line in use.lines} <= {"test_memory_use.py", "?"}
    assert "test_memory_use.py" in repr(use)
    for i, a in enumerate(use.buffers):  # buffers that share an address have disjoint lifetimes
        for b in use.buffers[:i]:
            if a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes:
                assert a.last <= b.first or b.last <= a.first


def test_donated_and_captured_arrays_are_counted_once() -> None:
    big = jnp.ones(100_000)
    use = fnx.jit(lambda x: x + big, donate_argnums=0).memory(jnp.ones(100_000))
    assert use.arguments == 800_000 and use.results <= 64 and use.temporaries == 0


def test_nothing_is_run() -> None:
    def f(x: Any) -> Any:
        fnx.debug.print("never")
        return x

    x = jnp.ones(3)
    assert fnx.jit(f, donate_argnums=0).memory(x).total > 0
    assert not x.is_deleted()


def test_no_tracing_lets_through_what_is_known() -> None:
    f = fnx.jit(lambda x, n: x * n, static_argnums=1)
    x = jnp.ones(3)
    f(x, 2)
    with fnx.no_tracing():
        for _ in range(3):
            assert float(f(x, 2)[0]) == 2
        for args in ((x, 3), (x, 2.0), (jnp.ones(4), 2), (np.ones(3, np.int32), 2)):
            with pytest.raises(RetracedError, match="no_tracing"):
                f(*args)
        with pytest.raises(RetracedError, match="not called before"):
            fnx.jit(lambda x: x + 3)(x)
        with fnx.no_tracing(False):
            assert float(f(x, 3)[0]) == 3
    assert float(f(x, 4)[0]) == 4
    with pytest.raises(RetracedError, match=r"float32\[3\] -> float32\[5\]"), fnx.no_tracing():
        f(jnp.ones(5), 4)


def test_eager_calls_are_no_traces_of_jit() -> None:
    with fnx.no_tracing():
        assert float(fnx.grad(lambda x: x ** 3)(2.0)) == 12


def test_many_traces_are_told_with_a_cure() -> None:
    f = fnx.jit(lambda x: x + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, 6):
            f(np.ones(n, np.float32))
    with pytest.warns(RuntimeWarning, match="traced again 5 times because its arguments differed"):
        f(np.ones(6, np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # only one warning
        for n in range(7, 15):
            f(np.ones(n, np.float32))

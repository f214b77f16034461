"""Printing in user-written kernels: each line once, in program order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError, KernelError

Env = dict[str, Any]
Statement = Callable[["Program", Env], None]


@pytest.fixture(autouse=True)
def _interp() -> Iterator[None]:
    with override(device="interp"):
        yield


class Program:
    """Nested loops, conditions and prints, run by Python or traced as a kernel."""

    def __init__(self, x: Any, say: Callable[..., None], in_kernel: bool) -> None:
        self.x, self.say, self.in_kernel = x, say, in_kernel

    def loop(self, n: int, body: Callable[[Any], None]) -> None:
        if self.in_kernel:
            body(k.range(n))
        else:
            for i in range(n):
                body(i)

    def carried(self, n: int, body: Callable[[Any, Any], Any], first: Any) -> None:
        if self.in_kernel:
            k.loop(n, body, first)
        else:
            for i in range(n):
                first = body(i, first)

    def when(self, condition: Any, body: Callable[[], None]) -> None:
        if self.in_kernel:
            k.when(condition, body)
        elif condition:
            body()


def block(rng: random.Random, depth: int) -> Statement:
    """Run some statements; they print the indices of all enclosing loops."""
    parts = [statement(rng, depth) for _ in range(rng.randint(1, 3))]

    def run(p: Program, env: Env) -> None:
        for part in parts:
            part(p, env)
    return run


def statement(rng: random.Random, depth: int) -> Statement:
    kind = rng.randrange(4) if depth else 0
    label, n = rng.randrange(1000), rng.randint(1, 3)
    if kind == 0:
        def say(p: Program, env: Env) -> None:
            p.say(f"{label}" + " {}" * len(env), *env.values())
        return say
    inner = block(rng, depth - 1)
    if kind == 1:
        return lambda p, env: p.loop(n, lambda i: inner(p, {**env, f"i{depth}": i}))
    if kind == 2:
        def carried(p: Program, env: Env) -> None:
            def step(t: Any, s: Any) -> Any:
                inner(p, {**env, f"t{depth}": t, f"s{depth}": s})
                return s * 2 + p.x[t % 3]
            p.carried(n, step, np.float32(label % 3) if p.in_kernel else label % 3)
        return carried

    def when(p: Program, env: Env) -> None:
        odd = sum(env.values(), start=label) % 2 if env else label % 2
        value = p.x[1] * 0 + odd if p.in_kernel and not env else odd
        p.when(value > 0, lambda: inner(p, env))
    return when


@pytest.mark.cases(3)
@pytest.mark.parametrize("seed", range(40))
def test_lines_come_as_python_prints_them(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    run = block(random.Random(seed), 3)

    @fnx.call(out=lambda x: x)
    def kernel(x: Any, o: Any) -> None:
        run(Program(x, k.print, True), {})
        i = k.range(x.shape[0])
        o[i] = x[i]

    x = [1.0, 2.0, 4.0]
    assert kernel(jnp.asarray(x)).tolist() == x
    said: list[str] = []
    numbers = [np.float32(v) for v in x]
    run(Program(numbers, lambda fmt, *a: said.append(fmt.format(*a)), False), {})

    def plain(lines: list[str]) -> list[list[float]]:
        return [[float(word) for word in line.split()] for line in lines]

    assert plain(capsys.readouterr().out.splitlines()) == plain(said)


@fnx.call(out=lambda x: x)
def shown(x: Any, o: Any) -> None:
    i = k.range(x.shape[0], "i")
    fnx.debug.print("x[{}] = {value:.1f}", i, value=x[i])
    o[i] = x[i] * 2


def test_once_in_order_under_every_transform(capsys: pytest.CaptureFixture[str]) -> None:
    x = jnp.asarray([1.0, 2.0])
    line = "x[{}] = {:.1f}\n"

    def once(*scales: float) -> str:
        return "".join(line.format(i, v * s) for s in scales for i, v in enumerate((1.0, 2.0)))

    two = jnp.asarray([1.0, 3.0])
    for f, want in [
        (lambda: shown(x), once(1)),
        (lambda: fnx.jit(shown)(x), once(1)),
        (lambda: fnx.vmap(lambda s: shown(s * x))(two), once(1, 3)),
        (lambda: fnx.grad(lambda x: shown(x).sum())(x), once(1)),
        (lambda: fnx.jvp(shown, (x,), (x,)), once(1)),
        (lambda: fnx.lax.scan(lambda c, s: (c, shown(s * x)), 0.0, two), once(1, 3)),
        (lambda: (shown(x), shown(x)), once(1, 1)),
    ]:
        f()
        fnx.effects_barrier()
        assert capsys.readouterr().out == want
    assert fnx.grad(lambda x: (shown(x) * x).sum())(x).tolist() == [4.0, 8.0]


def test_another_device_is_refused_with_the_cure() -> None:
    with override(device="cpu"), pytest.raises(KernelError, match='device="interp"') as found:
        shown(jnp.ones(2))
    assert found.value.loc is not None and found.value.loc[0] == __file__
    assert 'fnx.config.device = "interp"' in str(found.value)


def refused(body: Callable[..., None], error: type[Exception], match: str) -> None:
    def kernel(x: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        body(x, i)
        o[i] = x[i]

    with pytest.raises(error, match=match) as found:
        fnx.call(kernel, out=lambda x: x)(jnp.ones(2))
    assert getattr(found.value, "loc")[0] == __file__


def test_what_cannot_be_printed_is_refused_where_it_stands() -> None:
    refused(lambda x, i: k.print("{}", i, x[i]), ArgumentError, "names all arguments")
    refused(lambda x, i: k.print("{a}", i), ArgumentError, "names a")
    refused(lambda x, i: fnx.debug.callback(print, x[i]), KernelError, "expected arrays")
    refused(lambda x, i: k.print("{}", k.range(5000) * k.range(5000)), KernelError, "iterations")


def test_a_print_outside_of_kernels_is_refused() -> None:
    with pytest.raises(KernelError, match="called in a kernel"):
        k.print("hello")

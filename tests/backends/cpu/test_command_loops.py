"""Command loops and branches on the cpu: walked natively, interrupted, run in parallel."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fnx.backends.cpu import layout
from fnx.backends.cpu.encoding import Encoder
from fnx.backends.device.base import get_device
from fnx.backends.device.hcq import collect_execs, decode_commands
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.core.support.config import override
from fnx.lower import pipeline
from fnx.lower.pipeline import lower
from fnx.transforms.link import link
from tests.graphs import ALL_OPS, graph_of
from tests.helpers import assert_same

F, INT = dtypes.float32, dtypes.int32
LOOPS = {ops.SCAN, ops.WHILE, ops.COND}


@pytest.fixture
def no_loop_in_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """All loops are command loops."""
    monkeypatch.setattr(pipeline, "TENSOR_PASSES", tuple(
        [p for p in pipeline.TENSOR_PASSES if p.name != "fuse_loop_into_kernel"]))


def run(fn: UOp, args: list[np.ndarray[Any, Any]], device: str) -> list[np.ndarray[Any, Any]]:
    on = get_device(device)
    outs = link(fn, on).run([on.upload(a) for a in args])
    return [out.view(o.dtype.np, o.shape) for out, o in zip(outs, fn.src)]


# ---- values -----------------------------------------------------------------------------------


@pytest.mark.cases(4)
@pytest.mark.parametrize("seed", range(12))
def test_random_nested_loops(seed: int, no_loop_in_one_kernel: None) -> None:
    """The cpu gives the interpreter's bits, from the same commands and from the graph."""
    rng = random.Random(seed)
    folds = {ops.REDUCE, ops.SCATTER}
    kinds = ((dtypes.int32, dtypes.uint32, dtypes.bool_), ALL_OPS), \
        (dtypes.USER, frozenset(op for op in ALL_OPS if op.exact) - folds)
    done = 0
    while done < 4:
        types, allowed = kinds[done % 2]
        graph = graph_of(rng.randrange(1 << 30), 10, types, allowed, 3)
        if LOOPS.isdisjoint(n.op for n in toposort([graph.fn], into_functions=True)):
            continue
        done += 1
        want = interp.apply(graph.fn, graph.args)
        assert_same(run(graph.fn, graph.args, "interp"), want)
        assert_same(run(graph.fn, graph.args, "cpu"), want)


def counter(trips: int, width: int) -> tuple[UOp, list[np.ndarray[Any, Any]]]:
    """i + 1 for all elements, and row t of the ys."""
    c = build.param(0, INT, (width,))
    x = build.param(1, INT, (width,))
    new = build.add(c, x)
    body = build.function([new, build.mul(new, build.const_like(new, 2))], 2, "count")
    xs = build.param(1, INT, (trips, width))
    fn = build.function(build_calls.scan(body, trips, [], [build.param(0, INT, (width,))], [xs]), 2)
    return fn, [np.zeros(width, np.int32), np.ones((trips, width), np.int32)]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_thousands_of_iterations_with_several_workers(workers: int,
                                                      no_loop_in_one_kernel: None) -> None:
    """The leader runs short kernels alone; long ones run in parallel, in each iteration."""
    for trips, width in ((5000, 7), (40, 300_000)):
        fn, args = counter(trips, width)
        with override(workers=workers):
            last, ys = run(fn, args, "cpu")
        assert (last == trips).all()
        assert (ys == 2 * np.arange(1, trips + 1, dtype=np.int32)[:, None]).all()


def test_the_product_of_a_step_is_shared_out() -> None:
    """It has several chunks, and the same bits however the workers delay one another."""
    rows = (32, 128)
    w, h, x = (build.param(i, F, s) for i, s in enumerate([(128, 128), rows, rows]))
    spread = (32, 128, 128)
    products = build.mul(build.expand(build.reshape(h, (32, 128, 1)), spread),
                         build.expand(build.reshape(w, (1, 128, 128)), spread))
    product = build.reshape(build.reduce(products, ops.ADD, (1,)), rows)
    step = build.function([build.add(build.neg(product), x)], 3, "step")
    inits, xs = build.param(1, F, rows), build.param(2, F, (2000, *rows))
    weights = build.param(0, F, (128, 128))
    fn = build.function(build_calls.scan(step, 2000, [weights], [inits], [xs]), 3)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s, np.float32) / 50 for s in ((128, 128), rows, (2000, *rows))]
    plans = link(fn, get_device("cpu")).buffer._plans.values()  # type: ignore[attr-defined]
    assert any(plan.chunks > 1 and plan.short for plan in plans)
    results = []
    for workers in (1, 2, 7):
        with override(workers=workers):
            results.append(run(fn, args, "cpu"))
    for got in results[1:]:
        assert_same(got, results[0])


def test_rows_of_all_widths(no_loop_in_one_kernel: None) -> None:
    for width in (1, 3, 5, 16, 17):
        fn, args = counter(9, width)
        assert_same(run(fn, args, "cpu"), interp.apply(fn, args))


def test_calls_in_flight_do_not_share_memory(no_loop_in_one_kernel: None) -> None:
    """Several threads submit one program again before it is done."""
    fn, args = counter(2000, 1000)
    cpu = get_device("cpu")
    program = link(fn, cpu)
    ones = cpu.upload(args[1])
    wrong: list[int] = []

    def submit(first: int) -> None:
        starts = [first * 10 + i for i in range(3)]
        outs = [program.run([cpu.upload(np.full(1000, s, np.int32)), ones]) for s in starts]
        for start, (last, _) in zip(starts, outs):
            if not (last.view(np.int32, (1000,)) == start + 2000).all():
                wrong.append(start)

    threads = [threading.Thread(target=submit, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_branch_clamps_its_number() -> None:
    x, which = build.param(0, F, (64,)), build.param(1, INT, ())
    p = build.param(0, F, (64,))
    branches = [build.function([build.mul(p, build.const_like(p, float(n)))], 1) for n in range(3)]
    fn = build.function(build_calls.cond(branches, which, [x]), 2)
    ones = np.ones(64, np.float32)
    for number, want in ((-5, 0), (-(1 << 31), 0), (0, 0), (1, 1), (2, 2), (3, 2), (1 << 30, 2)):
        for device in ("cpu", "interp"):
            got, = run(fn, [ones, np.int32(number)], device)  # type: ignore[list-item]
            assert (got == want).all()


def test_null_and_trace_take_loops(no_loop_in_one_kernel: None) -> None:
    fn, args = counter(3, 4000)
    run(fn, args, "null")
    trace = get_device("trace")
    with trace.redirect_log(None):  # type: ignore[attr-defined]
        before = len(trace.log)  # type: ignore[attr-defined]
        assert_same(run(fn, args, "trace"), interp.apply(fn, args))
        commands = decode_commands(lower(fn, trace.target).block.commands)
        assert len(trace.log) > before + len(collect_execs(commands))  # type: ignore[attr-defined]


# ---- interrupts, faults, forks ------------------------------------------------------------------

BEGIN = """
import os, signal, sys, threading, time
import numpy as np
import fnx, fnx.numpy as jnp
from fnx import lax
from fnx.core.support.config import config
from fnx.core.support.errors import DeviceError

w = jnp.eye(48)

@fnx.jit
def endless(x):
    def outer(c, _):
        def cell(c):
            return c @ w
        return lax.while_loop(lambda c: c.sum() > -1, cell, c), None
    return lax.scan(outer, x, None, length=3)[0]

@fnx.jit
def steps(x, n):
    return lax.fori_loop(0, n, lambda i, c: c @ w + 1, x)

@fnx.jit
def endless_inside(x):
    def turn(i, c):
        return lax.while_loop(lambda c: c[i] < 9, lambda c: c.at[i].set((c[i] + 1) % 5), c)
    return lax.fori_loop(0, 40, turn, x)

small = jnp.arange(40) % 2 + 8  # all but the first ends at once

def said(y):
    try:
        return str(np.asarray(y))
    except DeviceError as e:
        return str(e)

def ctrl_c(delay):
    threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
"""


def script(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-X", "faulthandler", "-c",
                           BEGIN + textwrap.dedent(code)], capture_output=True, text=True,
                          timeout=300, env=dict(os.environ))


unix = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")


@unix
def test_ctrl_c_ends_an_endless_loop() -> None:
    done = script("""
        x = jnp.ones((48, 48))
        out = endless(x)
        for i in range(2):
            try:
                ctrl_c(0.3)
                np.asarray(out)
            except KeyboardInterrupt:
                print("interrupted")
        try:
            np.asarray(out)
        except DeviceError as e:
            print("aborted" in str(e))
        print(float(steps(x, 3)[0, 0]) == 4)
        """)
    assert done.stdout.split() == ["interrupted"] * 2 + ["True", "True"], done.stderr


@unix
def test_the_time_limit_names_the_kernel_and_the_iterations() -> None:
    done = script("""
        config.time_limit = 0.5
        try:
            np.asarray(endless(jnp.ones((48, 48))))
        except DeviceError as e:
            print(e)
        config.time_limit = 0
        print(float(steps(jnp.ones((48, 48)), 3)[0, 0]))
        """)
    # The limit may expire in a kernel, or in the loop between two kernels.
    assert re.search("waited 0.5 s, the time limit, for (kernel .*|the condition|the end) "
                     r"in iteration \d+ of cell.* in iteration 0 of outer", done.stdout), done
    assert done.stdout.split()[-1] == "4.0"


@unix
def test_a_loop_inside_of_a_kernel_is_ended_as_others_are() -> None:
    """By Ctrl-C, by the time limit, which names the kernel, and by the end of the process."""
    done = script("""
        from fnx.core.ir import accessors
        from fnx.core.ir.uop import toposort
        found = accessors.all_execs(endless_inside.lower(small).commands)
        print(sum([run.src[0].op.name == "CMD_LOOP" for run in found]))
        out = endless_inside(small)
        for i in range(2):
            try:
                ctrl_c(0.3)
                np.asarray(out)
            except KeyboardInterrupt:
                print("interrupted")
        print("aborted" in said(out))
        config.time_limit = 0.3
        print(said(endless_inside(small)).splitlines()[0])
        config.time_limit = 0
        print(int(endless_inside(jnp.full(40, 9, jnp.int32)).sum()))
        endless_inside(small)
        """)
    first, *interrupted, aborted, limit, right = done.stdout.splitlines()
    assert (first, interrupted, aborted) == ("1", ["interrupted"] * 2, "True"), done
    assert re.search(r"waited 0.3 s, the time limit, for (kernel turn.*|the condition|the end) "
                     r"in iteration \d+ of turn", limit), done
    assert (right, done.returncode) == ("360", 0), done


@unix
def test_a_fork_waits_for_loops_or_refuses_them() -> None:
    done = script("""
        from fnx.core.support import process
        x = jnp.ones((48, 48))
        for process.FORK_TIMEOUT, run, good in (
                (100, lambda: steps(x, 2000), lambda y: float(y[0, 0]) == 2001),
                (0.1, lambda: endless(x), lambda y: "forked" in said(y))):
            y = run()
            child = os.fork()
            if child == 0:
                signal.alarm(200)
                os._exit(0 if good(y) and float(steps(x, 3)[0, 0]) == 4 else 1)
            print(os.waitpid(child, 0)[1], flush=True)
        os._exit(0)
        """)
    assert done.stdout == "0\n0\n", done.stderr


@unix
def test_an_endless_loop_does_not_hold_up_the_end() -> None:
    done = script("""
        endless(jnp.ones((48, 48)))
        print("end", flush=True)
        """)
    assert (done.stdout, done.returncode) == ("end\n", 0), done.stderr


def test_a_short_kernel_wakes_workers_if_a_long_one_follows() -> None:
    """They would be woken at once anyway, and meanwhile the leader works alone."""
    xs = [build.param(i, F, (64, i + 1)) for i in range(4)]
    buffer: Any = link(build.function([build.exp(x) for x in xs], 4), get_device("cpu")).buffer
    commands, plan = buffer._commands, next(iter(buffer._plans.values()))

    def short_words(*kernels: tuple[int, int]) -> list[int]:
        """Return the words of the records of kernels with so many chunks, of so many ns."""
        plans = {c: SimpleNamespace(kernel=plan.kernel, iterations=64, chunk=1, chunks=n, short=ns)
                 for c, (n, ns) in zip(commands, kernels)}
        encoder = Encoder(plans, 4, 4)
        encoder.encode(commands)
        return [words[layout.SHORT_NS] for words in encoder.records]

    short, long, single = (4, 9000), (8, 0), (1, 0)
    assert short_words(short, short, long, short) == [9000, 0, 0, 9000]
    assert short_words(short, single, short, long) == [9000, 0, 0, 0]

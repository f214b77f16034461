"""Nodes: interning with threads, distinct constants, deep chains, equal digests in every
process."""

from __future__ import annotations

import gc
import math
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.ir import build, build_calls, dtypes, ops, uop
from fnx.core.ir.uop import UOp, current_loc, live_nodes, rebuild, substitute, toposort
from tests.graphs import Graph, graph_of, graphs
from tests.helpers import numbers

F = dtypes.float32


def chain(n: int, x: UOp | None = None) -> UOp:
    node = build.param(0, F, (3,)) if x is None else x
    for _ in range(n):
        node = build.neg(node)
    return node


# ---- interning --------------------------------------------------------------------------------


def test_same_content_is_the_same_object() -> None:
    x = build.param(0, F, (3,))
    assert build.param(0, F, (3,)) is x
    assert build.neg(x) is build.neg(x)
    assert build.param(0, F, (4,)) is not x and build.param(0, dtypes.float64, (3,)) is not x


def test_constants_that_python_calls_equal_stay_apart() -> None:
    f = [build.const(v, F) for v in (0.0, -0.0, 1.0, math.nan, math.inf)]
    assert len(set(f)) == 5
    assert build.const(math.nan, F) is f[3]
    assert build.const(True, dtypes.bool_) is not build.const(1, dtypes.int32)
    assert build.const(1, dtypes.int32) is not build.const(1.0, F)
    assert build.const(1, dtypes.int32) is not build.const(1, dtypes.uint32)
    assert math.copysign(1, build.const_of(f[1])) == -1 and math.isnan(build.const_of(f[3]))


@given(st.sampled_from(dtypes.USER), st.integers(0, 2**64 - 1))
def test_constants_keep_their_bits(dtype: dtypes.DType, bits: int) -> None:
    bits &= (1 << dtype.bits) - 1
    node = UOp(ops.CONST, dtype, (), bits)
    value = build.const_of(node)
    if value == value:
        assert build.const(value, dtype) is node
        assert numbers(ops.const_value(node)) == value


def test_an_integer_that_does_not_fit_is_refused() -> None:
    for value, dtype in [(2**31, dtypes.int32), (-1, dtypes.uint32), (2**63, dtypes.index)]:
        with pytest.raises(OverflowError, match="fits"):
            build.const(value, dtype)


def test_interning_under_eight_threads_with_nodes_that_die() -> None:
    """All threads that hold equal nodes at one time hold one object."""
    rounds, workers = 40, 8
    start, stop = threading.Barrier(workers), threading.Barrier(workers)
    held: list[Any] = [None] * workers
    wrong: list[str] = []

    def work(me: int) -> None:
        rng = random.Random(me)
        for turn in range(rounds):
            start.wait()
            mine = []
            for i in range(60):
                x = build.param(i % 7, F, (turn % 3 + 1,))
                mine.append(build.add(build.neg(x), build.exp(x)))
                if rng.random() < 0.5:
                    mine.pop()  # dies here, unless another thread holds it
                    mine.append(build.add(build.neg(x), build.exp(x)))
            held[me] = mine
            stop.wait()
            if me == 0:
                for others in held[1:]:
                    wrong.extend("twin" for a, b in zip(mine, others) if a is not b)
            start.wait()
            held[me] = None
            del mine
            stop.wait()

    before = live_nodes()
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(workers)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(old)
    gc.collect()
    assert not wrong
    assert live_nodes() <= before + 8, "dead nodes stay in the table"


def test_nodes_die_with_their_last_user() -> None:
    gc.collect()
    before = live_nodes()
    node = chain(1000, build.param(77, F, (5,)))
    assert live_nodes() >= before + 1000
    del node
    gc.collect()
    assert live_nodes() <= before + 1


# ---- digests and ranks ------------------------------------------------------------------------

_SCRIPT = """
from tests.graphs import graph_of
from fnx.core.ir import build, dtypes
if {noise}:  # other nodes, older: they must not change any order
    kept = [build.param(i, t, (3,)) for i in range(9, -1, -1) for t in dtypes.USER]
print([graph_of(seed, 20).fn.digest().hex() for seed in range(12)])
"""


def test_digests_are_equal_in_every_process() -> None:
    outputs = set()
    for noise, hash_seed in [(False, "0"), (True, "1"), (True, "random")]:
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run([sys.executable, "-c", _SCRIPT.format(noise=noise)], env=env,
                             capture_output=True, text=True, check=True)
        outputs.add(run.stdout)
    assert len(outputs) == 1
    assert outputs.pop().strip() == str([graph_of(s, 20).fn.digest().hex() for s in range(12)])


@settings(max_examples=100)
@given(graphs())
def test_digests_tell_nodes_apart(graph: Graph) -> None:
    nodes = toposort([graph.fn], into_functions=True)
    assert len({n.digest() for n in nodes}) == len(nodes)


def test_operands_of_a_commutative_op_have_one_order() -> None:
    x, y = build.param(0, F, (3,)), build.param(1, F, (3,))
    one = build.const_like(x, 1.0)
    for op in {op for op in ops.OPS.values() if op.commutative} - {ops.AND, ops.OR, ops.XOR}:
        assert build.elementwise(op, x, y) is build.elementwise(op, y, x)
        assert build.elementwise(op, one, x).src == (x, one)
    assert build.sub(x, y) is not build.sub(y, x)
    (swapped,) = substitute([build.add(x, build.exp(y))], {x: build.exp(y), y: x})
    assert swapped is build.add(build.exp(y), build.exp(x))


# ---- scopes, sites, copies --------------------------------------------------------------------


def test_traversal_and_substitution_stop_at_functions() -> None:
    x, y = build.param(0, F, (3,)), build.param(1, F, (3,))
    fn = build.function([build.neg(x)], 1)
    (out,) = build_calls.call(fn, [x])
    assert build.neg(x) not in toposort([out])
    assert build.neg(x) in toposort([out], into_functions=True)
    (moved,) = substitute([out], {x: y})
    assert moved is build_calls.call(fn, [y])[0]


@settings(max_examples=50)
@given(graphs())
def test_toposort_lists_operands_first_and_each_node_once(graph: Graph) -> None:
    order = toposort([graph.fn], into_functions=True)
    place = {n: i for i, n in enumerate(order)}
    assert len(place) == len(order)
    assert all(place[s] < place[n] for n in order for s in n.src)


@settings(max_examples=50)
@given(graphs())
def test_pickling_gives_the_same_object(graph: Graph) -> None:
    assert pickle.loads(pickle.dumps(graph.fn)) is graph.fn


def test_a_line_out_of_several_is_a_plain_one_in_nodes_and_on_disk() -> None:
    x = build.param(0, F, (13,))
    several, other = build.exp(x), build.log(x)
    several.locs, other.locs = (("user.py", 12), ("user.py", 13)), (("other.py", 1),)
    before = current_loc.loc
    try:
        current_loc.set_from(several)
        assert build.log(x) is other
        held = current_loc.loc
    finally:
        current_loc.loc = before
    assert other.locs == (("other.py", 1), ("user.py", 12), ("user.py", 13))
    assert all(type(site) is tuple for site in other.locs)
    assert pickle.loads(pickle.dumps(held)) == ("user.py", 12)


def test_the_first_and_the_latest_lines_are_kept() -> None:
    x = build.param(0, F, (11,))
    try:
        for line in range(12):
            current_loc.loc = ("user.py", line)
            node = build.exp(x)
    finally:
        current_loc.loc = None
    assert node.locs == tuple(("user.py", line) for line in (0, *range(5, 12)))
    assert node.replace(op=ops.LOG).locs == node.locs


def test_free_ranges() -> None:
    i, j = build.range_(3, 0), build.range_(4, 1)
    both = build.add(i, j)
    assert both.ranges == {i, j}
    assert build.reduce_ranges(both, ops.ADD, [j]).ranges == {i}
    assert build.stage(both, [i], 0).ranges == {j}
    o = build.ref(0, dtypes.index, (3, 4))
    assert build.kernel([build.store(build.index_into(o, i, j), both)], "k").ranges == frozenset()


def test_a_node_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="is"):
        bool(build.param(0, F, ()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_makes_nodes_though_another_thread_held_the_lock() -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with uop._lock:
            held.set()
            go_on.wait(200)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(200)
    child = os.fork()
    if child == 0:
        signal.alarm(150)  # kills a child that hangs
        x = build.param(12345, dtypes.float32, (3,))
        del x
        os._exit(0)
    go_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_rebuild_gives_the_graph_itself_where_nothing_is_changed() -> None:
    x = build.param(0, F, (3,))
    out = build.add(build.exp(x), x)
    assert rebuild([out]) == [out]
    assert rebuild([out], lambda node, src: None) == [out]


def test_rebuild_shows_a_node_with_its_rebuilt_operands_and_passes_functions_by() -> None:
    x = build.param(0, F, (3,))
    fn = build.function([build.exp(x)], 1)
    (called,) = build_calls.call(fn, [build.exp(x)])

    def logarithms(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return build.log(*src) if node.op is ops.EXP else None
    (out,) = rebuild([build.neg(called)], logarithms)
    (expected,) = build_calls.call(fn, [build.log(x)])
    assert out is build.neg(expected)


def test_rebuild_does_not_visit_what_is_known() -> None:
    x = build.param(0, F, (3,))
    inner = build.exp(x)
    seen = []
    (out,) = rebuild([build.neg(inner)], lambda node, src: seen.append(node), known={inner: x})
    assert out is build.neg(x) and seen == [build.neg(inner)]

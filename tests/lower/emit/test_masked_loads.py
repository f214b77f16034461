"""No masked load or store has an active lane out of bounds: every address of random programs is
checked, and their results are the interpreter's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.backends.llvm import binding as llvm
from fnx.core.ir import build, dtypes, ops
from fnx.core.levels import spec
from fnx.core.levels.interp_kernel import run_kernel
from fnx.core.rewriting.algebra import evaluate
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import canonicalize
from fnx.lower.code_generation import kernel_code
from fnx.lower.driver import Driver
from fnx.lower.emit import loop_peeling
from fnx.lower.kernel.runtime_extents import generalize
from fnx.lower.schedule.heuristics import choose_schedule
from fnx.lower.schedule.tile import tile
from tests.helpers import same_bits
from tests.lower import machine
from tests.lower.host_lanes import Host

F32 = dtypes.float32
TYPES = [F32, dtypes.int8, dtypes.int32, dtypes.bool_]
COMPILED = True


def number(i):
    return build.index_const(i)


def affine(draw, ranges, most):
    """a sum of some of the ranges and a number"""
    out = number(draw(st.integers(-most, most)))
    for r in ranges:
        factor = draw(st.sampled_from([0, 1, 1, 1, 1, 1, -1, 2]))
        if factor:
            out = build.add(out, build.mul(r, number(factor)))
    return out


def condition(draw, ranges, most):
    a, b = affine(draw, ranges, most), number(draw(st.integers(-3, most + 3)))
    how = draw(st.sampled_from([build.lt, build.le]))
    return how(a, b) if draw(st.booleans()) else how(b, a)


def load(draw, slot, t, shape, ranges):
    """x[i...] at a nearby index, under conditions that keep it in bounds"""
    place, valid = [], None
    for n, r in zip(shape, ranges):
        at = affine(draw, [r] if draw(st.integers(0, 4)) else ranges, n)
        place.append(at)
        for c in (build.le(number(0), at), build.lt(at, number(n))):
            valid = c if valid is None else build.and_(valid, c)
    if draw(st.booleans()):
        valid = build.and_(valid, condition(draw, ranges, max(shape)))
    return build.load(build.index_into(build.ref(slot, t, shape), *place), valid)


def expression(draw, leaves, ranges, most):
    """WHEREs anywhere in an expression, with affine conditions."""
    pool = list(leaves)
    for _ in range(draw(st.integers(0, 5))):
        x, y = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        how = draw(st.sampled_from(["where", "where", "and", "max"]))
        if how == "where":
            pool.append(build.where(condition(draw, ranges, most), x, y))
        elif how == "and":
            pool.append(build.where(build.and_(condition(draw, ranges, most), condition(
                draw, ranges, most)), x, y))
        else:
            pool.append(build.elementwise(ops.MAX, x, y) if x.dtype.bits == 32 else x)
    return pool[-1]


@st.composite
def kernels(draw):
    """(kernel, shapes, dtype): o[i...] of WHEREs of loads, or a reduction of them."""
    t = draw(st.sampled_from(TYPES))
    rank = draw(st.integers(1, 2))
    side = st.integers(1, 200) if rank == 1 else st.integers(1, 40)
    shape = tuple(draw(side) for _ in range(rank))
    ranges = [build.range_(n, i) for i, n in enumerate(shape)]
    inputs = [shape if draw(st.booleans()) else tuple(draw(side) for _ in shape)
              for _ in range(2)]
    leaves = [load(draw, slot, t, inputs[slot], ranges)
              for slot in [draw(st.integers(0, 1)) for _ in range(draw(st.integers(1, 3)))]]
    value = expression(draw, leaves, ranges, max(shape))
    out, places = shape, ranges
    if t.bits == 32 and draw(st.integers(0, 3)) == 0:
        value = build.reduce_ranges(value, ops.MAX, ranges[-1:])
        out, places = shape[:-1], ranges[:-1]
    elif draw(st.integers(0, 4)) == 0:
        places = [*ranges[:-1], build.sub(number(shape[-1] - 1), ranges[-1])]
    store = build.store(build.index_into(build.ref(2, t, out), *places), value)
    return build.kernel([store], "k", tuple(range(rank))), [*inputs, out], t


def data(shapes, t):
    rng = np.random.default_rng(len(shapes[0]))
    return [machine.aligned((rng.random(s) * 100).astype(t.np) if t is not dtypes.bool_
                            else rng.random(s) < .5) for s in shapes]


def proven(kernel, buffers, target, scalars=()):
    """Check every address, with the parts that workers get; the result is the interpreter's."""
    code = kernel_code(kernel, Driver(target))
    program = code.program()
    spec.check([program], "program")
    env = dict(enumerate(scalars))
    n, scratch = (evaluate(code.extents[name], env) for name in ("parallel", "scratch"))
    theirs = [b.copy() for b in buffers]
    run_kernel(kernel, theirs, scalars)
    partial = 0
    for part in ((0, n),) if n < 2 else ((0, 1), (1, n - 1), (n - 1, n)):
        host = Host(program, buffers, scalars, part, scratch)
        host.run()
        partial += host.partial
    assert same_bits(buffers[-1], theirs[-1])
    return partial


@settings(deadline=None, max_examples=40)
@given(kernels(), st.sampled_from([128, 256, 512]))
def test_no_lane_is_outside(drawn, bits):
    kernel, shapes, t = drawn
    target = Target("cpu", vector_bits=bits)
    proven(tile(kernel, choose_schedule(kernel, target)), data(shapes, t), target)


@settings(deadline=None, max_examples=15)
@given(kernels(), st.sampled_from([128, 512]))
def test_no_lane_is_outside_where_extents_are_arguments(drawn, bits):
    kernel, shapes, t = drawn
    target = Target("cpu", vector_bits=bits)
    for_any_length, scalars = generalize(canonicalize(kernel))
    tiled = tile(for_any_length, choose_schedule(for_any_length, target))
    proven(tiled, data(shapes, t), target, [int(build.const_of(s)) for s in scalars])


@settings(deadline=None, max_examples=10)
@given(kernels())
def test_compiled_code_does_the_same(drawn):
    kernel, shapes, t = drawn
    tiled = tile(kernel, choose_schedule(kernel, llvm.host_target()))
    mine, theirs = machine.both(tiled, data(shapes, t))
    assert same_bits(mine[-1], theirs[-1])


def lines_of(kernel, op):
    target = Target("cpu", vector_bits=512)
    program = kernel_code(tile(kernel, choose_schedule(kernel, target)), Driver(target)).program()
    return [n for n in program.src if n.op is op]


def rolls(n, *shifts):
    """o[i] = a sum of x[(i - s) % n], as ``roll`` spells it"""
    r = build.range_(n, 0)
    x, total = build.ref(0, F32, (n,)), build.load(build.index_into(build.ref(0, F32, (n,)), r))
    for s in shifts:
        early, late = build.add(r, number(n - s)), build.sub(r, number(s))
        first = build.lt(r, number(s))
        total = build.add(total, build.where(first, build.load(
            build.index_into(x, early), build.lt(early, number(n))), build.load(
            build.index_into(x, late), build.le(number(0), late))))
    return build.kernel([build.store(build.index_into(build.ref(1, F32, (n,)), r), total)], "roll",
                        (0,))


def test_the_steady_state_of_a_roll_has_no_mask():
    assert len(lines_of(rolls(4096, 1, 4095), ops.FOR)) == 3, "prologue, steady state, epilogue"
    assert all(len(n.src) == 1 for n in lines_of(rolls(4096, 1, 4095), ops.LOAD))


@pytest.mark.parametrize("count", [2, 12])
def test_code_grows_no_faster_than_the_kernel(count):
    shifts = range(100, 100 + 37 * count, 37)
    once = 5 * count  # about: loads, selects and sums of one vector
    assert len(lines_of(rolls(1 << 17, *shifts), ops.LOAD)) <= max(1 << 10, 8 * once)


def test_what_is_known_in_parts_of_a_loop_is_asked_of_each_part_once(monkeypatch):
    def asked(count):
        found = []
        truth = loop_peeling.Cut.truth
        parts = [jnp.ones((64, 45 + 7 * (i % 3))) for i in range(count)]
        with monkeypatch.context() as m:
            m.setattr(loop_peeling.Cut, "truth", lambda *a: [found.append(a), truth(*a)][1])
            fnx.jit(lambda *xs: jnp.tanh(jnp.concatenate(xs, axis=1))).lower(*parts)
        return len(found)
    assert 0 < asked(60) <= 24 * asked(15), "4 times the parts, each with 4 times the conditions"

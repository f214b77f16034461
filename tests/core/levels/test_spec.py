"""The spec accepts legal graphs and rejects mutated ones, at every level.

A mutation makes one illegal node from a legal graph, or None if it does not apply. A constructor
may already reject the node, which counts too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fnx.core.ir import build, dtypes, kernel_args, op_args, ops
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.levels.spec import LEVELS, check
from fnx.core.support.errors import FnxError, SpecError
from tests.graphs import graph_of
from tests.kernels import commands_of, kernel_of

F, I = dtypes.float32, dtypes.int32  # noqa: E741
Rng = random.Random
Mutation = Callable[[UOp, Rng], UOp | None]


def pick(rng: Rng, root: UOp, accepted: Callable[[UOp], bool]) -> UOp | None:
    found = [n for n in toposort([root], into_functions=True) if accepted(n)]
    return rng.choice(found) if found else None


def mutate(accepted: Callable[[UOp], bool], f: Callable[[UOp, Rng], Any],
           whole: bool = False) -> Mutation:
    """Replace an accepted node by f(node); with ``whole``, rebuild its graph around it."""
    def mutation(root: UOp, rng: Rng) -> UOp | None:
        node = pick(rng, root, accepted)
        new = None if node is None else f(node, rng)
        if node is None or new is None or not whole:
            return new
        src = tuple(substitute(root.src, {node: new}))
        return None if src == root.src else raw(root, src=src)
    return mutation


def of(*some: ops.Op) -> Callable[[UOp], bool]:
    return lambda n: n.op in some


def plain(n: UOp) -> bool:
    return n.op in ops.ELEMENTWISE and n.op.result == "same" and n.arg is None


def other_dtype(n: UOp) -> dtypes.DType:
    return I if n.dtype is F else F


def raw(n: UOp, **changes: Any) -> UOp:
    fields = {"op": n.op, "dtype": n.dtype, "src": n.src, "arg": n.arg, **changes}
    return UOp(**fields)


def value(n: UOp) -> bool:
    return n.op.kind in ("elementwise", "movement", "reduce") and n.dtype is not dtypes.void


X = build.param(0, F, (3, 4))


def call_of(fn: UOp, *args: UOp, outs: Any = None) -> UOp:
    given = outs or tuple((o.shape, o.dtype) for o in fn.src)
    return UOp(ops.CALL, dtypes.void, (fn, *args), op_args.Call("f", given))


# ---- tensor level -----------------------------------------------------------------------------

FN = build.function([build.neg(X), build.exp(X)], 1, "f")
CALL = call_of(FN, X)

TENSOR: dict[str, Mutation] = {
    "wrong dtype": mutate(lambda n: value(n) and n.op.result in ("same", "where"),
                          lambda n, r: raw(n, dtype=other_dtype(n))),
    "wrong dtype of a comparison": lambda g, r: UOp(ops.CMPLT, F, (X, X)),
    "no value": mutate(value, lambda n, r: raw(n, dtype=dtypes.void)),
    "index dtype": lambda g, r: build.const(1, dtypes.index),
    "vector dtype": lambda g, r: UOp(ops.CONST, F.vec(4), (), 0),
    "operand of another dtype": mutate(
        lambda n: plain(n) and len(n.src) == 2,
        lambda n, r: raw(n, src=(n.src[0], build.param(
            9, other_dtype(n.src[0]), n.shape)))),
    "operand of another shape": mutate(
        lambda n: plain(n) and len(n.src) == 2,
        lambda n, r: raw(n, src=(n.src[0], build.param(9, n.src[0].dtype, (*n.shape, 7))))),
    "dtype that the op does not take": lambda g, r: UOp(
        r.choice([ops.EXP, ops.DIV]), I, (build.param(0, I, ()),) * 1),
    "operand dropped": mutate(lambda n: n.op in ops.ELEMENTWISE and not n.op.commutative,
                              lambda n, r: raw(n, src=n.src[1:])),
    "operand added": mutate(lambda n: n.op in ops.ELEMENTWISE and not n.op.commutative,
                            lambda n, r: raw(n, src=(*n.src, n.src[0]))),
    "arg where none belongs": mutate(plain, lambda n, r: raw(n, arg=3)),
    "op of another level": mutate(value, lambda n, r: build.load(UOp(
        ops.INDEX, n.dtype, (n,)))),
    "range among arrays": lambda g, r: build.cast(build.range_(3, 0), I),
    "condition that is no bool": lambda g, r: UOp(ops.WHERE, F, (X, X, X)),
    "condition of another shape": lambda g, r: UOp(
        ops.WHERE, F, (build.param(1, dtypes.bool_, (4,)), X, X)),
    "constant too wide": lambda g, r: UOp(ops.CONST, F, (), 1 << 32),
    "constant of no bits": lambda g, r: UOp(ops.CONST, F, (), 1.0),
    "bool constant that is not 0 or 1": lambda g, r: UOp(ops.CONST, dtypes.bool_, (), 2),
    "bitcast to another width": lambda g, r: UOp(ops.BITCAST, dtypes.float64, (X,)),
    "threefry on int32": lambda g, r: UOp(ops.THREEFRY, I, (build.param(0, I, ()),) * 4, 0),
    "threefry word 2": lambda g, r: UOp(
        ops.THREEFRY, dtypes.uint32, (build.param(0, dtypes.uint32, ()),) * 4, 2),
    "reshape to other elements": mutate(value, lambda n, r: UOp(
        ops.RESHAPE, n.dtype, (n,), (*n.shape, 0) if 0 not in n.shape else (7,))),
    "reshape to a list": lambda g, r: UOp(ops.RESHAPE, F, (X,), ("a", 4)),
    "permute that forgets an axis": lambda g, r: UOp(ops.PERMUTE, F, (X,), (1,)),
    "permute with an axis twice": lambda g, r: UOp(ops.PERMUTE, F, (X,), (1, 1)),
    "expand of a length": lambda g, r: UOp(ops.EXPAND, F, (X,), (3, 8)),
    "expand to another rank": lambda g, r: UOp(ops.EXPAND, F, (X,), (2, 3, 4)),
    "pad by a negative width": lambda g, r: UOp(
        ops.PAD, F, (X, build.const(0, F)), ((-1, 0), (0, 0))),
    "pad of one axis": lambda g, r: UOp(ops.PAD, F, (X, build.const(0, F)), ((1, 0),)),
    "pad with an array": lambda g, r: UOp(ops.PAD, F, (X, X), ((1, 0), (0, 0))),
    "pad with another dtype": lambda g, r: UOp(
        ops.PAD, F, (X, build.const(0, I)), ((1, 0), (0, 0))),
    "shrink outside": lambda g, r: UOp(ops.SHRINK, F, (X,), ((0, 3), (1, 5))),
    "shrink backwards": lambda g, r: UOp(ops.SHRINK, F, (X,), ((2, 1), (0, 4))),
    "flip of an axis twice": lambda g, r: UOp(ops.FLIP, F, (X,), (0, 0)),
    "flip outside": lambda g, r: UOp(ops.FLIP, F, (X,), (2,)),
    "windows outside": lambda g, r: UOp(ops.UNFOLD, F, (X,), op_args.Window(1, 0, 1, 1, 3)),
    "windows of one axis": lambda g, r: UOp(ops.UNFOLD, F, (X,), op_args.Window(1, 1, 1, 1, 1)),
    "windows that do not fit": lambda g, r: UOp(ops.FOLD, F, (X,), op_args.Window(1, 0, 1, 1, 5)),
    "concat along no axis": lambda g, r: UOp(ops.CONCAT, F, (X, X), 2),
    "concat of two dtypes": lambda g, r: UOp(
        ops.CONCAT, F, (X, build.param(1, I, (3, 4))), 0),
    "concat of shapes that differ": lambda g, r: UOp(
        ops.CONCAT, F, (X, build.param(1, F, (3, 5))), 0),
    "fold outside": lambda g, r: UOp(ops.REDUCE, F, (X,), op_args.Reduce(ops.ADD, (2,))),
    "fold of no axis": lambda g, r: UOp(ops.REDUCE, F, (X,), op_args.Reduce(ops.ADD, ())),
    "fold with no monoid": lambda g, r: UOp(ops.REDUCE, F, (X,), op_args.Reduce(ops.SUB, (0,))),
    "fold that does not take floats": lambda g, r: UOp(
        ops.REDUCE, F, (X,), op_args.Reduce(ops.XOR, (0,))),
    "fold over ranges": lambda g, r: UOp(
        ops.REDUCE, F, (X, X), op_args.Reduce(ops.ADD, (0,))),
    "gather at floats": lambda g, r: UOp(ops.GATHER, F, (X, build.param(1, F, (2,))),
                                         op_args.Gather((0,))),
    "gather at too many": lambda g, r: UOp(
        ops.GATHER, F, (X, *[build.param(1, I, (2,))] * 3), op_args.Gather((0, 1, 2))),
    "gather along too few": lambda g, r: UOp(
        ops.GATHER, F, (X, *[build.param(1, I, (2,))] * 2), op_args.Gather((1,))),
    "gather along descending axes": lambda g, r: UOp(
        ops.GATHER, F, (X, *[build.param(1, I, (2,))] * 2), op_args.Gather((1, 0))),
    "gather along an axis before the first": lambda g, r: UOp(
        ops.GATHER, F, (X, build.param(1, I, (2,))), op_args.Gather((-1,))),
    "gather from nothing": lambda g, r: UOp(
        ops.GATHER, F, (build.param(0, F, (0, 3)), build.param(1, I, (2,))),
        op_args.Gather((0,))),
    "scatter of other updates": lambda g, r: UOp(
        ops.SCATTER, F, (X, build.param(1, I, (2,)), X), op_args.Scatter((0,))),
    "scatter with no monoid": lambda g, r: UOp(
        ops.SCATTER, F, (X, build.param(1, I, (2,)), build.param(2, F, (2, 4))),
        op_args.Scatter((0,), ops.SUB)),
    "slot past the end": lambda g, r: raw(g, arg=op_args.Function("f", g.arg.n_params - 1))
    if pick(r, g, lambda n: n.op is ops.PARAM and n.arg.slot == g.arg.n_params - 1) in
    toposort(g.src) else None,
    "leaf in a function": mutate(
        of(ops.PARAM), lambda n, r: UOp(ops.LEAF, n.dtype, (), op_args.Leaf(3, n.shape)), True),
    "buffer in a function": lambda g, r: build.function([UOp(
        ops.BUFFER, F, (), op_args.Buffer(object(), (3,)))], 0),
    "two PARAMs of one slot": lambda g, r: build.function(
        [X, build.param(0, F, (4, 3))], 1),
    "negative slot": lambda g, r: build.param(-1, F, ()),
    "negative length": lambda g, r: build.param(0, F, (-3,)),
    "a function as an operand": lambda g, r: UOp(ops.BARRIER, dtypes.void, (g,)),
    "a function of calls": lambda g, r: build.function([CALL], 1),
    "call with too few operands": lambda g, r: call_of(FN),
    "call with another dtype": lambda g, r: call_of(FN, build.param(0, I, (3, 4))),
    "call with another shape": lambda g, r: call_of(FN, build.param(0, F, (4, 3))),
    "call with other results": lambda g, r: call_of(FN, X, outs=(((3, 4), F),)),
    "call of an array": lambda g, r: call_of(X, X, outs=(((3, 4), F),)),
    "get past the end": lambda g, r: UOp(ops.GETTUPLE, F, (CALL,), 2),
    "get of another dtype": lambda g, r: UOp(ops.GETTUPLE, I, (CALL,), 0),
    "get of an array": lambda g, r: UOp(ops.GETTUPLE, F, (X,), 0),
    "arithmetic on a call": lambda g, r: UOp(ops.NEG, dtypes.void, (CALL,)),
    "iota of bools": lambda g, r: UOp(ops.IOTA, dtypes.bool_, (), 3),
    "iota of negative length": lambda g, r: UOp(ops.IOTA, I, (), -3),
}


# ---- kernel level -----------------------------------------------------------------------------

R = build.range_(4, 90)
REF = build.ref(9, F, (4,))
AT = build.index_into(REF, R)
LOADED = build.load(AT)
OUT = build.index_into(build.ref(10, F, (4,)), R)
STORE = build.store(OUT, LOADED)


def with_order(change: Callable[[tuple[int, ...], Rng], tuple[int, ...]]) -> Mutation:
    return lambda k, r: raw(k, arg=kernel_args.Kernel("k", change(k.arg.order, r)))


def also(k: UOp, *stores: UOp) -> UOp:
    return UOp(ops.KERNEL, dtypes.void, (*k.src, *stores), kernel_args.Kernel("k"))


KERNEL: dict[str, Mutation] = {
    "wrong dtype": mutate(lambda n: n.op in (ops.INDEX, ops.LOAD) or plain(n),
                          lambda n, r: raw(n, dtype=I if n.dtype is not I else F)),
    "operand of another dtype": mutate(lambda n: plain(n) and n.dtype is F and len(n.src) == 2,
                                       lambda n, r: raw(n, src=(n.src[0], R))),
    "tensor op": lambda k, r: UOp(ops.RESHAPE, F, (LOADED,), ()),
    "param in a kernel": mutate(of(ops.LOAD), lambda n, r: build.param(0, n.dtype, ()), True),
    "array in a kernel": mutate(plain, lambda n, r: raw(n, src=(build.iota(3, F),) * len(n.src))),
    "store as a value": mutate(plain, lambda n, r: raw(n, src=(STORE,) * len(n.src))),
    "arithmetic on a buffer": lambda k, r: UOp(ops.NEG, F, (REF,)),
    "arithmetic on a place": lambda k, r: UOp(ops.NEG, F, (AT,)),
    "load of a buffer": lambda k, r: UOp(ops.LOAD, F, (REF,)),
    "load of a value": lambda k, r: UOp(ops.LOAD, F, (LOADED,)),
    "load with a float condition": lambda k, r: UOp(ops.LOAD, F, (AT, LOADED)),
    "load with two conditions": lambda k, r: UOp(
        ops.LOAD, F, (AT, *[build.const(True, dtypes.bool_)] * 2)),
    "index missing": mutate(lambda n: n.op is ops.INDEX and len(n.src) > 1,
                            lambda n, r: raw(n, src=n.src[:-1])),
    "index too many": mutate(of(ops.INDEX), lambda n, r: raw(n, src=(*n.src, R))),
    "index of dtype int32": mutate(
        lambda n: n.op is ops.INDEX and len(n.src) > 1,
        lambda n, r: raw(n, src=(*n.src[:-1], build.const(0, I)))),
    "index into a value": lambda k, r: UOp(ops.INDEX, F, (LOADED,)),
    "store of another dtype": lambda k, r: UOp(ops.STORE, dtypes.void, (OUT, R)),
    "store of nothing": lambda k, r: UOp(ops.STORE, dtypes.void, (OUT,)),
    "store into a stage": lambda k, r: UOp(ops.STORE, dtypes.void, (
        build.index_into(build.stage(LOADED, [R], 5), R), LOADED)),
    "store into a value": lambda k, r: UOp(ops.STORE, dtypes.void, (LOADED, LOADED)),
    "combine with no monoid": lambda k, r: UOp(ops.STORE, dtypes.void, (OUT, LOADED), ops.SUB),
    "combine that does not take floats": lambda k, r: UOp(
        ops.STORE, dtypes.void, (OUT, LOADED), ops.XOR),
    "fold over a value": mutate(of(ops.REDUCE), lambda n, r: raw(
        n, src=(n.src[0], n.src[0]))),
    "fold over a range twice": mutate(of(ops.REDUCE), lambda n, r: raw(
        n, src=(*n.src, n.src[1]))),
    "fold over nothing": mutate(of(ops.REDUCE), lambda n, r: raw(n, src=n.src[:1])),
    "fold with axes": mutate(of(ops.REDUCE), lambda n, r: raw(
        n, arg=op_args.Reduce(n.arg.monoid, (0,), F))),
    "fold without accumulator": mutate(of(ops.REDUCE), lambda n, r: raw(
        n, arg=op_args.Reduce(n.arg.monoid))),
    "fold of a parallel range": lambda k, r: build.reduce_ranges(
        LOADED, ops.ADD, [build.range_(3, 91, "PAR")]),
    "stage in no space": mutate(of(ops.STAGE), lambda n, r: raw(
        n, arg=kernel_args.Stage(n.arg.id, "DISK"))),
    "stage over a constant": mutate(of(ops.STAGE), lambda n, r: raw(
        n, src=(*n.src, build.index_const(3)))),
    "range of no kind": mutate(of(ops.RANGE), lambda n, r: raw(
        n, arg=kernel_args.Range(n.arg.id, "CMD_LOOP"))),
    "range of float extent": lambda k, r: UOp(
        ops.RANGE, F, (build.const(3.0, F),), kernel_args.Range(0, "SEQ")),
    "extent that depends on a range": lambda k, r: build.range_(R, 92),
    "buffer whose extent is a range": lambda k, r: build.ref(0, F, [R]),
    "variable without values": lambda k, r: build.var(0, dtypes.index, 5, 4),
    "order with a range twice": with_order(lambda o, r: (*o, r.choice(o))),
    "order without a range": with_order(lambda o, r: o[:-1] or (99,)),
    "order of unknown ranges": with_order(lambda o, r: (*o, 99)),
    "two ranges of one id": mutate(of(ops.KERNEL), lambda n, r: also(n, build.store(
        build.index_into(build.ref(30, dtypes.index, (1,)), build.index_const(0)),
        build.reduce_ranges(
            build.range_(77, n.arg.order[0]), ops.ADD, [build.range_(77, n.arg.order[0])])))),
    "two buffers of one slot": mutate(of(ops.KERNEL), lambda n, r: also(n, build.store(
        build.index_into(build.ref(0, dtypes.index, (4,)), R), R))),
    "two parallel ranges": lambda k, r: build.kernel([build.store(
        build.index_into(build.ref(0, F, (2, 2)), build.range_(2, 0, "PAR"),
                         build.range_(2, 1, "PAR")),
        build.const(0, F))], "k"),
    "parallel range inside": lambda k, r: build.kernel([build.store(
        build.index_into(build.ref(0, F, (2, 2)), build.range_(2, 0, "PAR"), build.range_(2, 1)),
        build.const(0, F))], "k", [1, 0]),
    "kernel of a value": lambda k, r: UOp(
        ops.KERNEL, dtypes.void, (LOADED,), kernel_args.Kernel("k")),
    "kernel of nothing": lambda k, r: UOp(ops.KERNEL, dtypes.void, (), kernel_args.Kernel("k")),
}


# ---- command level ----------------------------------------------------------------------------


def slot(kind: str = "arena", index: int = 0, offset: int = 0, nbytes: int = 64) -> UOp:
    return UOp(ops.SLOT, dtypes.void, (), kernel_args.Slot(kind, index, offset, nbytes))


def change_slot(**changes: Any) -> Mutation:
    def f(n: UOp, r: Rng) -> UOp:
        fields = {s: getattr(n.arg, s) for s in ("kind", "index", "offset", "nbytes")}
        return raw(n, arg=kernel_args.Slot(**{**fields, **changes}))
    return mutate(of(ops.SLOT), f, True)


def change_exec(f: Callable[[tuple[UOp, ...]], tuple[UOp, ...] | None]) -> Mutation:
    def g(n: UOp, r: Rng) -> UOp | None:
        src = f(n.src)
        return None if src is None else raw(n, src=src)
    return mutate(of(ops.EXEC), g, True)


def scalar_at_end(src: tuple[UOp, ...]) -> bool:
    return src[-1].op is ops.CONST


COMMAND: dict[str, Mutation] = {
    "slot in no memory": change_slot(kind="disk"),
    "slot before the start": change_slot(offset=-64),
    "negative index": change_slot(index=-1),
    "negative size": change_slot(nbytes=-4),
    "slot with a dtype": mutate(of(ops.SLOT), lambda n, r: raw(n, dtype=F)),
    "slot dropped": change_exec(lambda s: (s[0], *s[2:])),
    "kernel dropped": change_exec(lambda s: s[1:]),
    "slot after scalars": change_exec(
        lambda s: (s[0], *s[2:], s[1]) if scalar_at_end(s) else None),
    "scalar dropped": change_exec(lambda s: s[:-1] if scalar_at_end(s) else None),
    "scalar of another dtype": change_exec(
        lambda s: (*s[:-1], build.const(1, I)) if scalar_at_end(s) else None),
    "stride of nothing": mutate(of(ops.SLOT), lambda n, r: raw(n, arg=kernel_args.Slot(
        "in", 0, 0, 64, (0,))), True),
    "swap of one slot": mutate(of(ops.SWAP), lambda n, r: raw(n, src=n.src[:1]), True),
    "swap by no loop": mutate(of(ops.SWAP), lambda n, r: raw(n, arg=-1), True),
    "swap with a kernel": mutate(of(ops.SWAP), lambda n, r: raw(
        n, src=(n.src[0], kernel_of(0))), True),
    "loop of negative trips": mutate(of(ops.CMD_LOOP), lambda n, r: raw(
        n, arg=kernel_args.CmdLoop("step", -1)), True),
    "loop without a body": mutate(of(ops.CMD_LOOP), lambda n, r: raw(n, src=n.src[:-1]), True),
    "loop on and on": mutate(of(ops.CMD_LOOP), lambda n, r: raw(
        n, src=n.src[-1:], arg=kernel_args.CmdLoop("step", None)), True),
    "branch without branches": mutate(of(ops.BRANCH), lambda n, r: raw(n, src=n.src[:1]), True),
    "branch by a byte": mutate(of(ops.BRANCH), lambda n, r: raw(
        n, src=(slot("in", 0, 0, 1), *n.src[1:])), True),
    "scalar out of bounds": change_exec(
        lambda s: (*s[:-2], build.index_const(9), s[-1]) if scalar_at_end(s) else None),
    "slot too small": change_exec(
        lambda s: (s[0], slot("in", 0, 0, s[1].arg.nbytes - 1), *s[2:])
        if s[1].arg.nbytes else None),
    "written memory overlaps": change_exec(
        lambda s: (s[0], slot("arena", 0, 0, 64), slot("arena", 0, 32, 64), *s[3:])
        if scalar_at_end(s) else None),
    "a kernel as a command": lambda c, r: raw(c, src=(*c.src, c.src[0].src[0])),
    "a slot as a command": lambda c, r: raw(c, src=(*c.src, slot())),
    "array as an operand": change_exec(lambda s: (*s, build.param(0, F, ()))),
    "illegal kernel": change_exec(lambda s: (raw(s[0], src=(*s[0].src, LOADED)), *s[1:])),
    "commands as a value": lambda c, r: raw(c, dtype=F),
}

LEGAL: dict[str, Callable[[int], UOp]] = {
    "tensor": lambda seed: graph_of(seed, 10).fn, "kernel": kernel_of, "command": commands_of,
}
MUTATIONS = {"tensor": TENSOR, "kernel": KERNEL, "command": COMMAND}


@pytest.mark.parametrize("level", LEGAL)
def test_legal_graphs_are_accepted(level: str) -> None:
    for seed in range(200):
        check([LEGAL[level](seed)], level)


@pytest.mark.parametrize("level", MUTATIONS)
def test_mutated_graphs_are_refused(level: str) -> None:
    """At least 200 per level, including each kind of mutation; none may pass."""
    made: Counter[str] = Counter()
    passed = []
    per_kind = -(-200 // len(MUTATIONS[level])) + 1
    for name, mutation in MUTATIONS[level].items():
        for seed in range(400):
            if made[name] == per_kind:
                break
            try:
                node = mutation(LEGAL[level](seed), random.Random(seed))
                if node is not None:
                    check([node], level)
            except (FnxError, ValueError, IndexError, AttributeError, TypeError):
                node = None  # rejected by a constructor or by the spec
                made[name] += 1
            if node is not None:
                passed.append(f"{name} (seed {seed})")
                break
    assert not passed
    assert set(made) == set(MUTATIONS[level]) and sum(made.values()) >= 200


def test_an_error_names_level_rule_node_and_line() -> None:
    bad = UOp(ops.CMPLT, F, (X, X))
    bad.locs = (("user.py", 12),)
    with pytest.raises(SpecError, match=r"user.py:12: tensor level: expected the dtype that "
                                        r"CMPLT's row derives; got <CMPLT float32\[3, 4\]"):
        check([build.neg(bad)], "tensor")


def test_every_op_of_a_level_has_a_rule_of_its_own() -> None:
    for name, level in LEVELS.items():
        ruled = {op for rule in level.rules for op in rule.ops}
        missing = ops.ops_at_level(level.letter) - ruled - set(level.scopes)
        assert not missing, f"{name}: {missing}"

"""Graphs from untrusted files: each fault names its node, nothing is retained, and checking takes
time proportional to the file."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx.core.ir.uop import live_nodes
from fnx.core.support.errors import ArgumentError, CheckpointError, OutOfBoundsError
from fnx.exporting import graph_file
from tests.attack.mutants import KERNELS, corpus, opened, resealed

Change = Callable[[Any], Any]


def row(fields: Any, op: str, which: int = 0) -> Any:
    """Return one of the nodes of an op."""
    return [r for r in fields["nodes"] if r[0] == op][which]


def put(at: int, value: Any, op: str, which: int = 0) -> Change:
    """Return a change that replaces a value in an arg."""
    def change(fields: Any) -> None:
        row(fields, op, which)[3][at] = value
    return change


def const(old: int, new: int) -> Change:
    def change(fields: Any) -> None:
        next(r for r in fields["nodes"] if r[:2] == ["CONST", "index"] and r[3] == old)[3] = new
    return change


def operand(op: str, at: int, other: Callable[[Any], int], which: int = 0) -> Change:
    def change(fields: Any) -> None:
        row(fields, op, which)[2][at] = other(fields)
    return change


def first(op: str, which: int = 0) -> Callable[[Any], int]:
    return lambda fields: fields["nodes"].index(row(fields, op, which))


def both(*changes: Change) -> Change:
    def change(fields: Any) -> None:
        for c in changes:
            c(fields)
    return change


FAULTS: dict[str, tuple[str, Change, str]] = {
    "a longer loop": ("scheduled", lambda f: _put_in(f, first("RANGE")(f), 17),
                      r"node \d+ .*0 <= index < 16"),
    "a buffer of 2**50": ("gathered", const(16, 1 << 50), r"node \d+ \(REF|LOAD|STORE|RANGE\)"),
    "a parallel range": ("gathered", put(2, "PAR", "RANGE"), r"node \d+ \(RANGE\): .*traced"),
    "another alignment": ("gathered", put(3, 4096, "REF"), r"node \d+ \(REF\): .*traced"),
    "a large buffer": ("gathered", put(4, True, "REF"), r"node \d+ \(REF\): .*traced"),
    "near": ("gathered", put(4, True, "KERNEL"), r"node \d+ \(KERNEL\): .*traced"),
    "apart": ("gathered", put(3, True, "KERNEL"), r"node \d+ \(KERNEL\): .*traced"),
    "a stage that threads share": ("folded", put(2, "SHARED", "STAGE"), r"\(STAGE\): .*traced"),
    "an input that is written": ("gathered", both(put(1, 2, "REF"), put(1, 0, "REF", -1)),
                                 r"node \d+"),
    "a slot of nobody": ("gathered", put(1, 7, "REF"), r"node \d+ \(CALL\): expected operands"),
    "a negative slot": ("gathered", put(1, -1, "REF"), r"node \d+ \(KERNEL\): expected one RANGE"),
    "a schedule that is none": ("scheduled", put(3, ["tuple", ["Param", 0, ["tuple", 3]]], "CALL"),
                                r"node \d+ \(CALL\): expected a valid arg"),
    "fractions": ("product", put(1, 0.0, "PARAM"), r"node \d+ \(PARAM\): expected a valid arg"),
    "true": ("product", put(1, True, "PARAM"), r"node \d+ \(PARAM\): expected a valid arg"),
    "a huge shape": ("product", put(2, ["tuple", 1 << 61, 1 << 61], "PARAM"),
                     r"node \d+ \(PARAM\): expected a shape of less"),
    "many axes": ("product", put(2, ["tuple", *[1] * 65], "PARAM"), r"node \d+ \(PARAM\)"),
    "a long name": ("product", put(1, "n" * 1001, "FUNCTION"), r"node \d+ \(FUNCTION\)"),
    "half a letter": ("product", put(1, "\ud800", "FUNCTION"), r"node \d+ \(FUNCTION\)"),
    "an operand behind it": ("product", operand("MUL", 0, lambda f: len(f["nodes"]) - 1),
                             r"node \d+ \(MUL\): expected earlier nodes"),
    "itself": ("product", operand("MUL", 0, first("MUL")), r"node \d+ \(MUL\): .* earlier nodes"),
    "a function as an array": ("jitted", lambda f: f["nodes"].append(
        ["FUNCTION", "void", [len(f["nodes"]) - 1], ["Function", "f", 1]]), r"node \d+"),
    "a node of nothing": ("product", lambda f: _put_in(f, 0, 77),
                          r"node 0: expected a part of the function"),
    "python": ("product", lambda f: row(f, "MUL").__setitem__(0, "CALLBACK"),
               r"node \d+ \(CALLBACK\)"),
    "another op": ("product", lambda f: row(f, "MUL").__setitem__(0, "os.system"),
                   r"node \d+ \(os.system\): expected an op known to fnx"),
    "a tree of others": ("product", lambda f: f.__setitem__("in_tree", ["tuple", 1]), "in_tree: "),
    "a key twice": ("sort", lambda f: f.__setitem__(
        "out_tree", ["dict", ["a", 0], ["a", 1]]), "out_tree: expected unique string keys"),
    "a key that is a list": ("sort", lambda f: f.__setitem__(
        "out_tree", ["dict", [["a"], 0], ["b", 1]]), "out_tree: expected unique string keys"),
    "a key without a value": ("sort", lambda f: f.__setitem__(
        "out_tree", ["dict", ["a"], 1]), "out_tree: expected unique string keys"),
    "a tree of no kind": ("sort", lambda f: f.__setitem__("out_tree", [["dict"], 0, 1]),
                          "out_tree: expected tuples"),
    "no type of an array": ("product", lambda f: f["ins"][0].__setitem__(1, "index"), r"ins\[0\]"),
    "a const too long": ("product", lambda f: f["consts"][0].__setitem__(1, [8, 4]),
                         r"consts\[0\]: expected 128 bytes"),
    "consts too short": ("product", lambda f: f["consts"][0].__setitem__(1, [8, 2]),
                         "consts: expected 64 bytes of arrays, got 96"),
    "no members": ("product", lambda f: f.pop("outs"), "expected the members"),
    "more members": ("product", lambda f: f.update(x=1), "expected the members"),
    "no list": ("product", lambda f: f.update(nodes={}), "nodes: expected a list, got dict"),
}


def _put_in(fields: Any, at: int, number: int) -> None:
    """Insert a constant before a node; if that is a range, the constant becomes its extent."""
    nodes = fields["nodes"]
    for r in nodes:
        r[2] = [s + (s >= at) for s in r[2]]
    nodes.insert(at, ["CONST", "index", [], number])
    if nodes[at + 1][0] == "RANGE":
        nodes[at + 1][2][0] = at


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_by_its_node(name: str) -> None:
    whole, change, message = FAULTS[name]
    fields, arrays = opened(corpus("fnx")[whole])
    change(fields)
    data = resealed(fields, arrays)

    def refused() -> int:
        with pytest.raises(CheckpointError, match=message):
            graph_file.deserialize(data)
        gc.collect()
        return live_nodes()

    counts = [refused() for _ in range(5)]  # garbage of earlier tests may go meanwhile
    assert counts[-1] <= max(counts[:2]), counts  # nothing accumulates


def test_bits_that_no_bool_has() -> None:
    flags = jnp.asarray(np.array([True, False]))
    (data,) = fnx.export(lambda x: jnp.where(flags, x, 0.0), np.ones(2, np.float32), to="fnx",
                         name="f").files.values()
    fields, arrays = opened(data)
    with pytest.raises(CheckpointError, match=r"consts\[0\]: expected bits of bool, got 255"):
        graph_file.deserialize(resealed(fields, b"\xff" + arrays[1:]))


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_ours_are_proved(name: str) -> None:
    assert graph_file.deserialize(corpus("fnx")[name]).function.op.name == "FUNCTION"


def test_what_nobody_has_proved_is_not_exported() -> None:
    @fnx.call(out=lambda x, y: x)
    def out_of_bounds(x: Any, y: Any, o: Any) -> None:
        i = k.range(16)
        o[i] = x.load(y[i], checked=False)

    with pytest.raises(ArgumentError, match="0 <= index < 16 along axis 0") as why:
        fnx.export(out_of_bounds, np.ones(16, np.float32), np.ones(16, np.int32), to="fnx")
    assert "test_graph_checks.py" in str(why.value)


@pytest.mark.parametrize("factor", [1 << 61, -(1 << 61), (1 << 63) - 1])
def test_an_index_that_64_bits_do_not_hold_is_refused_where_it_is_written(factor: int) -> None:
    @fnx.call(out=lambda x, y: x)
    def out_of_bounds(x: Any, y: Any, o: Any) -> None:
        i = k.range(16)
        o[i] = x[(y[i] + i) * factor]

    with pytest.raises(OutOfBoundsError, match="index arithmetic of 64 bits"):
        out_of_bounds(np.ones(16, np.float32), np.ones(16, np.uint8))


@pytest.mark.parametrize("number", [0, 15, 16, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_data_of_64_bits_without_a_sign_is_clamped(number: int) -> None:
    @fnx.call(out=lambda x, y: x)
    def gather(x: Any, y: Any, o: Any) -> None:
        i = k.range(16)
        o[i] = x[y[i]]

    with fnx.enable_x64():
        found = gather(np.arange(16.0), np.full(16, number, np.uint64))
    assert set(np.asarray(found)) <= {float(min(number, 15)), 0.0}


# ---- costs ------------------------------------------------------------------------------------


def graph(nodes: list[Any], outs: int = 1) -> bytes:
    """Return a file with a function of one float32."""
    return resealed({"name": "f", "nodes": nodes, "ins": [[[], "float32", False]],
                     "in_tree": ["tuple", 0], "outs": [[[], "float32", False]] * outs,
                     "out_tree": ["list", *range(outs)], "consts": []}, b"")


X = ["PARAM", "float32", [], ["Param", 0, ["tuple"]]]


def _chain(n: int) -> bytes:
    return graph([X, *[["NEG", "float32", [i], None] for i in range(n)],
                  ["FUNCTION", "void", [n], ["Function", "f", 1]]])


def _shared(n: int) -> bytes:
    """Return a file of functions that all share one long body."""
    nodes = [X, *[["NEG", "float32", [i], None] for i in range(n)]]
    nodes += [["FUNCTION", "void", [n], ["Function", f"f{i}", 1]] for i in range(n)]
    out = ["tuple", ["tuple", ["tuple"], ["dtype", "float32"]]]
    nodes += [["CALL", "void", [n + 1 + i, 0], ["Call", "f", out, ["tuple"], None, False]]
              for i in range(n)]
    nodes += [["GETTUPLE", "float32", [2 * n + 1 + i], 0] for i in range(n)]
    return graph([*nodes, ["FUNCTION", "void", list(range(3 * n + 1, 4 * n + 1)),
                           ["Function", "f", 1]]], n)


def _kernel(body: Callable[[Callable[..., int]], int]) -> bytes:
    """Return a kernel that stores one value."""
    nodes: list[Any] = [X]

    def add(*fields: Any) -> int:
        nodes.append(list(fields))
        return len(nodes) - 1

    one = add("CONST", "index", [], 1)
    zero = add("CONST", "index", [], 0)
    x, o = (add("REF", "float32", [one], ["Ref", i, "", 64, False]) for i in (0, 1))
    index = body(lambda *fields: add(*fields))
    place = add("INDEX", "float32", [x, index], None)
    value = add("LOAD", "float32", [place], None)
    to = add("INDEX", "float32", [o, zero], None)
    store = add("STORE", "void", [to, value], None)
    kernel = add("KERNEL", "void", [store], ["Kernel", "k", ["tuple"], False, False])
    call = add("CALL", "void", [kernel, 0], ["Call", "k", ["tuple", [
        "tuple", ["tuple"], ["dtype", "float32"]]], ["tuple"], None, False])
    get = add("GETTUPLE", "float32", [call], 0)
    add("FUNCTION", "void", [get], ["Function", "f", 1])
    return graph(nodes)


def _product(n: int) -> bytes:
    """(a0 + b0) * (a1 + b1) * ...: 2**n terms if expanded."""
    def body(add: Callable[..., int]) -> int:
        seven = add("CONST", "index", [], 7)
        ranges = [add("RANGE", "index", [seven], ["Range", i, "SEQ", ""]) for i in range(2 * n)]
        total = seven
        for a, b in zip(ranges[::2], ranges[1::2]):
            total = add("MUL", "index", [total, add("ADD", "index", [a, b], None)], None)
        return total
    return _kernel(body)


def _sum(n: int) -> bytes:
    """The sum of as many ranges: each node depends on one more."""
    def body(add: Callable[..., int]) -> int:
        seven = add("CONST", "index", [], 7)
        total = seven
        for i in range(n):
            r = add("RANGE", "index", [seven], ["Range", i, "SEQ", ""])
            total = add("ADD", "index", [total, r], None)
        return total
    return _kernel(body)


CASES: dict[str, Callable[[], bytes]] = {
    "a chain": lambda: _chain(10_000), "shared bodies": lambda: _shared(1_000),
    "a product of sums": lambda: _product(30), "a sum of ranges": lambda: _sum(8_000),
    "operands": lambda: graph([X, ["CONCAT", "float32", [0] * 300_000, 0],
                               ["FUNCTION", "void", [1], ["Function", "f", 1]]]),
    "axes": lambda: graph([["PARAM", "float32", [], ["Param", 0, ["tuple", *[1] * 200_000]]]]),
    "digits": lambda: graph([["CONST", "int32", [], 10 ** 4000]] * 100),
    "deep": lambda: resealed(json.loads("[" * 900 + "]" * 900), b""),
    "empty lists": lambda: resealed({"nodes": [[]] * 300_000}, b""),
}
SECONDS, BYTES = 6e-5, 120  # per byte of the file


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", CASES)
def test_a_file_costs_at_most_so_many_times_its_size(name: str) -> None:
    data = CASES[name]()
    begun = time.process_time()
    _read(data)
    seconds = time.process_time() - begun
    tracemalloc.start()
    try:
        _read(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= BYTES * len(data) + (8 << 20), peak / len(data)
    assert seconds <= SECONDS * len(data) + 2, (seconds, seconds / len(data))


def _read(data: bytes) -> None:
    try:
        graph_file.deserialize(data)
    except CheckpointError:
        pass

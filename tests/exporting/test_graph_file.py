"""An exported graph runs in a process without its source; a damaged one is refused."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import fnx
import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.array.aval import Aval
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import toposort
from fnx.core.support.errors import ArgumentError, CheckpointError, ShapeError
from fnx.exporting import graph_file
from tests.graphs import Graph, graphs

RNG = np.random.default_rng(3)
X = RNG.normal(size=(5, 8)).astype(np.float32)
W = jnp.asarray(RNG.normal(size=(8, 3)).astype(np.float32))


@fnx.custom_jvp
def cubed(x: Any) -> Any:
    return x ** 3


cubed.defjvp(lambda p, t: (cubed(p[0]), 3 * p[0] ** 2 * t[0]))

FUNCTIONS: dict[str, Any] = {
    "product": lambda x: x @ W, "softmax": lambda x: fnx.nn.softmax(x),
    "gradient": fnx.grad(lambda x: jnp.tanh(x @ W).sum()), "jitted": fnx.jit(lambda x: x * 2),
    "scan": lambda x: fnx.lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), x[0], x),
    "while": lambda x: fnx.lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + 1, abs(x)),
    "cond": lambda x: fnx.lax.cond(x.sum() > 0, lambda: x + 1, lambda: x @ W @ W.T),
    "sort": lambda x: {"values": jnp.sort(x), "places": [x.argsort(0), None]},
    "scatter": lambda x: jnp.zeros(8).at[jnp.arange(5) % 3].add(x[:, 0]),
    "custom": lambda x: cubed(x), "constant": lambda x: jnp.full((3,), np.nan),
    "batched": fnx.vmap(lambda r: jnp.cumsum(r)[::-1]),
    "random": lambda x: fnx.random.normal(fnx.random.key(3), (4,)) + x[0, 0],
    "narrow": lambda x: x.astype(jnp.bfloat16) * jnp.asarray(W, jnp.bfloat16)[0, 0],
}


@pytest.mark.cases(9)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_comes_back(name: str, tmp_path: Path) -> None:
    f = FUNCTIONS[name]
    (path,) = fnx.export(f, X, to="fnx", name="f").save(tmp_path)
    loaded = fnx.load_exported(path)
    got, want = loaded(X), f(jnp.asarray(X))
    assert tree.structure(got) == tree.structure(want)
    for a, b in zip(tree.leaves(got), tree.leaves(want)):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@settings(max_examples=15)
@given(graphs(steps=12))
def test_any_graph_is_the_same_node_again(graph: Graph) -> None:
    fn = graph.fn
    ins = [Aval(a.shape, n.dtype) for a, n in zip(graph.args, _params(fn))]
    outs = [Aval(n.shape, n.dtype) for n in fn.src]
    exported = graph_file.ExportedGraph("f", fn, [], ins, tree.structure((0,) * len(ins)), outs,
                                 tree.structure([0] * len(outs)))
    (data,) = graph_file.serialize(exported).values()
    assert graph_file.deserialize(data).function is fn


def test_complex_constants_of_128_bits_are_kept() -> None:
    value = build.const(-2.5 + 0.5j, dtypes.complex128, (2,))
    fn = build.function([value], 0, "f")
    exported = graph_file.ExportedGraph("f", fn, [], [], tree.structure(()),
                                        [Aval((2,), dtypes.complex128)], tree.structure([0]))
    (data,) = graph_file.serialize(exported).values()
    assert graph_file.deserialize(data).function is fn


def _params(fn: Any) -> list[Any]:
    found = {n.arg.slot: n for n in toposort(fn.src) if n.op is ops.PARAM}
    return [found.get(i, build.param(i, dtypes.float32, ())) for i in range(fn.arg.n_params)]


def test_it_is_differentiated_and_jitted(tmp_path: Path) -> None:
    (path,) = fnx.export(lambda p, x: jnp.tanh(x @ p["w"]), {"w": W}, X, to="fnx",
                         name="f").save(tmp_path)
    f = fnx.load_exported(path)

    def loss(p: Any) -> Any:
        return (f(p, jnp.asarray(X)) ** 2).sum()

    got = fnx.jit(fnx.grad(loss))({"w": W})["w"]
    want = fnx.grad(lambda w: (jnp.tanh(jnp.asarray(X) @ w) ** 2).sum())(W)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5)


ALONE = """
import sys, numpy as np, fnx
f = fnx.load_exported(sys.argv[1])
for device in ("cpu", "interp"):
    fnx.config.device = device
    print(np.asarray(f(np.ones((2, 8), np.float32))).tolist())
"""


def test_a_process_without_the_source_computes_it(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        return fnx.nn.relu(x @ W).sum(1)

    (path,) = fnx.export(f, np.ones((2, 8), np.float32), to="fnx", name="net").save(tmp_path)
    done = subprocess.run([sys.executable, "-c", ALONE, path], capture_output=True, text=True,
                          check=True)
    want = np.asarray(f(jnp.ones((2, 8))))
    for line in done.stdout.splitlines():
        np.testing.assert_allclose(json.loads(line), want, rtol=1e-6)


def test_mistakes_are_said(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="calls no Python") as why:
        fnx.export(lambda x: fnx.pure_callback(np.sin, x, x), X, to="fnx")
    assert "test_graph_file.py" in str(why.value)
    with pytest.raises(ArgumentError, match="to"):
        fnx.export(jnp.sin, X, to="exe")
    (path,) = fnx.export(jnp.sin, X, to="fnx").save(tmp_path)
    f = fnx.load_exported(path)
    with pytest.raises(ShapeError, match=r"expected float32\[5, 8\], got float32\[3\]"):
        f(np.ones(3, np.float32))
    with pytest.raises(ArgumentError, match="expected arguments like"):
        f(X, X)


def test_each_damaged_byte_is_noticed() -> None:
    (data,) = fnx.export(lambda x: x @ W, X, to="fnx", name="f").files.values()
    rng = random.Random(1)
    for _ in range(60):
        at = rng.randrange(len(data))
        other = bytes([data[at] ^ 1 << rng.randrange(8)])
        with pytest.raises(CheckpointError):
            graph_file.deserialize(data[:at] + other + data[at + 1:])
    for length in (0, 5, 20, 60, len(data) - 1):
        with pytest.raises(CheckpointError):
            graph_file.deserialize(data[:length])


def resealed(data: bytes, change: Any) -> bytes:
    """Return a file with changed fields and their digest."""
    rest = data[len(graph_file.MAGIC) + 32:]
    length = int.from_bytes(rest[:8], "little")
    fields = json.loads(rest[8:8 + length])
    fields = change(fields) or fields
    text = json.dumps(fields).encode()
    rest = len(text).to_bytes(8, "little") + text + rest[8 + length:]
    return graph_file.MAGIC + hashlib.sha256(rest).digest() + rest


def test_what_is_no_graph_is_refused_whatever_its_digest() -> None:
    (data,) = fnx.export(lambda x: (jnp.tanh(x) @ W).sum(0), X, to="fnx", name="f").files.values()
    want = graph_file.deserialize(data).function
    rng = random.Random(5)
    read = 0
    for _ in range(300):
        def change(fields: Any) -> None:
            node = rng.choice(fields["nodes"])
            which = rng.randrange(4)
            if which == 0:
                node[0] = rng.choice(["ADD", "EXP", "CALLBACK", "BUFFER", "__import__", "SCAN",
                                      "GETTUPLE"])
            elif which == 1:
                node[1] = rng.choice(["int32", "bool", "float64", "void", "x"])
            elif which == 2:
                node[2] = [rng.randrange(-2, len(fields["nodes"]) + 2) for _ in node[2]]
            else:
                node[3] = rng.choice([None, 3, ["tuple", 1], ["Reduce"], ["Site", "x"],
                                      ["op", "EXP"], ["Param", 0, ["tuple", 5]], [], [[]], {}])
        try:
            found = graph_file.deserialize(resealed(data, change))
        except CheckpointError:
            continue
        read += 1  # another graph, and a legal one
        assert found.function is want or found.function.op.name == "FUNCTION"
    assert read < 150

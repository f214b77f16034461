"""An exported C file compiles without warnings and gives the same values; integers bit for bit."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import fnx
import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.array.aval import Aval
from fnx.core.ir import dtypes
from fnx.core.levels.interp import evaluate
from fnx.exporting import c_file
from fnx.exporting.graph_file import ExportedGraph
from tests.exporting.test_graph_file import FUNCTIONS, X, _params
from tests.graphs import ALL_OPS, REAL, Graph, graphs
from tests.helpers import assert_same, numbers
from tests.laws.test_jit_eager_interp import FOLDS

EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "10"))
COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler is here")
FLAGS = ["-std=c11", "-O1", "-ffp-contract=off", "-Wall", "-Werror", "-Wno-unused", "-shared",
         "-fPIC"]


def compiled(files: dict[str, bytes], folder: Path, name: str) -> tuple[Any, int]:
    """Return the function of a C file, and the size of its workspace in bytes."""
    for path, data in files.items():
        (folder / path).write_bytes(data)
    target = folder / f"{name}.so"
    done = subprocess.run([str(COMPILER), *FLAGS, "-o", str(target), str(folder / f"{name}.c"),
                           "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    work = re.search(rb"_WORK (\d+)", files[f"{name}.h"])
    assert work is not None
    return getattr(ctypes.CDLL(str(target)), name), int(work[1])


def called(function: Any, work: int, args: list[Any], outs: list[Any]) -> None:
    memory = np.full(work + 64, 0xCD, np.uint8)
    start = memory[-memory.ctypes.data % 64:]
    function(*[ctypes.c_void_p(a.ctypes.data) for a in [*args, *outs, start]])


@pytest.mark.cases(8)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_agrees(name: str, tmp_path: Path) -> None:
    f = FUNCTIONS[name]
    function, work = compiled(fnx.export(f, X, to="c", name="f").files, tmp_path, "f")
    want = [np.asarray(v) for v in tree.leaves(f(jnp.asarray(X)))]
    outs = [np.zeros(w.shape, w.dtype) for w in want]
    for _ in range(2):
        called(function, work, [X], outs)
        for a, b in zip(outs, want):
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-5,
                                       atol=1e-6)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture],
          deadline=None)
@given(graphs(types=(dtypes.int32, dtypes.uint32, dtypes.int8, dtypes.uint64, dtypes.bool_),
              steps=12))
def test_graphs_of_whole_numbers_have_the_interpreters_bits(tmp_path_factory: Any, graph: Graph
                                                            ) -> None:
    assert_same(*values_of(graph, tmp_path_factory.mktemp("c")))


def values_of(graph: Graph, folder: Path) -> tuple[list[Any], list[Any]]:
    """Return the results of a graph's C file, and the interpreter's."""
    fn = graph.fn
    ins = [Aval(a.shape, n.dtype) for a, n in zip(graph.args, _params(fn))]
    outs = [Aval(n.shape, n.dtype) for n in fn.src]
    exported = ExportedGraph("g", fn, [], ins, tree.structure([0] * len(ins)), outs,
                             tree.structure([0] * len(outs)))
    function, work = compiled(c_file.written(exported), folder, "g")
    got = [np.zeros(a.shape, a.dtype.np) for a in outs]
    called(function, work, [np.ascontiguousarray(a) for a in graph.args], got)
    return got, list(evaluate(fn.src, dict(zip(_params(fn), graph.args))))


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture],
          deadline=None)
@given(graphs(REAL, allowed=ALL_OPS - FOLDS, steps=12))
def test_graphs_of_any_types_are_near(tmp_path_factory: Any, graph: Graph) -> None:
    for a, b in zip(*values_of(graph, tmp_path_factory.mktemp("c"))):
        if np.asarray(numbers(b)).dtype.kind == "f":  # integers may come from floats
            np.testing.assert_allclose(numbers(a).astype(np.float64),
                                       numbers(b).astype(np.float64), rtol=2e-5, atol=1e-30)


@pytest.mark.parametrize("n", [5, 100, 1000])
def test_sorting_and_rounding(n: int, tmp_path: Path) -> None:
    x = np.random.default_rng(n).normal(size=(3, n)).astype(np.float32) * 3
    files = fnx.export(lambda x: (jnp.sort(x), jnp.argsort(x), jnp.round(x), jnp.round(x * 2.0)),
                       x, to="c", name="f").files
    function, work = compiled(files, tmp_path, "f")
    outs = [np.zeros(x.shape, t) for t in ("float32", "int32", "float32", "float32")]
    called(function, work, [x], outs)
    for got, want in zip(outs, (np.sort(x), np.argsort(x, kind="stable"), np.round(x),
                                np.round(x * 2))):
        np.testing.assert_array_equal(got, want)


def test_a_header_is_taken_by_cpp(tmp_path: Path) -> None:
    files = fnx.export(lambda x, y: {"sum": (x + y).sum(), "both": [x, y]}, X, X, to="c",
                       name="both").files
    for path, data in files.items():
        (tmp_path / path).write_bytes(data)
    (tmp_path / "use.cpp").write_text('#include "both.h"\nint main() { return both_WORK < 64; }\n')
    done = subprocess.run([str(COMPILER), "-x", "c++", "-c", "-o", str(tmp_path / "use.o"),
                           str(tmp_path / "use.cpp")], capture_output=True, text=True)
    assert done.returncode == 0 or "c++" in done.stderr or "cc1plus" in done.stderr, done.stderr
    function, work = compiled(files, tmp_path, "both")
    outs = [np.zeros((5, 8), np.float32), np.zeros((5, 8), np.float32), np.zeros((), np.float32)]
    called(function, work, [X, X * 2], outs)
    np.testing.assert_array_equal(outs[0], X)
    np.testing.assert_array_equal(outs[1], X * 2)
    np.testing.assert_allclose(outs[2], (X * 3).sum(), rtol=1e-5)

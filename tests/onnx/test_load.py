"""fnx.onnx.load: a checked model is a pure function of its inputs and parameters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fnx
import fnx.numpy as jnp
import fnx.onnx
from fnx.errors import ModelError

RNG = np.random.default_rng(0)
W, B = RNG.standard_normal((3, 4), np.float32), RNG.standard_normal(4, np.float32)
X = RNG.standard_normal((2, 3), np.float32)


def model(nodes: Sequence[Any], inputs: dict[str, Any], outputs: Sequence[str],
          constants: dict[str, Any] | None = None, opset: int = 21, **options: Any) -> Any:
    """Return a model; ``inputs``: name -> shape of a float32 input."""
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
                     for n, s in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(np.asarray(x), n) for n, x in (constants or {}).items()])
    for output in graph.output:
        output.type.tensor_type.elem_type = TensorProto.FLOAT
        output.type.tensor_type.shape.SetInParent()  # the checker wants one, and compares none
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                             ir_version=10, **options)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def layer(relu: str = "Relu") -> Any:
    nodes = [node("MatMul", "x w", "h"), node("Add", "h b", "a"), node(relu, "a", "y")]
    return model(nodes, {"x": ["n", 3]}, ["y"], {"w": W, "b": B})


EXPECTED = np.maximum(X @ W + B, 0)


def test_a_model_is_a_function_by_name_and_position(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(layer(), path)
    for source in (layer(), path, str(path), path.read_bytes()):
        f = fnx.onnx.load(source)
        assert (f.inputs, f.outputs, sorted(f.params)) == (("x",), ("y",), ["b", "w"])
        np.testing.assert_allclose(f(X), EXPECTED, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(f(x=X), EXPECTED, rtol=1e-5, atol=1e-6)


def test_it_is_transformed(tmp_path: Path) -> None:
    f = fnx.onnx.load(layer())
    np.testing.assert_allclose(fnx.jit(f)(X), EXPECTED, rtol=1e-5, atol=1e-6)
    rows = fnx.vmap(lambda row: f(row[None])[0])(X)
    np.testing.assert_allclose(rows, EXPECTED, rtol=1e-5, atol=1e-6)
    fnx.export(f, X, to="fnx", name="layer").save(tmp_path)
    exported = fnx.load_exported(str(tmp_path / "layer.fnx"))
    np.testing.assert_allclose(exported(X), EXPECTED, rtol=1e-5, atol=1e-6)


def test_gradients_by_parameters_are_differences() -> None:
    f = fnx.onnx.load(layer("Sigmoid"))
    loss = fnx.jit(lambda p: jnp.sum(f(X, params=p) ** 2))
    grads = fnx.grad(loss)(f.params)
    for name, g in grads.items():
        direction = RNG.standard_normal(g.shape, np.float32)
        ends = [loss(f.params | {name: f.params[name] + h * direction}) for h in (-1e-2, 1e-2)]
        assert float(jnp.vdot(g, direction)) == pytest.approx(
            float(ends[1] - ends[0]) / 2e-2, rel=1e-2)


def test_parameters_that_are_left_out_have_the_values_of_the_file() -> None:
    f = fnx.onnx.load(layer())
    expected = np.maximum(X @ W, 0)
    np.testing.assert_allclose(f(X, params={"b": jnp.zeros(4)}), expected, rtol=1e-5, atol=1e-6)


def test_several_outputs_are_a_tuple() -> None:
    f = fnx.onnx.load(model([node("Split", "x", "a b", axis=1, num_outputs=2)],
                            {"x": [2, 4]}, ["a", "b"]))
    a, b = f(np.arange(8, dtype=np.float32).reshape(2, 4))
    assert a.tolist() == [[0, 1], [4, 5]] and b.tolist() == [[2, 3], [6, 7]]


def test_shapes_that_a_model_computes_are_known_in_jit() -> None:
    nodes = [node("Shape", "x", "s"), node("Gather", "s zero", "n", axis=0),
             node("Concat", "n minus", "t", axis=0), node("Reshape", "x t", "y")]
    f = fnx.onnx.load(model(nodes, {"x": ["a", "b", "c"]}, ["y"],
                            {"zero": np.asarray([0]), "minus": np.asarray([-1])}))
    assert f.params == {}
    assert fnx.jit(f)(np.zeros((2, 3, 5), np.float32)).shape == (2, 15)


def test_a_shape_that_depends_on_data_is_an_error_with_the_node() -> None:
    nodes = [node("Cast", "x", "s", to=TensorProto.INT64), node("Reshape", "z s", "y", name="r")]
    f = fnx.onnx.load(model(nodes, {"x": [1], "z": [2, 3]}, ["y"]))
    x, z = np.asarray([6], np.float32), np.zeros((2, 3), np.float32)
    assert f(x, z).shape == (6,)
    with pytest.raises(ModelError, match="Reshape node 'r' .* input 's', which is traced"):
        fnx.jit(f)(x, z)


@pytest.mark.parametrize("inputs, message", [
    ({"x": np.zeros((2, 5), np.float32)}, r"shape \(n, 3\) for the input 'x', got \(2, 5\)"),
    ({"x": np.zeros((2, 3), np.int32)}, "expected float32 for the input 'x', got int32"),
    ({"z": 1.0}, "got z"), ({}, "missing x"),
    ({"x": X, "params": {"v": X}}, "names of parameters, got v")])
def test_an_input_that_does_not_fit_is_an_error(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        fnx.onnx.load(layer())(**inputs)


def test_a_dimension_has_one_size() -> None:
    f = fnx.onnx.load(model([node("Add", "x z", "y")], {"x": ["n"], "z": ["n"]}, ["y"]))
    with pytest.raises(ModelError, match="one size for the dimension 'n', got 2 .* and 1 at 'z'"):
        f(np.zeros(2, np.float32), np.zeros(1, np.float32))


def test_one_trace_serves_all_lengths_that_have_a_name() -> None:
    constants = {"i": np.int64(0), "axis": np.asarray([0]), "two": np.asarray([2]),
                 "rest": np.asarray([-1]), "zero": np.int64(0), "one": np.int64(1),
                 "three": np.asarray([3]), "last": np.asarray([1]), "end": np.asarray([1 << 62]),
                 "start": np.asarray([-1])}
    nodes = [node("Shape", "x", "s"), node("Gather", "s i", "t"), node("Unsqueeze", "t axis", "ts"),
             node("Mul", "ts two", "double"), node("Concat", "double rest", "to", axis=0),
             node("Reshape", "x to", "reshaped"), node("Range", "zero t one", "numbers"),
             node("Cast", "numbers", "floats", to=TensorProto.FLOAT),
             node("ConstantOfShape", "ts", "zeros"), node("Add", "floats zeros", "row"),
             node("Unsqueeze", "row last", "column"), node("Concat", "ts three", "wide", axis=0),
             node("Expand", "column wide", "expanded"), node("Slice", "x start end", "tail"),
             node("Div", "ts two", "half"), node("Slice", "x axis half", "head")]
    f = fnx.onnx.load(model(nodes, {"x": ["T", 4]}, ["reshaped", "expanded", "tail", "head"],
                            constants))
    g = fnx.jit(f, dynamic=f.dynamic)
    for length in (3, 6, 9):
        x = RNG.standard_normal((length, 4), np.float32)
        for call in (lambda: g(x), lambda: g(x=x)):
            for got, expected in zip(call(), f(x), strict=True):
                np.testing.assert_array_equal(got, expected)
    assert g.cache_info().traces == 2  # by position and by name


def test_a_model_with_attention_has_one_trace() -> None:
    nodes = [node("Attention", "x x x", "y", q_num_heads=2, kv_num_heads=2, is_causal=1)]
    f = fnx.onnx.load(model(nodes, {"x": ["batch", "time", 8]}, ["y"], opset=23))
    g = fnx.jit(f, dynamic=f.dynamic)
    for shape in ((2, 5, 8), (1, 9, 8), (3, 2, 8)):
        x = RNG.standard_normal(shape, np.float32)
        np.testing.assert_allclose(g(x), f(x), rtol=1e-5, atol=1e-6)
    assert g.cache_info().traces == 1


def _body(inputs: Sequence[Any], outputs: Sequence[Any], nodes: Sequence[Any]) -> Any:
    def info(name: str, t: int = TensorProto.FLOAT, shape: Any = (2,)) -> Any:
        return helper.make_tensor_value_info(name, t, shape)
    return helper.make_graph(nodes, "body", [info(*i) for i in inputs], [info(*o) for o in outputs])


@pytest.mark.cases(2)
@pytest.mark.parametrize("seed", [{}, {"seed": 3.0}], ids=["key", "seed"])
@pytest.mark.parametrize("loop", ["Scan", "Loop"])
def test_random_nodes_draw_anew_in_each_iteration(loop: str, seed: dict[str, float]) -> None:
    draw = node("RandomNormalLike", "r", "z", **seed)
    if loop == "Scan":
        body = _body([("r",)], [("z",)], [draw])
        m = model([node("Scan", "x", "y", body=body, num_scan_inputs=1)], {"x": [4, 2]}, ["y"])
    else:
        body = _body([("t", TensorProto.INT64, ()), ("go", TensorProto.BOOL, ()), ("r",)],
                     [("more", TensorProto.BOOL, ()), ("r2",), ("z",)],
                     [draw, node("Identity", "go", "more"), node("Identity", "r", "r2")])
        m = model([node("Loop", "n on x", "last y", body=body)], {"x": [2]}, ["y"],
                  {"n": np.int64(4), "on": np.asarray(True)})
    f = fnx.onnx.load(m)
    rows = np.asarray(f(np.zeros((4, 2) if loop == "Scan" else 2, np.float32),
                        key=fnx.random.key(0)))
    assert rows.shape == (4, 2) and len(np.unique(rows)) == 8


@pytest.mark.cases(1)
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_a_region_far_larger_than_its_image_is_summed_over_the_image(mode: str) -> None:
    m = model([node("RoiAlign", "x r b", "y", mode=mode)], {"x": [1, 2, 6, 8], "r": [1, 4]}, ["y"],
              {"b": np.zeros(1, np.int64)})
    side = 2 ** 20
    x = np.stack([np.ones((6, 8), np.float32), -np.ones((6, 8), np.float32)])[None]
    got = fnx.onnx.load(m)(x, np.asarray([[-side, -side, side, side]], np.float32))
    # a point for each pixel of the region; values hold for one pixel around the image
    share = (6 + 2) * (8 + 2) / (2 * side) ** 2
    np.testing.assert_allclose(np.ravel(got), [share, -share] if mode == "avg" else [1, 0], 1e-6)


def test_importing_fnx_imports_no_onnx() -> None:
    code = "import sys, fnx; print(sorted({'onnx', 'fnx.onnx'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "[]"

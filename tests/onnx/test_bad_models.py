"""Damaged and hostile models are refused with an error that names what is wrong."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fnx.onnx
from fnx.errors import ModelError

_spec = importlib.util.spec_from_file_location("load_tests",
                                               Path(__file__).with_name("test_load.py"))
assert _spec is not None and _spec.loader is not None
load_tests = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(load_tests)
layer, model, node = load_tests.layer, load_tests.model, load_tests.node


def test_each_cut_of_a_file_is_refused() -> None:
    data = layer().SerializeToString()
    for end in range(0, len(data), 7):
        with pytest.raises(ModelError):
            fnx.onnx.load(data[:end])


@pytest.mark.parametrize("data", [b"", b"PK\3\4" + bytes(60), b"\x93NUMPY" + bytes(60),
                                  bytes(range(256))])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(ModelError):
        fnx.onnx.load(data)


def test_a_cycle_is_refused() -> None:
    with pytest.raises(ModelError, match="sorted"):
        fnx.onnx.load(model([node("Relu", "b", "a"), node("Relu", "a", "b")], {}, ["b"]))


def test_all_unknown_operators_are_named() -> None:
    nodes = [node("Frobnicate", "x", "a"), node("Relu", "a", "b"), node("Swizzle", "b", "y")]
    with pytest.raises(ModelError, match="Frobnicate of opset 21, ai.onnx.Swizzle of opset 21"):
        fnx.onnx.load(model(nodes, {"x": [1]}, ["y"]))


@pytest.mark.parametrize("opset", [1, 6, 1000])
def test_unknown_versions_are_refused(opset: int) -> None:
    with pytest.raises(ModelError, match=f"got {opset}"):
        fnx.onnx.load(model([node("Relu", "x", "y")], {"x": [1]}, ["y"], opset=opset))


@pytest.mark.parametrize("dims", [[1 << 40, 1 << 40], [-1, 3], [1 << 62, 4], [7]])
def test_sizes_that_do_not_fit_are_refused(dims: list[int]) -> None:
    damaged = layer()
    damaged.graph.initializer[0].dims[:] = dims
    with pytest.raises(ModelError, match="'w'"):
        fnx.onnx.load(damaged)


def external(folder: Path, **entries: Any) -> Path:
    """Write a model whose tensor w is in another file, and change where it is said to be."""
    path = folder / "model" / "m.onnx"
    path.parent.mkdir()
    written = layer()
    onnx.save_model(written, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (folder / "w.bin").write_bytes((path.parent / "w.bin").read_bytes())
    if entries:
        proto = onnx.load(path, load_external_data=False)
        for entry in proto.graph.initializer[0].external_data:
            entry.value = str(entries.get(entry.key, entry.value))
        path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_are_mapped(tmp_path: Path) -> None:
    f = fnx.onnx.load(external(tmp_path))
    assert all(type(x._storage).__name__ in ("BorrowedStorage", "UnreadStorage")
               for x in f.params.values())
    np.testing.assert_allclose(f(load_tests.X), load_tests.EXPECTED, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("entries, message", [
    ({"location": "../w.bin"}, "inside of the folder"),
    ({"location": "/etc/hostname"}, "inside of the folder"),
    ({"location": "."}, "inside of the folder"),
    ({"location": "missing.bin"}, "a file with the data"),
    ({"offset": 1 << 40}, "expected 48 bytes"), ({"offset": -8}, "expected 48 bytes"),
    ({"length": 47}, "expected 48 bytes"), ({"offset": "x"}, "whole numbers")])
def test_external_data_elsewhere_are_refused(tmp_path: Path, entries: dict[str, Any],
                                             message: str) -> None:
    with pytest.raises(ModelError, match=message):
        fnx.onnx.load(external(tmp_path, **entries))


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = external(tmp_path)
    (path.parent / "w.bin").unlink()
    (path.parent / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ModelError, match="inside of the folder"):
        fnx.onnx.load(path)


def test_external_data_of_a_model_in_memory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="expected a path"):
        fnx.onnx.load(external(tmp_path).read_bytes())


def test_a_function_that_calls_itself_is_refused() -> None:
    body = helper.make_function("mine", "F", ["a"], ["b"], [
        helper.make_node("F", ["a"], ["b"], domain="mine")], [helper.make_opsetid("mine", 1)])
    m = model([helper.make_node("F", ["x"], ["y"], domain="mine")], {"x": [1]}, ["y"],
              functions=[body])
    m.opset_import.append(helper.make_opsetid("mine", 1))
    with pytest.raises(ModelError, match="calls itself"):
        fnx.onnx.load(m)


def test_text_is_refused() -> None:
    m = model([node("Identity", "x", "y")], {"x": [1]}, ["y"])
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    m.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(ModelError, match="tensors of numbers"):
        fnx.onnx.load(m)(np.asarray(["a"]))


def _loop(trips: int, stacks: bool) -> Any:
    def info(name: str, t: int, shape: Any) -> Any:
        return helper.make_tensor_value_info(name, t, shape)
    nodes = [node("Identity", "on", "more"), node("Add", "v one", "next")]
    outputs = [info("more", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, [1])]
    if stacks:
        nodes.append(node("Identity", "v", "row"))
        outputs.append(info("row", TensorProto.FLOAT, [1]))
    body = helper.make_graph(nodes, "body", [
        info("t", TensorProto.INT64, []), info("on", TensorProto.BOOL, []),
        info("v", TensorProto.FLOAT, [1])], outputs)
    return model([node("Loop", "trips go x", "last rows" if stacks else "last", body=body)],
                 {"x": [1]}, ["rows" if stacks else "last"],
                 {"trips": np.int64(trips), "go": np.asarray(True), "one": np.ones(1, np.float32)})


@pytest.mark.cases(1)
@pytest.mark.parametrize("stacks", [False, True])
def test_a_loop_without_an_end_is_refused(stacks: bool) -> None:
    x = np.zeros(1, np.float32)
    with pytest.raises(ModelError, match="Loop node 'last"):
        fnx.onnx.load(_loop(1 << 62, stacks))(x)
    expected = np.arange(3000) if stacks else np.asarray(3000)
    np.testing.assert_array_equal(np.ravel(fnx.onnx.load(_loop(3000, stacks))(x)), expected)


def test_an_error_of_a_node_names_it_and_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    nodes = [node("Range", "zero one zero", "r", name="steps"),
             node("Cast", "r", "f", to=TensorProto.FLOAT), node("Add", "x f", "y")]
    onnx.save(model(nodes, {"x": [1]}, ["y"], {"zero": np.int64(0), "one": np.int64(1)}), path)
    with pytest.raises(ModelError, match="Range node 'steps': ZeroDivisionError") as error:
        fnx.onnx.load(path)(np.zeros(1, np.float32))
    assert error.value.__notes__ == [f"in the file {path}"]

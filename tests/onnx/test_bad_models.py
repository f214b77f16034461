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

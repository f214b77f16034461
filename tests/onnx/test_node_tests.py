"""Node tests of the package onnx, for operators of each chapter: values, shapes and types.

All of them are counted by ``scripts/onnx_conformance.py``.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import onnx.backend.test.case.node as cases
import pytest

_PATH = Path(__file__).resolve().parents[2] / "scripts" / "onnx_conformance.py"
_spec = importlib.util.spec_from_file_location("onnx_conformance", _PATH)
assert _spec is not None and _spec.loader is not None
conformance = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(conformance)

OPERATORS = (
    "col2im", "deformconv", "einsum", "gathernd", "gridsample",
    "gru", "if_", "loop", "lstm", "maxunpool", "melweightmatrix", "nonmaxsuppression",
    "qlinearconv", "resize", "rnn", "roialign", "rotaryembedding", "scan",
    "scatterelements", "sequence_map", "stft", "tfidfvectorizer", "unique", "upsample")
DIFFERENT = {  # from sizes times scales, which are no whole numbers; onnxruntime takes the sizes
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners"}


@pytest.mark.cases(4)
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_node_tests_of_an_operator_pass(operator: str) -> None:
    before = len(cases._NodeTestCases)
    importlib.import_module(f"{cases.__name__}.{operator}")
    tests = cases._NodeTestCases[before:]
    assert tests
    wrong = {t.name: message for t in tests if (message := conformance.run_test(t))}
    assert wrong.keys() == DIFFERENT & {t.name for t in tests}, wrong

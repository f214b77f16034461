"""ONNX models as pure functions: ``fnx.onnx.load``.

    load         a checked model -> OnnxFunction
    graphs       nodes with their rows of the op table; unknown operators; functions
    tensors      initializers and external data
    evaluate     nodes by their rules, at each call or trace
    registry     the op table; its rows are in the other files, by the chapters of the field

A value that is known while tracing is a NumPy array and is computed by NumPy, so that shapes which
a model computes are known to Reshape, Slice, Expand and others. What is traced is an Array.
"""

from fnx.onnx import (
    control_flow,
    elementwise,
    networks,
    pooling,
    quantization,
    random_numbers,
    recurrent,
    reductions,
    sampling,
    selections,
    sequences,
    shapes,
    signals,
)
from fnx.onnx.load import OnnxFunction, load

__all__ = ["OnnxFunction", "load"]

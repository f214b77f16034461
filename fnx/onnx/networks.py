"""Products, convolutions, normalizations."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.onnx.evaluate import Node
from fnx.onnx.registry import op
from fnx.onnx.types import Value, to_array


@op("MatMul")
def _matmul(n: Node, a: Value, b: Value) -> Value:
    return jnp.matmul(to_array(a), to_array(b))


@op("Gemm")
def _gemm(n: Node, a: Value, b: Value, c: Value = None, *, alpha: float = 1.0, beta: float = 1.0,
          transA: int = 0, transB: int = 0) -> Value:
    a, b = to_array(a), to_array(b)
    y = jnp.matmul(a.T if transA else a, b.T if transB else b)
    y = y if alpha == 1.0 else (alpha * y).astype(a.dtype)
    return y if c is None else y + (c if beta == 1.0 else beta * to_array(c)).astype(y.dtype)

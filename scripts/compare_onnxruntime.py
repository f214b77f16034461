"""Compare fnx with onnxruntime on three ONNX models: values, and processor time of a call.

    taskset -c 0 python scripts/compare_onnxruntime.py

It needs the packages onnx and onnxruntime. Both compute with one thread, in turns; a time is the
median of the rounds.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import fnx
import fnx.onnx

RNG = np.random.default_rng(0)
ROUNDS, SECONDS = 9, 0.1  # of a turn


def _weights(*shape: int) -> Any:
    return (RNG.standard_normal(shape) * 0.1).astype(np.float32)


def _model(nodes: str, shape: list[Any], rank: int, constants: dict[str, Any]) -> Any:
    """``nodes``: lines of ``Op inputs -> outputs`` with attributes as JSON after ``;``."""
    protos = []
    for line in filter(str.strip, nodes.splitlines()):
        call, _, attributes = line.partition(";")
        before, _, results = call.partition("->")
        op, *inputs = before.split()
        protos.append(helper.make_node(op, inputs, results.split(),
                                       **json.loads(attributes or "{}")))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        protos, "model", [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, [None] * rank)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def mlp(width: int = 1024) -> tuple[Any, tuple[int, ...]]:
    return _model("""
        Gemm x w1 b1 -> a
        Relu a -> b
        Gemm b w2 b2 -> c
        Relu c -> d
        Gemm d w3 b3 -> y
        """, ["batch", 784], 2, {
            "w1": _weights(784, width), "b1": _weights(width), "w2": _weights(width, width),
            "b2": _weights(width), "w3": _weights(width, 10), "b3": _weights(10)}), (784,)


def cnn() -> tuple[Any, tuple[int, ...]]:
    return _model("""
        Conv x w1 b1 -> a; {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        Relu a -> b
        MaxPool b -> c; {"kernel_shape": [2, 2], "strides": [2, 2]}
        Conv c w2 b2 -> d; {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        Relu d -> e
        MaxPool e -> f; {"kernel_shape": [2, 2], "strides": [2, 2]}
        Conv f w3 b3 -> g; {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        Relu g -> h
        GlobalAveragePool h -> i
        Flatten i -> j
        Gemm j w4 b4 -> y
        """, ["batch", 3, 32, 32], 2, {
            "w1": _weights(32, 3, 3, 3), "b1": _weights(32), "w2": _weights(64, 32, 3, 3),
            "b2": _weights(64), "w3": _weights(128, 64, 3, 3), "b3": _weights(128),
            "w4": _weights(128, 10), "b4": _weights(10)}), (3, 32, 32)


def transformer(d: int = 256, heads: int = 8, time: int = 128) -> tuple[Any, tuple[int, ...]]:
    orders = [0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]
    split = "\n".join(f"""
        MatMul n w{z} -> {z}
        Reshape {z} split -> {z}s
        Transpose {z}s -> {z}h; {{"perm": {order}}}""" for z, order in zip("qkv", orders))
    constants: dict[str, Any] = {
        "split": np.asarray([0, 0, heads, d // heads]), "merge": np.asarray([0, 0, d]),
        "scale": np.float32((d // heads) ** -0.5), "wa": _weights(d, 4 * d),
        "wb": _weights(4 * d, d), **{f"w{z}": _weights(d, d) for z in "qkvo"},
        **{f"{z}{i}": 1 + _weights(d) for z in "gb" for i in (1, 2)}}
    return _model(f"""
        LayerNormalization x g1 b1 -> n{split}
        MatMul qh kh -> s
        Mul s scale -> t
        Softmax t -> p
        MatMul p vh -> o
        Transpose o -> u; {{"perm": [0, 2, 1, 3]}}
        Reshape u merge -> m
        MatMul m wo -> r
        Add x r -> z
        LayerNormalization z g2 b2 -> n2
        MatMul n2 wa -> h
        Gelu h -> l
        MatMul l wb -> e
        Add z e -> y
        """, ["batch", "time", d], 3, constants), (time, d)


def _time(run: Callable[[], Any]) -> float:
    start, count = time.process_time(), 0
    while time.process_time() - start < SECONDS:
        run()
        count += 1
    return (time.process_time() - start) / count


def main() -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    print("| model | batch | fnx, us | onnxruntime, us | ratio | largest difference |")
    print("|---|---|---|---|---|---|")
    for build in (mlp, cnn, transformer):
        proto, shape = build()
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options,
                                               providers=["CPUExecutionProvider"])
        f = fnx.jit(fnx.onnx.load(proto))
        for batch in (1, 8):
            x = _weights(batch, *shape)

            def ours(x: Any = x, f: Any = f) -> Any:
                return np.asarray(f(x))

            def theirs(x: Any = x, session: Any = session) -> Any:
                return session.run(None, {"x": x})[0]

            difference = np.abs(ours() - theirs()).max()
            pairs = [(_time(ours), _time(theirs)) for _ in range(ROUNDS)]
            a, b = (1e6 * statistics.median(times) for times in zip(*pairs))
            print(f"| {build.__name__} | {batch} | {a:,.0f} | {b:,.0f} | {a / b:.2f} "
                  f"| {difference:.1e} |", flush=True)


if __name__ == "__main__":
    main()

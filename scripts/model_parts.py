"""A part of a model of scripts/models.py, in this process: values, times or onnx.

    python scripts/model_parts.py resnet18 values       the last line is what it found, as JSON
    FNX_WORKERS=1 OMP_NUM_THREADS=1 python ...          times of the processor, of one thread
"""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
import torch._inductor.config
from model_table import MODELS, Plain
from torch._dynamo.utils import counters

import fnx
import fnx.numpy as jnp
import fnx.onnx

ROUNDS, TURN = 5, 0.2  # rounds of a comparison, and the seconds of a turn


def build(name: str, batch: int, dtype: str = "float32") -> tuple[Any, tuple[Any, ...]]:
    """Return the module in evaluation mode, and its arguments."""
    torch.manual_seed(0)
    to = getattr(torch, dtype)
    module = Plain(MODELS[name]).eval().to(to)
    inputs = MODELS[name].inputs(batch)
    return module, tuple([x.to(to) if x.is_floating_point() else x for x in inputs])


def difference(got: Sequence[Any], wanted: Sequence[Any]) -> float:
    """Return the largest difference, relative to the largest number of the same tensor, but of
    those that are next to 0 beside the others to the largest of all."""
    top = max((float(w.abs().max()) for w in wanted if w.numel()), default=1.0)
    worst = 0.0
    for a, b in zip(got, wanted, strict=True):
        if b.numel() and a is not b:
            error = float((a.double() - b.double()).abs().max())
            worst = max(worst, error / max(float(b.abs().max()), 1e-3 * top, 1e-30))
            worst = math.inf if math.isnan(error) else worst
    return worst


def loss(outputs: Sequence[Any]) -> Any:
    return sum(y.square().mean() for y in outputs)


def compiled(module: Any, backend: str) -> Any:
    """Return a module compiled anew, as in a new process."""
    torch._dynamo.reset()
    torch._dynamo.config.allow_rnn = True  # else PyTorch leaves LSTMs out of every graph
    return torch.compile(module, backend=backend, dynamic=False)


def values(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for dtype in ("float32", "float64"):
            module, args = build(name, 2, dtype)
            with torch.no_grad():
                found[dtype] = difference(compiled(module, "fnx")(*args), module(*args))
        module.train()
        ours = compiled(copy.deepcopy(module), "fnx")
        gradients = []
        for f in (module, ours):
            loss(f(*args)).backward()
            gradients.append([p.grad for p in f.parameters() if p.grad is not None])
        found["gradients"] = difference(gradients[1], gradients[0])
        buffers = [[b for b in f.buffers() if b.is_floating_point()] for f in (ours, module)]
        found["buffers"] = difference(*buffers)
    found["breaks"] = dict(counters["graph_break"])
    found["left"] = sorted({str(w.message)[:300] for w in warned if "fnx" in str(w.message)})
    return found


def turns(runs: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median seconds of a call of each, measured in turns."""
    clock = time.process_time if os.environ.get("FNX_WORKERS") == "1" else time.perf_counter
    samples: dict[str, list[float]] = {k: [] for k in runs}
    for _ in range(ROUNDS):
        for k, run in runs.items():
            start, count = clock(), 0
            while count == 0 or clock() - start < TURN:
                run()
                count += 1
            samples[k].append((clock() - start) / count)
    return {k: statistics.median(v) for k, v in samples.items()}


def times(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    torch._inductor.config.force_disable_caches = True
    for what, batch in (("b1", 1), ("b8", 8), ("step", 8)):
        runs: dict[str, Callable[[], Any]] = {}
        first: dict[str, float] = {}
        for kind in ("eager", "fnx", "inductor"):
            module, args = build(name, batch)
            f = module if kind == "eager" else compiled(module, kind)
            optimizer = torch.optim.SGD(module.parameters(), lr=1e-6)

            def infer(f: Any = f, args: Any = args) -> None:
                with torch.no_grad():
                    f(*args)

            def step(f: Any = f, args: Any = args, optimizer: Any = optimizer) -> None:
                optimizer.zero_grad()
                loss(f(*args)).backward()
                optimizer.step()

            if what == "step":
                module.train()
            run = step if what == "step" else infer
            start = time.perf_counter()
            try:
                run()
            except Exception as error:
                first[kind] = math.nan
                found.setdefault("errors", {})[f"{what} {kind}"] = str(error)[:300]
                continue
            first[kind] = time.perf_counter() - start
            run()
            runs[kind] = run
        found[what], found[f"{what} first"] = turns(runs), first
        print(json.dumps(found), flush=True)  # kept if the next takes too long
    return found


def exported(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for batch in (1, 8):
        module, args = build(name, batch)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            torch.onnx.export(module, args, path, dynamo=True, optimize=True, verbose=False)
            proto = onnx.load(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options,
                                               providers=["CPUExecutionProvider"])
        f = fnx.onnx.load(proto)
        arrays = [x.numpy() for x in args]
        g = fnx.jit(lambda *xs, f=f: f(*xs))
        feed = dict(zip([i.name for i in session.get_inputs()], arrays))
        with fnx.enable_x64():
            inputs = [jnp.asarray(x) for x in arrays]

        def ours(g: Any = g, inputs: Any = inputs) -> list[Any]:
            y = g(*inputs)
            return [np.asarray(x) for x in (y if isinstance(y, tuple) else (y,))]

        def theirs(session: Any = session, feed: Any = feed) -> list[Any]:
            return session.run(None, feed)

        start = time.perf_counter()
        a = ours()
        found[f"first b{batch}"] = time.perf_counter() - start
        found[f"values b{batch}"] = difference([torch.tensor(x) for x in a],
                                               [torch.tensor(x) for x in theirs()])
        found[f"b{batch}"] = turns({"fnx": ours, "onnxruntime": theirs})
        print(json.dumps(found), flush=True)
    module, args = build(name, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(module, args, path, dynamo=True, optimize=False, verbose=False)
        f = fnx.onnx.load(path)
        with fnx.enable_x64():
            inputs = [jnp.asarray(x.numpy()) for x in args]

        def total(params: Any) -> Any:
            y = f(*inputs, params=params)
            return sum(jnp.mean(x * x) for x in (y if isinstance(y, tuple) else (y,)))

        loss(module(*args)).backward()
        wanted = {n: p.grad for n, p in module.named_parameters() if p.grad is not None
                  and n in f.params and f.params[n].shape == tuple(p.shape)}
        found["by name"] = len(wanted)
        got = fnx.jit(fnx.grad(total))({n: f.params[n] for n in wanted})
        found["gradients"] = difference([torch.tensor(np.asarray(got[n])) for n in wanted],
                                        list(wanted.values()))
    return found


PARTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "values": values, "times": times, "onnx": exported}

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    print(json.dumps(PARTS[sys.argv[2]](sys.argv[1])), flush=True)

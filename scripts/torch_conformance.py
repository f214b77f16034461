"""Compare each row of fnx's table of ATen ops with PyTorch, on PyTorch's own samples.

    python scripts/torch_conformance.py                       # all ops, float32
    python scripts/torch_conformance.py --dtype float64 --part 1/2 --samples 4 --seconds 150
    python scripts/torch_conformance.py --ops "fft|embedding_bag"

PyTorch traces each sample, forward and backward, to a graph of ATen ops. Each node is computed by
PyTorch and by fnx from the same tensors, so that a difference names its op. For each op it prints
how many calls are equal, different and refused (PyTorch computes what fnx refuses). Then it counts
samples: equal, partly (fnx lacks an op of them), different, refused, untraced.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import time
import warnings
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db

import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.torch import graphs
from fnx.torch.table import TABLE, decompositions, entry_of

TOLERANCE = {torch.float32: {"rtol": 2e-4, "atol": 2e-4}}  # for others, PyTorch's default
OUTCOMES = ("different", "refused", "partly", "equal")  # the first one that a node has counts
outcomes: collections.Counter[str] = collections.Counter()  # of the nodes of a sample
missing: collections.Counter[str] = collections.Counter()  # ops without a row
counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
samples: collections.Counter[str] = collections.Counter()
examples: dict[str, str] = {}
RANDOM_OR_EMPTY = {name for name, row in TABLE.items() if row.is_random or "empty" in name}


def to_fnx(x: Any) -> Any:
    """Return tensors as Arrays."""
    return torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda t: jnp.from_dlpack(t.detach().resolve_conj().contiguous(), copy=True),
        x)


def to_torch(x: Any) -> Any:
    """Return an Array as a tensor."""
    return torch.from_dlpack(x).clone() if hasattr(x, "dtype") else x


class Comparison(torch.fx.Interpreter):
    """Computes a graph with PyTorch, and each node with fnx, too."""

    def run_node(self, n: Any) -> Any:
        """Compute a node by both."""
        if n.op != "call_function" or entry_of(n.target) is None:
            if isinstance(n.target, torch._ops.OperatorBase):
                outcomes["partly"] += 1
                missing[str(n.target)] += 1
            return super().run_node(n)
        name = n.target._opname
        sources = {a: self.env[a] for a in n.all_input_nodes}
        values = {a: to_fnx(v) for a, v in sources.items()}
        result = super().run_node(n)
        if name in RANDOM_OR_EMPTY:
            return result
        try:
            got = torch.utils._pytree.tree_leaves(graphs.compute(n, values, None))
            expected = torch.utils._pytree.tree_leaves(result)
            if name.startswith("_embedding_bag"):  # the rest is for the backward op
                got, expected = got[:1], expected[:1]
            for a, b in zip(got, expected, strict=True):
                if b is not None and not (isinstance(b, torch.Tensor) and b.numel() == 0):
                    torch.testing.assert_close(to_torch(a), b, **TOLERANCE.get(b.dtype, {}),
                                               equal_nan=True, check_stride=False)
            counts[name]["equal"] += 1
            outcomes["equal"] += 1
        except graphs.OpFailure as error:
            counts[name]["refused"] += 1
            outcomes["refused"] += 1
            examples.setdefault(f"{name} refused", f"{error} {n.format_node()}"[:300])
        except Exception as error:
            counts[name]["different"] += 1
            outcomes["different"] += 1
            examples.setdefault(name, f"{n.args} {n.kwargs} {error}"[:600])
        return result


def check(f: Any, tensors: list[torch.Tensor]) -> None:
    """Trace a function of tensors and compare its nodes."""
    graph = make_fx(f, decomposition_table=decompositions(), tracing_mode="fake")(*tensors)
    Comparison(graph).run(*tensors)


def check_sample(op: Any, sample: Any, backward: bool) -> None:
    """Compare the graphs of one sample."""
    leaves, spec = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    at = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> Any:
        filled = list(leaves)
        for i, t in zip(at, tensors):
            filled[i] = t
        x, args, kwargs = torch.utils._pytree.tree_unflatten(filled, spec)
        return op(x, *args, **kwargs)

    def gradients(*tensors: torch.Tensor) -> Any:
        tensors = tuple(t.detach().requires_grad_() if t.dtype.is_floating_point else t
                        for t in tensors)
        out = [y for y in torch.utils._pytree.tree_leaves(call(*tensors))
               if isinstance(y, torch.Tensor) and y.requires_grad]
        wanted = [t for t in tensors if t.requires_grad]
        return torch.autograd.grad(sum((y * y).sum() for y in out), wanted, allow_unused=True)

    tensors = [leaves[i].detach() for i in at]
    check(call, tensors)
    if backward:
        check(gradients, tensors)


def main() -> None:
    """Run the samples and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--json", default="")
    parser.add_argument("--ops", default="", help="a pattern of PyTorch's names")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    number, parts = map(int, options.part.split("/"))
    dtype, end = getattr(torch, options.dtype), time.monotonic() + options.seconds
    with override(x64=True, device="interp"):
        for op in op_db[number - 1::parts]:
            if dtype not in op.supported_dtypes("cpu") or not re.search(options.ops, op.name):
                continue
            inputs = list(op.sample_inputs("cpu", dtype))
            for sample in inputs[::max(1, len(inputs) // options.samples)]:
                if time.monotonic() > end:
                    break
                outcomes.clear()
                try:
                    check_sample(op, sample, op.supports_autograd)
                except Exception:  # data-dependent shapes, tests of errors, sparse tensors
                    outcomes["untraced"] += 1
                samples[next((o for o in OUTCOMES if outcomes[o]), "untraced"
                             if outcomes else "equal")] += 1
    for name in sorted(counts):
        print(name, *[f"{k} {v}" for k, v in sorted(counts[name].items())])
    for name, text in examples.items():
        print("EXAMPLE", name, text.replace("\n", " "))
    print("without a row:", *[f"{n} {k}" for n, k in missing.most_common()])
    print("samples:", *[f"{k} {v}" for k, v in samples.items()])
    if options.json:
        with open(options.json, "w") as file:
            json.dump(counts, file)
    sys.exit(any(c["different"] for c in counts.values()))


if __name__ == "__main__":
    main()

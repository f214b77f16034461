"""Time the kernels that have a goal against JAX and PyTorch eager, in one process.

    python benchmarks/goals.py                     prints the table
    python benchmarks/goals.py gpt_step sort10M    some of it
    python benchmarks/goals.py --write             also renews docs/benchmarks.md

Targets take turns in rounds, as in sweep.py; a time is the median of the rounds, and each call
waits for its result. A goal is a ratio of fnx's time to that of one peer, or to the better of both;
the peer ``copy`` is the time that PyTorch takes to copy as many bytes as are read and written.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sweep import RTOL, agree, caller, eager_torch, quietest
from torch_workloads import TORCH, Builder, attention, attention_grad
from workloads import WORKLOADS, matmul

Workload = Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]
BETTER = "better"


@dataclass(frozen=True)
class Goal:
    """A workload, the same in PyTorch, and the largest allowed ratio of fnx's time to that of a
    peer."""

    build: Workload
    torch: Builder
    at_most: float
    peer: str = BETTER


def of_arrays(f: Callable[..., Any], *shapes: tuple[int, ...], scale: float = 1.0) -> Workload:
    """jit of f(namespace, *operands), with operands from a normal distribution."""
    def build(ns: Any) -> Any:
        draw = np.random.default_rng(0)
        operands = [(draw.standard_normal(shape) * scale).astype("float32") for shape in shapes]
        return ns.jax.jit(partial(f, ns)), tuple(map(ns.jnp.asarray, operands))
    return build


def product(m: int, k: int, n: int, transposed: str = "") -> Goal:
    """m x k by k x n; the operands named in turned are stored transposed."""
    def f(ns: Any, a: Any, b: Any) -> Any:
        return (a.T if "a" in transposed else a) @ (b.T if "b" in transposed else b)
    shapes = ((k, m) if "a" in transposed else (m, k)), ((n, k) if "b" in transposed else (k, n))
    return Goal(of_arrays(f, *shapes), lambda torch, a, b: lambda: f(None, a, b),
                0.95 if m == n == k and m in (1024, 2048) and not transposed else 1.0)


def narrow_product(n: int) -> Goal:
    return Goal(matmul(n, "bfloat16"), lambda torch, a, b: lambda: a @ b, 1.0, "torch")


def attend(ns: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
    jnp = ns.jnp
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / math.sqrt(q.shape[-1])
    if causal:
        length = q.shape[1]
        scores = jnp.where(jnp.tril(jnp.ones((length, length), "bool")), scores, -jnp.inf)
    return jnp.einsum("hqk,hkd->hqd", ns.jax.nn.softmax(scores), v)


def attend_grad(ns: Any, *operands: Any, causal: bool) -> Any:
    def loss(*operands: Any) -> Any:
        q, k, v = operands
        return ns.jnp.sum(ns.jnp.sin(attend(ns, q, k, v, causal)))
    return ns.jax.grad(loss, (0, 1, 2))(*operands)


def attentions() -> dict[str, Goal]:
    shapes = [(8, 2048, 64)] * 3
    return {f"attention2048{grad and '_grad'}{'_causal' if causal else ''}":
            Goal(of_arrays(partial(attend_grad if grad else attend, causal=causal), *shapes),
                 partial(attention_grad if grad else attention, causal=causal), 0.6)
            for grad in ("", "grad") for causal in (True, False)}


def shared(name: str, at_most: float, peer: str = BETTER) -> Goal:
    """A workload of workloads.py."""
    return Goal(WORKLOADS[name], TORCH[name], at_most, peer)


GOALS: dict[str, Goal] = {
    **{f"matmul{n}": product(n, n, n) for n in (256, 512, 1024, 2048, 4096)},
    "128x784 @ 784x512": product(128, 784, 512),
    **{f"matmul{n} {mark}": product(n, n, n, transposed)
       for n in (512, 1024) for mark, transposed in (
           ("a.T @ b", "a"), ("a @ b.T", "b"), ("a.T @ b.T", "ab"))},
    **{f"matmul{n} bfloat16": narrow_product(n) for n in (1024, 2048)},
    "saxpy16M": shared("saxpy16M", 1 / 0.9, "copy"),
    "elementwise16M": shared("elementwise16M", 0.3),
    "softmax4096": shared("softmax4096", 0.35),
    "transpose4096 + y": Goal(of_arrays(lambda ns, x, y: x.T + y, (4096, 4096), (4096, 4096)),
                              lambda torch, x, y: lambda: x.T + y, 0.2),
    "layernorm_grad": shared("layernorm_grad", 0.5),
    "nbody_grad": shared("nbody_grad", 0.25),
    "mlp_step": shared("mlp_step", 0.8),
    "cnn_step": shared("cnn_step", 1.0, "torch"),
    "gpt_step": shared("gpt_step", 0.9, "torch"),
    **attentions(),
    "sort10M": Goal(of_arrays(lambda ns, x: ns.jnp.sort(x), (10_000_000,)),
                    lambda torch, x: lambda: torch.sort(x)[0], 0.3, "jax"),
}


def tensors(torch: Any, tree: Any) -> Any:
    """Copy a tree of arrays to tensors with memory of their own."""
    if isinstance(tree, dict):
        return {key: tensors(torch, value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [tensors(torch, value) for value in tree]
    if str(tree.dtype) == "bfloat16":
        return torch.from_numpy(np.array(tree.astype("float32"))).bfloat16()
    return torch.from_numpy(np.array(tree))


def as_float32(torch: Any, tree: Any) -> Any:
    """Convert results to NumPy arrays, since NumPy has no bfloat16."""
    from run import leaves
    return [np.asarray(x.float() if isinstance(x, torch.Tensor) else x.astype("float32"))
            for x in leaves(tree)]


def tolerance(results: Any, operands: Any) -> float:
    """Return the allowed relative difference of results: each is rounded to its dtype, and is a
    float32 sum of at most as many terms as the longest axis."""
    from run import leaves
    step = 2.0 ** -7 if any(str(x.dtype) == "bfloat16" for x in leaves(results)) else 2.0 ** -23
    terms = max(n for x in leaves(operands) for n in (1, *x.shape))
    return step + math.sqrt(terms) * 2.0 ** -23


def measure(goal: Goal, spaces: dict[str, Any], torch: Any) -> dict[str, Any]:
    """Return the seconds of each target, the results, and whether all agree."""
    from run import block
    calls, results = dict[str, Callable[[], Any]](), dict[str, Any]()
    for name, ns in spaces.items():
        f, operands = goal.build(ns)
        calls[name] = caller(f, list(operands), block)
        results[name] = calls[name]()
    given = tensors(torch, list(operands))
    calls["torch"] = goal.torch(torch, *given)
    results["torch"] = calls["torch"]()
    found = {name: as_float32(torch, result) for name, result in results.items()}
    within = max(RTOL, tolerance(results["fnx"], operands))
    if goal.peer == "copy":
        source, to = given[0], torch.empty_like(given[0])
        calls["copy"] = lambda: to.copy_(source)
    results.clear()
    times, others = quietest(calls)
    return {name: seconds for name, (seconds, _) in times.items()} | {
        "others": others,
        "agrees": all(agree(found[name], found["fnx"], within, within)
                      for name in ("jax", "torch"))}


def row(name: str, goal: Goal, found: dict[str, Any]) -> list[str]:
    """Return the cells of a table row."""
    peer = min(found["jax"], found["torch"]) if goal.peer == BETTER else found[goal.peer]
    ratio = found["fnx"] / peer
    shown = [f"{found[key] * 1e3:.3g}" if key in found else ""
             for key in ("fnx", "jax", "torch", "copy")]
    return [name, *shown, f"{ratio:.2f}", f"{goal.at_most:.2f} of {goal.peer}",
            "yes" if ratio <= goal.at_most else "no", "yes" if found["agrees"] else "no"]


HEAD = ["ms", "fnx", "JAX", "PyTorch", "copy", "ratio", "goal", "met", "agrees"]


def main() -> int:
    from run import load
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="all when none is named")
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if unknown := set(options.names) - set(GOALS):
        parser.error(f"no such goal: {', '.join(sorted(unknown))}; there are {', '.join(GOALS)}")
    torch = eager_torch()
    if torch is None:
        parser.error("PyTorch is not installed: pip install torch")
    spaces = {name: load(name)[0] for name in ("jax", "fnx")}
    lines = [HEAD, ["---"] * len(HEAD)]
    for name in options.names or GOALS:
        found = measure(GOALS[name], spaces, torch)
        lines.append(row(name, GOALS[name], found))
        note = f"  others {found['others']:.1f}" if found["others"] > 0.1 else ""
        print("  ".join(lines[-1]) + note, flush=True)
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    if options.write:
        from compare import machine, write
        write(f"{machine()}.\n\n{text}", "goals.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Nanoseconds per node of the basic operations of traces and passes.

    python -m benchmarks.nodes

Each row is the median of 15 rounds on a generated graph shaped like a traced program (elementwise
chains that share operands, movements, reductions), and the ratio of the time on a graph twice as
large: 2.0 is linear. The garbage collector is paused, as it is while fnx traces and lowers.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.rewriting.rewrite import RewriteRule, RuleSet, UPat, graph_rewrite
from fnx.lower.tensor.simplify import simplify

F = dtypes.float32
SIZE = 4_000  # about a training step of a small transformer
ROUNDS = 15
_shape = iter(range(2, 1 << 30))  # a fresh length: nodes of one graph are new in the next


def program(n: int, length: int) -> UOp:
    """A graph of about n nodes over PARAMs of one length."""
    rng = random.Random(0)
    recent = [build.param(i, F, (length, 4)) for i in range(4)]
    while n > 0:
        a, b = rng.choice(recent), rng.choice(recent)
        kind = rng.randrange(8)
        if kind == 0:
            node = build.expand(build.reshape(build.reduce(a, ops.ADD, (1,)), (length, 1)),
                                (length, 4))
            n -= 3
        elif kind == 1:
            node = build.permute(build.exp(build.permute(a, (1, 0))), (1, 0))
            n -= 3
        else:
            node = build.elementwise(rng.choice((ops.ADD, ops.MUL, ops.SUB, ops.MAX)), a, b)
            n -= 1
        recent[rng.randrange(4)] = node
    out = recent[0]
    for node in recent[1:]:
        out = build.add(out, node)
    return out


NEVER = RuleSet([RewriteRule(UPat(op, (UPat(ops.THREEFRY), UPat(ops.THREEFRY))), lambda: None)
                 for op in (ops.ADD, ops.MUL, ops.SUB, ops.MAX)])


Work = tuple[Callable[[], Any], int]  # what is timed, and its number of nodes


def _create(length: int, n: int) -> Work:
    return (lambda: program(n, length)), n


def _hit(length: int, n: int) -> Work:
    nodes = toposort([program(n, length)])
    content = [(x.op, x.dtype, x.src, x.arg) for x in nodes]
    return (lambda: [nodes, [UOp(*c) for c in content]]), len(nodes)


def _miss(length: int, n: int) -> Work:
    x = build.param(0, F, (length,))

    def chain() -> UOp:
        node = x
        for _ in range(n):
            node = UOp(ops.NEG, F, (node,))
        return node
    return chain, n


def _on_graph(f: Callable[[UOp], Any]) -> Callable[[int, int], Work]:
    def make(length: int, n: int) -> Work:
        fn = simplify(build.function([program(n, length)], 4))
        return (lambda: f(fn.src[0])), len(toposort(fn.src))
    return make


def _substitute(root: UOp) -> Any:
    x = next(n for n in toposort([root]) if n.op is ops.PARAM)
    return substitute([root], {x: build.neg(x)})


WORK: dict[str, Callable[[int, int], Work]] = {
    "create (new content)": _miss,
    "create (known content)": _hit,
    "build a program": _create,
    "toposort": _on_graph(lambda root: toposort([root])),
    "rewrite that matches nothing": _on_graph(lambda root: graph_rewrite([root], NEVER)),
    "simplify that changes nothing": _on_graph(
        lambda root: simplify(build.function([root], 4))),
    "substitute": _on_graph(_substitute),
    "digest": _on_graph(lambda root: root.digest()),
}


class Row(NamedTuple):
    """Median nanoseconds per node, and the ratio of the times on twice the nodes and on them."""

    name: str
    nanoseconds: float
    doubling: float


def _timed(name: str, size: int) -> tuple[float, int]:
    work, nodes = WORK[name](next(_shape), size)
    start = time.perf_counter()
    kept = work()
    taken = time.perf_counter() - start
    del kept
    return taken, nodes


def measure(name: str, size: int = SIZE, rounds: int = ROUNDS) -> Row:
    """Measure one row. Sizes alternate within a round, so noise of the machine hits both."""
    runs = [(_timed(name, size), _timed(name, 2 * size)) for _ in range(rounds)]
    one, two = (statistics.median(t / n for t, n in column) for column in zip(*runs))
    return Row(name, 1e9 * one, 2 * two / one)


def main() -> None:
    gc.disable()
    print(f"{'':<32}{'ns/node':>10}{'doubled':>10}")
    for name in WORK:
        row = measure(name)
        print(f"{row.name:<32}{row.nanoseconds:>10.0f}{row.doubling:>10.2f}")
        gc.collect()


if __name__ == "__main__":
    main()

"""Disable one kind of fusion: find the nodes that get buffers of their own without it.

    before  y = relu(x @ w + b)         one kernel
    after   t = x @ w                   without epilogue fusion
            y = relu(t + b)

``config.unfused`` names one kind, so ``f.lower(x).show()`` shows the program without it. A fusion
that makes a program slower is a bug (tests/attack/regret.py).

>>> from fnx.core.ir import build, dtypes
>>> x = build.param(0, dtypes.float32, (8,))
>>> fusion = Fusion(build.function([build.exp(build.add(x, x))], 1))
>>> sorted(node.op.name for node in disabled_nodes(fusion, "all"))
['ADD', 'EXP']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.lower.analysis.workload import two_factors
from fnx.lower.fusion.kernelize import Fusion


def disabled_nodes(fusion: Fusion, kind: str) -> frozenset[UOp]:
    """Return the nodes that must become buffers without a kind of fusion; () if it names a pass."""
    nodes = _KINDS[kind](fusion) if kind in _KINDS else ()
    return frozenset([n for n in nodes if n.op not in (ops.PARAM, ops.CONST, ops.IOTA)])


def _is_compute(node: UOp) -> bool:
    return node.op.kind == "elementwise" or node.op in (ops.REDUCE, ops.GATHER, ops.CONCAT)


def _epilogues(fusion: Fusion) -> Iterable[UOp]:
    """Contractions: what is computed from them is another kernel."""
    return fusion.contractions


def _prologues(fusion: Fusion) -> Iterable[UOp]:
    """Factors of contractions, unless they are in memory."""
    def axes(n: UOp) -> frozenset[int]:
        return frozenset([a for a in range(len(n.shape)) if fusion.varies[n] >> a & 1])
    for product in fusion.contractions:
        for factor in two_factors(product, axes, frozenset(product.arg.axes)) or ():
            while factor.op.kind == "movement" and factor.op is not ops.CONCAT:
                factor = factor.src[0]
            if _is_compute(factor):
                yield factor


def _rows(fusion: Fusion) -> Iterable[UOp]:
    """Reductions that are no contractions."""
    return [n for n in fusion.nodes if n.op is ops.REDUCE and n not in fusion.contractions]


def _concats(fusion: Fusion) -> Iterable[UOp]:
    return [n for n in fusion.nodes if n.op is ops.CONCAT]


def _shared_values(fusion: Fusion) -> Iterable[UOp]:
    """Values with several consumers."""
    readers: dict[UOp, int] = {}
    for node in fusion.nodes:
        for s in set(node.src):
            readers[s] = readers.get(s, 0) + 1
    return [n for n, count in readers.items() if count > 1 and _is_compute(n)]


def _all(fusion: Fusion) -> Iterable[UOp]:
    """All computed nodes but the terms of contractions, which are never separated from their
    sum."""
    terms = {n.src[0] for n in fusion.contractions}
    return [n for n in fusion.nodes if _is_compute(n) and n not in terms]


_KINDS: dict[str, Callable[[Fusion], Iterable[UOp]]] = {
    "prologue": _prologues, "epilogue": _epilogues, "row": _rows, "concat": _concats,
    "recompute": _shared_values, "all": _all}

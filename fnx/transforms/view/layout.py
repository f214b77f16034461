"""Layered layout of a graph: operands above the nodes that read them.

A node is placed directly above its first consumer, so that all edges lead down. In each layer nodes
are ordered by the mean position of their neighbors, downwards and upwards in turn (the barycenter
method: Sugiyama, Tagawa and Toda, 1981), then each is moved as close to that mean as those on its
left allow.

    a   b           a  b
     \\ /            \\ |
      c      ->      c      edges: (a, c), (b, c)
"""

from __future__ import annotations

from collections.abc import Sequence

SWEEPS = 4


def layered(operands: Sequence[Sequence[int]]) -> list[tuple[float, int]]:
    """Return (position in its layer, layer) of each node, in units of one node.

    Args:
        operands: for each node, the numbers of earlier nodes.

    >>> layered([[], [], [0, 1]])
    [(0.0, 0), (1.0, 0), (0.5, 1)]
    """
    level: list[int] = []
    for sources in operands:
        level.append(1 + max((level[s] for s in sources), default=-1))
    readers: list[list[int]] = [[] for _ in operands]
    for node, sources in enumerate(operands):
        for s in sources:
            readers[s].append(node)
    for node in reversed(range(len(level))):  # directly above its first consumer
        if readers[node]:
            level[node] = min(level[r] for r in readers[node]) - 1
    layers: list[list[int]] = [[] for _ in range(1 + max(level, default=-1))]
    for node, at in enumerate(level):
        layers[at].append(node)
    x = [0.0] * len(level)
    for layer in layers:
        _place(layer, x)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near: Sequence[Sequence[int]] = operands if down else readers
        for layer in layers if down else reversed(layers):
            mean = {n: sum(x[m] for m in near[n]) / len(near[n]) if near[n] else x[n]
                    for n in layer}
            layer.sort(key=mean.__getitem__)
            _place(layer, x, mean)
    return [(round(x[n], 2), level[n]) for n in range(len(level))]


def _place(layer: Sequence[int], x: list[float], wish: dict[int, float] | None = None) -> None:
    """Place the nodes of a layer in order: as close to the wished positions as a distance of 1
    allows."""
    if wish is None:
        for i, node in enumerate(layer):
            x[node] = float(i)
        return
    groups: list[tuple[float, list[int]]] = []  # (left end, nodes side by side)
    for node in layer:
        start, members = wish[node], [node]
        while groups and groups[-1][0] + len(groups[-1][1]) > start:
            left, before = groups.pop()
            whole = len(before) + len(members)
            start = (left * len(before) + (start - len(before)) * len(members)) / whole
            members = before + members
        groups.append((start, members))
    for start, members in groups:
        for i, node in enumerate(members):
            x[node] = start + i

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

from collections.abc import Container, Sequence
from typing import Any

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import show
from fnx.core.levels.show_graph import format_type
from fnx.core.levels.show_text import format_const, format_locations
from fnx.core.support.errors import Location

MAX_NODES = 20_000  # most nodes of a graph that is drawn
SWEEPS = 4

Json = Any  # dict, list, str, int, float or None, nested


def draw_graph(roots: Sequence[UOp], known: set[UOp],
               lines: Container[Location] | None = None) -> Json:
    """Return the nodes of graphs with coordinates and edges; nodes in ``known`` are not new.

    Constants are shown in the nodes that read them. ``lines``: those of the user's that
    may be shown.
    """
    all_nodes = toposort(roots, into_functions=True)
    if len(all_nodes) > MAX_NODES:
        return {"nodes": [], "edges": [], "left_out": len(all_nodes)}
    nodes = [n for n in all_nodes if n.op is not ops.CONST or n in roots]
    positions = {n: i for i, n in enumerate(nodes)}
    operands = [[positions[s] for s in n.src if s in positions] for n in nodes]
    coordinates = layer_layout(operands)
    return {"nodes": [{"op": n.op.name, "type": format_type(n), "detail": _detail(n),
                       "line": format_locations([
                           loc for loc in n.locs if lines is None or loc in lines][:1]),
                       "new": n not in known, "x": x, "y": y}
                      for n, (x, y) in zip(nodes, coordinates)],
            "edges": [[s, i] for i, sources in enumerate(operands) for s in sources],
            "left_out": 0}


def _detail(node: UOp) -> str:
    """Return the arg of a node and its constant operands as text."""
    arg = format_const(node).text if node.op is ops.CONST else \
        "" if node.arg is None else show.python_arg(node.arg, False)
    constants = [f"[{i}]={format_const(s).text}"
                 for i, s in enumerate(node.src) if s.op is ops.CONST]
    return " ".join(filter(None, [arg, *constants]))[:200]


def layer_layout(operands: Sequence[Sequence[int]]) -> list[tuple[float, int]]:
    """Return (position in its layer, layer) of each node, in units of one node.

    Args:
        operands: for each node, the numbers of earlier nodes.

    >>> layer_layout([[], [], [0, 1]])
    [(0.0, 0), (1.0, 0), (0.5, 1)]
    """
    levels: list[int] = []
    for sources in operands:
        levels.append(1 + max((levels[s] for s in sources), default=-1))
    readers: list[list[int]] = [[] for _ in operands]
    for node, sources in enumerate(operands):
        for s in sources:
            readers[s].append(node)
    for node in reversed(range(len(levels))):  # directly above its first consumer
        if readers[node]:
            levels[node] = min(levels[r] for r in readers[node]) - 1
    layers: list[list[int]] = [[] for _ in range(1 + max(levels, default=-1))]
    for node, at in enumerate(levels):
        layers[at].append(node)
    positions = [0.0] * len(levels)
    for layer in layers:
        _place_layer(layer, positions)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        neighbors: Sequence[Sequence[int]] = operands if down else readers
        for layer in layers if down else reversed(layers):
            mean = {n: sum(positions[m] for m in neighbors[n]) / len(neighbors[n]) if neighbors[n]
                    else positions[n]
                    for n in layer}
            layer.sort(key=mean.__getitem__)
            _place_layer(layer, positions, mean)
    return [(round(positions[n], 2), levels[n]) for n in range(len(levels))]


def _place_layer(layer: Sequence[int], positions: list[float],
                 wanted: dict[int, float] | None = None) -> None:
    """Place the nodes of a layer in order: as close to the wished positions as a distance of 1
    allows."""
    if wanted is None:
        for i, node in enumerate(layer):
            positions[node] = float(i)
        return
    groups: list[tuple[float, list[int]]] = []  # (left end, nodes side by side)
    for node in layer:
        start, members = wanted[node], [node]
        while groups and groups[-1][0] + len(groups[-1][1]) > start:
            left, members_before = groups.pop()
            total = len(members_before) + len(members)
            start = (left * len(members_before) + (start - len(members_before)) *
                     len(members)) / total
            members = members_before + members
        groups.append((start, members))
    for start, members in groups:
        for i, node in enumerate(members):
            positions[node] = start + i

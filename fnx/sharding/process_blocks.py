"""Meshes over several processes: which block of an array each process has.

A process has equal parts of the mesh in row-major order, as ``make_mesh`` arranges devices. Its
block is the part of an array that its devices hold together, as one piece of memory.

    mesh (4, 2) of 4 processes with 2 devices each     grid of processes (4, 1)
    P("a", "b") of an array (8, 6)                     a block (2, 6), of which a device has (2, 3)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fnx.core.ir.axis_partitions import Partitions
from fnx.core.ir.collectives import ProcessGrid, position
from fnx.core.scope import communicator
from fnx.core.support.errors import DistributedError
from fnx.sharding.mesh import Mesh


def spans_processes(mesh: object) -> bool:
    """Return whether a mesh has devices of another process."""
    current = communicator.of_process()
    return current.size > 1 and isinstance(mesh, Mesh) and any(
        d.process_index != current.rank for d in mesh.devices.flat)


def grid_of(mesh: Mesh) -> ProcessGrid:
    """Return the grid of the processes of a mesh.

    Raises:
        DistributedError: not all processes have equal parts of it, in order.
    """
    if mesh.grid is None:
        owners = np.array([d.process_index for d in mesh.devices.flat]).reshape(mesh.axis_sizes)
        counts = [len(np.unique(np.moveaxis(owners, i, 0).reshape(n, -1)[:, 0]))
                  for i, n in enumerate(mesh.axis_sizes)]
        at = np.indices(mesh.axis_sizes)
        expected = np.zeros(mesh.axis_sizes, np.int64)
        for i, (n, count) in enumerate(zip(mesh.axis_sizes, counts)):
            expected = expected * count + at[i] * count // n
        size = communicator.of_process().size
        if math.prod(counts) != size or (owners != expected).any():
            raise DistributedError(
                f"expected a mesh of which each of {size} processes has an equal part, in order; "
                f"got devices of the processes {owners.tolist()}",
                hint="make it of all devices: fnx.make_mesh(lengths, names), with lengths whose "
                     "product is fnx.device_count()")
        mesh.grid = ProcessGrid(mesh.axis_names, tuple(counts))
    return mesh.grid


def cuts(mesh: Mesh, parts: Partitions) -> Partitions:
    """Return how processes cut an array that the axes of a mesh partition: no further than an axis
    of which a process has several devices."""
    grid, out = grid_of(mesh), []
    for names in parts:
        counts = [grid.count((name,)) for name in names]
        end = next((i + 1 for i, name in enumerate(names) if counts[i] < mesh.shape[name]),
                   len(names))
        out.append(tuple([name for name, n in zip(names[:end], counts) if n > 1]))
    return tuple(out)


def block_of(mesh: Mesh, parts: Partitions, shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the slices of an array that this process has."""
    grid, rank = grid_of(mesh), communicator.of_process().rank
    index = []
    for n, names in zip(shape, cuts(mesh, parts)):
        length, i = n // grid.count(names), position(grid, rank, names)
        index.append(slice(i * length, (i + 1) * length))
    return tuple(index)

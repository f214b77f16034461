"""Random programs of shard_map, whose meshes span processes, which threads stand for.

    python -m tests.lower.partition.shard_programs 500    values, gradients; 2, 4, 8 threads
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

import fnx
from fnx.core.ir.axis_partitions import Partitions, fit
from fnx.core.ir.collectives import Collective, Names, ProcessGrid, bytes_sent
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import FnxError
from fnx.sharding.constraints import constraint_of
from fnx.sharding.named_sharding import partitions_of
from tests.lower.partition.programs import compare, traced
from tests.sharding import programs

Mesh = Mapping[str, int]


def grid_of(mesh: Mesh, count: int) -> ProcessGrid:
    """Return the grid of processes that hold equal blocks of the devices of a mesh, in order."""
    sizes = []
    for size in mesh.values():
        sizes.append(min(size, count))
        count //= sizes[-1]
    return ProcessGrid(tuple(mesh), tuple(sizes))


def cuts(parts: Sequence[Names], mesh: Mesh, grid: ProcessGrid, shape: tuple[int, ...]
         ) -> Partitions:
    """Return how processes cut an array that a mesh partitions: no further than an axis of which a
    process has several devices."""
    out: list[Names] = []
    for names in parts:
        counts = [grid.count((name,)) for name in names]
        end = next((i + 1 for i, name in enumerate(names) if counts[i] < mesh[str(name)]),
                   len(names))
        out.append(tuple([name for name, n in zip(names[:end], counts) if n > 1]))
    return fit(tuple(out), shape, dict(zip(grid.names, grid.sizes)))


def constraints(mesh: Mesh, grid: ProcessGrid) -> Callable[[UOp], Partitions | None]:
    """Return the cuts by the label of a constraint."""
    def constraint(function: UOp) -> Partitions | None:
        sharding, shape = constraint_of(function), function.src[0].shape
        return None if sharding is None else cuts(sharding._partitions(len(shape)), mesh, grid,
                                                  shape)
    return constraint


def compare_sharded(program: programs.Program, count: int, is_gradient: bool) -> list[Collective]:
    """Compare a program, or its gradients, on a number of processes; return its collectives.

    Raises:
        FnxError: the program is a mistake.
    """
    f, rng = programs.mapped(fnx, program), np.random.default_rng(program.seed)
    xs = [rng.standard_normal(shape).astype(np.float32) for shape in program.shapes]
    g = fnx.grad(lambda x, y: (f(x, y) ** 2).sum(), argnums=(0, 1)) if is_gradient else f
    function, args = traced(g, *xs)
    grid = grid_of(program.mesh, count)
    specs = [partitions_of(fnx.P(*spec), x.ndim) for spec, x in zip(program.in_specs, xs)]
    params = [cuts(spec, program.mesh, grid, x.shape) for spec, x in zip(specs, xs)]
    params += [((),) * x.ndim for x in args[len(params):]]
    try:
        return compare(function, args, grid, params, rtol=2e-4,
                       constraint=constraints(program.mesh, grid))[2]
    except FnxError as error:
        raise AssertionError("the program of a process is wrong") from error


def main(count: int) -> int:
    """Return the number of programs that differ."""
    fnx.config.cpu_devices = 8
    wrong, ran, refused, sent = 0, 0, 0, Counter[str]()
    for seed in range(count):
        for is_gradient in (False, True):
            try:
                log = compare_sharded(programs.draw(seed), (2, 4, 8)[seed % 3], is_gradient)
            except FnxError:  # some programs are mistakes
                refused += 1
            except AssertionError as error:
                wrong += 1
                print(f"seed {seed}, gradient {is_gradient}: {' '.join(str(error).split())[:300]}")
            else:
                ran += 1
                for arg in log:
                    sent[arg.name] += 1
                    sent[f"{arg.name} bytes"] += bytes_sent(arg)
    print(f"{ran} programs ran, {refused} are refused, {wrong} wrong; {dict(sent)}")
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])) > 0)

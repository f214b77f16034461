"""The shardings of results, from those of arguments."""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.array.placement import Placement, set_propagation
from fnx.core.ir.uop import UOp
from fnx.sharding.named_sharding import NamedSharding, PartitionSpec


def place_results(function: UOp, placement: Placement, ins: Sequence[Placement | None]
                  ) -> Sequence[Placement]:
    """Return the placements of the results of a FUNCTION."""
    mesh = getattr(placement.sharding, "mesh", None)
    if mesh is not None:
        placement = placement.replace(sharding=NamedSharding(mesh, PartitionSpec()))
    return [placement] * len(function.src)


set_propagation(place_results)

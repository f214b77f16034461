"""Arrays committed to a device: computations on them run on that device.

    x = device_put(x, "gpu")     x is committed: its memory has a Placement
    y = x * 2 + z                   runs on the GPU, wherever z is; y is committed, too
    x + device_put(z, "cpu")        an error that names both, and the lines that placed them

Uncommitted arrays follow committed ones. Fast paths and eager cache keys look at devices only
once ``config.placing`` is true, which happens when the first array is placed on another device
than the configured one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.support.config import DEVICES, config
from fnx.core.support.errors import ArgumentError, Location, PlacementError, format_location
from fnx.core.support.record import Record


class Placement(Record):
    """The name of a device, and the source location that placed an array on it."""

    device: str
    loc: Location | None


def placement_of(memory: Any) -> Placement | None:
    """Return where memory is committed to; None if it is uncommitted."""
    placement: Placement | None = getattr(memory, "placed", None)
    return placement


def placed_device(memory: Any) -> str | None:
    """Return the name of the device that memory is committed to, or None."""
    placement = placement_of(memory)
    return None if placement is None else placement.device


def common_placement(memory: Sequence[Any], name: Callable[[int], str]) -> Placement | None:
    """Return the device that all committed memory shares; None if none is committed.

    Raises:
        PlacementError: there are two devices; ``name`` gives the name of an argument.
    """
    first: tuple[int, Placement] | None = None
    for i, storage in enumerate(memory):
        placement = placement_of(storage)
        if placement is None:
            continue
        if first is None:
            first = i, placement
        elif placement.device != first[1].device:
            (a, other), b = first, placement
            raise PlacementError(
                f"expected arrays on one device, got {name(a)} on {other.device} (placed at "
                f"{format_location(other.loc)}) and {name(i)} on {b.device} (placed at "
                f"{format_location(b.loc)})",
                hint=f"move one of them: fnx.device_put(x, fnx.devices({other.device!r})[0])")
    return None if first is None else first[1]


def check_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise if the arguments of a public function are committed to several devices.

    Raises:
        PlacementError: names two of them, and the lines that placed them.
    """
    names: list[str] = []
    storages: list[Any] = []
    for name, value in [*[(f"argument {i}", x) for i, x in enumerate(args)], *kwargs.items()]:
        leaves = tree.leaves(value)
        for i, leaf in enumerate(leaves):
            storage = getattr(leaf, "_storage", None)
            if storage is not None:
                names.append(f"{name}{f'[{i}]' * (len(leaves) > 1)} ({leaf._aval})")
                storages.append(storage)
    common_placement(storages, names.__getitem__)


def commit(outs: Iterable[Any], placement: Placement | None, ins: Sequence[Any] = ()) -> None:
    """Commit results to the device that computed them, except those that are arguments."""
    if placement is not None:
        for memory in outs:
            if placement_of(memory) is None and not any(memory is x for x in ins):
                memory.placed = placement


def propagate_placement(run: Callable[[Sequence[Any]], Sequence[Any]]
                        ) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Wrap a program so that its results are committed where its first committed argument is."""
    if not config.placing:
        return run

    def run_and_commit(ins: Sequence[Any]) -> Sequence[Any]:
        outs = run(ins)
        commit(outs, next((p for p in map(placement_of, ins) if p is not None), None), ins)
        return outs
    return run_and_commit


def requested_device(device: Any) -> str | None:
    """Return the name of a device that a user passed; None if it names none."""
    device = getattr(device, "platform", device)
    if isinstance(device, str) and device not in DEVICES:
        raise ArgumentError(f"jit: expected a device of {', '.join(DEVICES)}, got {device!r}",
                            hint="fnx.config.device sets the default device")
    return device if isinstance(device, str) else None

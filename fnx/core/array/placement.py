"""Arrays committed to a device: computations on them run on that device.

    x = device_put(x, "gpu")     x is committed: its memory has a Placement
    y = x * 2 + z                   runs on the GPU, wherever z is; y is committed, too
    x + device_put(z, "cpu")        an error that names both, and the lines that placed them

Uncommitted arrays follow committed ones. Fast paths and eager cache keys look at devices only
once ``config.placing`` is true, which happens when the first array is placed on another device
than the configured one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.ir.uop import UOp
from fnx.core.support.config import DEVICES, config
from fnx.core.support.errors import (
    ArgumentError,
    DistributedError,
    Location,
    PlacementError,
    format_location,
)
from fnx.core.support.record import Record


class Placement(Record):
    """Where an array is committed to.

    Attributes:
        device: the name of the platform that computes on it.
        loc: the source location that placed it.
        ids: the numbers of the devices of the platform that hold it, in order.
        sharding: its sharding; None: whole, on device 0.
        key: of an array over several processes: what names its sharding in keys.
    """

    device: str
    loc: Location | None
    ids: tuple[int, ...] = (0,)
    sharding: Any = None
    key: str = ""

    @property
    def location(self) -> str:
        """The devices, as a key and for messages."""
        return self.device if self.ids == (0,) else f"{self.device}:{','.join(map(str, self.ids))}"


def placement_of(memory: Any) -> Placement | None:
    """Return where memory is committed to; None if it is uncommitted."""
    placement: Placement | None = getattr(memory, "placed", None)
    return placement


def placed_device(memory: Any) -> str | None:
    """Return the devices that memory is committed to, as a key; None if it is uncommitted. Programs
    on arrays over several processes depend on how these are cut, too."""
    placement = placement_of(memory)
    return None if placement is None else placement.key or placement.location


def common_placement(memory: Sequence[Any], name: Callable[[int], str]) -> Placement | None:
    """Return where all committed memory is, if possible of an array with a sharding; None if none
    is committed.

    Raises:
        PlacementError: there are several placements; ``name`` gives the name of an argument.
    """
    first: tuple[int, Placement] | None = None
    for i, storage in enumerate(memory):
        placement = placement_of(storage)
        if placement is None:
            continue
        if first is None:
            first = i, placement
        elif placement.location != first[1].location:
            (a, other), b = first, placement
            raise PlacementError(
                "expected arrays on "
                f"{'one device' if other.device != b.device else 'the same devices'}, "
                f"got {name(a)} on {other.location} (placed at "
                f"{format_location(other.loc)}) and {name(i)} on {b.location} (placed at "
                f"{format_location(b.loc)})",
                hint=_cure(other))
        elif first[1].sharding is None:
            first = i, placement
    return None if first is None else first[1]


def _cure(placement: Placement) -> str:
    to = f"fnx.devices({placement.device!r})[{placement.ids[0]}]" if len(placement.ids) == 1 \
        else "y.sharding"
    return f"move one of them: fnx.device_put(x, {to})"


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


Commit = Callable[[Any, Placement | None, Sequence[Any], UOp], None]
_commit_sharded: Commit | None = None


def set_propagation(commit_sharded: Commit) -> None:
    """Register how the shardings of results follow from those of arguments: what ``commit`` does
    once there are shardings."""
    global _commit_sharded
    _commit_sharded = commit_sharded


def commit(outs: Any, placement: Placement | None, ins: Sequence[Any], function: UOp
           ) -> None:
    """Commit results, a list, to where they were computed, except those that are arguments.

    Those of sharded arguments, and of constraints, have the shardings that propagate through the
    FUNCTION.
    """
    if _commit_sharded is not None and config.placing:
        _commit_sharded(outs, placement, ins, function)
    elif placement is not None:
        commit_to(placement, outs, ins)


def commit_to(placement: Placement, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    """Commit results to one placement, except those that are arguments."""
    for memory in outs:
        if placement_of(memory) is None and not any(memory is x for x in ins):
            memory.placed = placement


Run = Callable[[Sequence[Any]], Sequence[Any]]


def propagate_placement(run: Run, function: UOp, local: LocalProgram | None = None) -> Run:
    """Wrap the program of a FUNCTION so that its results are committed where arguments are."""
    if not config.placing:
        return run

    def run_and_commit(ins: Sequence[Any]) -> Sequence[Any]:
        outs = run(ins)
        if local is None:
            commit(outs, common_placement(ins, str), ins, function)
        else:
            local.commit(outs, ins)
        return outs
    return run_and_commit


def not_addressable(what: str) -> DistributedError:
    """Return the error of reading an array of which other processes have parts."""
    return DistributedError(f"{what}: expected an array that is whole in this process, got one "
                            "that is cut over several processes",
                            hint="x.addressable_shards has the parts of this process; fnx."
                                 "experimental.multihost_utils.process_allgather(x) reads all, in "
                                 "all processes")


class LocalProgram(Record):
    """What this process runs of a FUNCTION on arrays over several processes.

    Attributes:
        function: on the blocks of this process, which are the memory of these arrays.
        placements: those of the results.
    """

    function: UOp
    placements: tuple[Placement, ...]

    def commit(self, outs: Any, ins: Sequence[Any]) -> None:
        """Commit the results, a list."""
        _commit_each(outs, ins, self.placements)


Localize = Callable[[UOp, tuple[Any, ...]], LocalProgram | None]  # by shardings of arguments
_localize: Localize | None = None  # None: this process is alone
_commit_each: Callable[..., None]


def set_localization(localize: Localize, commit_each: Callable[..., None]) -> None:
    """Register how programs on arrays over several processes run."""
    global _localize, _commit_each
    _localize, _commit_each = localize, commit_each


def local_program(function: UOp, ins: Sequence[Any]) -> LocalProgram | None:
    """Return what this process runs of a FUNCTION for arguments: memory, or what stands for an
    array and has a ``sharding``; None: the FUNCTION itself."""
    if _localize is None:
        return None
    placements = [getattr(x, "placed", x) for x in ins]
    return _localize(function, tuple([getattr(p, "sharding", None) for p in placements]))


def requested_device(device: Any) -> str | None:
    """Return the name of a device that a user passed; None if it names none."""
    device = getattr(device, "platform", device)
    if isinstance(device, str) and device not in DEVICES:
        raise ArgumentError(f"jit: expected a device of {', '.join(DEVICES)}, got {device!r}",
                            hint="fnx.config.device sets the default device")
    return device if isinstance(device, str) else None

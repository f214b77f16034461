"""Executables: a FUNCTION lowered for a device and linked, kept by FUNCTION, run on storages.

    FUNCTION  -lower->  COMMANDS and code  -encode->  command buffer
    run([storages of arguments and captures])  ->  [storages of results]

The compiler and the devices come from jit.py, which alone may import them; here are only the
parts of them that are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fnx.core import build, ops
from fnx.core.array import committed, storage, trace
from fnx.core.array.trace import Closed
from fnx.core.cache import MEGABYTE, Cache, graph_bytes
from fnx.core.config import config
from fnx.core.errors import FnxError
from fnx.core.ops import const_value
from fnx.core.process import deferred, load
from fnx.core.target import Target
from fnx.core.uop import UOp, current_site, toposort

if TYPE_CHECKING:
    from fnx.core.index_faults import Check

raise_first = deferred("fnx.core.index_faults", "raise_first")  # under ``config.check_index``

MAX_EAGER = 1024        # programs of eager calls
EXECUTABLE_BYTES = 96 * MEGABYTE  # of each function's programs, and of those of eager calls
MAX_NUMBERS = 2         # constants of an eager call up to which they are arguments


class BlockFace(Protocol):
    """Commands, and where each result is found."""

    @property
    def commands(self) -> UOp: ...
    @property
    def arena(self) -> int: ...
    @property
    def outs(self) -> Sequence[UOp]: ...
    @property
    def results(self) -> Sequence[tuple[str, int]]: ...
    @property
    def over(self) -> Sequence[tuple[int, int]]: ...


class LoweredFace(Protocol):
    """What the compiler makes of a FUNCTION."""

    @property
    def function(self) -> UOp: ...
    @property
    def block(self) -> BlockFace: ...
    @property
    def code(self) -> Mapping[UOp, Any]: ...
    @property
    def milliseconds(self) -> dict[str, float]: ...


class DeviceFace(Protocol):
    """What programs and their readers need of a device."""

    @property
    def target(self) -> Target: ...
    @property
    def allocate(self) -> Callable[[Sequence[Any]], Sequence[Any]]: ...
    def results(self, sizes: Sequence[int]) -> Callable[[], Sequence[Any]]: ...
    def held(self, sizes: Iterable[int]) -> int: ...
    def encode(self, commands: UOp, code: Mapping[UOp, Any], arena: int) -> Any: ...
    def prepare(self, code: Any) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def assembly(self, text: str) -> str: ...
    def estimate(self, kernel: UOp, scalars: Sequence[int]) -> float: ...
    def upload(self, value: np.ndarray[Any, Any]) -> Any: ...
    def method(self, of: type, slot: str, python: Callable[..., Any]) -> Any | None: ...


class Executable:
    """A FUNCTION's commands, linked on a device: ``run`` takes and gives storages.

    Args:
        fn: the FUNCTION.
        device: what it runs on.
        block: its commands.
        code: of their kernels.
        lower: makes the ``lowered`` of it, for readers.
        checks: its last results are the faults of these: looked at, and not given.
    """

    __slots__ = ("allocate", "device", "function", "buffer", "block", "sizes", "fresh", "results",
                 "forwards", "checks", "over", "nbytes", "_lower", "_lowered")

    def __init__(self, fn: UOp, device: Any, block: BlockFace, code: Mapping[UOp, Any],
                 lower: Callable[[], LoweredFace], checks: Sequence[Check] = ()) -> None:
        self.function, self.checks = fn, checks
        self.device: DeviceFace = device
        self.allocate: Callable[[Sequence[Any]], Sequence[Any]] = device.allocate
        self.buffer = device.encode(block.commands, code, block.arena)
        self.block, self._lower = block, lower
        self._lowered: LoweredFace | None = None
        self.nbytes = graph_bytes([fn, block.commands])  # of what is kept with it
        self.sizes = [max(1, n.dtype.itemsize * math.prod(n.shape)) for n in block.outs]
        self.over = block.over
        numbers = {slot: i for i, slot in self.over}
        self.results = [("out", numbers[i]) if kind == "in" and i in numbers else (kind, i)
                        for kind, i in block.results]
        for i, _ in self.over:
            self.sizes[i] = 1  # no memory of its own
        self.fresh: Callable[[], Sequence[Any]] = device.results(self.sizes)
        self.forwards = any(kind == "in" for kind, _ in self.results) or \
            len(self.results) != len(self.sizes) or bool(checks)

    @property
    def lowered(self) -> LoweredFace:
        """What the compiler made of it; of a program from disk, that it makes now."""
        if self._lowered is None:
            self._lowered = self._lower()
        return self._lowered

    @property
    def is_plain(self) -> bool:
        """Whether its results are just the memory that is allocated for them."""
        return not (self.over or self.forwards)

    def runner(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """``run`` without donation, and without looking for what this program does not do."""
        if not self.is_plain:
            return self.run
        fresh, submit, see = self.fresh, self.buffer.submit, self.seen

        def run(ins: Sequence[Any]) -> Sequence[Any]:
            outs = fresh()
            submit(ins, outs)
            if config.check:
                see(ins, outs)
            return outs
        return run

    def run(self, ins: Sequence[Any], give_away: Callable[[], None] | None = None
            ) -> Sequence[Any]:
        """Submit with argument storages; storages of the results, in order.

        ``give_away`` takes donated arguments from the caller: just before the first of them can
        be written over, so that whoever is interrupted here does not read what is written there,
        and what fails before has taken nothing.
        """
        outs = self.fresh()
        if self.over:
            ins, outs = self._written_over(ins, outs)
            self.buffer.submit(ins, outs, give_away)
        else:
            self.buffer.submit(ins, outs)
            if give_away is not None:
                give_away()
        if config.check:
            self.seen(ins, outs)
        if not self.forwards:
            return outs
        given = [ins[i] if kind == "in" else outs[i] for kind, i in self.results]
        for shared in given:  # arrays may have this memory in common from now on
            shared.lent = True
        if not self.checks:
            return given
        faults = [given.pop() for _ in self.checks]
        raise_first(self.checks, [f.view(np.dtype(np.int32), (1 + len(c.loops),))
                                  for c, f in zip(self.checks, reversed(faults))])
        return given

    def _written_over(self, ins: Sequence[Any], outs: Sequence[Any]
                      ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Arguments and results, where some of these are in the memory of a donated one.

        What others may look at stays, arrays and views that have this memory in common, and so
        does memory of another device.
        """
        given, made = list(ins), list(outs)
        for i, slot in self.over:
            source = given[slot]
            if config.check or source.lent or type(source) is not type(made[i]) or \
                    sum(s is source for s in given) > 1:
                fresh, = self.allocate((source.nbytes,))
                fresh.fill(source.view(np.dtype(np.uint8), (source.nbytes,)))
                source = fresh
            given[slot] = made[i] = source
        return given, made

    def seen(self, ins: Sequence[Any], outs: Sequence[Any]) -> None:
        """Raise where a result is NaN; what is computed for it is computed again."""
        if self.device.target.name == "null":
            return  # nothing is computed there
        found = [ins[i] if kind == "in" else outs[i] for kind, i in self.results]
        params = build.params(self.function)
        args = [s.view(params[i].dtype.np, params[i].shape) if i in params else np.zeros(())
                for i, s in enumerate(ins)]
        values = [s.view(n.dtype.np, n.shape) for s, n in zip(found, self.function.src)]
        load("fnx.core.levels.blame").check_results(self.function, args, values, config.check)


class Executables:
    """Executables by FUNCTION, device and configuration; ``link(fn, donated, device)`` makes
    one."""

    def __init__(self, link: Callable[[UOp, tuple[int, ...], str], Executable], limit: int
                 ) -> None:
        self._link = link
        self._kept: Cache[Any, Executable] = Cache(
            "executables", limit, EXECUTABLE_BYTES, lambda key, made: made.nbytes)
        self.made = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, fn: UOp, donated: tuple[int, ...] = (), device: str | None = None
             ) -> Executable:
        """That of a FUNCTION on a device, by default the configured one, which may write over
        parameters."""
        device = device or config.device
        key = fn, device, config.key(), donated
        found = self._kept.get(key)
        if found is None:
            made = self._link(fn, donated, device)
            found = self._kept.keep(key, made)
            self.made += found is made
        return found

    def adopt(self, fn: UOp, donated: tuple[int, ...], made: Executable, device: str) -> None:
        """Take one that another function had made as if it was made here."""
        self._kept.keep((fn, device, config.key(), donated), made)
        self.made += 1

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()


# What is called once is not worth one: an init, or what is traced for an array bound anew.
CALLS_BEFORE_LAUNCHER = 2


class Replay:
    """A trace and what it is replayed with.

    Attributes:
        storages: memory of the captures; None for a leaf of a trace around.
        kind: of the arguments, as ``launcher.kind_of`` says it.
        family: what its function had in common with its twins when it was traced.
        launch: the launcher, once it paid to make one.
        direct: the record of calls that need no launcher, if its device has one.
        calls_before_launcher: general calls until then.
    """

    __slots__ = ("closed", "milliseconds", "storages", "executable", "launch", "direct", "kind",
                 "family", "calls_before_launcher")

    def __init__(self, closed: Closed, milliseconds: float, kind: tuple[Any, ...] = (),
                 family: tuple[Any, ...] | None = None) -> None:
        self.kind, self.family = kind, family
        self.closed, self.milliseconds = closed, milliseconds
        self.calls_before_launcher = CALLS_BEFORE_LAUNCHER
        self.storages = [c.arg.handle if c.op is ops.BUFFER else None for c in closed.captures]
        if closed.effects:
            self.storages.append(storage.put(np.zeros(1, np.bool_)))  # the first token
        self.executable: Executable | None = None
        self.direct: Any | None = None
        self.launch: Callable[[tuple[Any, ...], dict[str, Any]], Any] | None = None

    @property
    def graphs(self) -> tuple[UOp]:
        """What was traced."""
        return (self.closed.function,)


def _is_zeros(node: UOp) -> bool:
    """Whether a node is zero bits everywhere, as ``zeros`` and ``empty`` make it."""
    if node.op is not ops.EXPAND or node.src[0].op is not ops.RESHAPE:
        return False
    number = node.src[0].src[0]
    return number.op is ops.CONST and number.arg == 0


class Eager(Executables):
    """How eager calls compute: pending nodes are closed over memory and a number or two."""

    def __init__(self, link: Callable[[UOp, tuple[int, ...], str], Executable],
                 put: Callable[[np.ndarray[Any, Any]], Any],
                 zeros: Callable[[int], Any | None]) -> None:
        super().__init__(link, MAX_EAGER)
        self.put, self.zeros = put, zeros

    def evaluate(self, nodes: Sequence[UOp], keep: Callable[..., None] | None = None
                 ) -> Sequence[Any]:
        """Compute nodes over BUFFERs and CONSTs: one graph, one program, which ``keep`` gets."""
        if len(nodes) == 1 and nodes[0].op is ops.CONST:  # a number among the arguments
            return [self._memory(nodes[0])]
        if len(nodes) == 1 and _is_zeros(nodes[0]) and (found := self.zeros(
                math.prod(nodes[0].shape) * nodes[0].dtype.itemsize)) is not None:
            return [found]
        if config.check or config.check_index:  # errors will ask for lines
            fn, captures = trace.rewriting(trace.close, nodes, (), numbers=MAX_NUMBERS, lines=True)
        else:
            fn, captures = trace.close(nodes, (), numbers=MAX_NUMBERS)
        try:
            ins = [self._memory(c) for c in captures]
            place = committed.common_place(ins, lambda i: f"an array {captures[i].dtype}"
                                           f"{list(captures[i].shape)}") if config.placing else None
            executable = self.find(fn, (), None if place is None else place.device)
            outs = executable.run(ins)
            committed.commit(outs, place, ins)
            if keep is not None:
                keep(captures, ins, committed.following(executable.runner()), executable.nbytes)
            return outs
        except FnxError as error:
            self._say_line(error, nodes)
            raise

    @staticmethod
    def _say_line(error: FnxError, nodes: Sequence[UOp]) -> None:
        """An equal graph of another line may have made the program: these nodes have this one's."""
        if error.sites:
            if error.site not in {site for n in toposort(nodes) for site in n.sites}:
                error.site = current_site.site or error.site
            error.sites = ()

    def _memory(self, node: UOp) -> Any:
        return node.arg.handle if node.op is ops.BUFFER else self.put(const_value(node))

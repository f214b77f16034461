"""Executables: a FUNCTION lowered and linked for a device, cached by FUNCTION, run on storages.

    FUNCTION  -lower->  COMMANDS and code  -encode->  command buffer
    run([storages of arguments and captures])  ->  [storages of results]

The compiler and the devices are passed in by transforms/jit.py, which may import them; this module
declares protocols of what it uses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fnx.core.array import placement as committed
from fnx.core.ir import build, ops
from fnx.core.ir.cache import MEGABYTE, Cache, graph_bytes
from fnx.core.ir.ops import const_value
from fnx.core.ir.uop import UOp, current_loc, toposort
from fnx.core.scope import storage
from fnx.core.support import events
from fnx.core.support.config import config
from fnx.core.support.errors import FnxError, Location
from fnx.core.support.process import lazy_import
from fnx.core.support.target import Target
from fnx.core.tracing import trace
from fnx.core.tracing.trace import ClosedFunction

if TYPE_CHECKING:
    from fnx.core.ir.bounds_checks import BoundsCheck

nan_debugger = lazy_import("fnx.core.levels.nan_debugger")

# under ``config.check_index``
raise_first_fault = lazy_import("fnx.core.ir.bounds_checks", "raise_first_fault")

MAX_EAGER_PROGRAMS = 1024        # cached programs of eager calls
EXECUTABLE_BYTES = 96 * MEGABYTE  # for the programs of each function, and for those of eager calls
MAX_CONSTS = 2         # constants of an eager call passed as arguments, at most


Lines = frozenset[Location]


class BlockLike(Protocol):
    """Commands, and the location of each result."""

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


class LoweredLike(Protocol):
    """The compiler's output for a FUNCTION."""

    @property
    def function(self) -> UOp: ...
    @property
    def block(self) -> BlockLike: ...
    @property
    def code(self) -> Mapping[UOp, Any]: ...
    @property
    def milliseconds(self) -> dict[str, float]: ...
    @property
    def lines(self) -> Lines: ...


class DeviceLike(Protocol):
    """The interface of devices that programs and inspection use."""

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
    def native_method(self, of: type, slot: str, python: Callable[..., Any]) -> Any | None: ...


class Executable:
    """The commands of a FUNCTION, linked on a device: ``run`` takes and returns storages.

    Args:
        fn: the FUNCTION.
        device: the device that runs it.
        block: its commands.
        code: the code of its kernels.
        lower: returns the ``lowered`` form, for inspection.
        checks: index checks, whose faults are the last results: raised as errors, not returned.
        lines: the user's lines of its trace, if they are known.
    """

    __slots__ = ("allocate", "device", "function", "buffer", "block", "sizes", "allocate_results",
                 "results", "reorders_results", "checks", "lines", "over", "nbytes", "_lower",
                 "_lowered")

    def __init__(self, fn: UOp, device: Any, block: BlockLike, code: Mapping[UOp, Any],
                 lower: Callable[[], LoweredLike], checks: Sequence[BoundsCheck] = (),
                 lines: Lines = frozenset()) -> None:
        self.function, self.checks, self.lines = fn, checks, lines
        self.device: DeviceLike = device
        self.allocate: Callable[[Sequence[Any]], Sequence[Any]] = device.allocate
        self.buffer = device.encode(block.commands, code, block.arena)
        self.block, self._lower = block, lower
        self._lowered: LoweredLike | None = None
        self.nbytes = graph_bytes([fn, block.commands])  # memory retained with it
        self.sizes = [max(1, n.dtype.itemsize * math.prod(n.shape)) for n in block.outs]
        self.over = block.over
        numbers = {slot: i for i, slot in self.over}
        self.results = [("out", numbers[i]) if kind == "in" and i in numbers else (kind, i)
                        for kind, i in block.results]
        for i, _ in self.over:
            self.sizes[i] = 1  # no memory of its own
        self.allocate_results: Callable[[], Sequence[Any]] = device.results(self.sizes)
        self.reorders_results = any(kind == "in" for kind, _ in self.results) or \
            len(self.results) != len(self.sizes) or bool(checks)

    @property
    def lowered(self) -> LoweredLike:
        """The compiler's output; computed on demand for a program from disk."""
        if self._lowered is None:
            self._lowered = self._lower()
        return self._lowered

    @property
    def is_plain(self) -> bool:
        """Whether each result is newly allocated memory: no aliases and no checks."""
        return not (self.over or self.reorders_results)

    def fast_run(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Return ``run`` specialized to this program, without donation."""
        if not self.is_plain:
            return self.run
        allocate_results, check_nan = self.allocate_results, self.check_nan
        submit = self.buffer.submit

        def run(ins: Sequence[Any]) -> Sequence[Any]:
            outs = allocate_results()
            submit(ins, outs)
            if config.check:
                check_nan(ins, outs)
            return outs
        return run

    def run(self, ins: Sequence[Any], on_commit: Callable[[], None] | None = None
            ) -> Sequence[Any]:
        """Submit with argument storages; return the storages of the results.

        ``on_commit`` invalidates the caller's donated arguments. It is called just before the first
        of them can be overwritten: so after an interrupt nobody reads overwritten memory, and an
        earlier failure leaves the arguments intact.
        """
        outs, checked = self.allocate_results(), bool(config.check)
        if self.over:  # with checks, results are written into copies: the arguments are read again
            args, outs = self._alias_donated(ins, outs)
            self.buffer.submit(args, outs, None if checked else on_commit)
        else:
            self.buffer.submit(ins, outs)
        if checked:
            self.check_nan(ins, outs)
        if on_commit is not None and (checked or not self.over):
            on_commit()
        if not self.reorders_results:
            return outs
        results = [ins[i] if kind == "in" else outs[i] for kind, i in self.results]
        for shared in results:  # several arrays may alias this memory now
            shared.is_aliased = True
        if not self.checks:
            return results
        faults = [results.pop() for _ in self.checks]
        raise_first_fault(self.checks, [f.view(np.dtype(np.int32), (1 + len(c.loops),))
                                        for c, f in zip(self.checks, reversed(faults))])
        return results

    def _alias_donated(self, ins: Sequence[Any], outs: Sequence[Any]
                       ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return arguments and results, with results in the memory of donated arguments.

        Memory that other arrays or views alias is copied first, and so is memory of another
        device.
        """
        arguments, results = list(ins), list(outs)
        for i, slot in self.over:
            source = arguments[slot]
            if config.check or source.is_aliased or type(source) is not type(results[i]) or \
                    sum(s is source for s in arguments) > 1:
                copy, = self.allocate((source.nbytes,))
                copy.fill(source.view(np.dtype(np.uint8), (source.nbytes,)))
                source = copy
            arguments[slot] = results[i] = source
        return arguments, results

    def check_nan(self, ins: Sequence[Any], outs: Sequence[Any]) -> None:
        """Raise if a result is NaN, after recomputation to find the op that made it."""
        if self.device.target.name == "null":
            return  # nothing is computed there
        storages = [ins[i] if kind == "in" else outs[i] for kind, i in self.results]
        params = build.params(self.function)
        args = [s.view(params[i].dtype.np, params[i].shape) if i in params else np.zeros(())
                for i, s in enumerate(ins)]
        values = [s.view(n.dtype.np, n.shape) for s, n in zip(storages, self.function.src)]
        nan_debugger.check_results(self.function, args, values, config.check, self.lines)


Link = Callable[[UOp, tuple[int, ...], str, Lines], Executable]


class ExecutableCache:
    """Cache of Executables by FUNCTION, device and configuration.

    ``link(fn, donated, device, lines)`` makes a new one.
    """

    def __init__(self, link: Link, limit: int) -> None:
        self._link = link
        self._cache: Cache[Any, Executable] = Cache(
            "executables", limit, EXECUTABLE_BYTES, lambda key, executable: executable.nbytes)
        self.compile_count = 0

    def __len__(self) -> int:
        return len(self._cache)

    def find(self, fn: UOp, donated: tuple[int, ...] = (), device: str | None = None,
             lines: Lines = frozenset()) -> Executable:
        """Return the Executable of a FUNCTION, linked on a cache miss.

        ``donated`` are parameters that it may overwrite. The default device is the configured one.
        ``lines`` are the user's lines of its trace.
        """
        device = device or config.device
        key = fn, device, config.key(), donated
        executable = self._cache.get(key)
        if executable is None:
            start = time.perf_counter()
            linked = self._link(fn, donated, device, lines)
            events.record("duration", events.COMPILE, time.perf_counter() - start)
            executable = self._cache.put(key, linked)
            self.compile_count += executable is linked
        return executable

    def insert(self, fn: UOp, donated: tuple[int, ...], executable: Executable, device: str
               ) -> None:
        """Add an Executable that another cache linked."""
        self._cache.put((fn, device, config.key(), donated), executable)
        self.compile_count += 1

    def clear(self) -> None:
        """Clear the cache."""
        self._cache.clear()


# A trace that is called once, such as an initialization, is not worth a launcher.
CALLS_BEFORE_FASTPATH = 2


class CachedTrace:
    """A cached trace, with what dispatch needs to run it.

    Attributes:
        storages: the memory of the captures; None for a leaf of an enclosing trace.
        kind: the kind of the arguments that its launcher is for, as from ``fastpath.args_kind``.
        code_key: the code key of its function when it was traced.
        lines: the user's lines that it ran.
        fastpath: the launcher, once it was worth making one.
        native_call: the native call that needs no launcher, if its device has one.
        calls_before_fastpath: the number of slow-path calls until a launcher is made.
        local: the program of this process that these calls ran, and the launcher runs.
    """

    __slots__ = ("closed", "milliseconds", "storages", "executable", "fastpath", "native_call",
                 "kind", "code_key", "lines", "calls_before_fastpath", "local")

    def __init__(self, closed: ClosedFunction, milliseconds: float,
                 code_key: tuple[Any, ...] | None = None,
                 executable: Executable | None = None) -> None:
        self.code_key = code_key
        self.lines: Lines = frozenset()
        self.kind: tuple[Any, ...] = ()
        self.closed, self.milliseconds = closed, milliseconds
        self.calls_before_fastpath = CALLS_BEFORE_FASTPATH
        self.local: committed.LocalProgram | None = None
        self.storages = [c.arg.handle if c.op is ops.BUFFER else None for c in closed.captures]
        if closed.effects:
            self.storages.append(storage.put(np.zeros(1, np.bool_)))  # the first token
        self.executable = executable
        self.native_call: Any | None = None
        self.fastpath: Callable[[tuple[Any, ...], dict[str, Any]], Any] | None = None

    def is_worth_fastpath(self, local: committed.LocalProgram | None) -> bool:
        """Count a slow-path call; return whether a launcher is to be made now. Arguments that are
        cut otherwise over processes have another program, for which the count starts again."""
        if local is not self.local:
            self.local, self.calls_before_fastpath = local, CALLS_BEFORE_FASTPATH
        if not self.calls_before_fastpath:
            return False
        self.calls_before_fastpath -= 1
        return not self.calls_before_fastpath

    @property
    def graphs(self) -> tuple[UOp]:
        """The traced FUNCTION."""
        return (self.closed.function,)


def _is_zeros(node: UOp) -> bool:
    """Whether a node is all zeros, as from ``zeros`` and ``empty``."""
    if node.op is not ops.EXPAND or node.src[0].op is not ops.RESHAPE:
        return False
    number = node.src[0].src[0]
    return number.op is ops.CONST and number.arg == 0


class EagerEvaluator(ExecutableCache):
    """Evaluation of eager calls: pending nodes are closed over memory and a few constants."""

    def __init__(self, link: Link,
                 put: Callable[[np.ndarray[Any, Any]], Any],
                 zeros: Callable[[int], Any | None]) -> None:
        super().__init__(link, MAX_EAGER_PROGRAMS)
        self.put, self.zeros = put, zeros

    def evaluate(self, nodes: Sequence[UOp], on_run: Callable[..., None] | None = None
                 ) -> Sequence[Any]:
        """Evaluate nodes over BUFFERs and CONSTs as one program, passed to ``on_run``."""
        if len(nodes) == 1 and nodes[0].op is ops.CONST:  # a scalar argument
            if config.check:
                nan_debugger.check_results(build.function(nodes, 0), (),
                                           [np.asarray(const_value(nodes[0]))], config.check)
            return [self._memory(nodes[0])]
        if len(nodes) == 1 and _is_zeros(nodes[0]) and (zeros := self.zeros(
                math.prod(nodes[0].shape) * nodes[0].dtype.itemsize)) is not None:
            return [zeros]
        if config.check or config.check_index:  # errors need source locations
            fn, captures = trace.preserving_locs(trace.close, nodes, (), numbers=MAX_CONSTS)
        else:
            fn, captures = trace.close(nodes, (), numbers=MAX_CONSTS)
        try:
            ins = [self._memory(c) for c in captures]
            placement = committed.common_placement(
                ins, lambda i: f"an array {captures[i].dtype}{list(captures[i].shape)}") \
                if config.placing else None
            local = committed.local_program(fn, ins) if config.placing else None
            executable = self.find(fn if local is None else local.function, (),
                                   None if placement is None else placement.device)
            outs = executable.run(ins)
            if local is None:
                committed.commit(outs, placement, ins, fn)
            else:
                local.commit(outs, ins)
            if on_run is not None:
                run = committed.propagate_placement(executable.fast_run(), fn, local)
                on_run(captures, ins, run, executable.nbytes)
            return outs
        except FnxError as error:
            self._set_location(error, nodes)
            raise

    @staticmethod
    def _set_location(error: FnxError, nodes: Sequence[UOp]) -> None:
        """Point an error at these nodes: the program may come from an equal graph elsewhere."""
        if error.locs:
            if error.loc not in {loc for n in toposort(nodes, into_functions=True)
                                 for loc in n.locs}:
                error.loc = current_loc.loc or error.loc
            error.locs = ()

    def _memory(self, node: UOp) -> Any:
        return node.arg.handle if node.op is ops.BUFFER else self.put(const_value(node))

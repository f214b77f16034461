"""The communicator over MPI: collectives of NumPy arrays.

A collective may run beside kernels: a thread calls MPI until it is waited for. Each operation is
non-blocking and polled. Between polls the thread yields; it pauses while it waits
for another process to come. So a time limit works, Ctrl-C works, and processes that share a
processor do not wait for each other's waiting.

    all_reduce       one message for all operands that are summed in one type
    all_gather, all_to_all, permute      bytes: they do not depend on the dtype
    reduce_scatter   the parts are made contiguous first

MPI has no bfloat16, float8 or int4, and float16 only as an extension: these are summed in the type
that kernels compute them in, and rounded once at the end. Maxima of floats go through NumPy: MPI
does not say what the maximum with a NaN is.

With each collective a process sends its neighbor in the group what it runs, and of which program.
So processes that run other collectives, or in another order, or a program once more than the
others, get an error and never wrong numbers.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from fnx.core.ir import low_precision, ops
from fnx.core.ir.collectives import Collective, group
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.ops import Op
from fnx.core.scope import storage
from fnx.core.scope.communicator import Finish
from fnx.core.support.errors import DistributedError
from fnx.core.support.record import Record

_HEADER_BYTES = 16
_EXCHANGE = np.zeros(_HEADER_BYTES, np.uint8)  # its header
_HEADER_TAG, _DATA_TAG, _LEFT_TAG, _NO_TAG = 1, 2, 3, 4
_OPS = {ops.ADD: "SUM", ops.MUL: "PROD", ops.MAX: "MAX", ops.MIN: "MIN", ops.AND: "BAND",
        ops.OR: "BOR", ops.XOR: "BXOR"}
_SLACK = 5e-5  # seconds by which Linux may lengthen a pause
_YIELDS = 8 * _SLACK  # seconds of polls without a pause: then one is an eighth of the wait
_LONGEST_PAUSE = 1e-3  # seconds
_BETWEEN_CALLS = 2 * _SLACK  # seconds between calls that move data beside kernels
_SPARE = 4  # messages whose memory is used again
_LOOK_AFTER = 0.05  # seconds of waiting after which it is asked whether a process has left

_yield = ctypes.CDLL(None).sched_yield

# the requests, the arrays that MPI uses until they are done, and what then returns the results, in
# the targets if there are some
_Started = tuple[list[Any], Any, Callable[[Sequence[NDArray]], list[NDArray]]]


class _Group(Record):
    """How a collective runs: its communicator, the ranks of its group, this one's position, and
    what names it to the neighbors."""

    comm: Any
    ranks: tuple[int, ...]
    position: int
    header: NDArray


class _Headers:
    """What a process of a ring sends the next one about an operation, and gets from the one before.

    Args:
        requests: the receipt, and the sending.
        compare: raises if the one before runs something else; called once.
        before: its rank.
        others: the ranks of the ring but this one's.
    """

    def __init__(self, requests: list[Any], compare: Callable[[], None], before: int,
                 others: list[int]) -> None:
        self.requests, self._compare = requests, compare
        self._before, self._others = before, others
        self._is_checked = False

    def check(self) -> bool:
        """Return whether the process before this one is there, and runs the same."""
        if not self._is_checked and self.requests[0].Test():
            self._is_checked = True
            self._compare()
        return self._is_checked

    def missing(self) -> list[int]:
        """Return the ranks that have not come, as far as it is known."""
        return [r for r in self._others if r != self._before] if self._is_checked else \
            [self._before]


class _Progress:
    """A thread that calls MPI while collectives are under way beside kernels: most MPIs move data
    only while they are called.

    Args:
        poll: a call of MPI that does nothing.
    """

    def __init__(self, poll: Callable[[], object]) -> None:
        self._poll, self._count, self._is_stopped = poll, 0, False
        self._is_needed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """A collective is under way."""
        self._count += 1
        self._is_needed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="fnx-mpi")
            self._thread.start()

    def end(self) -> None:
        """One is done."""
        self._count -= 1
        if not self._count:
            self._is_needed.clear()

    def stop(self) -> None:
        """End the thread: MPI ends."""
        self._is_stopped = True
        self._is_needed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped:
            self._is_needed.wait()
            time.sleep(_BETWEEN_CALLS)
            if self._count and not self._is_stopped:
                self._poll()


class MpiCommunicator:
    """Exchanges arrays with the other processes of MPI.

    Args:
        mpi: mpi4py.MPI, started.
        wait_limit: seconds that a wait for the others may take.
        end_limit: seconds that the wait for their end may take.
    """

    def __init__(self, mpi: Any, wait_limit: float, end_limit: float) -> None:
        self._mpi, self._wait_limit, self._end_limit = mpi, wait_limit, end_limit
        self._world = mpi.COMM_WORLD
        self.rank: int = self._world.rank
        self.size: int = self._world.size
        self._headers, self._control = self._world.Dup(), self._world.Dup()
        self._comms: dict[tuple[Any, ...], Any] = {}
        self._groups: dict[Collective, _Group] = {}
        self._numpy_ops: dict[tuple[Op, np.dtype[Any]], Any] = {}
        self._texts = {_EXCHANGE.tobytes(): "an exchange of all processes, such as device_put or "
                       "the first call of a program"}  # by the header
        self._spare: list[NDArray] = []  # memory for packed operands, the smallest first
        self._in_flight: dict[int, Any] = {}  # buffers, also of what failed: MPI may write them
        self._progress = _Progress(lambda: self._control.Iprobe(mpi.ANY_SOURCE, _NO_TAG))

    # ---- collectives

    def start(self, arg: Collective, operands: Sequence[NDArray], is_overlapped: bool = True
              ) -> Finish:
        """Start a collective; return what waits for it: (targets) -> results.

        Raises:
            DistributedError: there, if a process has left, does not come, or runs something else.
        """
        members = self._group(arg)
        if len(members.ranks) == 1 or arg.name == "permute" and not arg.pairs:
            return lambda targets: _alone(arg, operands)
        headers = self._send_header(members.header, members.ranks, lambda: _text(arg))
        started: _Started = getattr(self, f"_{arg.name}")(arg, members, operands)
        requests, held, results_of = started
        in_use = headers, members, operands, held
        self._in_flight[id(in_use)] = in_use
        if is_overlapped:
            self._progress.begin()

        def finish(targets: Sequence[NDArray]) -> list[NDArray]:
            try:
                self._wait([*requests, *headers.requests], lambda: _text(arg), headers.check,
                           headers.missing)
            finally:
                if is_overlapped:
                    self._progress.end()
            del self._in_flight[id(in_use)]
            return results_of(targets)
        return finish

    def run(self, arg: Collective, operands: Sequence[NDArray], targets: Sequence[NDArray] = ()
            ) -> list[NDArray]:
        """Return the results of a collective, which may be the ``targets``."""
        return self.start(arg, operands, False)(targets)

    def exchange(self, data: bytes, about: str) -> list[bytes]:
        """Return the data of all processes.

        Raises:
            DistributedError: a process has left, does not come, or runs something else.
        """
        storage.finish()  # collectives before it: so all processes have one order
        lengths = np.zeros(self.size, np.int64)
        count = np.array([len(data)], np.int64)
        headers = self._send_header(_EXCHANGE, range(self.size), lambda: about)
        in_use = headers, count, lengths
        self._in_flight[id(in_use)] = in_use
        self._wait([*headers.requests, self._control.Iallgather(count, lengths)], lambda: about,
                   headers.check, headers.missing)
        del self._in_flight[id(in_use)]
        ends = [0, *accumulate(map(int, lengths))]
        whole = np.zeros(ends[-1], np.uint8)
        self._wait([self._control.Iallgatherv(
            np.frombuffer(data, np.uint8), [whole, (lengths.tolist(), ends[:-1]),
                                            self._mpi.BYTE])], lambda: about)
        return [whole[a:b].tobytes() for a, b in zip(ends, ends[1:])]

    def _send_header(self, header: NDArray, ranks: Sequence[int], what: Callable[[], str]
                   ) -> _Headers:
        """Start to send the next process of a ring what this one runs."""
        at, count = ranks.index(self.rank), len(ranks)
        before, after = [ranks[(at + i) % count] for i in (-1, 1)]
        got = np.empty_like(header)
        requests = [self._headers.Irecv(got, before, _HEADER_TAG),
                    self._headers.Isend(header, after, _HEADER_TAG)]

        def compare() -> None:
            if not np.array_equal(got, header):
                raise self._mismatch(what(), before, got.tobytes())
        return _Headers(requests, compare, before, [r for r in ranks if r != self.rank])

    # ---- groups

    def _group(self, arg: Collective) -> _Group:
        if (members := self._groups.get(arg)) is None:
            ranks = group(arg.grid, self.rank, arg.names)
            key = arg.grid.names, arg.grid.sizes, arg.names
            if key not in self._comms:
                self._comms[key] = self._split(ranks, arg)
            digest = hashlib.blake2b(repr(arg).encode(), digest_size=_HEADER_BYTES).digest()
            self._texts[digest] = _text(arg)
            members = self._groups[arg] = _Group(self._comms[key], ranks, ranks.index(self.rank),
                                                 np.frombuffer(digest, np.uint8))
        return members

    def _split(self, ranks: tuple[int, ...], arg: Collective) -> Any:
        """Return the communicator of a group. MPI makes it by a call that blocks: so all processes
        come here first, within the time limit."""
        if len(ranks) == 1:
            return None
        self._wait([self._headers.Ibarrier()], lambda: f"the first {_text(arg)}",
                   missing=lambda: [r for r in range(self.size) if r != self.rank])
        return self._world.Split(min(ranks), ranks.index(self.rank))

    # ---- waiting

    def _wait(self, requests: list[Any], what: Callable[[], str],
              check: Callable[[], bool] = lambda: True,
              missing: Callable[[], list[int]] = list) -> None:
        """Poll until all is done. Once ``check`` says that the others are there, their messages
        take as many polls as they have parts: these are without pauses."""
        start, end_of_yields, came = time.monotonic(), _YIELDS, False
        try:
            while not ((now := check()) & self._mpi.Request.Testall(requests)):
                waited = time.monotonic() - start
                if now and not came:
                    came, end_of_yields = True, waited + _LOOK_AFTER
                if waited < end_of_yields:
                    _yield()  # unlike time.sleep(0), which takes as long as the shortest pause
                    continue
                time.sleep(min(waited / 8, _LONGEST_PAUSE))
                if waited > _LOOK_AFTER:
                    self._look_for_leavers(what)
                if waited > self._wait_limit:
                    raise self._late(what(), missing())
        except self._mpi.Exception as error:
            check()  # the cause, if the processes run different collectives
            raise DistributedError(f"{what()}: MPI failed: {error}",
                                   hint="all processes must run the same program on arrays of the "
                                        "same shapes") from None

    def _late(self, what: str, missing: Sequence[int]) -> DistributedError:
        names = ", ".join(map(str, missing)) or "another one"
        return DistributedError(
            f"process {self.rank} waited {self._wait_limit:g} s in {what}: process {names} did not "
            "come", hint="all processes must run the same program; a process that may take longer "
                         "needs distributed.initialize(heartbeat_timeout_seconds=...)")

    def _look_for_leavers(self, what: Callable[[], str]) -> None:
        status = self._mpi.Status()
        if self._control.Iprobe(self._mpi.ANY_SOURCE, _LEFT_TAG, status):
            raise DistributedError(
                f"process {self.rank} waits in {what()}: process {status.source} has ended",
                hint="all processes must run the same program to its end; look at the output of "
                     "that process")

    def _mismatch(self, what: str, other: int, header: bytes) -> DistributedError:
        return DistributedError(
            f"process {self.rank} runs {what}, process {other} "
            f"{self._texts.get(header, 'another collective')}",
            hint="all processes must call the same functions in the same order, equally often: no "
                 "`if fnx.process_index() == 0` around what computes with arrays of several "
                 "processes")

    # ---- the end

    def leave(self) -> None:
        """Say that this process has come to its end, wait until all have, and end MPI."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        word = np.zeros(1, np.uint8)
        words = np.zeros(self.size, np.uint8)
        requests = [r for rank in others for r in (
            self._control.Isend(word, rank, _LEFT_TAG),
            self._control.Irecv(words[rank:rank + 1], rank, _LEFT_TAG))]
        start = time.monotonic()
        while not self._mpi.Request.Testall(requests):
            if time.monotonic() - start > self._end_limit:
                self.abort()
            time.sleep(_LONGEST_PAUSE)
        self._progress.stop()
        self._mpi.Finalize()

    def abort(self) -> None:
        """End all processes."""
        self._world.Abort(1)

    # ---- routines: the requests, what they use, and the function that returns the results

    def _all_reduce(self, arg: Collective, members: _Group, operands: Sequence[NDArray]
                    ) -> _Started:
        values = [low_precision.decode(x, t) for x, (_, t) in zip(operands, arg.ins)]
        packs, requests = [], []
        for dtype in dict.fromkeys([x.dtype for x in values]):
            at = [i for i, x in enumerate(values) if x.dtype == dtype]
            total, memory = self._packed([_bytes_of_bools(values[i]) for i in at])
            requests.append(members.comm.Iallreduce(self._mpi.IN_PLACE, total,
                                                    self._op(arg, dtype)))
            packs.append((at, total, memory, dtype))

        def finish(targets: Sequence[NDArray]) -> list[NDArray]:
            out = [*targets] or [np.empty(shape, t.np) for shape, t in arg.ins]
            for at, total, memory, dtype in packs:
                ends = [0, *accumulate([values[i].size for i in at])]
                for i, a, b in zip(at, ends, ends[1:]):
                    shape, t = arg.ins[i]
                    out[i][...] = low_precision.encode(total[a:b].view(dtype).reshape(shape), t)
                self._spare = sorted([*self._spare, memory], key=len)[-_SPARE:]
            return out
        return requests, packs, finish

    def _packed(self, values: Sequence[NDArray]) -> tuple[NDArray, NDArray]:
        """Return arrays of one type as a flat one, and its memory, which an earlier call may have
        left."""
        nbytes, dtype = sum([x.nbytes for x in values]), values[0].dtype
        fitting = next((i for i, x in enumerate(self._spare) if len(x) >= nbytes), None)
        memory = np.empty(nbytes, np.uint8) if fitting is None else self._spare.pop(fitting)
        flat = memory[:nbytes].view(dtype)
        np.concatenate([x.ravel() for x in values], out=flat)
        return flat, memory

    def _reduce_scatter(self, arg: Collective, members: _Group, operands: Sequence[NDArray]
                        ) -> _Started:
        (_, t), = arg.ins
        x = low_precision.decode(operands[0], t)
        parts = _bytes_of_bools(_parts_first(x, len(members.ranks), arg.axis))
        total = np.empty(parts.shape[1:], parts.dtype)
        request = members.comm.Ireduce_scatter_block(parts, total, self._op(arg, x.dtype))
        return [request], (parts, total), \
            lambda _: [low_precision.encode(total.view(x.dtype), t)]

    def _all_gather(self, arg: Collective, members: _Group, operands: Sequence[NDArray]
                    ) -> _Started:
        x = np.ascontiguousarray(operands[0])
        blocks = np.empty((len(members.ranks), *x.shape), x.dtype)
        return [members.comm.Iallgather(self._raw(x), self._raw(blocks))], (x, blocks), \
            lambda _: [_joined(blocks, arg.axis)]

    def _all_to_all(self, arg: Collective, members: _Group, operands: Sequence[NDArray]
                    ) -> _Started:
        parts = _parts_first(operands[0], len(members.ranks), arg.axis)
        blocks = np.empty_like(parts)
        return [members.comm.Ialltoall(self._raw(parts), self._raw(blocks))], (parts, blocks), \
            lambda _: [_joined(blocks, arg.to_axis)]

    def _permute(self, arg: Collective, members: _Group, operands: Sequence[NDArray]
                 ) -> _Started:
        x, here = np.ascontiguousarray(operands[0]), members.position
        out = np.zeros_like(x)
        requests = []
        for source, target in arg.pairs:
            if source == target == here:
                out[...] = x
            elif target == here:
                requests.append(members.comm.Irecv(self._raw(out), source, _DATA_TAG))
            elif source == here:
                requests.append(members.comm.Isend(self._raw(x), target, _DATA_TAG))
        return requests, (x, out), lambda _: [out]

    def _raw(self, x: NDArray) -> Any:
        return [x.reshape(-1).view(np.uint8), self._mpi.BYTE]

    def _op(self, arg: Collective, dtype: np.dtype[Any]) -> Any:
        monoid = arg.monoid
        assert monoid is not None
        if dtype.kind != "f" or monoid not in (ops.MAX, ops.MIN):
            return getattr(self._mpi, _OPS[monoid])
        if (monoid, dtype) not in self._numpy_ops:
            ufunc = np.maximum if monoid is ops.MAX else np.minimum

            def reduce_into(block: Any, total: Any, _: Any) -> None:
                out = np.frombuffer(total, dtype)
                ufunc(np.frombuffer(block, dtype), out, out=out)
            self._numpy_ops[monoid, dtype] = self._mpi.Op.Create(reduce_into, commute=True)
        return self._numpy_ops[monoid, dtype]


def _alone(arg: Collective, operands: Sequence[NDArray]) -> list[NDArray]:
    """Return the results of a group of one process, or of a permute that sends nothing."""
    if arg.name == "permute" and not arg.pairs:
        return [np.zeros_like(operands[0])]
    return [*operands]


def _bytes_of_bools(x: NDArray) -> NDArray:
    """Return an array with bools as bytes, which MPI's bitwise operations take."""
    return x.view(np.uint8) if x.dtype == np.bool_ else x


def _parts_first(x: NDArray, count: int, axis: int) -> NDArray:
    """Return the parts of an array along an axis, in one contiguous array: part, axes."""
    split = x.reshape(*x.shape[:axis], count, x.shape[axis] // count, *x.shape[axis + 1:])
    return np.ascontiguousarray(np.moveaxis(split, axis, 0))


def _joined(blocks: NDArray, axis: int) -> NDArray:
    """Return blocks, which the first axis counts, concatenated along an axis."""
    moved = np.moveaxis(blocks, 0, axis)
    shape = moved.shape
    return moved.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2:])


def _text(arg: Collective) -> str:
    """Say what a collective is of."""
    arrays = ", ".join([f"{dtype}{list(shape)}" for shape, dtype in arg.ins])
    program = f", in the program {arg.grid.program}" if arg.grid.program else ""
    return f"{arg.name} of {arrays} over axis {', '.join(map(repr, arg.names))} of the mesh" + \
        program

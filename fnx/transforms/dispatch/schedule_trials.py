"""Trials: run one kernel under several schedules on data, and compare results and times.

    CALL(KERNEL, x, ..., schedule = ...)    ->    an executable of it alone, its results, its time

Programs are compiled several at a time, concurrently, and run after compilation is done, so that
nothing else runs while one is timed. Two programs are timed in alternation, so that a slowdown of
the machine affects both.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import accessors, build, dtypes, op_args, ops
from fnx.core.ir.cache import Cache
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.low_precision import decode, encode
from fnx.core.ir.tiling import Schedule
from fnx.core.ir.uop import UOp, toposort

_MAX_ROUNDS, _MAX_SECONDS = 11, 0.08  # of alternating timing, at most
_MIN_SAMPLE_SECONDS = 1e-3      # least seconds of a sample; short programs are repeated
_MAX_BYTES = 1 << 30  # of data for a kernel, at most
_CLEARLY_SLOWER = 1.5       # ratio of times that is clearly slower
_HOPELESS_RATIO, _FIRST_EXTRA = 8, 5e-3  # ratio, and extra seconds, allowed for a first run
_CODE_RATIO, _EXTRA_CODE = 4, 1 << 14  # longest code: ratio to the heuristic's, extra characters
# Ulps by which two orders of a sum may differ: constant, and for each square root of the number of
# terms (in the type of the arithmetic), and constant in the type of the result.
_ULPS, _TERM_ULPS, _RESULT_ULPS = 8, 4, 4

# What this process measured or read from disk: outcomes of searches, limits of devices.
measurements: Cache[Any, Any] = Cache("measurements", 1024)

# (FUNCTION, longest code in characters, 0 for any) -> function that links the program.
CompileFn = Callable[[UOp, int], Callable[[], Any]]


class Trials:
    """Programs of one CALL under several schedules, and data for them.

    Args:
        call: the CALL of a KERNEL.
        kernel: the KERNEL with the range names that schedules use.
        device: the device that runs them.
        compile_fn: compiles a FUNCTION to a program.
    """

    def __init__(self, call: UOp, kernel: UOp, device: Any, compile_fn: CompileFn) -> None:
        self.call, self.kernel, self._compile_function = call, kernel, compile_fn
        self.params = [build.param(i, x.dtype, x.shape)
                       for i, x in enumerate(accessors.operands(call))]
        self._device = device
        self._data: list[list[Any]] = []  # sets of inputs; the first is used for timing

    def start_compile(self, schedule: Schedule, reference: Any = None) -> Callable[[], Any]:
        """Start compiling the CALL under a schedule; return the function that links it.

        Args:
            schedule: the schedule.
            reference: a program to compare with, which limits the length of the code.

        Raises:
            KernelError: the schedule is not legal, or its code is too long to be worth compiling.
        """
        max_code = 0 if reference is None else _EXTRA_CODE + _CODE_RATIO * max(
            [len(code.text()) for code in reference.lowered.code.values()], default=0)
        arg = op_args.Call(self.call.arg.name, self.call.arg.outs, schedule)
        node = UOp(ops.CALL, dtypes.void, (self.kernel, *self.params), arg)
        return self._compile_function(
            build.function(build.results(node), len(self.params), arg.name), max_code)

    def results(self, program: Any) -> list[NDArray]:
        """Return the results of a program on each set of inputs, as bytes."""
        return [storage.view(np.dtype(np.uint8), (storage.nbytes,)).copy()
                for inputs in self.inputs() for storage in program.run(inputs)]

    def is_hopeless(self, ours: Any, theirs: Any) -> bool:
        """Whether the first run of ours is too slow to be worth timing further."""
        return self._seconds(ours, 1) > _HOPELESS_RATIO * self._seconds(theirs, 1) + _FIRST_EXTRA

    def agree(self, ours: Sequence[NDArray], theirs: Sequence[NDArray], same_bits: bool) -> bool:
        """Whether results are equal, bitwise or else up to the order of sums."""
        if same_bits:
            return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
        outs = [*self.call.arg.outs] * len(self.inputs())
        terms = _longest_sum(self.kernel)
        return all(almost_equal(a, b, dtype, terms)
                   for a, b, (_, dtype) in zip(ours, theirs, outs, strict=True))

    def time_both(self, ours: Any, theirs: Any, times: int = 1) -> tuple[float, float]:
        """Time two programs in alternating rounds; return the median milliseconds of each.

        It stops early if ours is clearly slower. ``times`` multiplies the number of rounds.
        """
        run_seconds = min(self._seconds(ours, 1), self._seconds(theirs, 1))
        count = max(1, min(1000, int(_MIN_SAMPLE_SECONDS / max(run_seconds, 1e-7))))
        samples: tuple[list[float], list[float]] = [], []
        start = time.perf_counter()
        for n in range(times * _MAX_ROUNDS):
            for program, spent in zip((ours, theirs), samples):
                spent.append(self._seconds(program, count))
            slower = min(samples[0]) > _CLEARLY_SLOWER * max(min(samples[1]), 1e-9)
            if n and (slower or time.perf_counter() - start > times * _MAX_SECONDS):
                break
        our_ms, their_ms = (statistics.median(spent) * 1e3 for spent in samples)
        return our_ms, their_ms

    def _seconds(self, program: Any, count: int) -> float:
        """Return the mean seconds of ``count`` synchronous runs."""
        inputs = self.inputs()[0]
        start = time.perf_counter()
        for _ in range(count):
            for storage in program.run(inputs):
                storage.wait()
        return (time.perf_counter() - start) / count

    def inputs(self) -> list[list[Any]]:
        """Return sets of inputs; the first is used for timing."""
        if not self._data:
            rng = np.random.default_rng(0)
            self._data = [[self._device.upload(make(rng, p)) for p in self.params]
                          for make in (_positive, _zero_mean)]
        return self._data


def call_of_kernel(kernel: UOp) -> UOp | None:
    """Wrap a generated KERNEL in a CALL on parameters.

    None if unknown data would determine its indices or trip counts, if it reads a result, or if its
    buffers are too large.
    """
    nodes = toposort([kernel])
    if any(n.op is ops.VAR or n.op is ops.LOOP and accessors.stop_condition(n) is not None or
           n.op is ops.INDEX and _is_data(n) for n in nodes) or \
            any(store.arg is not None for store in kernel.src):
        return None
    refs: dict[int, UOp] = {}
    for n in nodes:
        if n.op is ops.REF and (n.arg.slot not in refs or
                                _elements(n) > _elements(refs[n.arg.slot])):
            refs[n.arg.slot] = n
    written = accessors.written_slots(kernel)
    read = {accessors.buffer(n).arg.slot for n in nodes
            if n.op is ops.LOAD and accessors.buffer(n).op is ops.REF}
    count, n_in = len(refs), len(refs) - len(written)
    sizes = [_elements(ref) * ref.dtype.itemsize for ref in refs.values()]
    if set(refs) != set(range(count)) or written != set(range(n_in, count)) or read & written \
            or any(ref.dtype.kind == "key" for ref in refs.values()) \
            or not 0 < min(sizes) or sum(sizes) > _MAX_BYTES:
        return None
    shapes = [tuple([int(build.const_of(d)) for d in refs[i].src]) for i in range(count)]
    params = [build.param(i, refs[i].dtype, shapes[i]) for i in range(n_in)]
    outs = tuple([(shapes[i], refs[i].dtype) for i in range(n_in, count)])
    return UOp(ops.CALL, dtypes.void, (kernel, *params), op_args.Call(kernel.arg.name, outs))


def _elements(ref: UOp) -> int:
    return math.prod([int(build.const_of(d)) for d in ref.src])


def _is_data(access: UOp) -> bool:
    return any(n.op in (ops.LOAD, ops.CARRY, ops.GETTUPLE)
               for n in toposort(access.src[1:], stop=lambda n: n.op is ops.LOAD))


def _positive(rng: np.random.Generator, param: UOp) -> NDArray:
    """Generate numbers in the normal domain of most functions."""
    dtype = param.dtype
    if dtype.is_float:
        return encode(rng.uniform(0.1, 1.0, param.shape), dtype)
    return encode(rng.integers(0, 2 if dtype.is_bool else 8, param.shape), dtype)


def _zero_mean(rng: np.random.Generator, param: UOp) -> NDArray:
    """Generate numbers scaled so that long sums of products stay of order one."""
    if not param.dtype.is_float:
        return _positive(rng, param)
    return encode(rng.normal(size=param.shape) * max(param.shape, default=1) ** -0.25,
                  param.dtype)


def _longest_sum(kernel: UOp) -> int:
    """Return the number of terms of the longest sum."""
    return max([math.prod([int(build.const_of(accessors.extent(r)))
                           for r in accessors.bound_ranges(n)])
                for n in toposort(kernel.src) if n.op in (ops.REDUCE, ops.LOOP)], default=1)


def almost_equal(ours: NDArray, theirs: NDArray, dtype: dtypes.DType, terms: int) -> bool:
    """Whether two results, as bytes, are equal up to the order of sums of ``terms`` terms.

    >>> one, other = (np.array([1 + i * 2.0 ** -17], "f4").view("u1") for i in range(2))
    >>> almost_equal(one, other, dtypes.float32, 10), almost_equal(one, other, dtypes.float32, 1000)
    (False, True)
    """
    if not dtype.is_float:
        return bool(np.array_equal(ours, theirs))
    compute_dtype = dtype.compute if dtype.storage is not None else dtype
    a, b = (np.asarray(decode(x.view(dtype.np), dtype), np.float64) for x in (ours, theirs))
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(
            a[~finite], b[~finite], equal_nan=True):
        return False
    a, b = a[finite], b[finite]
    ulps = _ULPS + _TERM_ULPS * math.sqrt(terms)
    eps = ulps * 2.0 ** -compute_dtype.mantissa + _RESULT_ULPS * 2.0 ** -dtype.mantissa
    size = np.abs(b) + np.sqrt(np.mean(b * b)) if len(b) else b
    return bool((np.abs(a - b) <= eps * size).all())

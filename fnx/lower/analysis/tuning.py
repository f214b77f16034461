"""Tuned numbers: what the compiler assumes of machines when it compares costs.

    tuning.LINE_CYCLES      (0.5, 0.25, 16.0), which the cost model reads
    tuning.NUMBERS          name, value, unit, meaning and source of each

They decide between schedules and between fusions, never what is computed. Facts of one target
(vector width, caches, cores) are in core/support/target.py. The source says where a number is
from, and a command that measures it if there is one. What they decide together is measured by
``python -m tests.attack.regret``. ``scripts/count_numbers.py`` counts what is still
elsewhere.
"""

from __future__ import annotations

from typing import Any, TypeVar

from fnx.core.ir import ops
from fnx.core.support.record import Record

T = TypeVar("T")


class Number(Record):
    """A tuned number, or several of a kind."""

    name: str
    value: Any
    unit: str
    meaning: str
    source: str


_numbers: list[Number] = []


def _number(name: str, value: T, unit: str, meaning: str, source: str) -> T:
    _numbers.append(Number(name, value, unit, meaning, source))
    return value


_MODEL = "estimate, as part of the cost model"
_TYPICAL = "typical of processors"
_HAND_OFF = "estimate; python benchmarks/hand_off.py measures it"

# ---- starting kernels

LAUNCH_CYCLES = _number(
    "LAUNCH_CYCLES", 60, "cycles",
    "of a command besides its kernel, on the thread that walks commands", _HAND_OFF)
DISPATCH_CYCLES = _number(
    "DISPATCH_CYCLES", 4000, "cycles",
    "to dispatch a kernel to workers and to learn that it is done", _HAND_OFF)
KERNEL_CYCLES = _number(
    "KERNEL_CYCLES", 1000, "cycles",
    "to start one more kernel in a program, and to wait for its workers", _HAND_OFF)
PACK_KERNEL_CYCLES = _number(
    "PACK_KERNEL_CYCLES", 1000, "cycles", "of one more kernel that packs a factor", _HAND_OFF)

# ---- loops

CHOICE_INSTRUCTIONS = _number(
    "CHOICE_INSTRUCTIONS", 2, "instructions", "to compare an index and choose a scalar", _MODEL)

WORTHWHILE_RATIO = _number(
    "WORTHWHILE_RATIO", 0.9, "ratio",
    "of predicted work to that without it, up to which a fusion or longer code pays",
    "python -m tests.attack.regret")

LONG_BODY = _number(
    "LONG_BODY", 48, "instructions",
    "of an iteration, from which it is not unrolled: its loop costs less than its code", _TYPICAL)

CHAINS = _number(
    "CHAINS", 6, "vectors",
    "of recurrences that are computed together: a multiply-add takes as long as it starts eight",
    _TYPICAL)
SHORT_BODY = _number(
    "SHORT_BODY", 16, "instructions",
    "of an iteration, up to which it is unrolled as often as registers allow", _TYPICAL)

MAX_PADDING = _number(
    "MAX_PADDING", 1.15, "ratio",
    "of the vectors that an unrolled loop computes to those that are not past its end", _TYPICAL)
MIN_LONG_CODE_ELEMENTS = _number(
    "MIN_LONG_CODE_ELEMENTS", 1 << 12, "elements",
    "of a kernel, from which stages between its loops are worth their compilation", _TYPICAL)
ROW_BLOCK = _number(
    "ROW_BLOCK", 16, "rows", "that go through a chain of reductions step by step", _MODEL)
SHORT_ROW_VECTORS = _number(
    "SHORT_ROW_VECTORS", 16, "vectors",
    "of a row, up to which its steps are too short to hide how long each takes", _MODEL)

# ---- gathers

MOST_GATHERED = _number(
    "MOST_GATHERED", 1 / 4, "ratio",
    "of the elements of an array, up to which those that are read are computed where that is",
    _MODEL)
MOST_GATHERED_OF_SUMS = _number(
    "MOST_GATHERED_OF_SUMS", 1 / 16, "ratio",
    "of the results of a reduction, which may read along vectors what a gather picks one by one",
    _MODEL)
FEW_GATHERED = _number(
    "FEW_GATHERED", 16, "elements", "that are few, of whatever array: one vector", _MODEL)

# ---- sorts

DIGIT_INSTRUCTIONS = _number(
    "DIGIT_INSTRUCTIONS", 16, "instructions",
    "per element that is moved by one digit in a radix sort, with its histogram, or by its rank",
    "counted in lower/emit/sorting.py")
RANK_INSTRUCTIONS = _number(
    "RANK_INSTRUCTIONS", 3, "instructions",
    "per vector and element that is compared with it, of a row that is ranked",
    "counted in lower/emit/sorting.py")
SELECT_INSTRUCTIONS = _number(
    "SELECT_INSTRUCTIONS", 16, "instructions",
    "per vector of a row or of its best keys that a selection searches",
    "counted in lower/emit/selection.py")
SELECT_STEP_INSTRUCTIONS = _number(
    "SELECT_STEP_INSTRUCTIONS", 150, "instructions",
    "besides, for each element that is selected: the best of a vector, twice, and its results",
    "counted in lower/emit/selection.py")
SHORT_ROW = _number(
    "SHORT_ROW", 1 << 12, "elements", "of a row over which the steps of a selection are cheap",
    "the L1 cache of a core")
ROW_REDUCTION = _number(
    "ROW_REDUCTION", 3, "elements",
    "of a row for each that is left of its blocks; below, there are no blocks", "estimate")
ROW_COPIED = _number(
    "ROW_COPIED", 64, "elements",
    "of a row that is padded, which take as long to copy as one to select from", "estimate")

# ---- arithmetic

ARITHMETIC_BITS = _number(
    "ARITHMETIC_BITS", 512, "bits", "of vectors multiplied and added per cycle", _TYPICAL)
VECTOR_BYTES = _number(
    "VECTOR_BYTES", 64, "bytes", "that one instruction computes, roughly", _TYPICAL)
ADD_LATENCY = _number(
    "ADD_LATENCY", 8, "additions",
    "in flight that hide the latency: two units, 4 cycles each", _TYPICAL)
LOOP_CYCLES = _number("LOOP_CYCLES", 0.5, "cycles", "of an iteration of a loop", _MODEL)
PAIR_LANE_COST = _number(
    "PAIR_LANE_COST", 6, "instructions",
    "to reduce lanes of (key, index) pairs with their other half", "estimate")
MIN_LANES_GAIN = _number(
    "MIN_LANES_GAIN", 2, "ratio",
    "by which memory slows work in lanes: scalars are computed while others wait", _MODEL)

# ---- memory instructions

MEMORY_OVERHEAD = _number(
    "MEMORY_OVERHEAD", 1 / 8, "cycles", "of a memory access beside arithmetic", _MODEL)
STRIDED_COST = _number(
    "STRIDED_COST", {ops.LOAD: 0.8, ops.STORE: 1.2}, "scalar accesses",
    "of a lane of a gather or scatter", _MODEL)
TRANSPOSED_COST = _number(
    "TRANSPOSED_COST", 0.3, "instructions",
    "of an element of a block that is transposed in registers", "estimate")
PACK_COST = _number("PACK_COST", 3, "cycles", "of a packed vector", _MODEL)

# ---- caches and memory

LINE_BYTES = _number("LINE_BYTES", 64, "bytes", "of a cache line", _TYPICAL)
WAYS = _number("WAYS", 8, "lines", "of a set: associativity of a cache", _TYPICAL)
L3_BYTES = _number("L3_BYTES", 16 << 20, "bytes", "of the third-level cache", _TYPICAL)
LINE_CYCLES = _number(
    "LINE_CYCLES", (0.5, 0.25, 16.0), "cycles",
    "of a line from the second-level cache, additional ones from the third level and from memory: "
    "most of the latency overlaps with arithmetic", "fit to 1,050 schedules of 34 products")
L2_THROUGHPUT = _number(
    "L2_THROUGHPUT", 2.5, "cycles",
    "of a line from the second-level cache, if there is no other work", _MODEL)
STRIDED_LANE_CYCLES = _number(
    "STRIDED_LANE_CYCLES", 8.0, "cycles", "of a line that a strided lane waits for", _MODEL)
CACHED_FRACTION = _number(
    "CACHED_FRACTION", 0.25, "ratio",
    "of the memory cost, if the third level still holds it at the next call", _MODEL)
LATENCY = _number(
    "LATENCY", (0, 14, 60, 250), "cycles", "of a line from each level of memory", _TYPICAL)
PREFETCHED = _number(
    "PREFETCHED", 20, "lines", "ahead that prefetchers ask for", _MODEL)
IN_FLIGHT = _number(
    "IN_FLIGHT", 4, "lines", "in flight, further apart than prefetchers follow", _MODEL)
FAR_BYTES = _number(
    "FAR_BYTES", 1024, "bytes", "between lines from which prefetchers do not follow", _MODEL)
PAGE_BYTES = _number("PAGE_BYTES", 4096, "bytes", "of a page", _TYPICAL)
PAGES = _number("PAGES", 64, "pages", "whose addresses are at hand", _TYPICAL)
PAGE_CYCLES = _number("PAGE_CYCLES", 7, "cycles", "to look up another page", _TYPICAL)
UNCACHED_BYTES = _number("UNCACHED_BYTES", 4 << 20, "bytes", "that fit in no cache", _MODEL)
DRAM_BYTES_PER_CYCLE = _number(
    "DRAM_BYTES_PER_CYCLE", 5, "bytes", "a cycle between a core and memory", _MODEL)
CACHE_BYTES_PER_CYCLE = _number(
    "CACHE_BYTES_PER_CYCLE", 32, "bytes", "a cycle between a core and a cache", _TYPICAL)
REORDERED_BYTES = _number(
    "REORDERED_BYTES", 1 << 18, "bytes",
    "of intermediates from which launches run in an order that keeps fewer of them", "compile time")
MIN_NARROWING = _number(
    "MIN_NARROWING", 4, "elements",
    "that a value is computed from, from which it is written for several readers", _MODEL)
MIN_SLICE = _number(
    "MIN_SLICE", 64, "elements",
    "of an axis of a product that is computed in parts: tiles are as full as those of the whole",
    _MODEL)
MAX_ROW_SCALE_COST = _number(
    "MAX_ROW_SCALE_COST", 6, "additions",
    "for an element of a factor that is packed: a division by the norm of its row", _MODEL)
MAX_RECOMPUTED_NODES = _number(
    "MAX_RECOMPUTED_NODES", 8, "nodes",
    "that a kernel computes again from values that it reads in any case", "compile time")
MAX_MOVED_TOGETHER = _number(
    "MAX_MOVED_TOGETHER", 4, "launches",
    "that run early together, as the last of them frees memory", "compile time")

# ---- loops and sharing

ENDED_FRACTION = _number(
    "ENDED_FRACTION", 0.5, "ratio", "of iterations run, of a loop that a condition ends",
    "the mean of a uniform end")
CHUNK_WORK = _number(
    "CHUNK_WORK", 1 << 14, "additions", "that one parallel iteration should have", _HAND_OFF)
WARP_THREADS = _number("WARP_THREADS", 32, "threads", "of a GPU in lockstep", "typical of GPUs")
BUSY_GROUPS = _number(
    "BUSY_GROUPS", 128, "workgroups", "that keep a GPU busy", "typical of GPUs")
RADIX_BITS = _number("RADIX_BITS", 4, "bits", "of a digit of a radix sort on a device",
                     "the choice of Merrill, Grimshaw, 2011")
RADIX_TILE = _number("RADIX_TILE", 128, "elements", "of a tile in which a radix sort counts digits",
                     "the largest power of two that a counter of a byte counts")
NETWORK_STEPS_OF_A_DIGIT = _number(
    "NETWORK_STEPS_OF_A_DIGIT", 9, "steps", "of a sorting network that take as long as a step of "
    "a radix sort", "sorts of 512 to 131,072 numbers on processors")

NUMBERS = tuple(_numbers)

"""Run a PROGRAM of a thread group in NumPy: all of its threads at once, line by line.

A value is an array with one element per thread. The warp-level matrix instructions follow the
formulas of the manual (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"),
element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.ir import build, dtypes, low_precision, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.matrix_units import UNITS
from fnx.core.ir.numpy_semantics import eval_node
from fnx.core.ir.uop import UOp

Array = np.ndarray[Any, Any]


def run(program: UOp, groups: int, buffers: Sequence[Array]) -> None:
    """Run a PROGRAM on arrays, which it writes in place."""
    for group in range(groups):
        _Group(program, group, buffers).run()


class _Group:
    def __init__(self, program: UOp, number: int, buffers: Sequence[Array]) -> None:
        self.lines, self.group, self.number = program.src, program.arg, number
        self.memory: dict[Any, Array] = {i: b.reshape(-1).view(np.uint8)
                                         for i, b in enumerate(buffers)}
        self.memory["SHARED"] = np.full(self.group.shared, 0xA5, np.uint8)
        self.active = np.ones(self.group.threads, bool)
        self.values: dict[UOp, Any] = {}
        self.fetched: list[tuple[Any, Any, DType]] = []  # what ASYNC_WAIT makes visible

    def run(self) -> None:
        with np.errstate(all="ignore"):
            self.block(0, len(self.lines))

    def end_of(self, start: int) -> int:
        """Return the line that ends the block opened by line ``start``."""
        return next(i for i in range(start, len(self.lines)) if self.lines[i].op in (
            ops.ENDFOR, ops.ENDIF) and self.lines[i].src[0] is self.lines[start])

    def block(self, start: int, stop: int) -> None:
        i = start
        while i < stop:
            node = self.lines[i]
            if node.op is ops.FOR:
                end = self.end_of(i)
                self.loop(node, i + 1, end)
                i = end
            elif node.op is ops.IF:
                end, before = self.end_of(i), self.active
                self.active = before & self.value(node.src[0])
                self.block(i + 1, end)
                self.active, i = before, end
            else:
                self.line(node)
            i += 1

    def loop(self, node: UOp, start: int, end: int) -> None:
        """Run a loop whose trip count differs by thread; threads that have left keep their
        values."""
        counter, stop = (self.value(s) for s in node.src)
        phis = [n for n in self.lines[start:end] if n.op is ops.PHI and n.src[0] is node]
        nexts, before = [self.value(p.src[1]) for p in phis], self.active
        while (going := before & (counter < stop)).any():
            self.active = going
            self.values[node] = counter
            self.values.update(zip(phis, nexts))
            self.block(start + len(phis), end)
            nexts = [np.where(going, self.value(n), kept)
                     for n, kept in zip(self.lines[end].src[1:], nexts)]
            counter = counter + 1
        self.active, self.values[self.lines[end]] = before, nexts

    def value(self, node: UOp) -> Any:
        if node.op is ops.CONST:
            return np.full(self.group.threads, build.const_of(node), node.dtype.np)
        if node.op is ops.ID:
            threads = np.arange(self.group.threads)
            return threads if node.arg == "THREAD" else np.full_like(threads, self.number)
        if node.op is ops.REF:
            return node.arg.slot, np.zeros(self.group.threads, np.int64)
        return self.values[node]

    def line(self, node: UOp) -> None:
        op, src = node.op, [self.value(s) for s in node.src]
        if op is ops.SCRATCH:
            self.values[node] = node.arg.space, src[0]
        elif op is ops.ADDRESS:
            (memory, at), offset = src
            self.values[node] = memory, at + offset * node.dtype.itemsize
        elif op is ops.LOAD:
            self.values[node] = self.load(node.dtype, src[0], *src[1:])
        elif op is ops.STORE:
            self.store(*src, node.src[1].dtype)
        elif op is ops.ASYNC_COPY:
            place, source, *valid = src
            t = node.src[0].dtype
            self.fetched.append((place, self.load(t, source, *valid), t))
        elif op is ops.ASYNC_WAIT:
            for place, stored, t in self.fetched:
                self.store(place, stored, t)
            self.fetched = []
        elif op is ops.LOOP_RESULT:
            self.values[node] = src[0][node.arg]
        elif op is ops.EXTRACT:
            self.values[node] = src[0][:, node.arg]
        elif op is ops.SHUFFLE_XOR:
            threads = np.arange(self.group.threads) ^ node.arg
            assert (self.active == self.active[threads]).all(), "whole subgroups shuffle"
            self.values[node] = src[0][threads]
        elif op is ops.MMA:
            self.values[node] = self.multiplied(node.arg.unit, src)
        elif op in ops.ELEMENTWISE:
            self.values[node] = np.asarray(eval_node(node, *src))
        else:
            assert op is ops.SYNC and self.active.all(), node

    def store(self, place: tuple[Any, Array], stored: Any, t: DType) -> None:
        memory, at = place
        for thread in np.flatnonzero(self.active):
            raw = np.frombuffer(np.asarray(stored[thread], t.np), np.uint8)
            self.memory[memory][at[thread]:at[thread] + raw.size] = raw

    def load(self, t: DType, place: tuple[Any, Array], valid: Array | None = None) -> Array:
        memory, at = place
        read = self.active if valid is None else self.active & valid
        out = np.zeros(self.group.threads, t.np)
        for thread in np.flatnonzero(read):
            raw = self.memory[memory][at[thread]:at[thread] + t.itemsize]
            assert at[thread] >= 0 and raw.size == t.itemsize, "a place outside of its memory"
            out[thread] = raw.view(t.np)[0]
        return out

    def multiplied(self, unit: str, src: list[Array]) -> Array:
        assert self.active.all(), "all threads of a warp multiply together"
        out = np.zeros((self.group.threads, 4), np.float32)
        of = UNITS[unit].left
        if of is dtypes.float32:
            return self.tf32(src)
        for first in range(0, self.group.threads, 32):
            words = [s[first:first + 32] for s in src]
            a, b = np.zeros((16, 16), np.float32), np.zeros((16, 8), np.float32)
            c = np.zeros((16, 8), np.float32)
            for lane in range(32):
                group, in_group = lane >> 2, lane % 4
                for i in range(8):
                    row = group if i < 2 or 4 <= i < 6 else group + 8
                    a[row, in_group * 2 + (i & 1) + (8 if i >= 4 else 0)] = _half(
                        of, words[i // 2][lane], i & 1)
                for i in range(4):
                    b[in_group * 2 + (i & 1) + (8 if i >= 2 else 0), group] = _half(
                        of, words[4 + i // 2][lane], i & 1)
                    c[group + 8 * (i >= 2), in_group * 2 + (i & 1)] = words[6 + i][lane]
            d = c + a @ b
            for lane in range(32):
                group, in_group = lane >> 2, lane % 4
                out[first + lane] = [d[group + 8 * (i >= 2), in_group * 2 + (i & 1)]
                                     for i in range(4)]
        return out


    def tf32(self, src: list[Array]) -> Array:
        """The layout of "Matrix Fragments for mma.m16n8k8" for .tf32: one value per register."""
        out = np.zeros((self.group.threads, 4), np.float32)
        for first in range(0, self.group.threads, 32):
            words = [s[first:first + 32] for s in src]
            lane = np.arange(32)
            group, in_group = lane >> 2, lane % 4
            a, b, c = (np.zeros(s, np.float32) for s in ((16, 8), (8, 8), (16, 8)))
            for i in range(4):
                a[group + 8 * (i % 2), in_group + 4 * (i // 2)] = _cut(words[i])
                c[group + 8 * (i // 2), in_group * 2 + i % 2] = words[6 + i]
            for i in range(2):
                b[in_group + 4 * i, group] = _cut(words[4 + i])
            d = c + a @ b
            for i in range(4):
                out[first:first + 32, i] = d[group + 8 * (i // 2), in_group * 2 + i % 2]
        return out


def _cut(words: Array) -> Array:
    """Clear the low 13 bits of each value."""
    return np.asarray(words & np.uint32(0xFFFFE000)).view(np.float32)


def _half(t: DType, word: Any, i: int) -> Any:
    """Return one of the two values in a register; the first is in the low bits."""
    bits = np.array([word >> 16 * i & 0xFFFF], np.uint16)
    return low_precision.decode(bits.view(t.np), t)[0]

"""Legality rules of the program level: instruction order, nested loops, equal vector lengths.

Tuples of (ops, expectation, predicate), for core/levels/spec.py. The table in
lower/emit/emit.py says what each instruction means.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.ir import dtypes, ops
from fnx.core.ir.matrix_units import TILE_LANES, UNITS
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.range_kinds import ID_KINDS

# Ops that may be used anywhere and are not instructions.
NON_INSTRUCTIONS = frozenset({ops.CONST, ops.VAR, ops.REF, ops.PARALLEL_RANGE, ops.ID, ops.LANES})
INDEX_DTYPES = (dtypes.index, dtypes.int32)  # dtypes of counters and addresses
_POINTER_OPS = frozenset({ops.REF, ops.SCRATCH, ops.ADDRESS})


def _address(node: UOp) -> bool:
    pointer, offset = node.src
    return pointer.op in _POINTER_OPS and pointer.dtype.lanes == 1 and \
        pointer.dtype is node.dtype.scalar and offset.dtype.scalar in INDEX_DTYPES and \
        offset.dtype.lanes in (1, node.dtype.lanes)


def _access(node: UOp) -> bool:
    """Check a LOAD or STORE: an aligned address of its dtype, and perhaps a mask.

    A masked LOAD may also have the bounds between which all lanes can be read.
    """
    written = 1 if node.op is ops.STORE else 0
    address, value = node.src[0], node.src[1] if written else node
    mask, ends = node.src[1 + written:2 + written], node.src[2 + written:]
    return address.op is ops.ADDRESS and address.arg is not None and \
        address.dtype is value.dtype and \
        all(m.dtype is dtypes.bool_.vec(value.dtype.lanes) for m in mask) and \
        all(e.op is ops.ADDRESS and e.dtype is value.dtype.scalar for e in ends)


def _shuffle(node: UOp) -> bool:
    a, b = node.src
    return a.dtype is b.dtype and a.dtype.lanes > 1 and \
        node.dtype is a.dtype.scalar.vec(len(node.arg)) and \
        all(type(i) is int and 0 <= i < 2 * a.dtype.lanes for i in node.arg)


def _loop_result(node: UOp) -> bool:
    end = node.src[0]
    return end.op is ops.ENDFOR and 0 <= node.arg < len(end.src) - 1 and \
        node.dtype is end.src[1 + node.arg].dtype


def _mma(node: UOp) -> bool:
    """Check an MMA: words of both factors and sums in equal lanes, or the fragments of a thread
    of a warp (4 and 2 words, 4 sums)."""
    unit = UNITS.get(node.arg.unit)
    if unit is None or node.dtype.scalar is not unit.result:
        return False
    kinds = [s.dtype for s in node.src]
    if unit.layout == "warp":
        return kinds == [dtypes.uint32] * 6 + [unit.result] * 4 and node.dtype.lanes == 4
    return kinds == [dtypes.uint32.vec(node.dtype.lanes)] * 2 + [node.dtype] and \
        (unit.layout == "tiles") == (node.dtype.lanes == TILE_LANES)


class _Verifier:
    """Verifies the instructions of a PROGRAM in order."""

    def __init__(self) -> None:
        self.scopes: list[set[UOp]] = [set()]
        self.open_scopes: list[UOp] = []  # FORs and IFs
        self.phis: dict[UOp, list[UOp]] = {}
        self.scope_ids: set[int] = set()
        self.loops_with_break: set[UOp] = set()  # FORs that have a BREAK

    def known(self, node: UOp) -> bool:
        return node.op in NON_INSTRUCTIONS or any(node in s for s in self.scopes)

    def line(self, node: UOp) -> bool:
        """Process an instruction; return whether it is legal here."""
        if node.op in NON_INSTRUCTIONS or not all(map(self.known, node.src)):
            return False
        row = _INSTRUCTION_RULES.get(node.op)
        if row is not None and not row(self, node):
            return False
        self.scopes[-1].add(node)
        return True

    def begin(self, node: UOp) -> bool:
        """Open a loop or a branch; its number must be unique."""
        self.open_scopes.append(node)
        self.scopes.append(set())
        self.phis[node] = []
        fresh = node.arg not in self.scope_ids
        self.scope_ids.add(node.arg)
        return fresh

    def phi(self, node: UOp) -> bool:
        loop = node.src[0]
        phis = self.phis.get(loop)
        if phis is None or self.open_scopes[-1:] != [loop] or node.arg != len(phis) or \
                self.scopes[-1] != {loop, *phis}:
            return False
        phis.append(node)
        return True

    def close_scope(self, node: UOp) -> bool:
        """Close what was opened last; a loop has the next value of each PHI."""
        opened, *nexts = node.src
        if self.open_scopes[-1:] != [opened] or opened.op is not _OPENED_BY[node.op] or \
                [n.dtype for n in nexts] != [c.dtype for c in self.phis[opened]]:
            return False
        self.open_scopes.pop()
        self.scopes.pop()
        return True

    def break_loop(self, node: UOp) -> bool:
        """Process a BREAK of the innermost loop; a loop may have only one."""
        is_first = node.src[0] not in self.loops_with_break
        self.loops_with_break.add(node.src[0])
        return self.open_scopes[-1:] == [node.src[0]] and is_first

    def last(self, node: UOp) -> bool:
        return node.src[0] in self.scopes[-1]


_INSTRUCTION_RULES: dict[Op, Callable[[_Verifier, UOp], bool]] = {
    ops.FOR: _Verifier.begin, ops.PHI: _Verifier.phi, ops.ENDFOR: _Verifier.close_scope,
    ops.IF: _Verifier.begin, ops.ENDIF: _Verifier.close_scope, ops.LOOP_RESULT: _Verifier.last,
    ops.BREAK: _Verifier.break_loop,
}
_OPENED_BY = {ops.ENDFOR: ops.FOR, ops.ENDIF: ops.IF}


def first_illegal(program: UOp) -> UOp | None:
    """Return the first illegal instruction of a PROGRAM, or the PROGRAM if a scope stays open."""
    reader = _Verifier()
    for node in program.src:
        if not reader.line(node):
            return node
    return program if reader.open_scopes else None


def _integer_vector(node: UOp) -> bool:
    return node.dtype.is_integer and node.dtype.lanes > 1


RULES: tuple[tuple[tuple[Op, ...], str, Callable[[UOp], bool]], ...] = (
    ((ops.PROGRAM,), "lines that use lines before them, and loops and branches that nest",
     lambda n: first_illegal(n) is None),
    ((ops.FOR,), "bounds and a counter of dtype index, or int32",
     lambda n: n.dtype is n.src[0].dtype is n.src[1].dtype and n.dtype in INDEX_DTYPES),
    ((ops.PHI,), "a FOR and an initial value of its own dtype",
     lambda n: n.src[0].op is ops.FOR and n.dtype is n.src[1].dtype),
    ((ops.ENDFOR,), "a FOR and the next value of each PHI",
     lambda n: bool(n.src) and n.src[0].op is ops.FOR),
    ((ops.LOOP_RESULT,), "an ENDFOR and the position of one of its values", _loop_result),
    ((ops.BREAK,), "a FOR and a scalar bool",
     lambda n: n.src[0].op is ops.FOR and n.src[1].dtype is dtypes.bool_),
    ((ops.ALL_LANES,), "a vector of bools", lambda n: n.dtype is dtypes.bool_
     and n.src[0].dtype.scalar is dtypes.bool_ and n.src[0].dtype.lanes > 1),
    ((ops.IF,), "a scalar bool", lambda n: n.src[0].dtype is dtypes.bool_),
    ((ops.ENDIF,), "an IF", lambda n: n.src[0].op is ops.IF),
    ((ops.REF,), "no operands and a slot >= 0", lambda n: not n.src and n.arg.slot >= 0),
    ((ops.SCRATCH,), "the byte offset of memory of a worker, or of a block",
     lambda n: n.src[0].dtype in INDEX_DTYPES and n.arg.space in ("PRIV", "SHARED")),
    ((ops.ADDRESS,), "a pointer, an offset for all or each of its lanes, a power of two",
     lambda n: _address(n) and (n.arg is None or n.arg in (1, 2, 4, 8, 16, 32, 64))),
    ((ops.LOAD,), "an address of its dtype, a mask of its lanes, and from where up to where all of "
     "them lie inside", lambda n: 1 <= len(n.src) <= 4 and _access(n)),
    ((ops.STORE,), "an address, a value of its dtype, a mask of its lanes or whether it streams",
     lambda n: len(n.src) in (2, 3) and _access(n)
     and (n.arg is None or n.arg in ("STREAM", "ASYNC") and len(n.src) == 2)),
    ((ops.ASYNC_COPY,), "an address in shared memory, one of a buffer, of one dtype, and a mask",
     lambda n: len(n.src) in (2, 3) and all(s.op is ops.ADDRESS for s in n.src[:2])
     and n.src[0].dtype is n.src[1].dtype
     and all(m.dtype is dtypes.bool_ for m in n.src[2:])),
    ((ops.MAX, ops.MIN), "whether either zero will do", lambda n: n.arg is None
     or n.arg == "ANY_ZERO" and n.dtype.is_float),
    ((ops.SPLAT,), "a scalar and a vector dtype of it",
     lambda n: n.dtype is n.src[0].dtype.vec(n.dtype.lanes) and n.dtype.lanes > 1
     and n.src[0].dtype.lanes == 1),
    ((ops.LANES,), "a vector of integers", _integer_vector),
    ((ops.LANE_MASK,), "a count of dtype index and a vector of bools",
     lambda n: n.src[0].dtype is dtypes.index and n.dtype.scalar is dtypes.bool_
     and n.dtype.lanes > 1),
    ((ops.SHUFFLE,), "two vectors of one dtype and lanes of theirs", _shuffle),
    ((ops.VECTOR,), "a scalar for each lane of a vector", lambda n: n.dtype.lanes == len(n.src) > 1
     and all(s.dtype is n.dtype.scalar for s in n.src)),
    ((ops.EXTRACT,), "a vector and one of its lanes",
     lambda n: n.dtype is n.src[0].dtype.scalar and 0 <= n.arg < n.src[0].dtype.lanes > 1),
    ((ops.MMA,), "words of both factors and sums of a unit, in equal lanes", _mma),
    ((ops.SHUFFLE_XOR,), "a scalar, and a distance that is a power of two",
     lambda n: len(n.src) == 1 and n.dtype is n.src[0].dtype and n.dtype.lanes == 1
     and n.arg > 0 and n.arg & (n.arg - 1) == 0),
    ((ops.PARALLEL_RANGE,), "a number and dtype index",
     lambda n: n.arg >= 0 and n.dtype is dtypes.index),
    ((ops.ID,), "a kind of ranges that are numbered, and dtype index or int32",
     lambda n: n.arg in ID_KINDS and n.dtype in INDEX_DTYPES),
    ((ops.EXTERN_CALL,), "addresses of scalars",
     lambda n: all(s.op in _POINTER_OPS and s.dtype.lanes == 1 for s in n.src)),
    ((ops.SYNC, ops.ASYNC_WAIT), "no operands", lambda n: not n.src),
    ((ops.CAST,), "as many lanes as its operand",
     lambda n: n.dtype.lanes == n.src[0].dtype.lanes),
)

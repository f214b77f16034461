"""The spec of the program level: legal programs pass, 200 mutated ones do not."""

from __future__ import annotations

import random

import pytest

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels import spec
from fnx.core.support.errors import SpecError
from fnx.core.support.target import Target
from fnx.lower.emit.emit import emit_program
from fnx.lower.legalize.decompose import decompose
from tests.lower.emit.test_reductions import softmax

F32 = dtypes.float32


def program() -> UOp:
    """A program with loops, carries, masks, a stage, branches and shuffles."""
    choices = iter([2, 16, 1, 4, 3, 16])
    target = Target("cpu")
    kernel = softmax(3, 50, lambda strategy: next(choices))
    row = next(iter(kernel.src[0].ranges - {r for r in kernel.src[0].ranges
                                           if r.arg.kind != "PAR"}))
    flag = build.store(build.index_into(build.ref(2, F32, (3,)), row), build.const(1, F32),
                       build.lt(row, build.var(0, dtypes.index)))
    kernel = build.kernel([*kernel.src, flag], "softmax", kernel.arg.order)
    return emit_program(decompose(kernel, target), target)


def lines_with(mutate, lines):
    """Replace all operands as ``mutate`` says, in all lines that use the line."""
    old, new = mutate
    to = {old: new}
    out = []
    for line in lines:
        if line in to:
            out.append(to[line])
            continue
        src = tuple(to.get(s, s) for s in line.src)
        made = line if src == line.src else UOp(line.op, line.dtype, src, line.arg)
        to[line] = made
        out.append(made)
    return out


def mutations(rng, lines):
    """Yield programs that one change makes illegal."""
    i = rng.randrange(len(lines))
    line = lines[i]
    how = rng.choice(["drop", "late", "operand", "dtype", "level", "unclosed", "arity"])
    used = {s for other in lines for s in other.src}
    if how == "drop" and line in used:
        return lines[:i] + lines[i + 1:]
    if how == "late" and any(line in other.src for other in lines[i + 1:]):
        return lines[:i] + lines[i + 1:] + [line]
    if how == "operand" and line.src:
        stranger = UOp(ops.SQRT, F32, (build.var(7, F32),))
        return lines_with((line, UOp(line.op, line.dtype, (stranger, *line.src[1:]), line.arg)),
                          lines)
    if how == "dtype" and line.dtype is not dtypes.void and line in used:
        wrong = dtypes.uint32 if line.dtype.lanes > 1 else dtypes.bool_.vec(3)
        return lines_with((line, UOp(line.op, wrong, line.src, line.arg)), lines)
    if how == "level":
        return lines[:i] + [build.range_(4, 0)] + lines[i:]
    if how == "unclosed" and line.op in (ops.FOR, ops.IF, ops.ENDFOR, ops.ENDIF):
        return lines[:i] + lines[i + 1:]
    if how == "arity" and line.src:
        return lines[:i] + [UOp(line.op, line.dtype, line.src * 4, line.arg)] + lines[i + 1:]
    return None


def test_legal_programs_pass():
    spec.check([program()], "program")


def test_mutated_programs_are_refused():
    lines = list(program().src)
    rng = random.Random(0)
    refused = 0
    while refused < 200:
        try:
            mutated = mutations(rng, lines)
        except ValueError:  # a commutative op with four operands cannot even be built
            continue
        if mutated is None:
            continue
        with pytest.raises(SpecError):
            spec.check([UOp(ops.PROGRAM, dtypes.void, tuple(mutated))], "program")
        refused += 1

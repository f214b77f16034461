"""The text after each pass for three small functions: tests/golden/passes.

After an intended change: pytest tests/lower/test_golden_passes.py --update-golden, and read the
diff. A pass that changes nothing says so, and equal text is printed once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels import show
from fnx.core.support.target import Target
from fnx.lower.driver import PassTrace, find_graphs
from fnx.lower.fusion.kernelize import Fusion
from fnx.lower.memory.commands import Block, Launches
from fnx.lower.pipeline import lower
from fnx.lower.target_lowerings import ScheduleInput

F = dtypes.float32
# Few and short registers keep unrolled code short.
SMALL = Target("cpu", triple="x86_64", vector_bits=128, vector_registers=8, l1=1 << 14, l2=1 << 17)


def elementwise() -> UOp:
    """exp(-x) * x + 1 over a transposed argument; lengths are arguments, as in eager calls."""
    x = build.permute(build.param(0, F, (5, 6)), (1, 0))
    y = build.mul(build.exp(build.neg(x)), x)
    return build.function([build.add(y, build.const(1, F, y.shape))], 1, "elementwise")


def softmax() -> UOp:
    """Softmax of rows: a maximum, a sum, and a division by it."""
    x = build.param(0, F, (9, 40))
    row = build.expand(build.reshape(build.reduce(x, ops.MAX, [1]), (9, 1)), x.shape)
    e = build.exp(build.sub(x, row))
    total = build.expand(build.reshape(build.reduce(e, ops.ADD, [1]), (9, 1)), x.shape)
    return build.function([build.div(e, total)], 1, "softmax")


def matmul() -> UOp:
    """relu(x @ w)."""
    x, w = build.param(0, F, (6, 20)), build.param(1, F, (20, 16))
    product = build.mul(*[build.expand(build.reshape(a, shape), (6, 20, 16))
                          for a, shape in ((x, (6, 20, 1)), (w, (1, 20, 16)))])
    y = build.reduce(product, ops.ADD, [1])
    return build.function([build.maximum(y, build.const(0, F, y.shape))], 2, "matmul")


def shown(state: Any) -> str:
    """Return the text of a pass's input or output, without source lines of users.

    An interned node may carry the source line of another test that built it first.
    """
    return re.sub(r" +# \S+\.py:\d+$", "", _text(state), flags=re.MULTILINE)


def _text(state: Any) -> str:
    if isinstance(state, str):
        return state.rstrip()
    if isinstance(state, Fusion):
        return "\n".join(f"group over {g.space}: {', '.join(n.op.name for n in g.inside)}"
                         for g in state.groups)
    text = "\n".join(show.pretty(graph, scopes=not isinstance(state, Block))
                     for graph in find_graphs(state))
    if isinstance(state, ScheduleInput) and state.schedule:
        return "\n".join([*map(repr, state.schedule), text])
    if isinstance(state, Launches) and state.offsets:
        return "\n".join(f"{show.pretty(node)} at {at}" for node, at in state.offsets.items())
    return text


@pytest.mark.parametrize("function", [elementwise, softmax, matmul])
def test_passes_are_as_they_were(function: Callable[[], UOp],
                                 golden: Callable[[str, str], None]) -> None:
    sections = [f"==== traced\n{shown(function())}"]

    def keep(ran: PassTrace) -> None:
        before, after = shown(ran.before), shown(ran.after)
        new = after.removesuffix(before).rstrip() or after
        sections.append(f"==== {ran.name}" + (": nothing to do" if before == after else f"\n{new}"))

    lower(function(), SMALL, fixed_lengths=frozenset() if function is elementwise else None,
          on_pass=keep)
    golden(f"passes/{function.__name__}.txt", "\n\n".join(sections) + "\n")

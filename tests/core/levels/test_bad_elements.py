"""The element of an operand that a NaN comes from: the direct rules are those of the values."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels import bad_elements, interp


def movements(x: UOp, y: UOp) -> list[UOp]:
    """Return nodes that move x, of shape (2, 1, 3), and y, of the same shape."""
    return [build.reshape(x, (3, 2)), build.permute(x, (2, 0, 1)), build.expand(x, (2, 4, 3)),
            build.pad(x, ((1, 2), (0, 1), (2, 0)), float("nan")), build.flip(x, (0, 2)),
            build.shrink(x, ((1, 2), (0, 1), (1, 3))), build.concat([x, y, x], 2),
            build.reduce(x, ops.ADD, (2,)), build.reduce(x, ops.MAX, (0, 1)),
            build.reduce(x, ops.MUL, (0, 2))]


@given(st.integers(0, 9), st.lists(st.booleans(), min_size=12, max_size=12), st.data())
def test_the_source_of_a_nan_has_a_nan_that_reaches_it(which: int, bad: list[bool], data: Any
                                                       ) -> None:
    x, y = (build.param(i, dtypes.float32, (2, 1, 3)) for i in range(2))
    node = movements(x, y)[which]
    env = dict(zip((x, y), np.where(bad, np.nan, np.arange(12.0)).astype("float32").reshape(
        2, 2, 1, 3)))
    order = (*node.src, node)
    values = dict(zip(order, interp.evaluate(order, env)))
    result = values[node]
    index = tuple([data.draw(st.integers(0, n - 1)) for n in result.shape])
    source = bad_elements.source_of(node, values, index, "nan")
    if not np.isnan(result[index]):
        assert source is None
        return
    assert source is not None
    operand, at = source
    assert np.isnan(values[operand][at])
    finite = {s: np.nan_to_num(v) for s, v in values.items() if s in node.src}
    finite[operand] = np.array(finite[operand])
    finite[operand][at] = np.nan  # this one alone
    assert np.isnan(interp.evaluate([node], finite)[0][index])

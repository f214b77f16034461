"""Subscripts of an ``einsum``, parsed to labels of axes, and the order of its contractions.

    "...ij,jk"   ->   inputs (-1, "i", "j") and ("j", "k"), result (-1, "i", "k")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.numpy.contraction import Labels

__all__ = ["einsum_path"]


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # by axis number


def to_subscripts(items: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Convert the alternating form (operand, axis numbers, ...) to subscripts and operands.

    >>> to_subscripts(["a", (0, 1), "b", (1, 2), (0, 2)])
    ('AB,BC->AC', ('a', 'b'))
    """
    def letters(axes: Any) -> str:
        if not isinstance(axes, list | tuple):
            raise ArgumentError("einsum: expected subscripts as a str, or each operand followed by "
                                f"its axis numbers; got {type(axes).__name__}",
                                hint='write them as in einsum("ij,jk->ik", a, b)')
        tokens = ["..." if x is ... else arguments.check_int("axis", x) for x in axes]
        if any(type(x) is int and not 0 <= x < len(_LETTERS) for x in tokens):
            raise ArgumentError(f"einsum: expected axis numbers from 0 to 51, got {axes!r}")
        return "".join(x if isinstance(x, str) else _LETTERS[x] for x in tokens)
    output = "->" + letters(items[-1]) if len(items) % 2 else ""
    terms = [letters(axes) for axes in items[1::2]]
    return ",".join(terms) + output, tuple(items[:len(terms) * 2:2])


def parse(spec: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Return the axis labels of the operands and of the result; ``...`` gives negative numbers.

    >>> parse("...ij,jk", [3, 2])
    ([(-1, 'i', 'j'), ('j', 'k')], (-1, 'i', 'k'))
    """
    if not isinstance(spec, str):
        raise ArgumentError(f"einsum: expected subscripts as a str, got {type(spec).__name__}",
                            hint='write them as in einsum("ij,jk->ik", a, b)')
    left, arrow, right = spec.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise ArgumentError(f"einsum: expected {len(texts)} operands for {spec!r}, got "
                            f"{len(ranks)}", hint="pass one array per comma-separated term")
    inputs = [_parse_labels(t, rank, spec) for t, rank in zip(texts, ranks)]
    n_dots = max((sum(isinstance(x, int) for x in labels) for labels in inputs), default=0)
    if arrow:  # without "..." in the output, its axes are summed
        output = _parse_labels(right, n_dots * ("..." in right) + len(right.replace("...", "")),
                               spec)
    else:
        letters = [x for labels in inputs for x in labels if isinstance(x, str)]
        output = (*range(-n_dots, 0), *sorted(x for x in set(letters) if letters.count(x) == 1))
    known = {x for labels in inputs for x in labels}
    if not set(output) <= known or len(set(output)) != len(output):
        raise ArgumentError("einsum: expected each output letter once, and in an input; got "
                            f"{spec!r}",
                            hint="each letter after -> must name an axis of an input")
    return inputs, output


def _parse_labels(text: str, rank: int, spec: str) -> Labels:
    before, dots, after = text.partition("...")
    letters = before + after
    if not letters.isalpha() and letters:
        raise ArgumentError(f"einsum: expected letters, commas, '...' and '->'; got {spec!r}")
    n_dots = rank - len(letters)
    if n_dots < 0 or (n_dots and not dots):
        raise ShapeError(f"einsum: expected an operand of {len(letters)} axes for {text!r} in "
                         f"{spec!r}, got {rank}", hint="use ... for the remaining axes")
    return (*before, *range(-n_dots, 0), *after)


def next_pair(path: list[tuple[int, ...]], count: int) -> tuple[int, int]:
    """Consume the next step of a path and return the indices of its two terms.

    The caller appends the contracted term at the end of the list.
    """
    while path and len(path[0]) < 2:
        path.pop(0)  # a step with a single term contracts nothing
    step = path.pop(0) if path else (0, 1)
    i, j, *others = sorted([i + count if i < 0 else i for i in step])
    if not 0 <= i < j < count or others and others[-1] >= count:
        raise ArgumentError(f"expected indices of {count} operands in the path, got {step}",
                            hint="use the path that einsum_path returns")
    if others:
        path.insert(0, tuple([k - 2 for k in others] + [count - 2]))
    return i, j


@public_api
def einsum_path(subscripts: Any, /, *operands: Any,
                optimize: bool | str | Sequence[Sequence[int]] = "auto"
                ) -> tuple[list[tuple[int, ...]], str]:
    """Return the order in which NumPy would contract the operands of an ``einsum``.

    Args:
        subscripts: as ``"ij,jk->ik"``; or the first Array, as ``einsum`` takes it.
        operands: one Array for each input term; only their shapes matter.
        optimize: "auto", "optimal", "greedy", True, False, or a path.

    Returns:
        A list of steps, for ``einsum(..., optimize=path)``, and a printable report. Each step
        names the positions of the terms it contracts.

    Raises:
        ArgumentError: the subscripts are malformed or do not match the operands.

    >>> import fnx.numpy as jnp
    >>> jnp.einsum_path("ij,jk,k->i", jnp.ones((9, 9)), jnp.ones((9, 9)), jnp.ones(9))[0]
    [(1, 2), (0, 1)]
    """
    if not isinstance(subscripts, str):
        subscripts, operands = to_subscripts([subscripts, *operands])
    shapes = [asarray(x).shape for x in operands]
    np_optimize: Any = optimize
    if isinstance(optimize, list | tuple):
        np_optimize = ["einsum_path", *optimize]
    elif optimize == "auto":
        np_optimize = "optimal" if len(shapes) <= 4 else "greedy"
    else:
        arguments.check_choice("optimize", optimize, (True, False, "optimal", "greedy"))
    data = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    try:
        (_, *path), text = np.einsum_path(subscripts, *data, optimize=np_optimize)
    except (ValueError, KeyError) as error:
        raise ArgumentError(f"expected subscripts of {len(shapes)} operands, got {subscripts!r}: "
                            f"{error}") from None
    return [tuple(step) for step in path], text

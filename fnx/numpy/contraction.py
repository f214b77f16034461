"""Contractions: matmul, dot, tensordot and einsum, each as one EXPAND, MUL, REDUCE.

    einsum("bij,bjk->bik", x, y)
      ->  x as (b, i, 1, j), y as (b, 1, k, j), both expanded to (b, i, k, j);
          MUL; REDUCE(ADD) over the last axis

There is no matmul op. Every pairwise contraction has this one form, with the axes in the order
batch, left, right, contracted, so that the compiler can recognize it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import build, dtypes, ops
from fnx.core.array import arguments, axes, convert
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import promoted
from fnx.core.array.public import asarray, public
from fnx.core.errors import ArgumentError, NotBuiltError, ShapeError
from fnx.core.process import load
from fnx.core.uop import UOp
from fnx.numpy.rearranging import diagonal_of

__all__ = ["dot", "einsum", "inner", "kron", "matmul", "outer", "tensordot", "vdot"]

Labels = tuple[Any, ...]  # a letter per axis, or a negative number for an axis of "..."


def contract(a: UOp, la: Labels, b: UOp, lb: Labels, out: Labels, in_order: bool = False) -> UOp:
    """Sum the products of two nodes over all labels that are not in ``out``.

    Args:
        la, lb: one label per axis, without repeats; lengths of a shared label agree.
        out: labels of the result, in order.
        in_order: whether to compute the result in that order, which becomes its memory layout.

    Storage-only dtypes multiply and accumulate in their compute dtype, and round once.
    """
    given = a.dtype
    a, la = _sum_out(build.wide(a), la, {*lb, *out})
    b, lb = _sum_out(build.wide(b), lb, {*la, *out})
    batch = [x for x in la if x in lb and x in out]
    left = [x for x in la if x not in lb]
    right = [x for x in lb if x not in la]
    folded = [x for x in la if x in lb and x not in out]
    lengths = {**dict(zip(la, a.shape)), **dict(zip(lb, b.shape))}
    order = (*batch, *left, *right, *folded)
    if in_order or 1 in (math.prod([lengths[x] for x in side]) for side in (left, right)):
        order = (*out, *folded)  # not a matrix product, whose layout follows its factors
    product = build.mul(_aligned(a, la, order, lengths), _aligned(b, lb, order, lengths))
    first = len(order) - len(folded)
    result = build.reduce(product, ops.ADD, range(first, len(order)))
    moved = build.permute(result, [order[:first].index(x) for x in out])
    return build.cast(moved, given)


def _aligned(x: UOp, labels: Labels, order: Labels, lengths: dict[Any, int]) -> UOp:
    """Permute the axes of x into ``order`` and expand it along those that it lacks."""
    mine = [y for y in order if y in labels]
    x = build.permute(x, [labels.index(y) for y in mine])
    x = build.reshape(x, tuple(lengths[y] if y in labels else 1 for y in order))
    return build.expand(x, tuple(lengths[y] for y in order))


def _sum_out(x: UOp, labels: Labels, wanted: set[Any]) -> tuple[UOp, Labels]:
    """Sum over the axes that occur neither in the other operand nor in the result."""
    alone = [i for i, y in enumerate(labels) if y not in wanted]
    return build.reduce(x, ops.ADD, alone), tuple(y for y in labels if y in wanted)


def _operands(name: str, xs: Sequence[ArrayLike], preferred: DTypeLike | None,
              precision: PrecisionLike) -> tuple[list[UOp], bool]:
    """Return nodes of one dtype, and whether the result is bool. Bools compute as int32."""
    arguments.precision(precision)
    nodes, _ = promoted("any", name, xs, broadcast=False)
    if preferred is not None:
        nodes = [build.cast(n, convert.element_type(name, n.dtype, preferred)) for n in nodes]
    was_bool = nodes[0].dtype.is_bool
    return ([build.cast(n, dtypes.int32) for n in nodes] if was_bool else nodes), was_bool


def _finish(node: UOp, was_bool: bool) -> Array:
    return Array(build.ne(node, build.like(node, 0)) if was_bool else node)


@public
def matmul(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None,
           preferred_element_type: DTypeLike | None = None) -> Array:
    """Return the matrix product over the last two axes, broadcast over the others: ``a @ b``.

    Args:
        a: an Array or array-like of shape (..., m, k) or (k,).
        b: an Array or array-like of shape (..., k, n) or (k,).
        precision: one of JAX's names, or a pair of them; all mean full precision here.
        preferred_element_type: the dtype that the operands are converted to before the
            multiplication.

    Returns:
        An Array of shape (..., m, n) and the common dtype; m or n is absent where an operand has
        one axis.

    Raises:
        ShapeError: the contracted axes differ in length.
        ShapeError: an operand is 0-d, or the batch axes do not broadcast.

    >>> import fnx.numpy as jnp
    >>> jnp.matmul(jnp.ones((2, 3)), jnp.ones((3, 1)))
    Array([[3.],
           [3.]], dtype=float32)
    """
    (x, y), was_bool = _operands("matmul", (a, b), preferred_element_type, precision)
    if not x.shape or not y.shape:
        raise ShapeError(f"matmul: expected at least one axis, got shapes {x.shape} and "
                         f"{y.shape}", hint="use * with a scalar")
    la: Labels = ("m", "k") if len(x.shape) > 1 else ("k",)
    lb: Labels = ("k", "n") if len(y.shape) > 1 else ("k",)
    k, other = x.shape[-1], y.shape[-2 if len(y.shape) > 1 else -1]
    if k != other:
        raise ShapeError(f"matmul: expected the last axis of {x.shape} as long as the "
                         f"{'second last' if len(y.shape) > 1 else 'only'} axis of {y.shape}, "
                         f"got {k} and {other}", hint="transpose one of them, or check the sizes")
    lead_a, lead_b = x.shape[:-len(la)], y.shape[:-len(lb)]
    lead = _broadcast("matmul", lead_a, lead_b)
    x, la = _lead_labels(x, lead_a, lead, la)
    y, lb = _lead_labels(y, lead_b, lead, lb)
    out = (*range(len(lead)), *[z for z in ("m", "n") if z in la + lb])
    node = contract(x, la, y, lb, out)
    return _finish(build.reshape(node, (*lead, *node.shape[len(lead):])), was_bool)


def _broadcast(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return axes.broadcast_shapes(*shapes)
    except ShapeError as e:
        raise ShapeError(f"{name}: {e.message}", hint=e.hint) from None


def _lead_labels(x: UOp, own: tuple[int, ...], lead: tuple[int, ...], rest: Labels
                 ) -> tuple[UOp, Labels]:
    """Label the batch axes by their position in ``lead``.

    Axes of length 1 are dropped where the other operand is longer, so that they are expanded, not
    summed.
    """
    first = len(lead) - len(own)
    keep = [i for i, n in enumerate(own) if n == lead[first + i]]
    shape = (*[own[i] for i in keep], *x.shape[len(own):])
    return build.reshape(x, shape), (*[first + i for i in keep], *rest)


@public
def dot(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None,
        preferred_element_type: DTypeLike | None = None) -> Array:
    """Contract the last axis of ``a`` with the second last of ``b``; 0-d operands scale.

    Args:
        a: an Array or array-like of shape (..., k), or 0-d.
        b: an Array or array-like of shape (..., k, n), (k,), or 0-d.
        precision: one of JAX's names, or a pair of them; all mean full precision here.
        preferred_element_type: the dtype that the operands are converted to before the
            multiplication.

    Returns:
        An Array of the common dtype: the axes of a except the last, then those of b except the
        second last.

    Raises:
        ShapeError: the contracted axes differ in length.

    >>> import fnx.numpy as jnp
    >>> print(jnp.dot(jnp.arange(3), jnp.arange(3)))
    5
    """
    x, y = asarray(a), asarray(b)
    if x.ndim == 0 or y.ndim == 0:
        return _scaled(x, y, precision, preferred_element_type)
    if x.ndim <= 2 and y.ndim <= 2:
        return matmul(x, y, precision=precision, preferred_element_type=preferred_element_type)
    return tensordot(x, y, ((-1,), (-2 if y.ndim > 1 else -1,)), precision=precision,
                     preferred_element_type=preferred_element_type)


def _scaled(x: Array, y: Array, precision: PrecisionLike, preferred: DTypeLike | None) -> Array:
    """Return the product where one operand is 0-d."""
    arguments.precision(precision)
    return x * y if preferred is None else x.astype(preferred) * y.astype(preferred)


@public
def vdot(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None,
         preferred_element_type: DTypeLike | None = None) -> Array:
    """Return the dot product of the flattened operands.

    Args:
        a: an Array or array-like of n elements.
        b: an Array or array-like of n elements.
        precision: one of JAX's names, or a pair of them; all mean full precision here.
        preferred_element_type: the dtype that the operands are converted to before the
            multiplication.

    Returns:
        A 0-d Array of the common dtype.

    Raises:
        ShapeError: the operands differ in their number of elements.

    >>> import fnx.numpy as jnp
    >>> print(jnp.vdot(jnp.ones((2, 2)), jnp.ones((2, 2))))
    4.0
    """
    x, y = asarray(a), asarray(b)
    return matmul(x.reshape(x.size), y.reshape(y.size), precision=precision,
                  preferred_element_type=preferred_element_type)


@public
def inner(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None,
          preferred_element_type: DTypeLike | None = None) -> Array:
    """Contract the last axis of ``a`` with the last axis of ``b``.

    Args:
        a: an Array or array-like of shape (..., k), or 0-d.
        b: an Array or array-like of shape (..., k), or 0-d.
        precision: one of JAX's names, or a pair of them; all mean full precision here.
        preferred_element_type: the dtype that the operands are converted to before the
            multiplication.

    Returns:
        An Array of the other axes of a, then of b; of the common dtype.

    Raises:
        ShapeError: the contracted axes differ in length.

    >>> import fnx.numpy as jnp
    >>> print(jnp.inner(jnp.arange(3), jnp.arange(3)))
    5
    """
    x, y = asarray(a), asarray(b)
    if x.ndim == 0 or y.ndim == 0:
        return _scaled(x, y, precision, preferred_element_type)
    return tensordot(x, y, ((-1,), (-1,)), precision=precision,
                     preferred_element_type=preferred_element_type)


@public
def outer(a: ArrayLike, b: ArrayLike) -> Array:
    """Return the outer product of the flattened operands.

    Args:
        a: an Array or array-like of any shape and dtype.
        b: an Array or array-like of any shape and dtype.

    Returns:
        An Array of shape (a.size, b.size), of the common dtype.

    >>> import fnx.numpy as jnp
    >>> jnp.outer(jnp.arange(2), jnp.arange(2))
    Array([[0, 0],
           [0, 1]], dtype=int32)
    """
    x, y = asarray(a), asarray(b)
    return x.reshape((x.size, 1)) * y.reshape((1, y.size))


@public
def tensordot(a: ArrayLike, b: ArrayLike, axes: Any = 2, *, precision: PrecisionLike = None,
              preferred_element_type: DTypeLike | None = None) -> Array:
    """Contract pairs of axes.

    Args:
        a: an Array or array-like of any shape and dtype.
        b: an Array or array-like of any shape and dtype.
        axes: n, to contract the last n axes of ``a`` with the first n of ``b``; or
            (axes of a, axes of b).
        precision: one of JAX's names, or a pair of them; all mean full precision here.
        preferred_element_type: the dtype that the operands are converted to before the
            multiplication.

    Returns:
        An Array of the other axes of a, then of b; of the common dtype.

    Raises:
        ShapeError: the contracted axes differ in length.
        ArgumentError: the numbers of axes of a and b differ.

    >>> import fnx.numpy as jnp
    >>> jnp.tensordot(jnp.ones((2, 3)), jnp.ones((3, 4)), 1).shape
    (2, 4)
    """
    (x, y), was_bool = _operands("tensordot", (a, b), preferred_element_type, precision)
    of_a, of_b = _pairs(axes, len(x.shape), len(y.shape))
    if [x.shape[i] for i in of_a] != [y.shape[i] for i in of_b]:
        raise ShapeError(f"tensordot: expected pairs of axes of one length, got axes {of_a} of "
                         f"{x.shape} and {of_b} of {y.shape}")
    la = tuple(("a", i) for i in range(len(x.shape)))
    lb = tuple(la[of_a[of_b.index(i)]] if i in of_b else ("b", i) for i in range(len(y.shape)))
    folded = {la[i] for i in of_a}
    out = tuple(z for z in la + lb if z not in folded)
    return _finish(contract(x, la, y, lb, out), was_bool)


def _pairs(given: Any, rank_a: int, rank_b: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(given, int):
        if not 0 <= given <= min(rank_a, rank_b):
            raise ArgumentError(f"tensordot: expected 0 to {min(rank_a, rank_b)} axes, got {given}")
        return tuple(range(rank_a - given, rank_a)), tuple(range(given))
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise ArgumentError(f"expected axes as an int or a pair of tuples, got {given!r}")
    one, two = [(g,) if isinstance(g, int) else tuple(g) for g in given]
    if len(one) != len(two):
        raise ArgumentError(f"tensordot: expected as many axes of each, got {one} and {two}")
    return axes.listed(one, rank_a), axes.listed(two, rank_b)


# ---- einsum -----------------------------------------------------------------------------------


@public
def einsum(subscripts: Any, /, *operands: Any, precision: PrecisionLike = None,
           preferred_element_type: DTypeLike | None = None,
           optimize: str | bool | Sequence[Sequence[int]] = "optimal", out: None = None,
           out_sharding: Any = None, _dot_general: Callable[..., Any] | None = None) -> Array:
    """Evaluate an Einstein summation: a letter for each axis, ``...`` for the remaining ones.

    Letters that are not in the output are summed over. A letter that occurs twice in one operand
    takes its diagonal. Without ``->``, the output has the letters that occur once, in alphabetical
    order.

    Args:
        subscripts: as ``"ij,jk->ik"``; or the first Array.
        operands: one Array for each input term. In the alternating form, each Array is followed by
            the numbers of its axes (``...`` for the remaining ones); those of the output come last.
        precision: one of JAX's names, or a pair of them; all mean full precision here.
        preferred_element_type: the dtype that the operands are converted to before the
            multiplication.
        optimize: the contraction order, as ``einsum_path`` returns it. Any other value that NumPy
            takes leaves the choice to fnx.
        out: unsupported; must be None.
        out_sharding: accepted for JAX compatibility; on one device all shardings are the same.
        _dot_general: ``fnx.lax.dot_general`` or None; libraries pass it.

    Returns:
        An Array of the axes of the output, of the common dtype.

    Raises:
        ArgumentError: the subscripts are malformed, or do not match the number of operands.
        ShapeError: axes of one letter differ in length.
        NotBuiltError: ``_dot_general`` is another function.

    Source: greedy pairwise contraction, by the fewest elements before the reduction.

    >>> import fnx.numpy as jnp
    >>> x = jnp.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> print(jnp.einsum("ii", x), jnp.einsum("ij->j", x), jnp.einsum("ij,j->i", x, x[0]))
    5.0 [4. 6.] [ 5. 11.]
    """
    arguments.no_out(out)
    path = [tuple(step) for step in optimize] if isinstance(optimize, list | tuple) else None
    if path is None:
        arguments.one_of("optimize", optimize, (True, False, "optimal", "greedy", "auto"))
    if out_sharding is not None:
        load("fnx.placing").check_place(out_sharding)
    if _dot_general is not None and \
            getattr(_dot_general, "__module__", None) != "fnx.lax.contraction":
        raise NotBuiltError(f"einsum: expected lax.dot_general, got {_dot_general!r}",
                            hint="products by another function are not there; leave it out")
    reading = load("fnx.numpy.subscripts")
    if not isinstance(subscripts, str):
        subscripts, operands = reading.spelled([subscripts, *operands])
    nodes, was_bool = _operands("einsum", operands, preferred_element_type, precision)
    inputs, output = reading.parse(subscripts, [len(n.shape) for n in nodes])
    terms = [_without_repeats(n, labels, subscripts) for n, labels in zip(nodes, inputs)]
    terms = _broadcast_labels(terms, subscripts)
    while len(terms) > 1:
        i, j = _cheapest_pair(terms, output) if path is None else \
            load("fnx.numpy.einsum_paths").next_pair(path, len(terms))
        second, first = terms.pop(j), terms.pop(i)
        others = {x for _, labels in terms for x in labels} | set(output)
        keep = tuple(x for x in dict.fromkeys(first[1] + second[1]) if x in others)
        out_labels = keep if terms else tuple(output)
        present = set(first[1] + second[1])
        out_labels = tuple(x for x in out_labels if x in present)
        terms.append((contract(*first, *second, out_labels), out_labels))
    node, labels = terms[0]
    node, labels = _sum_out(node, labels, set(output))
    return _finish(build.permute(node, [labels.index(x) for x in output]), was_bool)


def _without_repeats(x: UOp, labels: Labels, spec: str) -> tuple[UOp, Labels]:
    """Take the diagonal for each repeated label, so that every label occurs once."""
    while len(set(labels)) < len(labels):
        label = next(y for y in labels if labels.count(y) > 1)
        i = labels.index(label)
        j = labels.index(label, i + 1)
        if x.shape[i] != x.shape[j]:
            raise ShapeError(f"einsum: expected axes of one length for {label!r} in {spec!r}, "
                             f"got {x.shape[i]} and {x.shape[j]}")
        rest = [a for a in range(len(labels)) if a not in (i, j)]
        x = diagonal_of(build.permute(x, [*rest, i, j]))
        labels = (*[labels[a] for a in rest], label)
    return x, labels


def _broadcast_labels(terms: list[tuple[UOp, Labels]], spec: str) -> list[tuple[UOp, Labels]]:
    """Check the lengths of labels. Drop axes of length 1 where another operand is longer."""
    lengths: dict[Any, int] = {}
    for x, labels in terms:
        for n, y in zip(x.shape, labels):
            known = lengths.setdefault(y, n)
            if known == 1:
                lengths[y] = n
            elif n not in (1, known):
                raise ShapeError(f"einsum: expected axes of one length for {y!r} in {spec!r}, "
                                 f"got {known} and {n}", hint="check the order of the letters")
    out = []
    for x, labels in terms:
        keep = [i for i, (n, y) in enumerate(zip(x.shape, labels)) if n == lengths[y]]
        out.append((build.reshape(x, tuple(x.shape[i] for i in keep)),
                    tuple(labels[i] for i in keep)))
    return out


def _cheapest_pair(terms: list[tuple[UOp, Labels]], output: Labels) -> tuple[int, int]:
    """Return the pair of terms whose product has the fewest elements before the reduction."""
    def cost(i: int, j: int) -> int:
        (x, lx), (y, ly) = terms[i], terms[j]
        return math.prod({**dict(zip(lx, x.shape)), **dict(zip(ly, y.shape))}.values())
    pairs = [(i, j) for j in range(len(terms)) for i in range(j)]
    return min(pairs, key=lambda p: cost(*p))


@public
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """Return the Kronecker product.

    Args:
        a: an Array or array-like of any shape and dtype.
        b: an Array or array-like of any shape and dtype.

    Returns:
        An Array whose lengths are the products of those of a and b; of the common dtype.

    >>> import fnx.numpy as jnp
    >>> jnp.kron(jnp.asarray([1, 2]), jnp.asarray([1, 1]))
    Array([1, 1, 2, 2], dtype=int32)
    """
    x, y = asarray(a), asarray(b)
    rank = max(x.ndim, y.ndim)
    of_x = (1,) * (rank - x.ndim) + x.shape
    of_y = (1,) * (rank - y.ndim) + y.shape
    left = x.reshape(tuple(m for n in of_x for m in (n, 1)))
    right = y.reshape(tuple(m for n in of_y for m in (1, n)))
    return (left * right).reshape(tuple(int(m) for m in np.multiply(of_x, of_y)))

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

from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import asarray, public_api, takes_out_sharding
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_operands
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, NotBuiltError, ShapeError
from fnx.core.support.process import lazy_import

einsum_paths = lazy_import("fnx.numpy.einsum_paths")
matrices = lazy_import("fnx.core.formulas.matrices")

__all__ = ["dot", "einsum", "inner", "kron", "matmul", "outer", "tensordot", "vdot"]

complex_functions = lazy_import("fnx.core.formulas.complex_functions")
Labels = tuple[Any, ...]  # a letter per axis, or a negative number for an axis of "..."


def contract(a: UOp, la: Labels, b: UOp, lb: Labels, out: Labels, in_order: bool = False) -> UOp:
    """Sum the products of two nodes over all labels that are not in ``out``.

    Args:
        la, lb: one label per axis, without repeats; lengths of a shared label agree.
        out: labels of the result, in order.
        in_order: whether to compute the result in that order, which becomes its memory layout.

    Storage-only dtypes multiply and accumulate in their compute dtype, and round once. A product
    of real and complex numbers is two real ones.
    """
    if a.dtype.is_complex and (complex_functions.is_real(a) or complex_functions.is_real(b)):
        if complex_functions.is_real(a):
            re, im = (contract(build.real(a), la, part(b), lb, out, in_order)
                      for part in (build.real, build.imag))
        else:
            re, im = (contract(part(a), la, build.real(b), lb, out, in_order)
                      for part in (build.real, build.imag))
        return build.complex_number(re, im)
    out_dtype = a.dtype
    a, la = _sum_out(build.to_compute(a), la, {*lb, *out})
    b, lb = _sum_out(build.to_compute(b), lb, {*la, *out})
    batch = [x for x in la if x in lb and x in out]
    left = [x for x in la if x not in lb]
    right = [x for x in lb if x not in la]
    contracted = [x for x in la if x in lb and x not in out]
    lengths = {**dict(zip(la, a.shape)), **dict(zip(lb, b.shape))}
    order = (*batch, *left, *right, *contracted)
    if in_order or 1 in (math.prod([lengths[x] for x in side]) for side in (left, right)):
        order = (*out, *contracted)  # not a matrix product, whose layout follows its factors
    product = build.mul(_align_axes(a, la, order, lengths), _align_axes(b, lb, order, lengths))
    n_free = len(order) - len(contracted)
    result = build.reduce(product, ops.ADD, range(n_free, len(order)))
    moved = build.permute(result, [order[:n_free].index(x) for x in out])
    return build.cast(moved, out_dtype)


def _align_axes(x: UOp, labels: Labels, order: Labels, lengths: dict[Any, int]) -> UOp:
    """Permute the axes of x into ``order`` and expand it along those that it lacks."""
    present = [y for y in order if y in labels]
    x = build.permute(x, [labels.index(y) for y in present])
    x = build.reshape(x, tuple(lengths[y] if y in labels else 1 for y in order))
    return build.expand(x, tuple(lengths[y] for y in order))


def _sum_out(x: UOp, labels: Labels, needed: set[Any]) -> tuple[UOp, Labels]:
    """Sum over the axes that occur neither in the other operand nor in the result."""
    unshared = [i for i, y in enumerate(labels) if y not in needed]
    return build.reduce(x, ops.ADD, unshared), tuple(y for y in labels if y in needed)


def _promote_operands(name: str, xs: Sequence[ArrayLike], preferred: DTypeLike | None
                      ) -> tuple[list[UOp], bool]:
    """Return nodes of one dtype, and whether the result is bool. Bools compute as int32."""
    nodes, _ = promote_operands("any", name, xs, broadcast=False)
    if preferred is not None:
        nodes = [build.cast(n, convert.product_dtype(name, n.dtype, preferred)) for n in nodes]
    was_bool = nodes[0].dtype.is_bool
    return ([build.cast(n, dtypes.int32) for n in nodes] if was_bool else nodes), was_bool


def _to_result(node: UOp, was_bool: bool) -> Array:
    return Array(build.ne(node, build.const_like(node, 0)) if was_bool else node)


_docstr = DocTemplate(
    a="an Array or array-like of shape (..., k), or 0-d.",
    precision="one of JAX's names, or a pair of them; all mean full precision here.",
    preferred_element_type="the dtype that the operands are converted to before the "
                           "multiplication.",
    returns="An Array of the other axes of a, then of b; of the common dtype.",
    raises=("ShapeError: the contracted axes differ in length.",))


@_docstr("An Array of shape (..., m, n) and the common dtype; m or n is absent where an operand "
         "has one axis.", a="an Array or array-like of shape (..., m, k) or (k,).",
         b="an Array or array-like of shape (..., k, n) or (k,).",
         raises=("ShapeError: the contracted axes differ in length.",
                 "ShapeError: an operand is 0-d, or the batch axes do not broadcast."))
def matmul(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None,
           preferred_element_type: DTypeLike | None = None) -> Array:
    """Return the matrix product over the last two axes, broadcast over the others: ``a @ b``.

    >>> jnp.matmul(jnp.ones((2, 3)), jnp.ones((3, 1)))
    Array([[3.],
           [3.]], dtype=float32)
    """
    (x, y), was_bool = _promote_operands("matmul", (a, b), preferred_element_type)
    if not x.shape or not y.shape:
        raise ShapeError(f"matmul: expected at least one axis, got shapes {x.shape} and "
                         f"{y.shape}", hint="use * to multiply by a scalar")
    la: Labels = ("m", "k") if len(x.shape) > 1 else ("k",)
    lb: Labels = ("k", "n") if len(y.shape) > 1 else ("k",)
    k, other = x.shape[-1], y.shape[-2 if len(y.shape) > 1 else -1]
    if k != other:
        raise ShapeError(f"matmul: expected the last axis of {x.shape} to match the "
                         f"{'second to last' if len(y.shape) > 1 else 'only'} axis of {y.shape}, "
                         f"got {k} and {other}",
                         hint="transpose one operand, or check the shapes")
    batch_a, batch_b = x.shape[:-len(la)], y.shape[:-len(lb)]
    batch = _broadcast_batch("matmul", batch_a, batch_b)
    x, la = _label_batch_axes(x, batch_a, batch, la)
    y, lb = _label_batch_axes(y, batch_b, batch, lb)
    out = (*range(len(batch)), *[z for z in ("m", "n") if z in la + lb])
    node = contract(x, la, y, lb, out)
    return _to_result(build.reshape(node, (*batch, *node.shape[len(batch):])), was_bool)


def _broadcast_batch(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return axes.broadcast_shapes(*shapes)
    except ShapeError as e:
        raise ShapeError(f"{name}: {e.message}", hint=e.hint) from None


def _label_batch_axes(x: UOp, own_batch: tuple[int, ...], lead: tuple[int, ...], core_labels: Labels
                      ) -> tuple[UOp, Labels]:
    """Label the batch axes by their position in ``lead``.

    Axes of length 1 are dropped where the other operand is longer, so that they are expanded, not
    summed.
    """
    first = len(lead) - len(own_batch)
    retained = [i for i, n in enumerate(own_batch) if n == lead[first + i]]
    shape = (*[own_batch[i] for i in retained], *x.shape[len(own_batch):])
    return build.reshape(x, shape), (*[first + i for i in retained], *core_labels)


@_docstr("An Array of the common dtype: the axes of a except the last, then those of b except the "
         "second last.", b="an Array or array-like of shape (..., k, n), (k,), or 0-d.")
def dot(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None,
        preferred_element_type: DTypeLike | None = None) -> Array:
    """Contract the last axis of ``a`` with the second last of ``b``; 0-d operands scale.

    >>> print(jnp.dot(jnp.arange(3), jnp.arange(3)))
    5
    """
    x, y = asarray(a), asarray(b)
    if x.ndim == 0 or y.ndim == 0:
        return _scale(x, y, preferred_element_type)
    if x.ndim <= 2 and y.ndim <= 2:
        return matmul(x, y, precision=precision, preferred_element_type=preferred_element_type)
    return tensordot(x, y, ((-1,), (-2 if y.ndim > 1 else -1,)), precision=precision,
                     preferred_element_type=preferred_element_type)


def _scale(x: Array, y: Array, preferred: DTypeLike | None) -> Array:
    """Return the product where one operand is 0-d."""
    return x * y if preferred is None else x.astype(preferred) * y.astype(preferred)


@_docstr("A 0-d Array of the common dtype.",
         ("ShapeError: the operands differ in their number of elements.",),
         a="an Array or array-like of n elements.", b="an Array or array-like of n elements.")
def vdot(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None,
         preferred_element_type: DTypeLike | None = None) -> Array:
    """Return the dot product of the flattened operands; a complex ``a`` is conjugated.

    >>> print(jnp.vdot(jnp.ones((2, 2)), jnp.ones((2, 2))))
    4.0
    """
    x, y = asarray(a).conj(), asarray(b)
    return matmul(x.reshape(x.size), y.reshape(y.size), precision=precision,
                  preferred_element_type=preferred_element_type)


@_docstr(b="an Array or array-like of shape (..., k), or 0-d.")
def inner(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None,
          preferred_element_type: DTypeLike | None = None) -> Array:
    """Contract the last axis of ``a`` with the last axis of ``b``.

    >>> print(jnp.inner(jnp.arange(3), jnp.arange(3)))
    5
    """
    x, y = asarray(a), asarray(b)
    if x.ndim == 0 or y.ndim == 0:
        return _scale(x, y, preferred_element_type)
    return tensordot(x, y, ((-1,), (-1,)), precision=precision,
                     preferred_element_type=preferred_element_type)


@public_api
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """Return the outer product of the flattened operands.

    Args:
        a: an Array or array-like of any shape and dtype.
        b: an Array or array-like of any shape and dtype.
        out: unsupported; must be None.

    Returns:
        An Array of shape (a.size, b.size), of the common dtype.

    >>> import fnx.numpy as jnp
    >>> jnp.outer(jnp.arange(2), jnp.arange(2))
    Array([[0, 0],
           [0, 1]], dtype=int32)
    """
    x, y = asarray(a), asarray(b)
    return x.reshape((x.size, 1)) * y.reshape((1, y.size))


@_docstr(a="an Array or array-like of any shape and dtype.",
         b="an Array or array-like of any shape and dtype.",
         axes="n, to contract the last n axes of ``a`` with the first n of ``b``; or (axes of a, "
              "axes of b).",
         raises=("ShapeError: the contracted axes differ in length.",
                 "ArgumentError: the numbers of axes of a and b differ."))
def tensordot(a: ArrayLike, b: ArrayLike, axes: Any = 2, *, precision: PrecisionLike = None,
              preferred_element_type: DTypeLike | None = None) -> Array:
    """Contract pairs of axes.

    >>> jnp.tensordot(jnp.ones((2, 3)), jnp.ones((3, 4)), 1).shape
    (2, 4)
    """
    (x, y), was_bool = _promote_operands("tensordot", (a, b), preferred_element_type)
    ax_a, ax_b = _axis_pairs(axes, len(x.shape), len(y.shape))
    if [x.shape[i] for i in ax_a] != [y.shape[i] for i in ax_b]:
        raise ShapeError("tensordot: expected contracting dimensions of equal length, got axes "
                         f"{ax_a} of {x.shape} and {ax_b} of {y.shape}")
    la = tuple(("a", i) for i in range(len(x.shape)))
    lb = tuple(la[ax_a[ax_b.index(i)]] if i in ax_b else ("b", i) for i in range(len(y.shape)))
    contracted = {la[i] for i in ax_a}
    out = tuple(z for z in la + lb if z not in contracted)
    return _to_result(contract(x, la, y, lb, out), was_bool)


def _axis_pairs(spec: Any, rank_a: int, rank_b: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(spec, int):
        if not 0 <= spec <= min(rank_a, rank_b):
            raise ArgumentError(f"tensordot: expected 0 to {min(rank_a, rank_b)} axes, got {spec}")
        return tuple(range(rank_a - spec, rank_a)), tuple(range(spec))
    if not isinstance(spec, Sequence) or isinstance(spec, str) or len(spec) != 2:
        raise ArgumentError(f"expected axes as an int or a pair of tuples, got {spec!r}")
    axes_a, axes_b = [(g,) if isinstance(g, int) else tuple(g) for g in spec]
    if len(axes_a) != len(axes_b):
        raise ArgumentError("tensordot: expected the same number of axes for both operands, got "
                            f"{axes_a} and {axes_b}")
    return axes.normalize_axis_tuple(axes_a, rank_a), axes.normalize_axis_tuple(axes_b, rank_b)


# ---- einsum -----------------------------------------------------------------------------------


@public_api
@takes_out_sharding
def einsum(subscripts: Any, /, *operands: Any, precision: PrecisionLike = None,
           preferred_element_type: DTypeLike | None = None,
           optimize: str | bool | Sequence[Sequence[int]] = "auto", out: None = None,
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
        out_sharding: None, or the sharding of the result.
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
    path = [tuple(step) for step in optimize] if isinstance(optimize, list | tuple) else None
    if path is None:
        arguments.check_choice("optimize", optimize, (True, False, "optimal", "greedy", "auto"))
    if _dot_general is not None and \
            getattr(_dot_general, "__module__", None) != "fnx.lax.contraction":
        raise NotBuiltError(f"einsum: expected lax.dot_general, got {_dot_general!r}",
                            hint="leave it out: other functions are not supported")
    if not isinstance(subscripts, str):
        subscripts, operands = einsum_paths.to_subscripts([subscripts, *operands])
    nodes, was_bool = _promote_operands("einsum", operands, preferred_element_type)
    inputs, output = einsum_paths.parse(subscripts, [len(n.shape) for n in nodes])
    terms = [_take_diagonals(n, labels, subscripts) for n, labels in zip(nodes, inputs)]
    terms = _broadcast_labels(terms, subscripts)
    while len(terms) > 1:
        i, j = _cheapest_pair(terms, output) if path is None else \
            einsum_paths.next_pair(path, len(terms))
        second, first = terms.pop(j), terms.pop(i)
        others = {x for _, labels in terms for x in labels} | set(output)
        needed = tuple(x for x in dict.fromkeys(first[1] + second[1]) if x in others)
        out_labels = needed if terms else tuple(output)
        present = set(first[1] + second[1])
        out_labels = tuple(x for x in out_labels if x in present)
        terms.append((contract(*first, *second, out_labels), out_labels))
    node, labels = terms[0]
    node, labels = _sum_out(node, labels, set(output))
    return _to_result(build.permute(node, [labels.index(x) for x in output]), was_bool)


def _take_diagonals(x: UOp, labels: Labels, spec: str) -> tuple[UOp, Labels]:
    """Take the diagonal for each repeated label, so that every label occurs once."""
    while len(set(labels)) < len(labels):
        label = next(y for y in labels if labels.count(y) > 1)
        i = labels.index(label)
        j = labels.index(label, i + 1)
        if x.shape[i] != x.shape[j]:
            raise ShapeError(f"einsum: expected equal lengths for index {label!r} in {spec!r}, got "
                             f"{x.shape[i]} and {x.shape[j]}")
        others = [a for a in range(len(labels)) if a not in (i, j)]
        x = matrices.matrix_diagonal(build.permute(x, [*others, i, j]))
        labels = (*[labels[a] for a in others], label)
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
                raise ShapeError(f"einsum: expected equal lengths for index {y!r} in {spec!r}, got "
                                 f"{known} and {n}",
                                 hint="check the order of the indices")
    out = []
    for x, labels in terms:
        retained = [i for i, (n, y) in enumerate(zip(x.shape, labels)) if n == lengths[y]]
        out.append((build.reshape(x, tuple(x.shape[i] for i in retained)),
                    tuple(labels[i] for i in retained)))
    return out


def _cheapest_pair(terms: list[tuple[UOp, Labels]], output: Labels) -> tuple[int, int]:
    """Return the pair of terms whose product has the fewest elements before the reduction."""
    def cost(i: int, j: int) -> int:
        (x, lx), (y, ly) = terms[i], terms[j]
        return math.prod({**dict(zip(lx, x.shape)), **dict(zip(ly, y.shape))}.values())
    pairs = [(i, j) for j in range(len(terms)) for i in range(j)]
    return min(pairs, key=lambda p: cost(*p))


@public_api
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
    shape_x = (1,) * (rank - x.ndim) + x.shape
    shape_y = (1,) * (rank - y.ndim) + y.shape
    left = x.reshape(tuple(m for n in shape_x for m in (n, 1)))
    right = y.reshape(tuple(m for n in shape_y for m in (1, n)))
    return (left * right).reshape(tuple(int(m) for m in np.multiply(shape_x, shape_y)))

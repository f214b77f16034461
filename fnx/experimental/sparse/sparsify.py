"""``sparsify``: a function of dense arrays applied to sparse ones.

The function is traced once with dense arrays of the same shapes. Its graph is then evaluated node
by node: an op has a rule for operands that are sparse, and is itself for dense ones. EXPAND,
PERMUTE and unit axes of RESHAPE only relabel axes (``View``), and a MUL waits for the REDUCE that
follows it (``Product``), so that the product of matrices is ``bcoo_dot_general``.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.ir import ops
from fnx.core.ir.numpy_semantics import const_value
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import ArgumentError
from fnx.experimental.sparse.arithmetic import (
    add,
    bcoo_dot_general,
    bcoo_multiply_sparse,
    bcoo_reduce_sum,
    contract,
    multiply,
)
from fnx.experimental.sparse.base import JAXSparse, refuse
from fnx.experimental.sparse.bcoo import BCOO
from fnx.experimental.sparse.duplicates import bcoo_sum_duplicates
from fnx.experimental.sparse.movement import (
    bcoo_broadcast_in_dim,
    bcoo_concatenate,
    bcoo_reshape,
    bcoo_rev,
    bcoo_slice,
    bcoo_squeeze,
    bcoo_transpose,
)
from fnx.transforms.abstract_eval import trace_closed

__all__ = ["sparsify"]

Axes: TypeAlias = tuple[int | None, ...]


class View(NamedTuple):
    """A sparse array with its axes permuted, and new ones along which it is repeated.

    Args:
        mat: the array, each axis of which occurs once in ``axes``.
        axes: for each axis of the view that of the array, or None for a new one.
        shape: the shape of the view.
        background: the element where the array has none. It is 0 but between elementwise ops, as
            in where(x <= 0, 0, x).
    """

    mat: BCOO
    axes: Axes
    shape: Shape
    background: Any = 0


class Product(NamedTuple):
    """A product of two operands, one of them sparse, of one shape; ``nodes`` are their nodes."""

    values: tuple[Any, Any]
    nodes: tuple[UOp, UOp]
    shape: Shape


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """Make a function of dense arrays take sparse ones.

    Args:
        f: a function of pytrees of arrays.
        use_tracer: accepted as JAX's.

    Returns:
        A function like ``f`` whose arguments may be sparse: BCOO, or others, which are converted to
        it. Its results are sparse where that needs no zeros.

    Raises:
        ArgumentError: ``f`` is no function.
        NotBuiltError: an operation of ``f`` has no sparse form.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.BCOO.fromdense(jnp.asarray([[0.0, 2.0], [3.0, 0.0]]))
    >>> print(sparse.sparsify(lambda M, v: jnp.sqrt(M.T) @ v)(M, jnp.asarray([2.0, 0.0])).round(3))
    [0.    2.828]
    """
    if not callable(f):
        raise ArgumentError(f"expected f as a function, got {type(f).__name__}")

    @public_api
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.flatten((args, kwargs), is_leaf=_is_sparse)
        values = [_to_bcoo(x) if _is_sparse(x) else asarray(x) for x in leaves]
        shapes = [ShapeDtypeStruct(x.shape, x.dtype) for x in values]

        def dense(*xs: Any) -> Any:
            positional, named = structure.unflatten(xs)
            return f(*positional, **named)
        closed, _, _ = trace_closed(dense, tuple(shapes), "sparsify")
        operands = [*values, *[Array(node) for node in closed.captures]]
        results = _evaluate(closed.function, [
            View(x, tuple(range(x.ndim)), x.shape) if isinstance(x, BCOO) else x
            for x in operands])
        return closed.out_tree.unflatten([
            _materialize(x) if isinstance(x, View | Product) else x for x in results])
    return functools.wraps(f)(call)


def _is_sparse(x: Any) -> bool:
    return isinstance(x, JAXSparse)


def _to_bcoo(x: Any) -> BCOO:
    mat: BCOO = x if isinstance(x, BCOO) else x.to_bcoo()
    return mat


def _evaluate(function: UOp, operands: Sequence[Any]) -> list[Any]:
    """Return the results of a FUNCTION, each an Array, a View or a Product."""
    values: dict[UOp, Any] = {}
    for node in toposort(function.src):
        if node.op is ops.PARAM:
            values[node] = operands[node.arg.slot]
        elif node.op is ops.FUNCTION:
            values[node] = node
        elif node.op is ops.GETTUPLE and isinstance(values[node.src[0]], list):
            values[node] = values[node.src[0]][node.arg]
        else:
            values[node] = _apply(node, [values[s] for s in node.src])
    return [values[s] for s in function.src]


def _apply(node: UOp, operands: list[Any]) -> Any:
    if node.op in (ops.CALL, ops.CUSTOM) and operands[0].op is ops.FUNCTION and \
            any(isinstance(x, View | Product) for x in operands):
        return _evaluate(operands[0], [x for x, s in zip(operands, node.src)
                                       if s.op is not ops.FUNCTION])
    if not any(isinstance(x, View | Product) for x in operands):
        src = tuple([x if isinstance(x, UOp) else x._node for x in operands])
        new = node.with_operands(src) if src else node
        return new if new.dtype.kind == "void" else Array(new)
    if node.op is ops.MUL and not _is_map(node, operands):
        return Product((operands[0], operands[1]), (node.src[0], node.src[1]), node.shape)
    if node.op is ops.REDUCE and node.arg.monoid is ops.ADD:
        return _reduce(node, operands[0])
    operands = [_to_view(x) if isinstance(x, Product) else x for x in operands]
    rule = _RULES.get(node.op)
    if rule is not None:
        return rule(node, operands)
    if node.op in ops.ELEMENTWISE:
        return _map(node, operands)
    raise refuse(f"{node.op.name} of a sparse array")


def _is_map(node: UOp, operands: Sequence[Any]) -> bool:
    """Whether an op acts on the values alone: sparse operands have the same coordinates, and
    dense ones are numbers that are known while tracing."""
    views = [x for x in operands if isinstance(x, View)]
    return all(isinstance(x, View) or not isinstance(x, Product) and _number(s) is not None
               for s, x in zip(node.src, operands)) and all(
        x.axes == views[0].axes and x.shape == views[0].shape
        and x.mat.indices._node is views[0].mat.indices._node for x in views)


def _number(node: UOp) -> Any:
    """Return the number that a node repeats, or None."""
    while node.op in (ops.RESHAPE, ops.EXPAND):
        node = node.src[0]
    return const_value(node) if node.op is ops.CONST else None


# ---- elementwise -------------------------------------------------------------------------------


def _map(node: UOp, operands: list[Any]) -> Any:
    """Apply an op to the values of sparse arrays and to what is between them."""
    views = [x for x in operands if isinstance(x, View)]
    if not _is_map(node, operands):
        raise refuse(f"{node.op.name} of sparse and other arrays")
    between = [np.asarray(x.background, x.mat.dtype) if isinstance(x, View) else
               np.asarray(_number(s)) for s, x in zip(node.src, operands)]
    if node.op.meaning is None:
        raise refuse(f"{node.op.name} of a sparse array")
    with np.errstate(all="ignore"):
        background = np.asarray(node.op.meaning(node, *between))
    linear = node.op in (ops.NEG, ops.MUL, ops.DIV) and len(views) == 1
    distinct = [x.mat if linear or x.mat.unique_indices else bcoo_sum_duplicates(
        x.mat, nse=x.mat.nse) for x in views]
    data = iter([x.data for x in distinct])
    src = tuple([next(data)._node if isinstance(x, View) else jnp.broadcast_to(
        asarray(_number(s)).astype(s.dtype.np), distinct[0].data.shape)._node
        for s, x in zip(node.src, operands)])
    return View(distinct[0]._with_data(Array(node.with_operands(src))), views[0].axes,
                views[0].shape, background)


def _check_background(x: Any) -> None:
    if isinstance(x, View) and x.background != 0:
        raise refuse(f"a function of a sparse array that maps 0 to {x.background}")


def _sum(node: UOp, operands: list[Any]) -> Any:
    if _is_map(node, operands):
        return _map(node, operands)
    a, b = [_materialize(x) if isinstance(x, View) else x for x in operands]
    if node.op is ops.SUB:
        b = -b
    total = add(a, b) if isinstance(a, BCOO) else add(b, a)
    return _view(total) if isinstance(total, BCOO) else total


def _quotient(node: UOp, operands: list[Any]) -> Any:
    if isinstance(operands[1], View):
        raise refuse("division by a sparse array")
    if _is_map(node, operands):
        return _map(node, operands)
    return _view(multiply(_materialize(operands[0]), 1 / operands[1]))


# ---- axes --------------------------------------------------------------------------------------


def _view(mat: BCOO) -> View:
    return View(mat, tuple(range(mat.ndim)), mat.shape)


def _permute(node: UOp, operands: list[Any]) -> View:
    mat, axes, shape, background = operands[0]
    return View(mat, tuple([axes[i] for i in node.arg]), tuple([shape[i] for i in node.arg]),
                background)


def _expand(node: UOp, operands: list[Any]) -> View:
    mat, axes, shape, background = operands[0]
    grown = [at for at, old, new in zip(axes, shape, node.arg) if old != new and at is not None]
    mat, axes = _drop(mat, axes, grown)
    return View(mat, axes, tuple(node.arg), background)


def _drop(mat: BCOO, axes: Axes, dropped: Sequence[int]) -> tuple[BCOO, Axes]:
    """Drop axes of length 1 of the array; those of the view are new ones then."""
    if not dropped:
        return mat, axes
    left = [i for i in range(mat.ndim) if i not in dropped]
    return bcoo_squeeze(mat, dimensions=tuple(dropped)), tuple([
        left.index(at) if at in left else None for at in axes])


def _reshape(node: UOp, operands: list[Any]) -> View:
    """Relabel unit axes; other reshapes are those of the array."""
    mat, axes, shape, background = operands[0]
    sizes = tuple(node.arg)
    if [n for n in shape if n != 1] != [n for n in sizes if n != 1]:
        return _view(bcoo_reshape(_materialize(operands[0]), new_sizes=sizes))
    old, new, dropped = 0, [], []
    for size in sizes:
        while size != 1 and shape[old] == 1:
            dropped.append(axes[old])
            old += 1
        if old < len(shape) and shape[old] == size:
            new.append(axes[old])
            old += 1
        else:
            new.append(None)
    dropped += axes[old:]
    mat, axes = _drop(mat, tuple(new), [at for at in dropped if at is not None])
    return View(mat, axes, sizes, background)


def _materialize(x: Any) -> BCOO:
    """Return a view as an array."""
    if isinstance(x, Product):
        x = _to_view(x)
    _check_background(x)
    view: View = x
    mat, axes, shape, _ = view
    if any(at is None and n != 1 for at, n in zip(axes, shape)):
        raise refuse(f"a sparse array that is repeated to shape {shape}", "use sparse.todense")
    order = [at for at in axes if at is not None]
    if order != list(range(mat.ndim)):
        mat = bcoo_transpose(mat, permutation=tuple(order))
    if len(order) < len(axes):
        mat = bcoo_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=tuple(
            [i for i, at in enumerate(axes) if at is not None]))
    return mat


def _slice(node: UOp, operands: list[Any]) -> View:
    starts, limits = zip(*node.arg)
    return _view(bcoo_slice(_materialize(operands[0]), start_indices=starts,
                            limit_indices=limits))


def _flip(node: UOp, operands: list[Any]) -> View:
    axes = node.arg if isinstance(node.arg, tuple) else (node.arg,)
    return _view(bcoo_rev(_materialize(operands[0]), axes))


def _concatenate(node: UOp, operands: list[Any]) -> View:
    mats = [_materialize(x) if isinstance(x, View) else BCOO.fromdense(x, nse=x.size)
            for x in operands]
    return _view(bcoo_concatenate(mats, dimension=node.arg))


# ---- products and sums -------------------------------------------------------------------------


def _to_view(product: Product) -> View:
    """Return a product that no sum follows."""
    a, b = [_materialize(x) if isinstance(x, View | Product) else x for x in product.values]
    if isinstance(a, BCOO) and isinstance(b, BCOO):
        return _view(bcoo_multiply_sparse(a, b))
    mat, dense = (a, b) if isinstance(a, BCOO) else (b, a)
    return _view(multiply(mat, dense))


def _dense_axes(node: UOp) -> tuple[UOp, Axes]:
    """Return the node that a dense operand repeats, and for each axis that of this node."""
    axes: list[int | None] = list(range(len(node.shape)))
    while True:
        if node.op is ops.EXPAND:
            old = node.src[0].shape
            axes = [None if at is None or old[at] != node.shape[at] else at for at in axes]
        elif node.op is ops.PERMUTE:
            axes = [None if at is None else node.arg[at] for at in axes]
        elif node.op is ops.RESHAPE and [n for n in node.src[0].shape if n != 1] == [
                n for n in node.shape if n != 1] and 1 not in node.src[0].shape:
            places = [i for i, n in enumerate(node.shape) if n != 1]
            axes = [places.index(at) if at in places else None for at in axes]
        else:
            return node, tuple(axes)
        node = node.src[0]


def _reduce(node: UOp, x: Any) -> Any:
    reduced = node.arg.axes
    if isinstance(x, Product):
        product = _contract(x, [i for i in range(len(x.shape)) if i not in reduced])
        if product is not None:
            return product.astype(node.dtype.np) if isinstance(product, Array) else product
        x = _to_view(x)
    _check_background(x)
    mat, axes, shape, _ = x
    count = int(np.prod([shape[i] for i in reduced if axes[i] is None]))
    out = bcoo_reduce_sum(mat, axes=[axes[i] for i in reduced if axes[i] is not None])
    out = out if count == 1 else out * count
    left = [axes[i] for i in range(len(shape)) if i not in reduced]
    if not left:
        return out.data.sum(dtype=out.data.dtype)
    order = sorted([at for at in left if at is not None])
    return View(out, tuple([None if at is None else order.index(at) for at in left]), node.shape)


def _contract(product: Product, left_axes: list[int]) -> Any:
    """Return a product summed over axes; None if it has an axis that neither operand has."""
    letters = string.ascii_letters[:len(product.shape)]
    values: list[Any] = []
    labels: list[str] = []
    for value in product.values:
        if isinstance(value, Product):
            value = _to_view(value)
        _check_background(value)
        if isinstance(value, View):
            order = {at: label for at, label in zip(value.axes, letters) if at is not None}
            values.append(value.mat)
            labels.append("".join([order[i] for i in range(value.mat.ndim)]))
        else:
            values.append(value)
            labels.append(letters)
    if not all(label in labels[0] + labels[1] for label in letters):
        return None
    out = "".join([letters[i] for i in left_axes])
    sparse = [isinstance(x, BCOO) for x in values]
    if all(sparse):
        return _contract_sparse(values, labels, out)
    at = sparse.index(True)
    dense, dense_labels = _squeeze_repeated(values[1 - at], product.nodes[1 - at], letters,
                                            labels[at])
    return contract(values[at], dense, labels[at], dense_labels, out)


def _squeeze_repeated(dense: Array, node: UOp, letters: str, others: str) -> tuple[Array, str]:
    """Take one element along axes that a dense operand repeats and the other one has."""
    _, axes = _dense_axes(node)
    item = tuple([0 if at is None and label in others else slice(None)
                  for at, label in zip(axes, letters)])
    left = [label for label, i in zip(letters, item) if i != 0]
    return dense[item], "".join(left)


def _contract_sparse(values: Sequence[BCOO], labels: Sequence[str], out: str) -> Any:
    a, b = labels
    if a == b:
        return None
    shared = [label for label in a if label in b]
    summed, batch = [[label for label in shared if (label in out) == held]
                     for held in (False, True)]
    dims: Any = tuple([tuple([[one.index(label) for label in group] for one in (a, b)])
                  for group in (summed, batch)])
    product = bcoo_dot_general(values[0], values[1], dimension_numbers=dims)
    order = "".join(batch) + "".join([c for c in a + b if c not in shared])
    lone = tuple([i for i, c in enumerate(order) if c not in out])
    if lone:
        product = bcoo_reduce_sum(product, axes=lone)
        order = "".join([c for c in order if c in out])
    if not order:
        return product.data.sum(dtype=product.data.dtype)
    return View(product, tuple([order.index(c) for c in out]),
                tuple([product.shape[order.index(c)] for c in out]))


_RULES: dict[Any, Callable[[UOp, list[Any]], Any]] = {
    ops.PERMUTE: _permute, ops.EXPAND: _expand, ops.RESHAPE: _reshape, ops.SHRINK: _slice,
    ops.FLIP: _flip, ops.CONCAT: _concatenate, ops.ADD: _sum, ops.SUB: _sum, ops.DIV: _quotient,
}

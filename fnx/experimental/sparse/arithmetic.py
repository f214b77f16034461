"""Products and sums of BCOO arrays.

A product with a dense array is one pattern: elements of the dense array are gathered at the
coordinates, multiplied by the values, and summed by the coordinates that are left (a scatter-add),
which fnx compiles to one kernel. Its derivatives are products of the same pattern.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.array import axes as axis_numbers
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.support.errors import ShapeError
from fnx.experimental.sparse.base import JAXSparse, Shape, check_sparse, refuse
from fnx.experimental.sparse.bcoo import BCOO, columns, is_inside, map_batches
from fnx.experimental.sparse.duplicates import bcoo_sum_duplicates
from fnx.experimental.sparse.layouts import bcoo_update_layout, broadcast_batches

__all__ = ["add", "bcoo_dot_general", "bcoo_dot_general_sampled", "bcoo_multiply_dense",
           "bcoo_multiply_sparse", "bcoo_reduce_sum", "map_elements", "matmul", "multiply",
           "sum_axes"]

DotDimensions = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


# ---- products by labels of axes ----------------------------------------------------------------


def contract(mat: BCOO, dense: Array, labels: str, dense_labels: str, out: str) -> Array:
    """Return the product of a sparse and a dense array, summed over labels that ``out`` lacks.

        contract(A, x, "ij", "j", "i")    the product of a matrix and a vector
    """
    n = mat.n_batch
    batch, sparse, rest = labels[:n], labels[n:n + mat.n_sparse], labels[n + mat.n_sparse:]
    inner = [label for label in dense_labels if label not in batch]
    order = [dense_labels.index(label) for label in (*batch, *inner) if label in dense_labels]
    rows = dense.transpose(order)
    rows = rows.reshape(*[mat.shape[i] if label in dense_labels else 1
                          for i, label in enumerate(batch)], *rows.shape[len(order) - len(inner):])
    one_out = "".join([label for label in out if label not in batch])
    result: Array = map_batches(
        lambda data, indices, x: _contract_one(data, indices, x, mat.layout.sparse,
                                               (sparse, rest, "".join(inner), one_out)),
        mat.layout.batch, mat.data, mat.indices, rows)
    return jnp.einsum(f"{batch}{one_out}->{out}", result)


def _contract_one(data: Array, indices: Array, dense: Array, shape: Shape,
                  labels: tuple[str, str, str, str]) -> Array:
    """Return the product without batch axes; labels: sparse and dense ones, of the other array, of
    the result."""
    sparse, rest, other, out = labels
    shared = [label for label in sparse if label in other]
    held = [label for label in sparse if label in out]
    element = next(c for c in string.ascii_letters if c not in sparse + rest + other)
    tail = "".join([label for label in other if label not in shared])
    x = dense.transpose([other.index(label) for label in (*shared, *tail)])
    if shared:
        at = tuple([indices[:, sparse.index(label)] for label in shared])
        x = x.at[at].get(mode="fill", fill_value=0)
    elif not held and sparse:  # padding would count
        inside = is_inside(indices, shape).reshape(-1, *[1] * (data.ndim - 1))
        data = jnp.where(inside, data, 0)
    inner = "".join([label for label in out if label not in held])
    terms = f"{element}{rest},{element if shared else ''}{tail}->"
    if not held:
        return jnp.einsum(terms + out, data, x)
    values = jnp.einsum(terms + element + inner, data, x)
    sizes = tuple([shape[sparse.index(label)] for label in held])
    total = jnp.zeros((*sizes, *values.shape[1:]), values.dtype).at[
        tuple([indices[:, sparse.index(label)] for label in held])].add(values, mode="drop")
    return jnp.einsum(f"{''.join(held)}{inner}->{out}", total)


def _labels(lhs: int, rhs: int, dimension_numbers: DotDimensions) -> tuple[str, str, str]:
    """Return labels of the axes of both operands and of the result of a dot_general."""
    letters = iter(string.ascii_letters)
    a, b = [""] * lhs, [""] * rhs
    contracted, batch = dimension_numbers
    for left, right in (*zip(*contracted, strict=True), *zip(*batch, strict=True)):
        a[left] = b[right] = next(letters)
    out = [a[i] for i in batch[0]]
    for labels in (a, b):
        for i, label in enumerate(labels):
            if not label:
                labels[i] = next(letters)
                out.append(labels[i])
    return "".join(a), "".join(b), "".join(out)


def _check_dimensions(lhs: Any, rhs: Any, dimension_numbers: DotDimensions) -> DotDimensions:
    (a, b), (c, d) = dimension_numbers
    dims: Any = ((axis_numbers.normalize_axis_tuple(a, lhs.ndim),
                  axis_numbers.normalize_axis_tuple(b, rhs.ndim)),
                 (axis_numbers.normalize_axis_tuple(c, lhs.ndim),
                  axis_numbers.normalize_axis_tuple(d, rhs.ndim)))
    for left, right in dims:
        if [lhs.shape[i] for i in left] != [rhs.shape[i] for i in right]:
            raise ShapeError(f"expected axes {left} of {lhs.shape} as long as axes {right} of "
                             f"{rhs.shape}")
    return dims  # type: ignore[no-any-return]


@public_api
def bcoo_dot_general(lhs: Any, rhs: Any, *, dimension_numbers: DotDimensions,
                     precision: None = None, preferred_element_type: DTypeLike | None = None,
                     out_sharding: Any = None) -> Any:
    """Contract axes of two arrays, sparse or dense.

    Args:
        lhs: a BCOO or an array.
        rhs: a BCOO or an array.
        dimension_numbers: ((contracted axes of lhs, of rhs), (batch axes of lhs, of rhs)).
        precision: accepted as JAX's.
        preferred_element_type: the dtype of the result.
        out_sharding: accepted as JAX's: there is one device.

    Returns:
        An Array with the batch axes, the other axes of lhs, and those of rhs; a BCOO if both are
        sparse.

    Raises:
        ShapeError: the lengths of paired axes differ.
        NotBuiltError: both are sparse, and one has dense axes.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> print(sparse.bcoo_dot_general(sparse.eye(2), jnp.asarray([3.0, 4.0]),
    ...                               dimension_numbers=(([1], [0]), ([], []))))
    [3. 4.]
    """
    operands: list[Any] = [x if isinstance(x, BCOO) else asarray(x) for x in (lhs, rhs)]
    left, right = operands
    dims = _check_dimensions(left, right, dimension_numbers)
    if isinstance(left, BCOO) and isinstance(right, BCOO):
        out = _dot_sparse(left, right, dims)
        return out if preferred_element_type is None else out.astype(preferred_element_type)
    if not isinstance(left, BCOO) and not isinstance(right, BCOO):
        return lax.dot_general(left, right, dims, preferred_element_type=preferred_element_type)
    a, b, labels = _labels(left.ndim, right.ndim, dims)
    product = contract(left, right, a, b, labels) if isinstance(left, BCOO) else \
        contract(right, left, b, a, labels)
    return product if preferred_element_type is None else product.astype(preferred_element_type)


def _dot_sparse(lhs: BCOO, rhs: BCOO, dims: DotDimensions) -> BCOO:
    """Return the product of two sparse arrays: every pair of elements is compared."""
    (a, b), (c, d) = dims
    if lhs.n_dense or rhs.n_dense:
        raise refuse("the product of two sparse arrays with dense axes", "use update_layout")
    n = lhs.n_batch
    if n and not (rhs.n_batch == n and tuple(c[:n]) == tuple(d[:n]) == tuple(range(n))):
        lhs, n = bcoo_update_layout(lhs, n_batch=0), 0
    if rhs.n_batch != n:
        rhs = bcoo_update_layout(rhs, n_batch=0)
    a, b, c, d = [[i - n for i in axes if i >= n] for axes in (a, b, c, d)]
    left = [*c, *[i for i in range(lhs.n_sparse) if i not in (*a, *c)]]
    right = [i for i in range(rhs.n_sparse) if i not in (*b, *d)]
    shape = tuple([lhs.layout.sparse[i] for i in left] + [rhs.layout.sparse[i] for i in right])

    def one(x: Array, i: Array, y: Array, j: Array) -> tuple[Array, Array]:
        pairs = is_inside(i, lhs.layout.sparse)[:, None] & is_inside(j, rhs.layout.sparse)
        for p, q in zip((*a, *c), (*b, *d)):
            pairs = pairs & (i[:, None, p] == j[None, :, q])
        values = jnp.where(pairs, x[:, None] * y[None], 0).reshape(-1)
        places = [jnp.broadcast_to(i[:, None, p], pairs.shape) for p in left] + \
            [jnp.broadcast_to(j[None, :, q], pairs.shape) for q in right]
        if not places:
            return values, jnp.zeros((values.size, 0), i.dtype)
        rows = [jnp.where(pairs, at, size).reshape(-1) for at, size in zip(places, shape)]
        return values, jnp.stack(rows, -1)
    data, indices = map_batches(one, lhs.layout.batch, lhs.data, lhs.indices, rhs.data,
                                rhs.indices)
    out = BCOO((data, indices), shape=(*lhs.layout.batch, *shape))
    limit = int(np.prod(shape))
    return bcoo_sum_duplicates(out, nse=limit) if limit < out.nse else out


@public_api
def bcoo_dot_general_sampled(A: ArrayLike, B: ArrayLike, indices: ArrayLike, *,
                             dimension_numbers: DotDimensions) -> Array:
    """Contract axes of two dense arrays, only for some elements of the result.

    Args:
        A: an array.
        B: an array.
        indices: the coordinates of a BCOO of the shape of the result.
        dimension_numbers: ((contracted axes of A, of B), (batch axes of A, of B)).

    Returns:
        The values at the coordinates.

    Raises:
        ShapeError: the lengths of paired axes differ.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> x = jnp.asarray([1.0, 2.0, 3.0])
    >>> print(sparse.bcoo_dot_general_sampled(x, x, jnp.asarray([[0, 2], [1, 1]]),
    ...                                       dimension_numbers=(([], []), ([], []))))
    [3. 4.]
    """
    x, y, at = asarray(A), asarray(B), asarray(indices)
    dims = _check_dimensions(x, y, dimension_numbers)
    a, b, out = _labels(x.ndim, y.ndim, dims)
    n, n_sparse = at.ndim - 2, at.shape[-1]
    shape = tuple([x.shape[a.index(label)] if label in a else y.shape[b.index(label)]
                   for label in out])
    batch, sparse, rest = out[:n], out[n:n + n_sparse], out[n + n_sparse:]
    element = next(c for c in string.ascii_letters if c not in a + b)

    def rows(operand: Array, labels: str) -> tuple[Array, str]:
        """Put batch axes in front."""
        inner = "".join([label for label in labels if label not in batch])
        moved = jnp.einsum(f"{labels}->{''.join(c for c in batch if c in labels)}{inner}", operand)
        sizes = [shape[i] if label in labels else 1 for i, label in enumerate(batch)]
        return moved.reshape(*sizes, *moved.shape[moved.ndim - len(inner):]), inner

    (x_rows, x_labels), (y_rows, y_labels) = rows(x, a), rows(y, b)

    def sample(operand: Array, labels: str, at: Array) -> tuple[Array, str]:
        shared = [label for label in sparse if label in labels]
        tail = "".join([label for label in labels if label not in shared])
        moved = operand.transpose([labels.index(label) for label in (*shared, *tail)])
        if not shared:
            return moved, tail
        where = tuple([at[:, sparse.index(label)] for label in shared])
        return moved.at[where].get(mode="fill", fill_value=0), element + tail

    def one(x: Array, y: Array, at: Array) -> Array:
        (p, p_labels), (q, q_labels) = sample(x, x_labels, at), sample(y, y_labels, at)
        if element not in p_labels + q_labels:
            p, p_labels = jnp.broadcast_to(p, (at.shape[0], *p.shape)), element + p_labels
        return jnp.einsum(f"{p_labels},{q_labels}->{element}{rest}", p, q)
    result: Array = map_batches(one, shape[:n], x_rows, y_rows, at)
    return result


@public_api
def matmul(lhs: Any, rhs: Any) -> Any:
    """Return the product of matrices, vectors and stacks of them, one of which is sparse."""
    for x in (lhs, rhs):
        if isinstance(x, JAXSparse) and not isinstance(x, BCOO):
            raise refuse(f"a product with {type(x).__name__}", "use to_bcoo")
    operands: list[Any] = [x if isinstance(x, BCOO) else asarray(x) for x in (lhs, rhs)]
    left, right = operands
    if not left.ndim or not right.ndim:
        raise ShapeError("expected operands with at least one axis, got a scalar", hint="use *")
    stack = max(left.ndim, right.ndim) - 2
    n_left, n_right = max(left.ndim - 2, 0), max(right.ndim - 2, 0)
    if n_left and n_right and n_left != n_right:
        raise refuse("a product of stacks of different ranks", "use bcoo_dot_general")
    batch = tuple(range(stack)) if n_left and n_right else ()
    row = 0 if right.ndim == 1 else right.ndim - 2
    dims = (([left.ndim - 1], [row]), (batch, batch))
    product = bcoo_dot_general(left, right, dimension_numbers=dims)
    if n_right and not n_left and left.ndim == 2:  # (i, stack..., k) -> (stack..., i, k)
        order = (*range(1, n_right + 1), 0, n_right + 1)
        return product.transpose(order)
    return product


# ---- elementwise -------------------------------------------------------------------------------


@public_api
def bcoo_multiply_dense(sp_mat: BCOO, v: ArrayLike) -> Array:
    """Return the values of the product of a sparse and a dense array, element by element.

    Args:
        sp_mat: the sparse array.
        v: an array that broadcasts to its shape.

    Returns:
        The values at the coordinates of ``sp_mat``.

    Raises:
        ArgumentError: ``sp_mat`` is no BCOO.
        ShapeError: ``v`` does not broadcast to the shape.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> print(sparse.bcoo_multiply_dense(sparse.eye(2), jnp.asarray([3.0, 4.0])))
    [3. 4.]
    """
    check_sparse("sp_mat", sp_mat, BCOO)
    x = asarray(v)
    if not x.ndim:
        return sp_mat.data * v
    n = sp_mat.ndim - x.ndim
    if n < 0 or any(size not in (1, full) for size, full in zip(x.shape, sp_mat.shape[n:])):
        raise ShapeError(f"expected an array that broadcasts to {sp_mat.shape}, got {x.shape}",
                         hint="use sparse.todense for a larger result")
    x = x.reshape((1,) * n + x.shape)
    n_sparse = sp_mat.n_sparse

    def one(data: Array, indices: Array, x: Array) -> Array:
        at = tuple([i if size != 1 else jnp.zeros_like(i)
                    for i, size in zip(columns(indices), x.shape)])
        return data * (x.at[at].get(mode="fill", fill_value=0) if n_sparse else x)
    result: Array = map_batches(one, sp_mat.layout.batch, sp_mat.data, sp_mat.indices, x)
    return result


@public_api
def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """Return the product of two sparse arrays, element by element.

    Args:
        lhs: a sparse array.
        rhs: a sparse array of the same shape.

    Returns:
        A BCOO.

    Raises:
        ArgumentError: an operand is no BCOO.
        ShapeError: the shapes differ.
        NotBuiltError: the numbers of dense axes differ.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> A = sparse.BCOO.fromdense(jnp.asarray([2.0, 3.0, 0.0]))
    >>> B = sparse.BCOO.fromdense(jnp.asarray([0.0, 5.0, 7.0]))
    >>> print(sparse.bcoo_multiply_sparse(A, B).todense())
    [ 0. 15.  0.]
    """
    check_sparse("lhs", lhs, BCOO)
    check_sparse("rhs", rhs, BCOO)
    if lhs.shape != rhs.shape:
        raise ShapeError(f"expected sparse arrays of one shape, got {lhs.shape} and {rhs.shape}")
    if lhs.n_dense != rhs.n_dense:
        raise refuse("a product of sparse arrays with other numbers of dense axes",
                     "use update_layout")
    if lhs.n_batch != rhs.n_batch:
        n_batch = min(lhs.n_batch, rhs.n_batch)
        lhs, rhs = [bcoo_update_layout(x, n_batch=n_batch) for x in (lhs, rhs)]
    sparse = lhs.layout.sparse
    count = min(lhs.nse, rhs.nse)
    a, b = [bcoo_sum_duplicates(x, nse=x.nse) for x in (lhs, rhs)]
    if not sparse:
        return BCOO((a.data * b.data, a.indices), shape=lhs.shape)

    def one(x: Array, i: Array, y: Array, j: Array) -> tuple[Array, Array]:
        """Sort the coordinates of both: equal ones, one of each, are neighbors."""
        rows = jnp.concatenate([i, j])
        *sorted_columns, order = lax.sort(
            (*columns(rows), jnp.arange(rows.shape[0], dtype="int32")), num_keys=len(sparse))
        rows = jnp.stack(sorted_columns, -1)
        values = jnp.concatenate([x, y]).at[order].get(mode="clip")
        meets = (rows[1:] == rows[:-1]).all(-1) & is_inside(rows[1:], sparse)
        end = jnp.asarray(np.asarray(sparse, "int64"), rows.dtype)
        mask = meets.reshape(-1, *[1] * (values.ndim - 1))
        return jnp.where(mask, values[1:] * values[:-1], 0), \
            jnp.where(meets[:, None], rows[1:], end)
    if not lhs.nse or not rhs.nse:
        return lhs._with_data(jnp.zeros_like(lhs.data)) if not lhs.nse else \
            rhs._with_data(jnp.zeros_like(rhs.data))
    data, indices = map_batches(one, lhs.layout.batch, a.data, a.indices, b.data, b.indices)
    return bcoo_sum_duplicates(BCOO((data, indices), shape=lhs.shape), nse=count)


@public_api
def multiply(mat: BCOO, other: Any) -> BCOO:
    """Return the product of a sparse array and any other, element by element."""
    if isinstance(other, BCOO):
        if other.indices is mat.indices and mat.unique_indices and mat.shape == other.shape:
            return mat._with_data(mat.data * other.data)
        return bcoo_multiply_sparse(mat, other)
    if isinstance(other, JAXSparse):
        raise refuse(f"a product with {type(other).__name__}", "use to_bcoo")
    return mat._with_data(bcoo_multiply_dense(mat, other))


@public_api
def add(mat: BCOO, other: Any) -> Any:
    """Return the sum: sparse if both are, dense if ``other`` is dense and of the same shape."""
    if not isinstance(other, BCOO):
        if isinstance(other, JAXSparse):
            raise refuse(f"a sum with {type(other).__name__}", "use to_bcoo")
        dense = asarray(other)
        if dense.shape != mat.shape:
            raise refuse(f"the sum of a sparse array of shape {mat.shape} and a dense one of "
                         f"shape {dense.shape}")
        return mat.todense() + dense
    if mat.shape != other.shape:
        raise ShapeError(f"expected sparse arrays of one shape, got {mat.shape} and "
                         f"{other.shape}")
    if other.indices is mat.indices:
        return mat._with_data(mat.data + other.data)
    if (mat.n_batch, mat.n_dense) != (other.n_batch, other.n_dense):
        raise refuse("the sum of sparse arrays with other numbers of batch or dense axes",
                     "use update_layout")
    a, b = broadcast_batches(mat), broadcast_batches(other)
    return BCOO((jnp.concatenate([a.data, b.data], mat.n_batch),
                 jnp.concatenate([a.indices, b.indices], -2)), shape=mat.shape)


@public_api
def map_elements(f: Callable[[Array], Array], mat: BCOO) -> BCOO:
    """Apply a function with f(0) = 0 to each element."""
    distinct = mat if mat.unique_indices else bcoo_sum_duplicates(mat, nse=mat.nse)
    return distinct._with_data(f(distinct.data))


# ---- sums --------------------------------------------------------------------------------------


@public_api
def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """Return the sum of a sparse array over axes.

    Args:
        mat: the sparse array.
        axes: the axes.

    Returns:
        A BCOO without the axes.

    Raises:
        ArgumentError: ``mat`` is no BCOO.
        AxisError: an axis is out of range.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.BCOO.fromdense(jnp.asarray([[1.0, 2.0], [0.0, 3.0]]))
    >>> print(sparse.bcoo_reduce_sum(M, axes=(0,)).todense())
    [1. 5.]
    """
    check_sparse("mat", mat, BCOO)
    dims = axis_numbers.normalize_axis_tuple(axes, mat.ndim)
    full = broadcast_batches(mat)
    n, n_sparse = full.n_batch, full.n_sparse
    data, indices = full.data, full.indices
    data = data.sum(tuple([i - n_sparse + 1 for i in dims if i >= n + n_sparse]),
                    dtype=data.dtype)
    if n_sparse:
        inside = is_inside(indices, full.layout.sparse)
        data = jnp.where(inside.reshape(*inside.shape, *[1] * (data.ndim - n - 1)), data, 0)
    left = [i for i in range(n_sparse) if i + n not in dims]
    indices = jnp.stack([indices[..., i] for i in left], -1) if left else \
        indices[..., :0]
    batch = [i for i in range(n) if i not in dims]
    summed = [i for i in range(n) if i in dims]
    if summed:  # these elements are stored one after the other
        sizes = [full.shape[i] for i in batch]
        data = data.transpose(*batch, *summed, *range(n, data.ndim)).reshape(
            *sizes, -1 if data.size else 0, *data.shape[n + 1:])
        indices = indices.transpose(*batch, *summed, n, n + 1).reshape(
            *sizes, data.shape[len(sizes)], len(left))
    shape = tuple([size for i, size in enumerate(mat.shape) if i not in dims])
    return BCOO((data, indices), shape=shape)


@public_api
def sum_axes(mat: BCOO, axis: int | Sequence[int] | None) -> Any:
    """Return the sum over axes: a BCOO, or an Array if no axis is left."""
    if axis is None:
        dims: tuple[int, ...] = tuple(range(mat.ndim))
    else:
        dims = axis_numbers.normalize_axis_tuple(
            axis if isinstance(axis, Sequence) else [axis], mat.ndim)
    out = bcoo_reduce_sum(mat, axes=dims)
    return out.data.sum(dtype=out.data.dtype) if not out.ndim else out



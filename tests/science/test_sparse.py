"""``experimental.sparse``: every operation is that of the dense array, for every layout."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fnx
import fnx.numpy as jnp
import fnx.random as random
from fnx.core.support.errors import ArgumentError, NotBuiltError, ShapeError, TracedValueError
from fnx.experimental import sparse
from fnx.experimental.sparse import BCOO, BCSR

RNG = np.random.default_rng(0)
LAYOUTS = [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (1, 1)]


def numbers(*shape: int) -> np.ndarray:
    x = RNG.normal(size=shape).astype(np.float32)
    return np.where(RNG.uniform(size=shape) < 0.5, x, 0)


def close(found: Any, want: Any) -> None:
    np.testing.assert_allclose(np.asarray(sparse.todense(found)), want, rtol=1e-5, atol=1e-5)


A, B, V, D = numbers(4, 5), numbers(4, 5), numbers(5), numbers(5, 3)


@pytest.mark.cases(1)
@pytest.mark.parametrize("n_batch, n_dense", LAYOUTS)
def test_operations_of_every_layout(n_batch: int, n_dense: int) -> None:
    a, b = [BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense) for x in (A, B)]
    assert (a.n_batch, a.n_sparse, a.n_dense) == (n_batch, 2 - n_batch - n_dense, n_dense)
    close(a, A)
    close(a @ V, A @ V)
    close(a @ D, A @ D)
    close(V[:4] @ a, V[:4] @ A)
    close(a * V, A * V)
    close(2 * a / 3, 2 * A / 3)
    close(a * b, A * B)
    close(a + b, A + B)
    close(a - b, A - B)
    close((a + b).sum_duplicates(), A + B)
    close(abs(-(a + a)) ** 2, 4 * A ** 2)
    close(a + B, A + B)
    close(a.reshape(2, 2, 5), A.reshape(2, 2, 5))
    close(sparse.bcoo_rev(a, (0, 1)), A[::-1, ::-1])
    close(sparse.bcoo_extract(a, B), np.where(a._with_data(a.data * 0 + 1).todense() != 0, B, 0))
    for axis in (None, 0, 1):
        close(a.sum(axis), A.sum(axis))
    for item in (0, -1, slice(1, 3), (slice(0, 4, 2), slice(None, None, -2)), (..., 2), (None, 1)):
        close(a[item], A[item])
    for axis in (0, 1)[:2 - n_dense]:
        close(sparse.bcoo_concatenate([a, b], dimension=axis), np.concatenate([A, B], axis))
    for other in LAYOUTS[:4]:
        close(a.update_layout(n_batch=other[0], n_dense=other[1], on_inefficient=None), A)


@pytest.mark.cases(2)
@pytest.mark.parametrize("n_batch, n_dense", LAYOUTS[:3])
def test_derivatives_are_those_of_the_dense_array(n_batch: int, n_dense: int, float64: None
                                                  ) -> None:
    a = BCOO.fromdense(A.astype(np.float64), n_batch=n_batch, n_dense=n_dense)

    def f(m: Any, d: Any) -> Any:
        return jnp.sum(jnp.sin(m @ d))
    found = sparse.grad(f, (0, 1))(a, jnp.asarray(D, "float64"))
    want = fnx.grad(f, (0, 1))(a.todense(), jnp.asarray(D, "float64"))
    close(found[0], np.asarray(sparse.bcoo_extract(a, want[0]).todense()))
    close(found[1], want[1])
    jacobian = sparse.jacrev(lambda m: m @ V)(a)
    close(jacobian, np.asarray(sparse.jacfwd(lambda m: m @ V)(a).todense()))


@pytest.mark.cases(2, of="products")
def test_general_products() -> None:
    a, b = BCOO.fromdense(A), BCOO.fromdense(B)
    for dims in ((([1], [1]), ([], [])), (([], []), ([], [])), (([1], [1]), ([0], [0])),
                 (([0, 1], [0, 1]), ([], [])), (([], []), ([0], [0]))):
        want = np.asarray(fnx.lax.dot_general(A, B, dims))
        for left, right in ((a, B), (A, b), (a, b), (A, B)):
            close(sparse.bcoo_dot_general(left, right, dimension_numbers=dims), want)
        if want.ndim >= 2:
            at = np.argwhere(np.ones(want.shape))[::3].astype(np.int32)
            values = sparse.bcoo_dot_general_sampled(A, B, at, dimension_numbers=dims)
            close(values, want[tuple(at.T)])
    close(a @ BCOO.fromdense(D), A @ D)


def test_transforms() -> None:
    stack = numbers(3, 4, 5)
    mats = BCOO.fromdense(stack, n_batch=1)
    close(fnx.vmap(lambda m, v: m @ v, in_axes=(0, None))(mats, V), stack @ V)
    close(fnx.vmap(lambda m: m * 2.0)(mats), stack * 2)
    close(fnx.jit(lambda m: (m + m.T.T).T)(BCOO.fromdense(A)), 2 * A.T)
    close(mats @ np.ones((3, 5, 2), np.float32), stack @ np.ones((3, 5, 2)))
    doubled = fnx.tree.map(lambda x: x * 2 if x.dtype == np.float32 else x, mats)
    assert isinstance(doubled, BCOO) and doubled.shape == (3, 4, 5)
    with pytest.raises(TracedValueError, match="nse"):
        fnx.jit(BCOO.fromdense)(A)
    close(fnx.jit(lambda x: BCOO.fromdense(x, nse=20) @ V)(A), A @ V)


@pytest.mark.cases(1)
@pytest.mark.parametrize("n_batch", [0, 1])
def test_compressed_rows(n_batch: int) -> None:
    x = numbers(*(2,) * n_batch, 4, 5)
    m = BCSR.fromdense(x, n_batch=n_batch)
    close(m, x)
    close(m @ V, x @ V)
    close(m.to_bcoo(), x)
    close(-m, -x)
    close(BCSR.fromdense(x, n_batch=n_batch, nse=18), x)
    close(sparse.bcsr_concatenate([m, m], dimension=n_batch), np.concatenate([x, x], n_batch))
    if not n_batch:
        close(sparse.bcsr_extract(m.indices, m.indptr, B), B[np.nonzero(x)])
        close(V[:4] @ m, V[:4] @ x)
        close(m[1:3], x[1:3])
        close(BCSR.from_scipy_sparse(scipy.sparse.csr_matrix(x)).sum_duplicates(), x)


@pytest.mark.parametrize("kind", [sparse.COO, sparse.CSR, sparse.CSC])
def test_plain_formats(kind: Any) -> None:
    m = kind.fromdense(A)
    close(m, A)
    close(m @ V, A @ V)
    close(m.T, A.T)
    close(fnx.jit(lambda m, d: m @ d)(m, D), A @ D)


@pytest.mark.parametrize("form", ["bcoo", "bcsr", "coo", "csr", "csc"])
def test_diagonals_and_nothing(form: Any) -> None:
    for k in (0, 2, -1, 9):
        close(sparse.eye(3, 4, k, sparse_format=form), np.eye(3, 4, k))
    close(sparse.empty((3, 4), sparse_format=form), np.zeros((3, 4)))


@pytest.mark.cases(2, of="products")
def test_duplicates_and_padding() -> None:
    indices = np.asarray([[1, 1], [0, 2], [1, 1], [4, 5], [0, 0]], np.int32)
    m = BCOO((np.asarray([1, 2, 3, 99, 5], np.float32), indices), shape=(4, 5))
    want = np.zeros((4, 5))
    want[1, 1], want[0, 2], want[0, 0] = 4, 2, 5
    for found in (m, m.sum_duplicates(), m.sort_indices(), m.sum_duplicates(nse=7),
                  m.T.T, m.update_layout(n_batch=1, on_inefficient=None), m[:]):
        close(found, want)
    assert m.sum_duplicates().nse == 3 and float(m.sum()) == 11
    close(m @ V, want @ V)
    close(m * m, want * want)


def test_random_ones_and_scipy() -> None:
    m = sparse.random_bcoo(random.key(0), (6, 7), nse=0.3, sorted_indices=True)
    assert m.nse == 13 and len({tuple(row) for row in m.indices.tolist()}) == 13
    close(BCOO.from_scipy_sparse(scipy.sparse.coo_matrix(A)), A)


def test_names_of_classes() -> None:
    assert repr(BCOO.fromdense(np.eye(2, dtype=np.float32), n_batch=1)) == \
        "BCOO(float32[2, 2], nse=1, n_batch=1)"
    assert repr(fnx.tree.map(lambda x: None, BCOO.fromdense(A))) == "BCOO(<invalid>)"


def test_bad_input() -> None:
    a = BCOO.fromdense(A)
    for act, kind, part in (
            (lambda: BCOO((np.ones(2), np.zeros((3, 2), int)), shape=(2, 2)), ShapeError, "nse"),
            (lambda: BCOO((np.ones(2), np.ones((2, 2))), shape=(2, 2)), ShapeError, "integer"),
            (lambda: a + np.ones((2, 4, 5)), NotBuiltError, "todense"),
            (lambda: a / a, NotBuiltError, "division"),
            (lambda: a * np.ones((3, 4, 5)), ShapeError, "broadcasts"),
            (lambda: a @ np.ones(4), ShapeError, "as long as"),
            (lambda: a[9], IndexError, "index < 4"),
            (lambda: a.update_layout(n_batch=1), sparse.SparseEfficiencyError, "zeros"),
            (lambda: a.reshape(3, 3), ShapeError, "20 elements"),
            (lambda: sparse.bcoo_todense(A), ArgumentError, "fromdense"),  # type: ignore
            (lambda: sparse.eye(2, sparse_format="xyz"), ArgumentError, "bcoo")):  # type: ignore
        with pytest.raises(kind, match=part):
            act()


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_transposes(axes: tuple[int, ...]) -> None:
    x = numbers(2, 3, 4)
    close(BCOO.fromdense(x).transpose(axes), x.transpose(axes))


@pytest.mark.cases(1)
@pytest.mark.parametrize("n_batch, n_dense", LAYOUTS[:3])
def test_functions_of_dense_arrays(n_batch: int, n_dense: int) -> None:
    a, b = [BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense) for x in (A, B)]
    functions: list[Any] = [
        lambda a: -(jnp.sin(a) @ V) * 2, lambda a: a @ D, lambda a: V[:4] @ a,
        lambda a: jnp.einsum("ij,jk->ki", a, D), lambda a: (a * a + a ** 3).sum(0) / 2,
        lambda a: a.sum(), lambda a: (a * V).sum(1), lambda a: a[1:3, ::-1], lambda a: a[2],
        lambda a: fnx.nn.relu(a) @ V, lambda a: fnx.jit(lambda x: jnp.tanh(x) * 2)(a),
        lambda a: a / 3 + B, lambda a: ((a @ V) - 1) ** 2, lambda a: a.astype("int32")]
    for f in functions:
        close(sparse.sparsify(f)(a), np.asarray(f(jnp.asarray(A))))
    for g in (lambda a, b: a + 2 * b, lambda a, b: a * b - a, lambda a, b: (a * b).sum(),
              lambda a, b: jnp.stack([a, b])[1]):
        close(sparse.sparsify(g)(a, b), np.asarray(g(jnp.asarray(A), jnp.asarray(B))))
    weights = sparse.grad(sparse.sparsify(lambda a, v: jnp.sum(jnp.tanh(a @ v))), 1)(a, V)
    close(weights, fnx.grad(lambda v: jnp.sum(jnp.tanh(jnp.asarray(A) @ v)))(V))
    close(sparse.sparsify(lambda a: (jnp.exp(a) - 1) @ V)(a), (np.exp(A) - 1) @ V)
    for f in (jnp.exp, lambda a: 1 / a, lambda a: a + 1):
        with pytest.raises(NotBuiltError, match="todense"):
            sparse.sparsify(f)(a)


def test_products_of_sparse_arrays_by_sparsify() -> None:
    found = sparse.sparsify(lambda a, b: a @ b)(BCOO.fromdense(A), BCOO.fromdense(D))
    assert isinstance(found, BCOO)
    close(found, A @ D)
    rows = sparse.sparsify(lambda m, v: m @ v)(BCSR.fromdense(A), V)
    close(rows, A @ V)


@pytest.mark.cases(2, of="products")
def test_gather_and_convolution() -> None:
    a, places = BCOO.fromdense(A), np.asarray([[3, 1], [0, 2]])
    roles = fnx.lax.GatherDimensionNumbers((1,), (0,), (0, 1))
    close(sparse.bcoo_gather(a, places, roles, (1, 2)), fnx.lax.gather(A, places, roles, (1, 2)))
    x, k = numbers(1, 1, 9), numbers(1, 1, 4)
    for padding in ("SAME", "VALID", [(2, 0)]):
        want = fnx.lax.conv_general_dilated(x, k, (1,), padding)
        for left, right in ((BCOO.fromdense(x), BCOO.fromdense(k)), (x, BCOO.fromdense(k))):
            close(sparse.bcoo_conv_general_dilated(left, right, window_strides=(1,),
                                                   padding=padding), want)

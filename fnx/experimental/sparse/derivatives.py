"""Derivatives with respect to sparse arrays: by their values, at their coordinates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.support.errors import ArgumentError
from fnx.experimental.sparse.base import JAXSparse
from fnx.transforms import grad as dense_grad
from fnx.transforms import jacobian as dense_jacobian

__all__ = ["grad", "jacfwd", "jacobian", "jacrev", "value_and_grad"]


def _is_sparse(x: Any) -> bool:
    return isinstance(x, JAXSparse)


class _Values:
    """The arguments of a call, whose sparse arrays are replaced by their values."""

    def __init__(self, args: tuple[Any, ...], argnums: int | Sequence[int]) -> None:
        self.one = isinstance(argnums, int)
        numbers = [argnums] if isinstance(argnums, int) else list(argnums)
        if any(not -len(args) <= i < len(args) for i in numbers):
            raise ArgumentError(f"expected argnums below {len(args)}, got {argnums}")
        self.args, self.numbers = args, [i % len(args) for i in numbers]
        self.values = [tree.map(lambda x: x.data if _is_sparse(x) else x, args[i],
                                is_leaf=_is_sparse) for i in self.numbers]

    def merge(self, values: Sequence[Any]) -> list[Any]:
        """Return the arguments with other values."""
        args = list(self.args)
        for i, new in zip(self.numbers, values):
            args[i] = tree.map(lambda x, data: _replace(x, data) if _is_sparse(x) else data,
                               args[i], new, is_leaf=_is_sparse)
        return args

    def results(self, derivatives: Sequence[Any]) -> Any:
        """Return derivatives by values as sparse arrays like the arguments."""
        out = [tree.map(lambda x, data: _replace(x, data) if _is_sparse(x) else data,
                        self.args[i], new, is_leaf=_is_sparse)
               for i, new in zip(self.numbers, derivatives)]
        return out[0] if self.one else tuple(out)


def _replace(mat: JAXSparse, data: Any) -> Any:
    """Return a sparse array with other values; those with more axes in front are batches."""
    (old, *rest), static = mat.tree_flatten()
    extra = data.ndim - old.ndim
    for buffer in range(len(rest)):
        for _ in range(extra):
            rest[buffer] = rest[buffer][None]
    if extra:
        shape = (*data.shape[:extra], *mat.shape)
        return type(mat)((data, *rest), shape=shape)
    return type(mat).tree_unflatten(static, (data, *rest))  # type: ignore[attr-defined]


def _by_values(fun: Callable[..., Any], args: tuple[Any, ...], argnums: int | Sequence[int],
               ) -> tuple[_Values, Callable[..., Any]]:
    values = _Values(args, argnums)

    def f(*new: Any, **kwargs: Any) -> Any:
        return fun(*values.merge(new), **kwargs)
    return values, f


def value_and_grad(fun: Callable[..., Any], argnums: int | Sequence[int] = 0,
                   has_aux: bool = False, **kwargs: Any) -> Callable[..., tuple[Any, Any]]:
    """Return a function that computes a value and its gradient, at the places of sparse arrays.

    Args:
        fun: returns a real scalar.
        argnums: the arguments to differentiate by.
        has_aux: whether ``fun`` returns a pair (scalar, aux).
        kwargs: further arguments of ``fnx.value_and_grad``.

    Returns:
        A function that returns (value, gradients); gradients by a sparse array are sparse.

    Raises:
        ArgumentError: ``argnums`` is out of range.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.BCOO.fromdense(jnp.arange(3.0))
    >>> sparse.value_and_grad(lambda M, y: M @ y)(M, jnp.ones(3))
    (Array(3., dtype=float32), BCOO(float32[3], nse=2))
    """
    @functools.wraps(fun)
    def call(*args: Any, **named: Any) -> tuple[Any, Any]:
        values, f = _by_values(fun, args, argnums)
        numbers = tuple(range(len(values.numbers)))
        out, gradients = dense_grad.value_and_grad(f, numbers, has_aux, **kwargs)(
            *values.values, **named)
        return out, values.results(gradients)
    return call


def grad(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
         **kwargs: Any) -> Callable[..., Any]:
    """Return a function that computes the gradient, at the places of sparse arrays.

    Args:
        fun: returns a real scalar.
        argnums: the arguments to differentiate by.
        has_aux: whether ``fun`` returns a pair (scalar, aux).
        kwargs: further arguments of ``fnx.grad``.

    Returns:
        A function that returns gradients; those by a sparse array are sparse.

    Raises:
        ArgumentError: ``argnums`` is out of range.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental import sparse
    >>> M = sparse.BCOO.fromdense(jnp.asarray([0.0, 2.0, 3.0]))
    >>> print(sparse.grad(lambda M: (M * M).sum())(M).data)
    [4. 6.]
    """
    both = value_and_grad(fun, argnums, has_aux, **kwargs)

    @functools.wraps(fun)
    def call(*args: Any, **named: Any) -> Any:
        out, gradients = both(*args, **named)
        return (gradients, out[1]) if has_aux else gradients
    return call


_docstr = DocTemplate(
    fun="returns one dense array.", has_aux="whether ``fun`` returns a pair (array, aux).",
    argnums="the arguments to differentiate by.",
    kwargs="further arguments of the function of that name in ``fnx``.",
    returns="A function that returns Jacobians; those by a sparse array are sparse.",
    imports="fnx.numpy as jnp, fnx.experimental.sparse as sparse", wrap=lambda f: f)


@_docstr.family()
def _jacobian(transform: Callable[..., Any], /, fun: Callable[..., Any],
              argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
              ) -> Callable[..., Any]:
    @functools.wraps(fun)
    def call(*args: Any, **named: Any) -> Any:
        values, f = _by_values(fun, args, argnums)
        numbers = tuple(range(len(values.numbers)))
        out = transform(f, numbers, has_aux=has_aux, **kwargs)(*values.values, **named)
        derivatives, aux = out if has_aux else (out, None)
        results = values.results(derivatives)
        return (results, aux) if has_aux else results
    return call


jacfwd = _jacobian(
    dense_jacobian.jacfwd, "jacfwd",
    "Return a function that computes the Jacobian by forward mode, at the places of sparse arrays.",
    "sparse.jacfwd(lambda M: M @ jnp.ones(2))(sparse.BCOO.fromdense(jnp.eye(2))).data.shape",
    "(2, 2)")
jacobian = jacrev = _jacobian(
    dense_jacobian.jacrev, "jacrev",
    "Return a function that computes the Jacobian by reverse mode, at the places of sparse arrays.",
    "sparse.jacrev(lambda M: M @ jnp.ones(2))(sparse.BCOO.fromdense(jnp.eye(2))).data.shape",
    "(2, 2)")

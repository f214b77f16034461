"""Operations of JAX's that are several ops here stand in jaxprs as JAX's primitives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.jaxprs.evaluate import eval_jaxpr
from fnx.jaxprs.syntax import Jaxpr, JaxprEqn, Literal, jaxprs_in_params

X = jnp.arange(12.0).reshape(3, 4) / 7
I = jnp.array([2, 0])  # noqa: E741
ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))
UPDATES = lax.ScatterDimensionNumbers((1,), (0,), (0,))


def equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jaxprs_in_params(eqn.params):
            yield from equations(inner)


CASES: list[tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    ("integer_pow", lambda x: x ** 3, (X,), {"y": 3}),
    ("integer_pow", lambda x: lax.integer_pow(x, -2), (X + 1,), {"y": -2}),
    ("clamp", lambda x: lax.clamp(0.2, x, 1.0), (X,), {}),
    ("dynamic_slice", lambda x, k: lax.dynamic_slice(x, (k, 1), (1, 2)), (X, -1),
     {"slice_sizes": (1, 2)}),
    ("dynamic_slice", lambda x, k: lax.dynamic_index_in_dim(x, k, 1), (X, 9),
     {"slice_sizes": (3, 1)}),
    ("dynamic_update_slice", lambda x, k: lax.dynamic_update_slice(x, X[:1, :2], (k, 1)), (X, 7),
     {}),
    ("gather", lambda x, i: x[i], (X, I), {"slice_sizes": (1, 4)}),
    ("gather", lambda x, i: x[:, i], (X, I), {"slice_sizes": (3, 1)}),
    ("gather", lambda x, i: x[i, i], (X, I), {"slice_sizes": (1, 1)}),
    ("gather", lambda x, i: lax.gather(x, i[:, None], ROWS, (1, 4), mode="fill", fill_value=3.0),
     (X, I * 2), {"dimension_numbers": ROWS, "mode": lax.GatherScatterMode.FILL_OR_DROP}),
    ("scatter", lambda x, i: x.at[i].set(0.0), (X, I),
     {"dimension_numbers": UPDATES, "indices_are_sorted": False}),
    ("scatter-add", lambda x, i: x.at[i].add(1.0), (X, I), {"dimension_numbers": UPDATES}),
    ("scatter-mul", lambda x, i: lax.scatter_mul(x, i[:, None], X[:2], UPDATES), (X, I),
     {"dimension_numbers": UPDATES}),
    ("scatter-max", lambda x, i: x.at[i].max(0.5), (X, I), {}),
    ("conv_general_dilated", lambda x, w: lax.conv_general_dilated(x, w, (2,), "SAME"),
     (X[None], jnp.ones((2, 3, 2))), {"window_strides": (2,), "padding": ((0, 0),)}),
    ("cumsum", lambda x: jnp.cumsum(x, 1), (X,), {"axis": 1, "reverse": False}),
    ("cumprod", lambda x: lax.cumprod(jnp.tile(x, (9, 1)), reverse=True), (X,), {"axis": 0}),
    ("reduce_precision", lambda x: lax.reduce_precision(x, 5, 4), (X,), {"mantissa_bits": 4}),
    ("optimization_barrier", lambda x: lax.optimization_barrier(x) * 2, (X,), {}),
    ("cholesky", lambda x: lax.linalg.cholesky(x @ x.T + jnp.eye(3)), (X,), {}),
    ("triangular_solve", lambda x: lax.linalg.triangular_solve(jnp.eye(3) + x[:, :3], x, lower=True,
                                                               left_side=True),
     (X,), {"lower": True, "left_side": True, "transpose_a": False}),
    ("random_bits", lambda k: fnx.random.normal(k, (3,)), (fnx.random.key(1),),
     {"bit_width": 32, "shape": (3,)}),
    ("random_split", lambda k: fnx.random.key_data(fnx.random.split(k)), (fnx.random.key(1),),
     {"shape": (2,)}),
    ("random_fold_in", lambda k: fnx.random.uniform(fnx.random.fold_in(k, 4)),
     (fnx.random.key(1),), {}),
    ("square", lambda x: jnp.square(x), (X,), {}),
    ("split", lambda x: sum(jnp.split(x, [1, 3], 1)[::2]), (X,), {"sizes": (1, 2, 1), "axis": 1}),
    ("split", lambda x: jnp.subtract(*lax.split(x, (1, 2))), (X,), {"sizes": (1, 2), "axis": 0}),
    ("unstack", lambda x: sum(jnp.unstack(x, axis=1)), (X,), {"axis": 1}),
    ("stack", lambda x: jnp.stack([x, x + 1], -1), (X,), {"axis": 2}),
    ("tile", lambda x: jnp.tile(x, (2, 1)), (X,), {"reps": (2, 1)}),
    ("top_k", lambda x: lax.top_k(x, 2)[1], (X,), {"k": 2, "axis": 1}),
    ("top_k", lambda x: lax.top_k(x, 1, axis=0)[0], (X,), {"k": 1, "axis": 0}),
    ("sort", lambda x: jnp.argsort(x), (X,), {"num_keys": 1, "dimension": 1}),
    ("slice", lambda x: x[::2, 1::2], (X,),
     {"start_indices": (0, 1), "limit_indices": (3, 4), "strides": (2, 2)}),
    ("reduce_window_max", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), "SAME"),
     (X,), {"window_dimensions": (2, 2), "padding": ((0, 1), (0, 0))}),
    ("reduce_window_sum", lambda x: lax.reduce_window(x, 0.0, lambda a, b: a + b, (2, 1)), (X,),
     {"window_strides": (1, 1), "base_dilation": (1, 1)}),
    ("fft", lambda x: jnp.fft.fft2(x), (X,), {"fft_type": 0, "fft_lengths": (3, 4)}),
    ("fft", lambda x: jnp.fft.irfft(x), (X,),
     {"fft_type": 3, "fft_lengths": (6,)}),
    ("population_count", lambda i: lax.population_count(i), (I,), {}),
    ("clz", lambda i: lax.clz(i), (I,), {}),
    ("zeta", lambda x: lax.zeta(x + 2, 1.5), (X,), {}),
    ("polygamma", lambda x: lax.polygamma(1.0, x + 1), (X,), {}),
    ("igamma", lambda x: lax.igamma(0.5, x), (X,), {}),
    ("igammac", lambda x: lax.igammac(x + 1, 0.5), (X,), {}),
    ("regularized_incomplete_beta", lambda x: lax.betainc(1.5, x + 1, 0.5), (X,), {}),
    ("cumlogsumexp", lambda x: lax.cumlogsumexp(x, axis=1), (X,), {"axis": 1, "reverse": False}),
    ("random_seed", lambda s: fnx.random.bits(fnx.random.key(s)), (5,), {}),
]


NAMED: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("psum", lambda x: lax.psum(x, "i"), {"axes": ("i",), "axis_index_groups": None}),
    ("psum", lambda x: lax.pmean(x, ("i", "j")), {"axes": ("i", "j")}),
    ("pmax", lambda x: lax.pmax(x, "i", axis_index_groups=[[0], [1]]),
     {"axis_index_groups": ((0,), (1,))}),
    ("all_gather", lambda x: lax.all_gather(x, "i", axis=1),
     {"all_gather_dimension": 1, "axis_name": ("i",), "axis_size": 2, "tiled": False}),
    ("reduce_scatter", lambda x: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
     {"axis_name": ("i",), "scatter_dimension": 1, "tiled": True}),
    ("ppermute", lambda x: lax.ppermute(x, "i", [(0, 1)]),
     {"axis_name": ("i",), "perm": ((0, 1),)}),
    ("all_to_all", lambda x: lax.all_to_all(x, "i", 1, 0, tiled=True),
     {"split_axis": 1, "concat_axis": 0, "tiled": True}),
    ("axis_index", lambda x: x + lax.axis_index("i"), {"axis_name": "i"}),
]


@pytest.mark.parametrize(("name", "f", "params"), NAMED)
def test_a_collective_is_an_equation(name: str, f: Callable[..., Any], params: dict[str, Any]
                                     ) -> None:
    closed = fnx.make_jaxpr(f, axis_env=[("i", 2), ("j", 3)])(X)
    found = [eqn for eqn in closed.eqns if eqn.primitive.name == name]
    assert len(found) == 1, closed
    assert params.items() <= found[0].params.items()

    def mapped(g: Callable[..., Any]) -> Any:
        return fnx.vmap(fnx.vmap(g, axis_name="j"), axis_name="i")(
            jnp.arange(72.0).reshape(2, 3, 3, 4))
    np.testing.assert_array_equal(
        np.asarray(mapped(lambda x: eval_jaxpr(closed.jaxpr, closed.consts, x)[0])),
        np.asarray(mapped(f)))


def test_all_results_of_an_operation_are_of_one_equation() -> None:
    closed = fnx.make_jaxpr(lambda x: [*lax.top_k(x, 2), *jnp.split(x, 2, 1)])(X)
    assert [eqn.primitive.name for eqn in closed.eqns] == ["top_k", "split"]
    assert [len(eqn.outvars) for eqn in closed.eqns] == [2, 2]
    for got, expected in zip(eval_jaxpr(closed.jaxpr, closed.consts, X),
                             [*lax.top_k(X, 2), *jnp.split(X, 2, 1)]):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


@pytest.mark.cases(14)
@pytest.mark.parametrize("inside", ["", "jit", "scan"])
@pytest.mark.parametrize(("name", "f", "args", "params"), CASES)
def test_an_operation_is_an_equation(name: str, f: Callable[..., Any], args: tuple[Any, ...],
                                     params: dict[str, Any], inside: str) -> None:
    def in_scan(*args: Any) -> Any:
        return lax.scan(lambda c, _: (c, f(*args)), 0.0, length=2)[1]
    g = {"": f, "jit": fnx.jit(lambda *args: f(*args)), "scan": in_scan}[inside]
    closed = fnx.make_jaxpr(g)(*args)
    found = [eqn for eqn in equations(closed.jaxpr) if eqn.primitive.name == name]
    assert len(found) == 1, closed
    assert params.items() <= found[0].params.items()
    got = eval_jaxpr(closed.jaxpr, closed.consts, *args)
    np.testing.assert_array_equal(np.asarray(got[0]), np.asarray(fnx.tree.leaves(g(*args))[0]))


def test_values_that_are_derived_are_no_operations() -> None:
    closed = fnx.make_jaxpr(fnx.vmap(lambda x: x ** 3))(X)
    # square: the equal node of another program that is alive
    assert {eqn.primitive.name for eqn in closed.eqns} <= {"mul", "integer_pow", "square"}
    again = fnx.make_jaxpr(fnx.grad(lambda x: jnp.sum(x[I] ** 3)))(X)
    names = [eqn.primitive.name for eqn in again.eqns]
    assert "gather" in names and "scatter-add" in names
    np.testing.assert_allclose(np.asarray(eval_jaxpr(again.jaxpr, again.consts, X)[0]),
                               np.asarray(fnx.grad(lambda x: jnp.sum(x[I] ** 3))(X)), rtol=1e-6)


def test_an_equal_node_may_be_older_than_an_operand_or_of_another_graph() -> None:
    """The start along an axis that is taken whole does not matter, so both slices are one node."""
    def start_from_the_slice(x: Any) -> Any:
        i = x[:, 1:3].sum().astype(jnp.int32)
        return lax.dynamic_slice(x, (i, 1), (3, 2)) + i
    closed = fnx.make_jaxpr(start_from_the_slice)(X)
    np.testing.assert_array_equal(eval_jaxpr(closed.jaxpr, closed.consts, X)[0],
                                  start_from_the_slice(X))

    other = fnx.jit(lambda x, i: lax.dynamic_slice(x, (i, 1), (3, 2),
                                                   allow_negative_indices=False))
    other(X, 0)  # a live program with the node, and a parameter more
    closed = fnx.make_jaxpr(fnx.jit(lambda x: x[:, 1:3]))(X)
    names = [eqn.primitive.name for eqn in equations(closed.jaxpr)]
    assert "slice" in names and "dynamic_slice" not in names
    np.testing.assert_array_equal(eval_jaxpr(closed.jaxpr, closed.consts, X)[0], X[:, 1:3])


def test_an_interpreter_meets_the_primitives() -> None:
    """As that of JAX's documentation: it replaces one primitive by another."""
    closed = fnx.make_jaxpr(lambda x, k: lax.dynamic_slice(x, (k, 0), (1, 4)) ** 3)(X, 1)

    def run(x: Any, k: Any) -> Any:
        env = dict(zip(closed.jaxpr.invars, (x, k)))
        for eqn in closed.eqns:
            values = [v.val if isinstance(v, Literal) else env[v] for v in eqn.invars]
            if eqn.primitive is lax.integer_pow_p:
                out = values[0] ** (eqn.params["y"] + 1)
            else:
                out = eqn.primitive.bind(*values, **eqn.params)
            env[eqn.outvars[0]] = out
        return env[closed.jaxpr.outvars[0]]
    np.testing.assert_allclose(np.asarray(fnx.jit(run)(X, 2)), np.asarray(X[2:] ** 4), rtol=1e-6)

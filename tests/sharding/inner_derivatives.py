"""Derivatives inside of functions of shards, which fnx and JAX can both run.

``python scripts/compare_shards.py 30 --record`` writes what JAX gives for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Body = Callable[[Any, Any, Any], Any]  # of (library, w, x)


def _loss(lib: Any) -> Callable[[Any, Any], Any]:
    return lambda w, x: lib.numpy.mean(lib.numpy.tanh(x @ w) ** 2)


def _total(lib: Any, x: Any) -> Any:
    return lib.lax.psum(lib.numpy.sum(x), "a")


def _scan(lib: Any, step: Callable[[Any, Any], Any], first: Any, rows: Any) -> Any:
    return lib.lax.scan(lambda c, row: (step(c, row), None), first, rows)[0]


def _two_carries(lib: Any, w: Any, x: Any) -> Any:
    same, other = _scan(lib, lambda c, row: (c[0] * w.sum(), c[1] + row * w),
                        (w.sum(), x[0] * 0), x)
    return same + _total(lib, other)


def _where(lib: Any, x: Any) -> Any:
    return lib.numpy.where(x > 0, lib.numpy.sqrt(lib.numpy.abs(x)), 0.0).sum()


# w is the same on all shards, x is partitioned over axis "a" of a mesh of 4 x 2.
OF_W: dict[str, Body] = {
    "loss of a shard": lambda lib, w, x: lib.grad(_loss(lib))(w, x),
    "mean of gradients": lambda lib, w, x: lib.lax.pmean(lib.grad(_loss(lib))(w, x), "a"),
    "mean of those of the shards": lambda lib, w, x: lib.lax.pmean(
        lib.grad(_loss(lib))(lib.lax.pcast(w, "a", to="varying"), x), "a"),
    "cast within": lambda lib, w, x: lib.grad(
        lambda w: _loss(lib)(lib.lax.pcast(w, "a", to="varying"), x) + (w * w).sum())(w),
    "jitted": lambda lib, w, x: lib.jit(lib.grad(_loss(lib)))(w, x),
    "checkpointed": lambda lib, w, x: lib.grad(lib.checkpoint(_loss(lib)))(w, x),
    "summed loss": lambda lib, w, x: lib.grad(lambda w: _total(lib, _loss(lib)(w, x)))(w),
    "mean of losses": lambda lib, w, x: lib.grad(
        lambda w: lib.lax.pmean(_loss(lib)(w, x), ("a",)))(w),
    "with a penalty": lambda lib, w, x: lib.grad(
        lambda w: _total(lib, _loss(lib)(w, x)) + (w * w).sum())(w),
    "with a penalty of a shard": lambda lib, w, x: lib.grad(
        lambda w: _loss(lib)(w, x) + (w * w).sum())(w),
    "jitted parts": lambda lib, w, x: lib.jit(lib.grad(
        lambda w: _total(lib, lib.jit(_loss(lib))(w, x)) + lib.jit(lambda w: (w * w).sum())(w)))(w),
    "linear": lambda lib, w, x: lib.grad(lambda w: w.sum() + x.sum())(w),
    "scaled by a norm": lambda lib, w, x: lib.grad(
        lambda w: _loss(lib)(w / lib.numpy.sqrt(_total(lib, x * x)), x))(w),
    "sum of the same": lambda lib, w, x: lib.grad(lambda w: _total(lib, w * w))(w),
    "second order": lambda lib, w, x: lib.grad(
        lambda w: (lib.grad(_loss(lib))(w, x) ** 2).sum())(w),
    "pullback": lambda lib, w, x: lib.vjp(lambda w: x @ w, w)[1](x[:, 0])[0],
    "jacobian": lambda lib, w, x: lib.jacrev(
        lambda w: lib.lax.psum(lib.numpy.tanh(x @ w)[:2], "a"))(w),
    "hessian": lambda lib, w, x: lib.hessian(
        lambda w: _total(lib, _loss(lib)(w, x)) + (w ** 3).sum())(w),
    "scan": lambda lib, w, x: lib.grad(lambda w: _scan(
        lib, lambda c, row: c + lib.numpy.tanh(row @ w), x.sum() * 0, x))(w),
    "scan of sums": lambda lib, w, x: lib.grad(lambda w: _scan(
        lib, lambda c, row: c * 0.5 + (lib.lax.psum(row @ w, "a") * w).sum(), w.sum() * 0, x))(w),
    "scan of two carries": lambda lib, w, x: lib.grad(
        lambda w: _two_carries(lib, w, x))(w),
    "branches": lambda lib, w, x: lib.grad(lambda w: lib.lax.cond(
        x[0, 0] > 0, lambda: (x @ w).sum(), lambda: ((x @ w) ** 2).sum()))(w),
    "gathered": lambda lib, w, x: lib.grad(
        lambda w: (lib.lax.all_gather(x, "a") @ w).sum())(w),
    "chosen": lambda lib, w, x: lib.grad(
        lambda w: lib.lax.psum(_where(lib, x @ w), "a") + _where(lib, w))(w),
    "maximum": lambda lib, w, x: lib.grad(
        lambda w: lib.lax.psum((x * w).max(), "a") + w.max())(w),
}
OF_X: dict[str, Body] = {
    "distance from the mean": lambda lib, w, x: lib.grad(
        lambda x: ((x - lib.lax.pmean(x, "a")) ** 2 * x).sum())(x),
    "sum of sums": lambda lib, w, x: lib.grad(lambda x: _total(lib, lib.lax.psum(x, "a") + x))(x),
    "norm": lambda lib, w, x: lib.grad(lambda x: _total(lib, (x / _total(lib, x * x)) ** 3)
                                       + (lib.lax.psum(x, "a") ** 2).sum())(x),
    "second order": lambda lib, w, x: lib.grad(lambda x: (lib.grad(
        lambda y: (y * lib.lax.psum(y * y, "a")).sum())(x) ** 2).sum())(x),
    "gathered": lambda lib, w, x: lib.grad(lambda x: (lib.lax.all_gather(x, "a") ** 3).sum())(x),
    "shifted": lambda lib, w, x: lib.grad(lambda x: (lib.lax.ppermute(
        x, "a", [(i, (i + 1) % 4) for i in range(4)]) ** 2 * x).sum())(x),
    "scattered": lambda lib, w, x: lib.grad(lambda x: (lib.lax.psum_scatter(
        x, "a", scatter_dimension=0, tiled=True) ** 2).sum())(x),
    "exchanged": lambda lib, w, x: lib.grad(lambda x: (lib.lax.all_to_all(
        x, "a", 0, 0, tiled=True) ** 3 * w).sum())(x),
    "mapped": lambda lib, w, x: lib.vmap(
        lib.grad(lambda w, row: lib.numpy.tanh(row @ w)), (None, 0))(w, x),
    "mapped sums": lambda lib, w, x: lib.vmap(lib.grad(
        lambda w, row: lib.lax.psum(lib.numpy.tanh(row @ w), "a") + w.sum() ** 2), (None, 0))(w, x),
}
PROGRAMS = {**{f"w: {name}": (body, False) for name, body in OF_W.items()},
            **{f"x: {name}": (body, True) for name, body in OF_X.items()}}


def run(lib: Any, name: str) -> Any:
    """Run a program in a library with JAX's names (``jax`` or ``fnx``), on 8 devices."""
    body, is_partitioned = PROGRAMS[name]
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal(3).astype(np.float32), rng.standard_normal((16, 3), np.float32)
    mesh = lib.make_mesh((4, 2), ("a", "b"), axis_types=(lib.sharding.AxisType.Auto,) * 2)
    mapped = lib.shard_map(lambda w, x: body(lib, w, x), mesh=mesh, in_specs=(lib.P(), lib.P("a")),
                           out_specs=lib.P("a") if is_partitioned else lib.P())
    return np.asarray(lib.jit(mapped)(w, x))

"""Does fnx live beside other libraries? Each computes something small, in one process.

    make neighbours                              in an environment made for this
    python scripts/check_neighbours.py numba     these; by default all

PyMC and Numba compile through the same llvmlite as fnx, PyTorch and JAX bring their own compilers
and pools of threads. fnx computes before and after each of them; its answers must not change. A
library that is not installed is named, and the script fails.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp

X = np.linspace(0, 1, 1000, dtype=np.float32)


def with_numba(numba: Any) -> float:
    @numba.njit
    def total(x: Any) -> float:
        out = 0.0
        for value in x:
            out += value * value
        return out
    return float(total(X))


def with_pymc(pymc: Any) -> float:
    with pymc.Model():
        mean = pymc.Normal("mean")
        pymc.Normal("seen", mean, 1.0, observed=X)
        return float(pymc.find_MAP(progressbar=False)["mean"])


def with_torch(torch: Any) -> float:
    x = torch.from_dlpack(jnp.asarray(X))
    w = torch.zeros((), requires_grad=True)
    ((x * w - 1) ** 2).sum().backward()
    return float(w.grad)


def with_jax(jax: Any) -> float:
    return float(jax.jit(jax.grad(lambda w: ((w * X - 1) ** 2).sum()))(0.0))


NEIGHBOURS: dict[str, tuple[Callable[[Any], float], float]] = {  # name -> (what it does, answer)
    "numba": (with_numba, float((X.astype(float) ** 2).sum())),
    "pymc": (with_pymc, float(X.sum(dtype=float)) / 1001),
    "torch": (with_torch, -2 * float(X.sum(dtype=float))),
    "jax": (with_jax, -2 * float(X.sum(dtype=float))),
}


def with_fnx(case: int) -> list[float]:
    """Compute in a parallel kernel, its gradient, and a loop; a new graph in each case."""
    def f(x: Any) -> Any:
        return jnp.tanh(x @ x / 400).sum()

    x = jnp.asarray(np.resize(X, (400, 400)))
    value, gradient = fnx.value_and_grad(f)(x)
    last, _ = fnx.jit(lambda s: (fnx.lax.fori_loop(0, 10, lambda i, s: s * 1.5, s), s + case))(1.0)
    return [float(value), float(gradient.sum()), float(last)]


def main(names: list[str]) -> None:
    print(f"fnx {fnx.__version__}", *[f"{name} {metadata.version(name)}" for name in
                                      ("llvmlite", "numpy")], sep="\n")
    first = with_fnx(0)
    for i, name in enumerate(names or NEIGHBOURS):
        run, expected = NEIGHBOURS[name]
        got = run(importlib.import_module(name))
        np.testing.assert_allclose(got, expected, rtol=1e-4)
        np.testing.assert_array_equal(with_fnx(i + 1), first)
        print(f"{name} {metadata.version(name)}: computes, and fnx beside it")


if __name__ == "__main__":
    main(sys.argv[1:])

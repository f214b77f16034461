"""Compare Fourier transforms with JAX, both live: values, dtypes, tangents and cotangents.

    python scripts/compare_fft.py          with 32-bit types
    python scripts/compare_fft.py --x64    with 64-bit types

The norm of each difference is at most 8 eps of that of JAX's answer. JAX refuses real transforms of
16-bit floats, and scales those of idct in 16 bits; fnx computes both in float32. The exit status
says whether something differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.fft
import numpy as np

import fnx
import fnx.numpy
import fnx.scipy.fft

TRANSFORMS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2")
COSINES = ("dct", "idct", "dctn", "idctn")
ONE_AXIS = ({}, {"n": 9}, {"n": 4, "axis": 0}, {"axis": 1, "norm": "ortho"}, {"norm": "forward"})
AXES = ({}, {"s": (3, 6), "axes": (0, 2)}, {"axes": (-1, 0)}, {"norm": "ortho"})
OF_COSINES = ({}, {"norm": "ortho"})
DTYPES = ("int32", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
TAKES_REAL = ("rfft", "ihfft", "rfftn", "rfft2")


def calls() -> list[tuple[str, dict[str, Any]]]:
    return [*[(name, kw) for name in TRANSFORMS for kw in ONE_AXIS],
            *[(name, kw) for name in SEVERAL for kw in AXES if "2" not in name or
              len(kw.get("axes", (0, 1))) == 2],
            *[(name, kw) for name in COSINES for kw in OF_COSINES]]


def function(name: str, is_jax: bool) -> Callable[..., Any]:
    there = (jax.scipy.fft if is_jax else fnx.scipy.fft) if name in COSINES else \
        (jnp.fft if is_jax else fnx.numpy.fft)
    f: Callable[..., Any] = getattr(there, name)
    return f


def differ(got: Any, expected: Any) -> str:
    a, b = np.asarray(got), np.asarray(expected)
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{a.shape}, JAX {b.dtype}{b.shape}"
    eps = np.finfo(b.dtype).eps
    error = np.linalg.norm((a - b).ravel()) / max(float(np.linalg.norm(b.ravel())), 1e-30)
    return "" if error <= 8 * eps else f"error {error / eps:.1f} eps"


def main() -> int:
    wide = "--x64" in sys.argv
    jax.config.update("jax_enable_x64", wide)
    rng = np.random.default_rng(0)
    wrong = total = 0
    with fnx.enable_x64(wide):
        for name, kw in calls():
            for dtype in DTYPES:
                if name.startswith("idct") and "16" in dtype or \
                        not wide and dtype in ("float64", "complex128") or \
                        name in TAKES_REAL and ("complex" in dtype or "16" in dtype):
                    continue
                data = 3 * rng.standard_normal((4, 6, 5)) + 3j * rng.standard_normal((4, 6, 5))
                x = (data if "complex" in dtype else data.real).astype(jnp.dtype(dtype))
                theirs, ours = (lambda x, f=function(name, j), kw=kw: f(x, **kw)
                                for j in (True, False))
                a, b = fnx.numpy.asarray(x), jnp.asarray(x)
                expected = theirs(b)
                found = {"value": differ(ours(a), expected), "jit": differ(fnx.jit(ours)(a),
                                                                          expected)}
                if "int" not in dtype and "16" not in dtype:
                    t = rng.standard_normal(x.shape).astype(x.dtype)
                    ct = rng.standard_normal(expected.shape).astype(expected.dtype)
                    found["tangent"] = differ(
                        fnx.jvp(ours, (a,), (fnx.numpy.asarray(t),))[1],
                        jax.jvp(theirs, (b,), (jnp.asarray(t),))[1])
                    found["cotangent"] = differ(fnx.vjp(ours, a)[1](fnx.numpy.asarray(ct))[0],
                                                jax.vjp(theirs, b)[1](jnp.asarray(ct))[0])
                total += len(found)
                for what, text in found.items():
                    if text:
                        wrong += 1
                        print(f"{name} {kw} {dtype} {what}: {text}")
    print(f"{total} compared, {wrong} differ")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())

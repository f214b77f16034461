"""Record what JAX does in corner cases, for tests that run where JAX is not installed.

    python tests/core/ir/record_jax.py            # writes tests/core/ir/jax.json

Recorded with JAX 0.10.2 on CPU: the promotion lattice, integer division, shifts, conversions, float
remainders and extrema. Values are bit patterns (integers), so that NaN and -0.0 survive. Operands
are the corner cases of a dtype; ops of two operands take all pairs of them.
"""

from __future__ import annotations

import itertools
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

ENDS = [2**n + d for n in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, 0)]
INTEGERS = [0, 1, -1, 100, *ENDS, *[-2**n for n in (7, 15, 31, 63)]]
FLOATS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 3.7, -3.7, 1e9, -1e9, 3e9, -3e9, 1e20,
          -1e20, np.inf, -np.inf, np.nan, 1e-40, 16777217.0]
PYTHON = {False: {"bool": False, "int32": 1, "float32": 1.0},  # weak types, by config.x64
          True: {"bool": False, "int64": 1, "float64": 1.0}}
ALL = ["bool", *[f"{k}{n}" for k in ("int", "uint") for n in (2, 4, 8, 16, 32, 64)],
       "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32", "float64"]
WHOLE = [f"{k}{n}" for k in ("int", "uint") for n in (8, 16, 32, 64)]
TYPES = ["bool", *WHOLE, "float32", "float64"]


def corners(name: str) -> np.ndarray[Any, Any]:
    """Return operands of casts."""
    if name == "bool":
        return np.array([False, True])
    if name.startswith("float"):
        return np.array(FLOATS, name)
    info = np.iinfo(name)
    return np.array([i for i in INTEGERS if info.min <= i <= info.max], name)


def operands(name: str) -> np.ndarray[Any, Any]:
    """Return operands of ops; binary ops take all pairs of them."""
    if name.startswith("float"):
        return np.array(FLOATS, name)
    info = np.iinfo(name)
    found = {0, 1, -1, 2, 3, -7, 100, info.bits - 1, info.bits, info.max, info.max - 1, info.min}
    return np.array([i for i in sorted(found) if i >= info.min], name)


def bits(x: Any) -> list[int]:
    x = np.asarray(x)
    return [int(v) for v in (x if x.dtype == bool else x.view(f"uint{8 * x.dtype.itemsize}"))]


def pairs(name: str) -> tuple[Any, Any]:
    v = operands(name)
    a, b = np.array(list(itertools.product(v, v)), name).T
    return jnp.asarray(a), jnp.asarray(b)


def promotion() -> list[Any]:
    """Return rows of [config.x64, a, a is weak, b, b is weak, result, result is weak]."""
    rows = []
    for x64, python in PYTHON.items():
        with jax.enable_x64(x64):
            arrays = [t for t in TYPES if x64 or not t.endswith("64")]
            kinds = [(t, False) for t in arrays] + [(t, True) for t in python]
            for (a, aw), (b, bw) in itertools.product(kinds, kinds):
                x, y = (jnp.asarray(python[t]) if w else jnp.zeros((), t)
                        for t, w in ((a, aw), (b, bw)))
                out = jnp.multiply(x, y) if a != "bool" or b != "bool" else jnp.bitwise_or(x, y)
                rows.append([x64, a, aw, b, bw, str(out.dtype), bool(out.weak_type)])
    return rows


def lattice() -> list[list[str]]:
    """Return rows of [a, b, common type], "" if there is none; weak types are the Python types."""
    rows = []
    with jax.enable_x64(True):
        for a, b in itertools.product(ALL, [*ALL, "int*", "float*"]):
            other = {"int*": int, "float*": float}.get(b) or jnp.dtype(b)
            try:
                rows.append([a, b, str(jnp.promote_types(jnp.dtype(a), other))])
            except jax.dtypes.TypePromotionError:
                rows.append([a, b, ""])
    return rows


BINARY = {"IDIV": lax.div, "REM": lax.rem, "SHL": lax.shift_left,
          "SHR": lambda a, b: (lax.shift_right_arithmetic if a.dtype.kind == "i"
                               else lax.shift_right_logical)(a, b),
          "ADD": lax.add, "MUL": lax.mul, "SUB": lax.sub}
UNARY = {"NEG": lax.neg, "ABS": lax.abs, "NOT": lax.bitwise_not}
FLOAT_UNARY = {"FLOOR": lax.floor, "CEIL": lax.ceil, "TRUNC": jnp.trunc,
               "ROUND": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
               "SQRT": lax.sqrt, "NEG": lax.neg, "ABS": lax.abs}
FLOAT_BINARY = {"REM": lax.rem, "MAX": lax.max, "MIN": lax.min, "DIV": lax.div}


def main() -> None:
    out: dict[str, Any] = {
        "jax": jax.__version__, "promotion": promotion(), "lattice": lattice(),
        "ops": [], "casts": [],
        "corners": {t: bits(corners(t)) for t in TYPES},
        "operands": {t: bits(operands(t)) for t in TYPES if t != "bool"}}
    with jax.enable_x64(True):
        for t in WHOLE:
            a, b = pairs(t)
            for name, f in BINARY.items():
                out["ops"].append([name, t, 2, bits(f(a, b))])
            for name, f in UNARY.items():
                if t[0] != "u" or name != "ABS":
                    v = jnp.asarray(operands(t))
                    out["ops"].append([name, t, 1, bits(f(v))])
        for t in ("float32", "float64"):
            a, b = pairs(t)
            for name, f in FLOAT_BINARY.items():
                out["ops"].append([name, t, 2, bits(f(a, b))])
            for name, f in FLOAT_UNARY.items():
                v = jnp.asarray(operands(t))
                out["ops"].append([name, t, 1, bits(f(v))])
        for a, b in itertools.permutations(TYPES, 2):
            v = jnp.asarray(corners(a))
            out["casts"].append([a, b, bits(lax.convert_element_type(v, b))])
    path = pathlib.Path(__file__).parent / "jax.json"
    path.write_text(json.dumps(out).replace("], [\"", "],\n[\"") + "\n")


if __name__ == "__main__":
    main()

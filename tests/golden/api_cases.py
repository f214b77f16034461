"""Calls of the array API standard, 2024.12: pairs of an expression over ``xp`` and one over ``jnp``
that must agree.

``scripts/compare_array_api.py`` evaluates all of them with array_api_strict and with fnx.numpy;
tests/public/test_array_api.py evaluates a sample. Special cases of the standard are all pairs of
the numbers ``S`` and ``T``; signs of zeros count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

_INF, _NAN = float("inf"), float("nan")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1.5, -2.5, _INF, -_INF, _NAN,
           1e-30, -1e-30, 1e30, -1e30, float(np.pi), 0.1]
FLOATS, INTS = ("float32", "float64"), ("int8", "int16", "int32", "int64")
UINTS = ("uint8", "uint16", "uint32", "uint64")
NUMBERS, ALL = (*FLOATS, *INTS, *UINTS), ("bool", *FLOATS, *INTS, *UINTS)
COMPLEX = ("complex64", "complex128")
SHAPES = {"z": (), "v": (5,), "m": (2, 3), "e": (0, 3), "t": (2, 1, 3)}


def inputs(asarray: Any, dtype: str) -> dict[str, Any]:
    """Return the names of expressions: an array of each shape, special numbers, masks, indices."""
    t = np.dtype(dtype)
    found = {}
    for name, shape in SHAPES.items():
        n = int(np.prod(shape))
        line = (np.arange(n) * 7 + 3) % 11
        values = line % 2 == 0 if dtype == "bool" else line - (4 if t.kind in "if" else 0)
        found[name] = asarray(values.reshape(shape).astype(t))
    if t.kind == "c":
        found |= {name: asarray((line + 1j * line[::-1]).reshape(shape).astype(t) - t.type(4 + 2j))
                  for name, shape in SHAPES.items()
                  for line in [(np.arange(int(np.prod(shape))) * 7 + 3) % 11]}
        parts = [0.0, -0.0, 1.0, -1.0, 2.5, -0.3, _INF, -_INF]
        grid = np.array([complex(x, y) for x in parts for y in parts
                         if not (np.isinf(x) and np.isinf(y))], t)
        finite = grid[np.isfinite(grid)]
        found |= {"s": asarray(grid), "g": asarray(finite), "S": asarray(np.repeat(finite, 9)),
                  "T": asarray(np.tile(finite[::-1], 9))}
    elif t.kind == "f":
        grid = np.array(SPECIAL, t)
        found |= {"S": asarray(np.repeat(grid, len(grid))), "T": asarray(np.tile(grid, len(grid)))}
        found["s"] = asarray(grid)
    elif t.kind in "iu":
        grid = np.array([0, 1, 2, 3, 5, np.iinfo(t).max, np.iinfo(t).min, np.iinfo(t).max - 1], t)
        found |= {"S": asarray(np.repeat(grid, len(grid))), "T": asarray(np.tile(grid, len(grid)))}
        found["s"] = asarray(grid)
    else:
        found |= {"S": asarray(np.array([0, 0, 1, 1], bool)),
                  "T": asarray(np.array([0, 1] * 2, bool)), "s": asarray(np.array([0, 1], bool))}
    found["i"] = asarray(np.array([1, 0, 1], np.int64))
    if t.kind in "iu":
        found["small"] = asarray((np.arange(found["S"].shape[0]) % 6).astype(t))
    return found


def _each(names: str, dtypes: tuple[str, ...], *texts: str) -> Iterator[tuple[str, str]]:
    for name in names.split():
        for text in texts:
            for t in dtypes:
                yield t, f"xp.{name}({text})"


_ONE = ("s", "z", "m", "e")
_TWO = ("S, T", "m, m", "t, m", "z, v", "e, e")


def cases() -> list[tuple[str, str]]:
    """Yield (dtype of the inputs, expression)."""
    square = "xp.matmul(m, xp.matrix_transpose(m)) + 20 * xp.eye(2, dtype=m.dtype)"
    return [
        *_each("acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p log2 log10 sin sinh "
               "sqrt tan tanh reciprocal", COMPLEX, "g", "z", "m", "e"),
        *_each("exp sqrt log conj real imag abs isfinite isinf isnan negative positive", COMPLEX,
               "s", "m", "z"),
        *_each("square sign round", COMPLEX, "g", "m"),
        *_each("add subtract multiply divide pow", COMPLEX, "S, T", "m, m", "t, m", "e, e"),
        *_each("equal not_equal", COMPLEX, "S, T", "m, m"),
        *_each("sum prod mean", COMPLEX, "m", "m, axis=0", "t, axis=-1", "m, keepdims=True"),
        *_each("cumulative_sum cumulative_prod", COMPLEX, "v", "m, axis=1"),
        *_each("all any count_nonzero", COMPLEX, "m", "m, axis=0"),
        *_each("where", COMPLEX, "m == m[0, 0], m, m"), *_each("concat", COMPLEX, "(m, m), axis=1"),
        *_each("unique_values nonzero", COMPLEX, "v"), *_each("roll", COMPLEX, "m, 1"),
        *_each("matmul", COMPLEX, "m, xp.matrix_transpose(m)", "m, m[0, ...]"),
        *_each("vecdot", COMPLEX, "m, m", "m, m[0, ...]"),
        *_each("tensordot", COMPLEX, "m, m"), *_each("matrix_transpose tril triu", COMPLEX, "m"),
        *[(t, f"{a} {op} {b}") for t in COMPLEX for op in "+ - * / ==".split()
          for a, b in (("m", "2"), ("3.5", "m"), ("m", "2j"))],
        *[(t, f"xp.astype(m, xp.{to})") for t in COMPLEX for to in COMPLEX],
        *[(t, f"xp.astype(m, xp.{to})") for t in FLOATS for to in COMPLEX],
        *[("float32", f"xp.isdtype(xp.{t}, {k})") for t in COMPLEX
          for k in ("'complex floating'", "'numeric'", "'real floating'")],
        *[("float32", f"xp.result_type(xp.{a}, xp.{b})") for a in COMPLEX
          for b in (*COMPLEX, *FLOATS)],
        *_each("fft.fft fft.ifft", COMPLEX, "v", "m", "v, n=8", "v, n=3",
               "m, axis=0, norm='ortho'"),
        *_each("fft.fftn fft.ifftn", COMPLEX, "m", "t, axes=(0, 2)", "m, norm='forward'"),
        *_each("fft.irfft fft.hfft", COMPLEX, "v", "v, n=7"), *_each("fft.irfftn", COMPLEX, "m"),
        *_each("fft.rfft fft.ihfft", FLOATS, "v", "m, axis=0", "v, n=8"),
        *_each("fft.rfftn", FLOATS, "m"),
        *_each("fft.fftshift fft.ifftshift", (*FLOATS, *COMPLEX), "v", "m, axes=0"),
        *_each("fft.fftfreq fft.rfftfreq", FLOATS, "8", "7, d=0.5"),
        *_each("linalg.cholesky linalg.det linalg.inv linalg.eigvalsh linalg.svdvals",
               FLOATS, square),
        *_each("linalg.slogdet linalg.matrix_rank linalg.pinv linalg.matrix_norm "
               "linalg.vector_norm linalg.trace linalg.diagonal", FLOATS, square, "m"),
        *_each("linalg.solve", FLOATS, f"{square}, v[:2]", f"{square}, m"),
        *_each("linalg.matrix_power", FLOATS, f"{square}, 3", f"{square}, -1"),
        *_each("linalg.cross", FLOATS, "m, m"), *_each("linalg.outer", FLOATS, "v, v[:2]"),
        *_each("linalg.matmul linalg.tensordot", FLOATS, f"{square}, m"),
        *_each("linalg.vecdot", FLOATS, "m, m"), *_each("linalg.matrix_transpose", FLOATS, "m"),
        *[(t, f"xp.abs(xp.linalg.{f}({square})[{i}])") for t in FLOATS
          for f, i in (("eigh", 0), ("eigh", 1), ("qr", 0), ("qr", 1), ("svd", 1))],
        *_each("acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor log log1p log2 "
               "log10 sin sinh sqrt tan tanh trunc reciprocal round signbit", FLOATS, *_ONE),
        *_each("ceil floor trunc round", (*INTS, *UINTS), *_ONE),
        *_each("abs negative positive sign square isfinite isinf isnan", NUMBERS, *_ONE),
        *_each("logical_not", ("bool",), *_ONE), *_each("logical_and logical_or logical_xor",
                                                       ("bool",), *_TWO),
        *_each("bitwise_invert", ("bool", *INTS, *UINTS), *_ONE),
        *_each("bitwise_and bitwise_or bitwise_xor", ("bool", *INTS, *UINTS), *_TWO),
        *_each("bitwise_left_shift bitwise_right_shift", (*INTS, *UINTS), "S, small"),
        *_each("atan2 copysign divide hypot logaddexp nextafter pow", FLOATS, *_TWO),
        *_each("pow", (*INTS, *UINTS), "S, small"),
        *_each("add subtract multiply", NUMBERS, *_TWO),
        *_each("maximum minimum less less_equal greater greater_equal", NUMBERS, *_TWO),
        *_each("equal not_equal", ALL, *_TWO),
        *_each("floor_divide remainder", FLOATS, "S, T", "m, m + 9"),
        *_each("floor_divide remainder", (*INTS, *UINTS), "S, small + 1", "m, v[:3] + 9"),
        *_each("clip", NUMBERS, "s, 1, 3", "m", "m, None, 2", "t, m, m + 1"),
        *_each("sum prod", NUMBERS, "m", "m, axis=0", "m, axis=(0, 1), keepdims=True", "e", "z",
               "e, axis=0", "t, axis=-1", "m, dtype=xp.float64"),
        *_each("max min", NUMBERS, "m", "m, axis=0", "t, axis=(0, 2), keepdims=True", "s"),
        *_each("mean std var", FLOATS, "m", "m, axis=0", "t, axis=(0, 2), keepdims=True"),
        *_each("std var", FLOATS, "m, correction=1.0", "m, axis=1, correction=0.5"),
        *_each("cumulative_sum cumulative_prod", NUMBERS, "v", "m, axis=1", "e, axis=0",
               "v, include_initial=True", "m, axis=0, include_initial=True"),
        *_each("all any", ALL, "m", "m, axis=0", "e", "e, axis=0, keepdims=True", "z"),
        *_each("diff", NUMBERS, "v", "m, axis=0", "v, n=2", "v, prepend=v[:1], append=v[:2]"),
        *_each("count_nonzero", ALL, "m", "m, axis=0", "t, axis=1, keepdims=True"),
        *_each("argmax argmin", NUMBERS, "m", "m, axis=0", "t, axis=-1, keepdims=True", "s"),
        *_each("sort argsort", NUMBERS, "v", "m, axis=0", "m, descending=True", "t", "e"),
        *_each("nonzero", ALL, "m", "v", "e"),
        *_each("searchsorted", NUMBERS, "xp.sort(v), m", "xp.sort(v), v, side='right'",
               "v, m, sorter=xp.argsort(v)"),
        *_each("where", ALL, "m == m[0, 0], m, m", "t == t, t, m"),
        *_each("unique_values unique_counts unique_inverse unique_all", ALL, "m", "v", "e"),
        *_each("isin", NUMBERS, "m, v", "m, v, invert=True"),
        *_each("take", ALL, "m, i, axis=1", "v, i"),
        *_each("take_along_axis", NUMBERS, "m, xp.argsort(m, axis=1), axis=1"),
        *_each("broadcast_to", ALL, "m, (2, 2, 3)"), *_each("concat", ALL, "(m, m), axis=1",
                                                           "(m, m), axis=None", "(m, t[0, ...])"),
        *_each("expand_dims", ALL, "m, axis=1", "m, axis=-1"),
        *_each("flip", ALL, "m", "m, axis=1"),
        *_each("moveaxis", ALL, "t, 0, -1"), *_each("permute_dims", ALL, "t, (2, 0, 1)"),
        *_each("repeat", ALL, "m, 2", "m, 2, axis=1", "v, i[:1], axis=0"),
        *_each("reshape", ALL, "m, (3, 2)", "m, (-1,)", "e, (0,)"),
        *_each("roll", ALL, "m, 1", "m, (1, -1), axis=(0, 1)"),
        *_each("squeeze", ALL, "t, axis=1"), *_each("stack", ALL, "(m, m), axis=1"),
        *_each("tile", ALL, "m, (2, 1)"), *_each("unstack", ALL, "m", "m, axis=1"),
        *_each("tril triu", ALL, "m", "m, k=1", "t"), *_each("meshgrid", ALL, "v, v[:2]",
                                                            "v, v[:2], indexing='ij'"),
        *_each("matmul", NUMBERS, "m, xp.matrix_transpose(m)", "m, m[0, ...]"),
        *_each("tensordot", NUMBERS, "m, xp.matrix_transpose(m), axes=1", "m, m"),
        *_each("vecdot", NUMBERS, "m, m", "m, m[0, ...]", "m, m, axis=0"),
        *_each("matrix_transpose", ALL, "m", "t"), *_each("broadcast_arrays", ALL, "m, t"),
        *[(t, f"xp.{f}({a})") for t in ("float32",) for f, a in (
            ("arange", "5"), ("arange", "1, 9, 2"), ("arange", "0.5, 3.0, 0.5"),
            ("eye", "3"), ("eye", "2, 3, k=1"), ("linspace", "0.0, 1.0, 5"),
            ("linspace", "0.0, 1.0, 4, endpoint=False"), ("full", "(2, 3), 7"), ("full", "(), 2.5"),
            ("full", "(2,), True"), ("zeros", "(2, 3)"), ("ones", "4"),
            ("ones", "(2,), dtype=xp.int8"),
            ("zeros_like", "m"), ("ones_like", "m, dtype=xp.int64"), ("full_like", "m, 3"),
            ("result_type", "xp.float32, xp.float64"), ("result_type", "xp.int8, xp.uint8"),
            ("can_cast", "xp.int8, xp.int16"), ("can_cast", "xp.float64, xp.float32"),
            ("isdtype", "xp.float32, 'real floating'"),
            ("isdtype", "xp.int8, ('bool', 'integral')"),
            ("finfo", "xp.float32).eps + (0"), ("iinfo", "xp.int16).max + (0"),
            ("broadcast_shapes", "(2, 1), (3,)"))],
        *[(t, f"xp.astype(s, xp.{to})") for t in INTS for to in ALL],
        *[(t, f"xp.astype(m, xp.{to})") for t in ("bool", *FLOATS)
          for to in ("bool", *FLOATS, *INTS)],
        *[(t, f"{a} {op} {b}") for t in NUMBERS for op in "+ - * == < >=".split()
          for a, b in (("m", "2"), ("3", "m"), ("m", "m"))],
        *[(t, f"m[{index}]") for t in ("bool", "float32", "int8") for index in (
            "0", "..., 1", "1, 2", ":, ::-1", "None, 1:", "m == m[0, 0]", "..., None", "1:0")],
    ]


# Intended differences: a part of the expression -> the reason.
ON_PURPOSE: dict[str, str] = {
    "xp.floor_divide(S, T)": "the sign of a zero is JAX's", "xp.remainder(S, T)": "as JAX",
    "searchsorted": "indices are int32 in JAX",
    "complex64: xp.reciprocal(g)": "1 / 0 is infinite, as in JAX and C; NaN in NumPy 2.4",
    "complex128: xp.reciprocal(g)": "1 / 0 is infinite, as in JAX and C; NaN in NumPy 2.4",
    "complex64: xp.pow(S, T)": "powers of 0 are NaN, as in JAX; 0 in NumPy 2.4",
    "complex128: xp.pow(S, T)": "powers of 0 are NaN, as in JAX; 0 in NumPy 2.4",
    "xp.isin(m, v, invert=True)": "array_api_strict 2.6.1 does not invert",
}


def on_purpose(dtype: str, expression: str) -> str:
    return next((why for part, why in ON_PURPOSE.items() if part in f"{dtype}: {expression}"), "")

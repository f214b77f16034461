"""Random calls of operations that have many options: their results and gradients.

A case is an expression over ``jnp``, ``lax`` and the operands ``x0``, ``x1``, ..., which are drawn
from its seed. So it is the same for JAX and for fnx, recorded (scripts/record_jax_ops.py) or live
(``python scripts/record_jax_ops.py compare``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Rng = np.random.Generator
Array = np.ndarray[Any, Any]


class Operand(NamedTuple):
    """dtype, shape, and contents: "normal", "ties" (a few values), "odd" (also NaN, inf and -0.0),
    or ints from -2 to a bound plus one."""

    dtype: str
    shape: tuple[int, ...]
    fill: str | int = "normal"


class Case(NamedTuple):
    """``expression`` of the operands; ``exact``: equal bits, otherwise within the error of float
    sums."""

    expression: str
    operands: tuple[Operand, ...]
    seed: int
    exact: bool = False
    gradient: bool = True

    def arrays(self) -> list[Array]:
        rng = np.random.default_rng(self.seed)
        return [_filled(o, rng) for o in self.operands]


def _filled(o: Operand, rng: Rng) -> Array:
    if isinstance(o.fill, int):
        return rng.integers(-2, o.fill + 2, o.shape).astype(o.dtype)
    if o.fill == "ties" or o.dtype == "bool" or "int" in o.dtype:
        values = rng.integers(0 if o.dtype[0] in "ub" else -3, 4, o.shape)
        return values.astype(o.dtype)
    x = rng.standard_normal(o.shape)
    if o.fill == "odd":
        odd = rng.choice(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0]), o.shape)
        x = np.where(rng.random(o.shape) < 0.6, odd, x)
    return np.asarray(x).astype(o.dtype)


def evaluate(case: Case, top: Any, jnp: Any, lax: Any, jit: bool = False) -> list[Any]:
    """Return the results of a case and the gradients with respect to its float operands."""
    names = {"jnp": jnp, "lax": lax, "np": np}
    xs = [jnp.asarray(x) for x in case.arrays()]

    def f(*xs: Any) -> Any:
        out = eval(case.expression, {**names, **{f"x{i}": x for i, x in enumerate(xs)}})
        return list(out) if isinstance(out, list | tuple) else [out]

    def scalar(*xs: Any) -> Any:
        total = 0.0
        for out in f(*xs):
            if jnp.issubdtype(out.dtype, jnp.floating) and out.size:
                weights = np.cos(np.arange(out.size)).reshape(out.shape)
                total = total + (out * jnp.asarray(weights, out.dtype)).sum()
        return total

    floats = [i for i, o in enumerate(case.operands) if o.dtype.startswith("float")]
    wrap: Callable[[Any], Any] = top.jit if jit else lambda g: g
    out = list(wrap(f)(*xs))
    if case.gradient and floats:
        out += list(wrap(top.grad(scalar, tuple(floats)))(*xs))
    return out


# ---- families -----------------------------------------------------------------------------------


def _some(rng: Rng, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _ints(rng: Rng, n: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(int(i) for i in rng.integers(low, high + 1, n))


def _call(name: str, *args: str, **options: Any) -> str:
    given = [*args, *[f"{k}={v!r}" for k, v in options.items()]]
    return f"{name}({', '.join(given)})"


def _layout(rng: Rng, n: int) -> tuple[str, str, str]:
    places = "HWD"[:n]
    texts = ["".join(rng.permutation(list(letters + places)).tolist())
             for letters in ("NC", "OI", "NC")]
    return texts[0], texts[1], texts[2]


def _laid_out(shape: Sequence[int], text: str, letters: str) -> tuple[int, ...]:
    order = letters + "".join(c for c in "HWD" if c in text)
    return tuple(shape[order.index(c)] for c in text)


def convolution(rng: Rng, seed: int) -> Case:
    n = _some(rng, 0, 1, 1, 2, 2, 2, 3)
    groups, batches = _some(rng, (1, 1), (1, 1), (1, 1), (2, 1), (3, 1), (1, 2))
    per, outs = _some(rng, 1, 2, 3), _some(rng, 1, 2) * groups * batches
    count = _some(rng, 0, 1, 2, 2, 3) * batches
    size = _ints(rng, n, 1, 3)
    places = tuple(int(rng.integers(k if rng.random() < 0.9 else 1, 7)) for k in size)
    dilation, holes = (_ints(rng, n, 1, _some(rng, 1, 1, 2, 3)) for _ in range(2))
    strides = _ints(rng, n, 1, _some(rng, 1, 2, 3))
    padding: Any = _some(rng, "SAME", "VALID", "SAME_LOWER")
    options: dict[str, Any] = {}
    if max(dilation, default=1) > 1 or rng.random() < 0.5:
        padding = [tuple(_ints(rng, 2, -1, 3)) for _ in range(n)]
    if max(dilation, default=1) > 1:
        options["lhs_dilation"] = dilation
    if max(holes, default=1) > 1:
        options["rhs_dilation"] = holes
    x, w = (count, per * groups, *places), (outs, per, *size)
    if rng.random() < 0.4:
        texts = _layout(rng, n)
        # strides are in the order of the kernel's spatial letters
        order = [c for c in texts[1] if c in "HWD"]
        natural = "HWD"[:n]
        options["dimension_numbers"] = texts
        by = {c: i for i, c in enumerate(order)}
        x = (*x[:2], *[x[2 + by[c]] for c in natural])
        w = (*w[:2], *[w[2 + by[c]] for c in natural])
        x = _laid_out(x, texts[0], "NC")
        w = _laid_out(w, texts[1], "OI")
    if groups > 1:
        options["feature_group_count"] = groups
    if batches > 1:
        options["batch_group_count"] = batches
    dtype = _some(rng, "float32", "float32", "float32", "int32")
    if dtype == "int32" and rng.random() < 0.5:
        options["preferred_element_type"] = "float32"
    text = _call("lax.conv_general_dilated", "x0", "x1", repr(strides), repr(padding), **options)
    return Case(text, (Operand(dtype, x), Operand(dtype, w)), seed,
                exact="preferred_element_type" not in options and dtype == "int32")


def transposed_convolution(rng: Rng, seed: int) -> Case:
    n = _some(rng, 1, 2, 2)
    size, places = _ints(rng, n, 1, 4), _ints(rng, n, 1, 5)
    strides = _ints(rng, n, 1, 3)
    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options["rhs_dilation"] = _ints(rng, n, 1, 2)
    flipped = rng.random() < 0.4
    if flipped:
        options["transpose_kernel"] = True
    padding: Any = _some(rng, "SAME", "VALID")
    if rng.random() < 0.4:
        padding = [tuple(_ints(rng, 2, 0, 2)) for _ in range(n)]
        if rng.random() < 0.5:
            options["use_consistent_padding"] = True
    features = (3, 2) if flipped else (2, 3)
    x, w = (2, *places, 2), (*size, *features)
    text = _call("lax.conv_transpose", "x0", "x1", repr(strides), repr(padding), **options)
    return Case(text, (Operand("float32", x), Operand("float32", w)), seed)


def patches(rng: Rng, seed: int) -> Case:
    n = _some(rng, 1, 2)
    size = _ints(rng, n, 1, 3)
    x = (_some(rng, 1, 2), _some(rng, 1, 3), *[k + int(rng.integers(0, 4)) for k in size])
    text = _call("lax.conv_general_dilated_patches", "x0", repr(size),
                 repr(_ints(rng, n, 1, 2)), repr(_some(rng, "SAME", "VALID")),
                 **_some(rng, {}, {"rhs_dilation": _ints(rng, n, 1, 2)}))
    return Case(text, (Operand("float32", x),), seed)


def pooling(rng: Rng, seed: int) -> Case:
    n = _some(rng, 1, 2, 2, 3)
    f, first = _some(rng, ("max", "-np.inf"), ("max", "-np.inf"), ("min", "np.inf"), ("add", "0."),
                     ("mul", "1."))
    size = _ints(rng, n, 1, 3)
    shape = tuple(int(rng.integers(k, 7)) for k in size)
    padding: Any = _some(rng, "SAME", "VALID", [tuple(_ints(rng, 2, 0, k - 1)) for k in size])
    options: dict[str, Any] = {}
    if f == "add" and rng.random() < 0.5:
        options["window_dilation"] = _ints(rng, n, 1, 2)
    strides = size if rng.random() < 0.4 else _ints(rng, n, 1, 3)
    text = _call("lax.reduce_window", "x0", first, f"lax.{f}", repr(size), repr(strides),
                 repr(padding), **options)
    return Case(text, (Operand("float32", shape, _some(rng, "normal", "ties")),), seed,
                gradient=f != "mul")


_TYPES = ("float32", "float32", "int32", "bool", "uint32", "int8")


def _shape(rng: Rng) -> tuple[int, ...]:
    n = _some(rng, 0, 1, 3, 7, 33, 40)
    return _some(rng, (n,), (n,), (2, n), (n, 2), (3, 1, n))


def sorting(rng: Rng, seed: int) -> Case:
    shape = _shape(rng)
    fill = _some(rng, "normal", "ties", "odd", "odd")
    text = _call("lax.sort", "x0", dimension=int(rng.integers(-len(shape), len(shape))))
    return Case(text, (Operand(_some(rng, *_TYPES), shape, fill),), seed, True)


def sorting_several(rng: Rng, seed: int) -> Case:
    shape, count = _shape(rng), _some(rng, 2, 2, 3)
    keys = int(rng.integers(1, count + 1))
    given = tuple([Operand(_some(rng, *_TYPES), shape, _some(rng, "ties", "ties", "odd"))
                   for _ in range(count)])
    text = _call("lax.sort", f"({', '.join(f'x{i}' for i in range(count))})",
                 dimension=int(rng.integers(-len(shape), len(shape))), num_keys=keys)
    return Case(text, given, seed, True)


def ordering(rng: Rng, seed: int) -> Case:
    shape = _shape(rng)
    axis = _some(rng, None, *range(-len(shape), len(shape)))
    text = _call(_some(rng, "jnp.sort", "jnp.argsort"), "x0", axis=axis,
                 descending=_some(rng, False, True))
    return Case(text, (Operand(_some(rng, *_TYPES), shape, _some(rng, "ties", "odd")),), seed,
                True)


def largest(rng: Rng, seed: int) -> Case:
    shape = _shape(rng)
    k = int(rng.integers(0, shape[-1] + 1))
    return Case(_call("lax.top_k", "x0", repr(k)),
                (Operand(_some(rng, "float32", "int32"), shape, _some(rng, "ties", "normal")),),
                seed, True)


def _windows(rng: Rng) -> tuple[Any, ...]:
    """Draw a shape, window sizes, axes by their role, and the shape of the indices."""
    rank = _some(rng, 1, 2, 2, 3)
    shape = _ints(rng, rank, 1, 5)
    parts = rng.permutation(rank).tolist()
    batched = sorted(parts[:1]) if rank > 1 and rng.random() < 0.3 else []
    rest = [a for a in range(rank) if a not in batched]
    moved = rng.permutation(rest).tolist()[:int(rng.integers(1, len(rest) + 1))]
    gone = sorted(a for a in rest if rng.random() < 0.5)
    size = [1 if a in gone or a in batched else
            int(rng.integers(1, shape[a] + 1)) if a in moved or rng.random() < 0.3 else shape[a]
            for a in range(rank)]
    batch = list(_ints(rng, _some(rng, 0, 1, 1, 2), 1, 3))
    of_batch = [int(rng.integers(0, len(batch) + 1))] if batched else []
    for a, b in zip(batched, of_batch):
        batch.insert(b, shape[a])
    return shape, size, moved, gone, batched, of_batch, batch


def _axes_of_windows(rng: Rng, rank: int, count: int) -> list[int]:
    return sorted(rng.permutation(rank).tolist()[:count])


def gathering(rng: Rng, seed: int) -> Case:
    shape, size, moved, gone, batched, of_batch, batch = _windows(rng)
    count = len(shape) - len(gone) - len(batched)
    offset = _axes_of_windows(rng, len(batch) + count, count)
    numbers = f"lax.GatherDimensionNumbers({tuple(offset)}, {tuple(gone)}, {tuple(moved)}, " \
        f"{tuple(batched)}, {tuple(of_batch)})"
    options = {"mode": _some(rng, None, "fill", "clip")}
    if options["mode"] != "clip" and rng.random() < 0.3:
        options["fill_value"] = -7
    text = _call("lax.gather", "x0", "x1", numbers, repr(tuple(size)), **options)
    return Case(text, (Operand(_some(rng, "float32", "float32", "int32", "bool", "uint32"), shape),
                       Operand("int32", (*batch, len(moved)), max(shape))), seed, True)


def scattering(rng: Rng, seed: int) -> Case:
    shape, size, moved, gone, batched, of_batch, batch = _windows(rng)
    count = len(shape) - len(gone) - len(batched)
    windows = _axes_of_windows(rng, len(batch) + count, count)
    lengths, others = [n for a, n in enumerate(size) if a not in (*gone, *batched)], list(batch)
    updates = tuple(lengths.pop(0) if i in windows else others.pop(0)
                    for i in range(len(batch) + count))
    numbers = f"lax.ScatterDimensionNumbers({tuple(windows)}, {tuple(gone)}, {tuple(moved)}, " \
        f"{tuple(batched)}, {tuple(of_batch)})"
    f = _some(rng, "scatter_add", "scatter_add", "scatter_sub", "scatter_min", "scatter_max",
              "scatter_mul")
    text = _call(f"lax.{f}", "x0", "x1", "x2", numbers, mode=_some(rng, None, "drop", "clip"))
    dtype = _some(rng, "float32", "float32", "int32")
    exact = dtype == "int32" or f in ("scatter_min", "scatter_max")
    return Case(text, (Operand(dtype, shape),
                       Operand("int32", (*batch, len(moved)), max(shape)),
                       Operand(dtype, updates)), seed, exact,
                gradient=f in ("scatter_add", "scatter_sub"))


def dynamic_slices(rng: Rng, seed: int) -> Case:
    shape = _ints(rng, _some(rng, 1, 2, 3), 1, 5)
    size = tuple(int(rng.integers(0, n + 1)) for n in shape)
    starts = ", ".join(f"x1[{i}]" for i in range(len(shape)))
    given = [Operand("float32", shape), Operand("int32", (len(shape),), max(shape))]
    if rng.random() < 0.5:
        text = f"lax.dynamic_slice(x0, ({starts},), {size})"
    else:
        text = f"lax.dynamic_update_slice(x0, x2, ({starts},))"
        given.append(Operand("float32", size))
    return Case(text, tuple(given), seed, True)


FAMILIES: dict[str, Callable[[Rng, int], Case]] = {
    "convolution": convolution, "transposed_convolution": transposed_convolution,
    "patches": patches, "pooling": pooling,
    "sorting": sorting, "sorting_several": sorting_several, "ordering": ordering,
    "largest": largest, "gathering": gathering, "scattering": scattering,
    "dynamic_slices": dynamic_slices,
}


def cases(family: str, count: int, first: int = 0) -> list[Case]:
    """Draw this many cases of a family, from a seed on."""
    return [FAMILIES[family](np.random.default_rng([first + i, 7]), first + i)
            for i in range(count)]

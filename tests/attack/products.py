"""Low-precision products on matrix units, in shapes that divide nothing, against float64.

    python -m tests.attack.products --count 2000 --seed 1

A seed is a product of bfloat16 or of bytes (batches, transposes, a prologue, an epilogue, NaN and
infinity now and then), or a convolution of bfloat16; on its own, as a gradient or as a second
derivative; under jit, and products of bytes eagerly, too. Integers are exact; sums are within the
rounding error of their type.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from tests.attack import seeds
from tests.helpers import as_float64

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
SIDES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 130)
WORDS: dict[str, Callable[[Function], Function]] = {
    "itself": lambda f: f,
    "by x": lambda f: fnx.grad(lambda x, w: squared(f(x, w))),
    "by w": lambda f: fnx.grad(lambda x, w: squared(f(x, w)), argnums=1),
    "twice": lambda f: fnx.grad(lambda x, w: squared(
        fnx.grad(lambda x: squared(f(x, w)))(x).astype("float32") / 1024)),
}


def squared(y: Any) -> Any:
    return (y.astype("float32") ** 2).sum()


class _Drawn:
    """The random choices of a seed."""

    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)

    def narrow(self, shape: tuple[int, ...], odd: bool = False) -> Any:
        x = self.numbers.standard_normal(shape).astype(np.float32)
        x *= np.float32(2.0 ** self.rng.randint(-20, 20))
        for _ in range(self.rng.randint(0, 2) if odd and x.size else 0):
            x.reshape(-1)[self.rng.randrange(x.size)] = self.rng.choice(
                [np.nan, np.inf, -np.inf, -0.0])
        return jnp.asarray(x).astype("bfloat16")

    def bytes(self, shape: tuple[int, ...]) -> Array:
        of = self.rng.choice(["int8", "uint8"])
        return self.numbers.integers(0, 256, shape).astype(np.uint8).view(of)

    def product(self) -> tuple[Function, tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return a product of two arrays to a type, and their shapes."""
        rng = self.rng
        m, k, n = (rng.choice(SIDES) for _ in range(3))
        k = 0 if rng.random() < 0.03 else k
        batch = rng.choice([(), (), (3,), (2, 2)])
        transposed = [rng.random() < 0.5 for _ in range(2)]
        shapes = [(*batch, *(s[::-1] if t else s)) for s, t in zip([(m, k), (k, n)], transposed)]

        def multiplied(x: Any, w: Any, to: str) -> Any:
            x, w = (jnp.swapaxes(v, -1, -2) if t else v for v, t in zip((x, w), transposed))
            return jnp.einsum("...mk,...kn->...mn", x, w, preferred_element_type=to)

        return multiplied, (shapes[0], shapes[1])

    def convolution(self) -> tuple[Function, tuple[tuple[int, ...], tuple[int, ...]]]:
        rng = self.rng
        groups, channels, outs = rng.choice([1, 1, 2]), rng.choice([2, 4, 6, 16, 32]), \
            rng.choice([2, 8, 18, 32])
        kernel, strides, dilation = ([rng.choice(of) for _ in range(2)] for of in (
            (1, 2, 3, 5), (1, 1, 2, 3), (1, 1, 2)))
        size = [rng.randint(11, 30) for _ in range(2)]
        padding = rng.choice(["SAME", "VALID"])

        def convolved(x: Any, w: Any) -> Any:
            return fnx.lax.conv_general_dilated(x, w, strides, padding, rhs_dilation=dilation,
                                                feature_group_count=groups)

        return convolved, ((rng.choice([1, 2]), channels, *size),
                           (outs, channels // groups, *kernel))


def check(seed: int) -> str:
    """Check the product of a seed and return its kind."""
    drawn = _Drawn(seed)
    kind = drawn.rng.choice(["bytes", "bfloat16", "odd", "convolution"])
    if kind == "bytes":
        f, shapes = drawn.product()
        x, w = map(drawn.bytes, shapes)
        wanted = np.asarray(f(*[jnp.asarray(v).astype("int32") for v in (x, w)], "int32"))
        for way in (fnx.jit(lambda x, w: f(x, w, "int32")), lambda x, w: f(x, w, "int32")):
            np.testing.assert_array_equal(np.asarray(way(x, w)), wanted)
        return kind
    if kind == "convolution":
        f, shapes = drawn.convolution()
    else:
        to = drawn.rng.choice(["float32", "bfloat16"])
        of_type, shapes = drawn.product()

        def f(x: Any, w: Any) -> Any:
            return jnp.maximum(of_type(-x, w, to), -1) if seed % 3 == 0 else of_type(x, w, to)

    x, w = (drawn.narrow(shape, kind == "odd") for shape in shapes)
    word = "itself" if kind == "odd" else drawn.rng.choice(list(WORDS))
    _compare(word, WORDS[word](f), x, w)
    return f"{kind} {word}"


def _compare(word: str, f: Function, x: Any, w: Any) -> None:
    """Compare the result under jit with that of the same numbers in float32."""
    got = as_float64(fnx.jit(f)(x, w))
    wanted = as_float64(fnx.jit(f)(x.astype("float32"), w.astype("float32")))
    finite = np.isfinite(wanted)
    with np.errstate(all="ignore"):
        least = 2.0**-9 * max(x.shape[-1], x.shape[-2]) ** 0.5 * np.nanmax(
            np.abs(np.where(finite, wanted, 0)), initial=0) + 2.0**-100
        most = least * (8 if word != "itself" else 1) + 2.0**-7 * np.abs(wanted)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_array_equal(got[~finite], wanted[~finite])
    assert np.all((np.abs(got - wanted) <= most)[finite]), word


def main() -> int:
    return seeds.attack(str(__doc__), "products", check)


if __name__ == "__main__":
    sys.exit(main())

"""Random graphs as users write them, on data that are not zero.

    Graph(7).function()(*Graph(7).parameters)

Elementwise chains, products with prologues and epilogues, normalizations, reductions along any
axes, concatenations, shifts, windows, gathers, one-hots, masks, scatters, distances, scans, values
with several consumers; on its own or its gradient.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import fnx
import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp

ROWS = (64, 300, 512, 1024, 2000)
WIDTHS = (4, 16, 50, 64, 128, 256)
LARGE = 1 << 20  # elements of values
SCANNED = 0.2    # of the graphs end with a scan
Value = Any
Step = Callable[[Value], Value]


class Graph:
    """The graph of a seed: a function of its parameters, and these.

    Attributes:
        text: a few words for each step.
        parameters: arrays that its steps read; the first is the input.
    """

    def __init__(self, seed: int, largest: int = LARGE) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.largest = largest
        self.parameters: list[Any] = []
        self.text: list[str] = []
        self.steps: list[tuple[Callable[..., Value], tuple[int, ...]]] = []
        self.shapes: list[tuple[int, int]] = []
        rows = self.rng.choice([n for n in ROWS if n * WIDTHS[0] <= largest])
        self._begin(rows)
        for _ in range(self.rng.randint(3, 7)):
            self.rng.choice(_STEPS)(self)
        self.word = self.rng.choice(["itself", "itself", "gradient"])
        if self.rng.random() < SCANNED:
            _scanned(self)

    def __repr__(self) -> str:
        return f"{self.word} of {self.shapes[0]}: " + ", ".join(self.text)

    # ---- drawing

    def _begin(self, rows: int) -> None:
        at = self.parameter(rows, self.width(rows))
        self.shapes.append(self.parameters[at].shape)
        self.steps.append((lambda p: p[at], ()))
        self.text.append("x")

    def width(self, rows: int) -> int:
        return self.rng.choice([n for n in WIDTHS if rows * n <= self.largest] or WIDTHS[:1])

    def parameter(self, *shape: int) -> int:
        """Add an array and return its index. It is scaled so that products stay near 1."""
        scale = max(shape[0], 1) ** -0.5 if len(self.parameters) else 1.0
        self.parameters.append((self.numbers.standard_normal(shape) * scale).astype("float32"))
        return len(self.parameters) - 1

    def indices(self, high: int, *shape: int) -> int:
        self.parameters.append(self.numbers.integers(0, high, shape).astype("int32"))
        return len(self.parameters) - 1

    def pick(self) -> int:
        """Return the index of a value: most often the last one."""
        last = len(self.shapes) - 1
        return last if self.rng.random() < 0.7 else self.rng.randint(0, last)

    def like(self, i: int) -> int:
        """Return the index of a value that has as many rows as the i-th."""
        return self.rng.choice([j for j, s in enumerate(self.shapes)
                                if s[0] == self.shapes[i][0]])

    def add(self, text: str, shape: tuple[int, int], f: Callable[..., Value], *args: int) -> None:
        """Add a step: f(parameters, *values)."""
        self.text.append(f"{text} {args[0] if args else ''}".strip())
        self.shapes.append(shape)
        self.steps.append((f, args))

    # ---- running

    def whole(self, *parameters: Any) -> list[Value]:
        """Return the values that no step reads, among them the last one."""
        values: list[Value] = []
        for f, args in self.steps:
            values.append(f(parameters, *[values[i] for i in args]))
        read = {i for _, args in self.steps for i in args}
        return [v for i, v in enumerate(values) if i not in read]

    def function(self) -> Callable[..., Any]:
        if self.word == "itself":
            return self.whole
        floats = tuple(i for i, p in enumerate(self.parameters) if p.dtype == np.float32)

        def loss(*parameters: Any) -> Any:
            return sum((jnp.mean(jnp.sin(v)) for v in self.whole(*parameters)), jnp.zeros(()))
        return fnx.value_and_grad(loss, floats)


# ---- steps --------------------------------------------------------------------------------------

_UNARY: dict[str, Step] = {
    "relu": nn.relu, "gelu": nn.gelu, "tanh": jnp.tanh, "silu": nn.silu, "sin": jnp.sin,
    "square": lambda x: x * x, "softplus": nn.softplus, "scale": lambda x: x * 0.5 + 1,
    "exp": lambda x: jnp.exp(-x * x)}
_NORMALS: dict[str, Step] = {
    "softmax": nn.softmax,
    "layer norm": lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(
        x.var(-1, keepdims=True) + 1e-5),
    "rms norm": lambda x: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5),
    "batch norm": lambda x: (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5),
    "less the mean of all": lambda x: x - x.mean(),
    "of the largest": lambda x: x / (jnp.abs(x).max(0) + 1)}


def _dense(g: Graph) -> None:
    i = g.pick()
    rows, k = g.shapes[i]
    n = g.width(rows)
    w, b, name = g.parameter(k, n), g.parameter(n), g.rng.choice([*_UNARY, ""])
    after = _UNARY.get(name, lambda x: x)
    g.add(f"dense {n} {name}", (rows, n), lambda p, x: after(x @ p[w] + p[b]), i)


def _applied(functions: Mapping[str, Step], g: Graph) -> None:
    i, name = g.pick(), g.rng.choice([*functions])
    f = functions[name]
    g.add(name, g.shapes[i], lambda p, x: f(x), i)


_elementwise, _normalized = partial(_applied, _UNARY), partial(_applied, _NORMALS)


def _residual(g: Graph) -> None:
    i = g.pick()
    rows, n = g.shapes[i]
    hidden = g.width(rows)
    up, down = g.parameter(n, hidden), g.parameter(hidden, n)
    name = g.rng.choice([*_UNARY])
    f, norm = _UNARY[name], _NORMALS[g.rng.choice([*_NORMALS])]
    g.add(f"residual {hidden} {name}", (rows, n),
          lambda p, x: x + f(norm(x) @ p[up]) @ p[down], i)


def _combined(g: Graph) -> None:
    i = g.pick()
    j = g.like(i)
    if g.shapes[i] == g.shapes[j]:
        g.add(f"times {j}", g.shapes[i], lambda p, x, y: x * y + y, i, j)
    else:
        g.add(f"plus the mean of {j}", g.shapes[i],
              lambda p, x, y: x + y.mean(-1, keepdims=True), i, j)


def _concatenated(g: Graph) -> None:
    i = g.pick()
    parts = [i, *[g.like(i) for _ in range(g.rng.randint(1, 3))]]
    width = sum(g.shapes[j][1] for j in parts)
    if width * g.shapes[i][0] <= 2 * g.largest:
        g.add(f"concat with {parts[1:]}", (g.shapes[i][0], width),
              lambda p, *xs: jnp.concatenate(xs, -1), *parts)


def _columns(g: Graph) -> None:
    """Stack single columns, as for tables."""
    i = g.pick()
    rows, n = g.shapes[i]
    count = g.rng.choice([2, 5, 12, 20])
    g.add(f"stack {count} columns", (rows, count), lambda p, x: jnp.stack(
        [jnp.sin(x[:, k % n] * (k + 1)) for k in range(count)], -1), i)


def _shifted(g: Graph) -> None:
    i, axis = g.pick(), g.rng.randint(0, 1)
    by = g.rng.choice([1, -1, 3])
    ways: dict[str, Step] = {
        "roll": lambda x: jnp.roll(x, by, axis) - x,
        "stencil": lambda x: jnp.roll(x, 1, axis) - 2 * x + jnp.roll(x, -1, axis),
        "pad": lambda x: _neighbours(x, axis), "flip": lambda x: x + jnp.flip(x, axis),
        "difference": lambda x: jnp.diff(x, axis=axis, append=lax.index_in_dim(x, 0, axis))}
    name = g.rng.choice([*ways])
    g.add(f"{name} {axis}", g.shapes[i], lambda p, x: ways[name](x), i)


def _neighbours(x: Value, axis: int) -> Value:
    padded = jnp.pad(x, [(int(axis == 0),) * 2, (int(axis == 1),) * 2])
    n = x.shape[axis]
    return lax.slice_in_dim(padded, 0, n, axis=axis) + lax.slice_in_dim(padded, 2, n + 2, axis=axis)


def _gathered(g: Graph) -> None:
    i = g.pick()
    rows, n = g.shapes[i]
    at = g.indices(rows, rows)
    name = g.rng.choice(["rows", "scattered", "columns"])
    if name == "rows":
        g.add("rows by index", (rows, n), lambda p, x: x[p[at]], i)
    elif name == "scattered":
        g.add("rows added by index", (rows, n), lambda p, x: jnp.zeros_like(x).at[p[at]].add(x), i)
    else:
        g.add("a column each", (rows, n), lambda p, x: x * jnp.take_along_axis(
            x, (p[at] % n)[:, None], 1), i)


def _one_hot(g: Graph) -> None:
    i = g.pick()
    rows, n = g.shapes[i]
    classes = g.rng.choice([5, 20, 100])
    at = g.indices(classes, rows)
    if g.rng.random() < 0.5:
        w = g.parameter(classes, n)
        g.add(f"plus one-hot {classes}", (rows, n),
              lambda p, x: x + nn.one_hot(p[at], classes) @ p[w], i)
    elif rows * (n + classes) <= 2 * g.largest:
        g.add(f"concat with one-hot {classes}", (rows, n + classes),
              lambda p, x: jnp.concatenate([x, nn.one_hot(p[at], classes)], -1), i)


def _masked(g: Graph) -> None:
    i = g.pick()
    ways: dict[str, Step] = {
        "positive": lambda x: jnp.where(x > 0, x, x * 0.1),
        "triangle": lambda x: jnp.where(
            jnp.arange(x.shape[0])[:, None] >= jnp.arange(x.shape[1]), x, -1.0),
        "clipped": lambda x: jnp.clip(x, -1, 1), "edges": lambda x: x.at[1:-1].multiply(0.5),
        "even": lambda x: jnp.where(jnp.arange(x.shape[1]) % 2 == 0, x, 0)}
    name = g.rng.choice([*ways])
    g.add(name, g.shapes[i], lambda p, x: ways[name](x), i)


def _reduced(g: Graph) -> None:
    i, axis = g.pick(), g.rng.choice([0, 1])
    name = g.rng.choice(["sum", "max", "std", "cumsum"])
    g.add(f"plus its {name} {axis}", g.shapes[i], lambda p, x: x + (
        0.01 * jnp.cumsum(x, axis) if name == "cumsum" else
        getattr(x, name)(axis=axis, keepdims=True) / (x.shape[axis] if name == "sum" else 1)), i)


def _products(g: Graph) -> None:
    i = g.pick()
    rows, n = g.shapes[i]
    if rows * rows <= g.largest:
        name = g.rng.choice(["attention", "gram", "distances"])
        if name == "attention":
            g.add(name, (rows, n), lambda p, x: nn.softmax(x @ x.T * 0.1) @ x, i)
        elif name == "gram":
            g.add(name, (rows, rows), lambda p, x: x @ x.T / x.shape[1] - jnp.eye(rows), i)
        elif n <= 16:
            g.add(name, (rows, rows), lambda p, x: jnp.exp(
                -((x[:, None] - x[None]) ** 2).sum(-1)), i)


def _transposed(g: Graph) -> None:
    i = g.pick()
    rows, n = g.shapes[i]
    name = g.rng.choice(["transpose", "half", "pooled"])
    if name == "transpose":
        g.add(name, (n, rows), lambda p, x: jnp.tanh(x).T, i)
    elif name == "half" and n % 2 == 0:
        g.add(name, (rows, n // 2), lambda p, x: x[:, :n // 2] * nn.sigmoid(x[:, n // 2:]), i)
    elif rows % 4 == 0:
        g.add(name, (rows, n), lambda p, x: jnp.repeat(
            x.reshape(rows // 4, 4, n).mean(1), 4, 0) + x, i)


def _scanned(g: Graph) -> None:
    """Scan over rows: every step reads a value that other steps of the graph read, too."""
    i = g.pick()
    n = g.shapes[i][1]
    j = g.like(i)
    w, name = g.parameter(n, n), g.rng.choice(["average", "recurrence", "cell"])

    def scanned(p: Sequence[Value], x: Value, y: Value) -> Value:
        def step(carry: Value, row: tuple[Value, Value]) -> tuple[Value, Value]:
            a, b = row
            if name == "average":
                carry = 0.9 * carry + 0.1 * a * b
            elif name == "recurrence":
                carry = jnp.tanh(carry * b + a)
            else:
                carry = jnp.tanh(a + carry @ p[w])
            return carry, carry * b
        return lax.scan(step, jnp.zeros(n), (x, nn.sigmoid(y.mean(-1))))[1] + x
    g.add(f"scan {name} with {j}", g.shapes[i], scanned, i, j)


_STEPS: Sequence[Callable[[Graph], None]] = (
    _dense, _dense, _dense, _residual, _elementwise, _normalized, _normalized, _combined,
    _concatenated, _columns, _shifted, _gathered, _one_hot, _masked, _reduced, _products,
    _transposed)

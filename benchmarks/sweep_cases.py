"""Cases of the sweep: a family is a function that draws one of its cases.

A case is written once with JAX's names, for JAX and fnx alike, and once for PyTorch, eager, if that
has the function. Names contain everything that was drawn, so equal cases have equal names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

Draw = np.random.Generator
Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A function to call, and its operands.

    Attributes:
        name: the function and all that was drawn.
        shapes: of the operands, float32 from a normal distribution.
        of: the function over modules under JAX's names.
        torch: the function over the module torch, or None.
        limits: of operands by number: int32 from 0 up to this.
        distinct: the operand among these that has each number once at most, if any.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    of: Callable[[SimpleNamespace], Function]
    torch: Callable[[Any], Function] | None = None
    limits: tuple[tuple[int, int], ...] = ()
    distinct: int | None = None

    def operands(self, seed: int = 0) -> list[np.ndarray[Any, Any]]:
        """Return the operands, the same at each call with a seed."""
        draw, limits = np.random.default_rng(seed), dict(self.limits)

        def integers(i: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
            return draw.permutation(limits[i])[:shape[0]] if i == self.distinct else \
                draw.integers(0, limits[i], shape)
        return [integers(i, shape).astype("int32") if i in limits
                else draw.standard_normal(shape, np.float32)
                for i, shape in enumerate(self.shapes)]


def _pick(draw: Draw, values: Any) -> Any:
    return values[int(draw.integers(len(values)))]


def _size(draw: Draw, low: float, high: float) -> int:
    """Log-uniform, and a power of two half of the time."""
    size = float(2 ** draw.uniform(np.log2(low), np.log2(high)))
    return int(2 ** round(np.log2(size))) if draw.random() < 0.5 else round(size)


def _shape(draw: Draw, low: int = 64, high: int = 16 << 20) -> tuple[int, ...]:
    """A shape of one to four axes with a given number of elements."""
    count, rank = _size(draw, low, high), int(draw.integers(1, 5))
    axes: list[int] = []
    for left in range(rank, 1, -1):
        axes.append(max(1, _size(draw, 1, max(2.0, count ** min(1.0, 1.6 / left)))))
        count = max(1, count // axes[-1])
    draw.shuffle(axes)
    return (*axes, count)


def _of(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _torch_grad(torch: Any, f: Function, count: int) -> Function:
    """Return the gradient with respect to the first operands, as jax.grad does."""
    def run(*args: Any) -> Any:
        with torch.enable_grad():
            given = [a.detach().requires_grad_() for a in args[:count]]
            return torch.autograd.grad(f(*given, *args[count:]), given)
    return run


def reductions(draw: Draw) -> Case:
    name = _pick(draw, ("sum", "max", "mean", "prod", "var", "min", "std", "any"))
    shape = _shape(draw)
    axis = _pick(draw, [None, *range(len(shape))])

    def torch(t: Any) -> Function:
        other = {"max": "amax", "min": "amin"}.get(name, name)
        if name in ("var", "std"):
            return lambda x: getattr(t, name)(x, dim=axis, correction=0)
        if name == "any":
            return lambda x: t.any(x > 3) if axis is None else t.any(x > 3, dim=axis)
        if axis is None:
            return lambda x: getattr(t, other)(x)
        return lambda x: getattr(t, other)(x, dim=axis)

    def of(ns: SimpleNamespace) -> Function:
        f = getattr(ns.jnp, name)
        return lambda x: f(x > 3 if name == "any" else x, axis=axis)
    return Case(f"{name} {_of(shape)} axis {axis}", (shape,), of, torch)


def products(draw: Draw) -> Case:
    kind = _pick(draw, ("square", "any", "thin", "long", "vector", "batched", "gram"))
    m, n, k = (_size(draw, 16, 1100) for _ in range(3))
    if kind == "square":
        n = k = m
    elif kind == "thin":
        n = _size(draw, 1, 40)
    elif kind == "long":
        m, n, k = _size(draw, 8, 100), _size(draw, 8, 100), _size(draw, 4000, 60000)
    elif kind == "vector":
        m, n, k = 1, _size(draw, 64, 4096), _size(draw, 64, 4096)
    batch = (_size(draw, 2, 64),) if kind == "batched" else ()
    if batch:
        m, n, k = (_size(draw, 4, 160) for _ in range(3))
    flip = (bool(draw.integers(2)), bool(draw.integers(2)))
    if kind == "gram":
        m, k = _size(draw, 16, 400), _size(draw, 200, 8000)
        return Case(f"x.T @ x {k}x{m}", ((k, m),), lambda ns: lambda x: x.T @ x,
                    lambda t: lambda x: x.T @ x)
    a = (*batch, k, m) if flip[0] else (*batch, m, k)
    b = (*batch, n, k) if flip[1] else (*batch, k, n)

    def transposed(swap: Callable[[Any], Any]) -> Function:
        return lambda x, y: (swap(x) if flip[0] else x) @ (swap(y) if flip[1] else y)
    marks = tuple(".T" if f else "" for f in flip)
    return Case(f"{_of(a)}{marks[0]} @ {_of(b)}{marks[1]}", (a, b),
                lambda ns: transposed(lambda x: ns.jnp.swapaxes(x, -1, -2)),
                lambda t: transposed(lambda x: x.mT))


def mlp_steps(draw: Draw) -> Case:
    batch = _size(draw, 1, 1024)
    widths = [_size(draw, 8, 800) for _ in range(int(draw.integers(2, 5)))]
    shapes = [*itertools.pairwise(widths)]

    def loss(tanh: Function) -> Function:
        def f(*args: Any) -> Any:
            *weights, x = args
            for w in weights[:-1]:
                x = tanh(x @ w)
            return ((x @ weights[-1]) ** 2).mean()
        return f

    def of(ns: SimpleNamespace) -> Function:
        grads = ns.jax.grad(loss(ns.jnp.tanh), tuple(range(len(shapes))))
        return lambda *args: [w - 0.01 * g for w, g in zip(args, grads(*args))]

    def torch(t: Any) -> Function:
        grads = _torch_grad(t, loss(t.tanh), len(shapes))
        return lambda *args: [w - 0.01 * g for w, g in zip(args, grads(*args))]
    return Case(f"mlp step {'-'.join(map(str, widths))} batch {batch}",
                (*shapes, (batch, widths[0])), of, torch)


def convolutions(draw: Draw) -> Case:
    batch, size = _size(draw, 1, 32), _size(draw, 6, 64)
    inside, outside = (_size(draw, 1, 96) for _ in range(2))
    kernel, stride = _pick(draw, (1, 3, 3, 3, 5, 7)), _pick(draw, (1, 1, 2))
    kernel, edge = min(kernel, size), min(kernel, size) // 2
    what = _pick(draw, ("forward", "grad", "depthwise"))
    groups = inside if what == "depthwise" else 1
    outside = inside if what == "depthwise" else outside
    shapes = ((batch, inside, size, size), (outside, inside // groups, kernel, kernel))

    def of(ns: SimpleNamespace) -> Function:
        def f(x: Any, w: Any) -> Any:
            return ns.lax.conv_general_dilated(
                x, w, (stride, stride), ((edge, edge), (edge, edge)), feature_group_count=groups)
        return ns.jax.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1)) if what == "grad" else f

    def torch(t: Any) -> Function:
        def f(x: Any, w: Any) -> Any:
            return t.nn.functional.conv2d(x, w, stride=stride, padding=edge, groups=groups)
        return _torch_grad(t, lambda x, w: (f(x, w) ** 2).sum(), 2) if what == "grad" else f
    return Case(f"conv {what} {_of(shapes[0])} with {_of(shapes[1])} stride {stride}", shapes, of,
                torch)


def norms(draw: Draw) -> Case:
    name = _pick(draw, ("softmax", "log_softmax", "logsumexp", "layer norm"))
    shape = _shape(draw, 256, 4 << 20)
    axis, grad = int(draw.integers(len(shape))), bool(draw.integers(2))

    def of(ns: SimpleNamespace) -> Function:
        nn, jnp = ns.jax.nn, ns.jnp

        def f(x: Any) -> Any:
            if name == "layer norm":
                x = x - x.mean(axis, keepdims=True)
                return x / jnp.sqrt((x * x).mean(axis, keepdims=True) + 1e-5)
            return getattr(nn, name)(x, axis=axis)
        return ns.jax.grad(lambda x: (f(x) ** 2).sum()) if grad else f

    def torch(t: Any) -> Function:
        def f(x: Any) -> Any:
            if name == "layer norm":
                x = x - x.mean(axis, keepdim=True)
                return x / t.sqrt((x * x).mean(axis, keepdim=True) + 1e-5)
            return getattr(t, name)(x, dim=axis)
        return _torch_grad(t, lambda x: (f(x) ** 2).sum(), 1) if grad else f
    return Case(f"{'grad of ' * grad}{name} {_of(shape)} axis {axis}", (shape,), of, torch)


_CHAINS: dict[str, Callable[[Any], Function]] = {
    "x * y + 1": lambda m: lambda x, y: x * y + 1,
    "where(x > 0, x, y)": lambda m: lambda x, y: m.where(x > 0, x, y),
    "x / y": lambda m: lambda x, y: x / y,
    "sqrt(abs(x)) + y": lambda m: lambda x, y: m.sqrt(m.abs(x)) + y,
    "floor(x) - y": lambda m: lambda x, y: m.floor(x) - y,
    "maximum(x, y)": lambda m: lambda x, y: m.maximum(x, y),
    "tanh(x) * y + x": lambda m: lambda x, y: m.tanh(x) * y + x,
    "polynomial": lambda m: lambda x, y: ((x * y + 1) * y - 2) * x + y * y,
    "x > y": lambda m: lambda x, y: x > y,
    "hypot by hand": lambda m: lambda x, y: m.sqrt(x * x + y * y),
    "gelu": lambda m: lambda x, y: 0.5 * x * (1 + m.tanh(0.79788 * (x + 0.044715 * x ** 3))) + y,
    "clip": lambda m: lambda x, y: m.clip(x, -1, 1) * y,
}


def chains(draw: Draw) -> Case:
    name, shape = _pick(draw, list(_CHAINS)), _shape(draw)
    other = shape if draw.random() < 0.7 else (shape[-1],)
    return Case(f"{name} {_of(shape)}, {_of(other)}", (shape, other),
                lambda ns: _CHAINS[name](ns.jnp), _CHAINS[name])


_UNARY = ("exp", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "arcsin", "arccos", "arctan",
          "sinh", "cosh", "tanh", "arcsinh", "arctanh", "exp2", "sigmoid", "erf", "power",
          "arctan2", "fmod", "lgamma", "rsqrt", "cbrt")


def transcendentals(draw: Draw) -> Case:
    name, shape = _pick(draw, _UNARY), _shape(draw, 256, 16 << 20)

    def f(m: Any, find: Callable[[str], Function]) -> Function:
        if name in ("power", "arctan2", "fmod"):
            return lambda x: find(name)(m.abs(x) + 0.1, x)
        if name in ("log", "log2", "log1p", "rsqrt"):
            return lambda x: find(name)(m.abs(x))
        return lambda x: find(name)(x)

    def of(ns: SimpleNamespace) -> Function:
        homes = {"sigmoid": ns.jax.nn, "erf": ns.lax, "lgamma": ns.lax, "rsqrt": ns.lax}
        return f(ns.jnp, lambda n: getattr(homes.get(n, ns.jnp), n))
    torch = None if name == "cbrt" else lambda t: f(t, lambda n: getattr(
        t, {"power": "pow"}.get(n, n)))
    return Case(f"{name} {_of(shape)}", (shape,), of, torch)


def permutes(draw: Draw) -> Case:
    shape = _shape(draw, 256, 8 << 20)
    while len(shape) == 1:
        shape = _shape(draw, 256, 8 << 20)
    order = tuple(map(int, draw.permutation(len(shape))))
    add = bool(draw.integers(2))
    transposed = tuple(shape[a] for a in order)
    if add:
        return Case(f"permute {_of(shape)} to {order} + y", (shape, transposed),
                    lambda ns: lambda x, y: ns.jnp.transpose(x, order) + y,
                    lambda t: lambda x, y: t.permute(x, order) + y)
    return Case(f"permute {_of(shape)} to {order}", (shape,),
                lambda ns: lambda x: ns.jnp.transpose(x, order) * 2,
                lambda t: lambda x: (t.permute(x, order) * 2).contiguous())


def joins(draw: Draw) -> Case:
    kind = _pick(draw, ("concatenate", "stack", "pad", "pad edge", "slice", "set", "roll", "split"))
    parts = _pick(draw, (2, 3, 4, 8, 20, 50))
    shape = _shape(draw, 256, (8 << 20) // (parts if kind in ("concatenate", "stack") else 1))
    axis = int(draw.integers(len(shape)))
    name = f"{kind} {_of(shape)} axis {axis}"
    n = shape[axis]
    part = (slice(None),) * axis + (slice(n // 4, max(n // 4 + 1, 3 * n // 4)),)
    widths = [(0, 0)] * axis + [(1, 2)] + [(0, 0)] * (len(shape) - axis - 1)
    if kind in ("concatenate", "stack"):
        torch_name = {"concatenate": "cat"}.get(kind, kind)
        return Case(f"{name} of {parts}", (shape,) * parts,
                    lambda ns: lambda *xs: getattr(ns.jnp, kind)(xs, axis=axis),
                    lambda t: lambda *xs: getattr(t, torch_name)(xs, dim=axis))
    if kind == "set":
        def assign(x: Any) -> Any:
            x = x.clone()
            x[part] = 1.0
            return x
        return Case(name, (shape,), lambda ns: lambda x: x.at[part].set(1.0), lambda t: assign)
    if kind == "slice":
        return Case(name, (shape,), lambda ns: lambda x: x[part] + 1.0,
                    lambda t: lambda x: x[part] + 1.0)
    if kind == "split":
        return Case(name, (shape,), lambda ns: lambda x: ns.jnp.array_split(x * 2, 3, axis),
                    lambda t: lambda x: t.tensor_split(x * 2, 3, axis))
    if kind == "roll":
        return Case(name, (shape,), lambda ns: lambda x: ns.jnp.roll(x, 3, axis),
                    lambda t: lambda x: t.roll(x, 3, axis))
    flat = [w for pair in reversed(widths) for w in pair]
    mode = "edge" if kind == "pad edge" else "constant"
    return Case(name, (shape,), lambda ns: lambda x: ns.jnp.pad(x, widths, mode=mode),
                None if mode == "edge" else lambda t: lambda x: t.nn.functional.pad(x, flat))


def gathers(draw: Draw) -> Case:
    rows, width = _size(draw, 16, 100_000), _size(draw, 1, 300)
    width = min(width, max(1, (8 << 20) // rows))
    count = _size(draw, 1, 50_000)
    count = min(count, max(1, (8 << 20) // width))
    kind = _pick(draw, ("take", "add", "set", "grad"))
    if kind == "set":  # JAX and PyTorch may keep either of two values written to one index
        count = min(count, rows)
    shapes = ((rows, width), (count,))
    name, limits = f"{kind} {count} of {rows}x{width}", ((1, rows),)
    if kind == "take":
        return Case(name, shapes, lambda ns: lambda x, i: x[i],
                    lambda t: lambda x, i: x[i.long()], limits)
    if kind == "grad":
        return Case(name, shapes, lambda ns: ns.jax.grad(lambda x, i: (x[i] ** 2).sum()),
                    lambda t: _torch_grad(t, lambda x, i: (x[i] ** 2).sum(), 1), limits)
    return Case(name, (*shapes, (count, width)),
                lambda ns: lambda x, i, u: getattr(x.at[i], kind)(u),
                lambda t: lambda x, i, u: x.index_put((i,), u, accumulate=kind == "add"), limits,
                1 if kind == "set" else None)


def places(draw: Draw) -> Case:
    name, shape = _pick(draw, ("argmax", "argmin")), _shape(draw)
    if draw.random() < 0.3:
        shape = (_size(draw, 64, 1 << 20), _size(draw, 2, 40))
    axis = int(draw.integers(len(shape)))
    return Case(f"{name} {_of(shape)} axis {axis}", (shape,),
                lambda ns: lambda x: getattr(ns.jnp, name)(x, axis=axis),
                lambda t: lambda x: getattr(t, name)(x, dim=axis))


def cumulative(draw: Draw) -> Case:
    name, shape = _pick(draw, ("cumsum", "cumsum", "cumprod")), _shape(draw, 64, 2 << 20)
    axis = int(draw.integers(len(shape)))
    return Case(f"{name} {_of(shape)} axis {axis}", (shape,),
                lambda ns: lambda x: getattr(ns.jnp, name)(x, axis=axis),
                lambda t: lambda x: getattr(t, name)(x, dim=axis))


def sorts(draw: Draw) -> Case:
    name, shape = _pick(draw, ("sort", "argsort")), _shape(draw, 64, 1 << 20)
    axis = int(draw.integers(len(shape)))
    return Case(f"{name} {_of(shape)} axis {axis}", (shape,),
                lambda ns: lambda x: getattr(ns.jnp, name)(x, axis=axis),
                lambda t: lambda x: t.sort(x, dim=axis)[0] if name == "sort" else
                t.argsort(x, dim=axis, stable=True))


def outers(draw: Draw) -> Case:
    m, n = _size(draw, 16, 4096), _size(draw, 16, 4096)
    kind = _pick(draw, ("product", "difference", "distances"))
    if kind == "distances":
        m, n = min(m, 1500), min(n, 1500)
        return Case(f"distances {m}, {n}", ((m, 3), (n, 3)),
                    lambda ns: lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1),
                    lambda t: lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1))
    sign = -1 if kind == "difference" else 0

    def f(x: Any, y: Any) -> Any:
        return x[:, None] - y[None] if sign else x[:, None] * y[None]
    return Case(f"outer {kind} {m}, {n}", ((m,), (n,)), lambda ns: f, lambda t: f)


def attentions(draw: Draw) -> Case:
    heads, length, width = _size(draw, 1, 12), _size(draw, 8, 700), _pick(draw, (16, 32, 64, 80))
    causal, grad = bool(draw.integers(2)), bool(draw.integers(2))

    def of(ns: SimpleNamespace) -> Function:
        jnp = ns.jnp

        def f(q: Any, k: Any, v: Any) -> Any:
            s = jnp.einsum("hqd,hkd->hqk", q, k) * width ** -0.5
            if causal:
                s = jnp.where(jnp.tril(jnp.ones((length, length), bool)), s, -1e30)
            return jnp.einsum("hqk,hkd->hqd", ns.jax.nn.softmax(s, -1), v)
        return ns.jax.grad(lambda *qkv: (f(*qkv) ** 2).sum(), (0, 1, 2)) if grad else f

    def torch(t: Any) -> Function:
        def f(q: Any, k: Any, v: Any) -> Any:
            return t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return _torch_grad(t, lambda *qkv: (f(*qkv) ** 2).sum(), 3) if grad else f
    return Case(f"{'grad of ' * grad}attention {heads}x{length}x{width}{' causal' * causal}",
                ((heads, length, width),) * 3, of, torch)


FAMILIES: dict[str, Callable[[Draw], Case]] = {
    f.__name__: f for f in (
        reductions, products, mlp_steps, convolutions, norms, chains, transcendentals, permutes,
        joins, gathers, places, cumulative, sorts, outers, attentions)}


def cases(count: int, seed: int, families: list[str]) -> Iterator[tuple[str, Case]]:
    """Return so many different cases, the families in turn; a smaller count gives a prefix."""
    draws = {f: np.random.default_rng([seed, list(FAMILIES).index(f)]) for f in families}
    seen: set[str] = set()
    for family in itertools.islice(itertools.cycle(families), count):
        case = FAMILIES[family](draws[family])
        while case.name in seen:
            case = FAMILIES[family](draws[family])
        seen.add(case.name)
        yield family, case

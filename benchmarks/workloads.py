"""Workloads written once against the API that JAX and fnx share, so that one source runs on both.

``WORKLOADS`` maps a name to a builder: it takes a namespace with the modules ``jax`` (the target
itself), ``jnp``, ``lax`` and ``random``, and returns a function and its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from lanes import LANES  # next to this file
from layers import SINGLE
from loops import LOOPS

Builder = Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]


def _generator() -> np.random.Generator:
    return np.random.default_rng(0)


def _normal(ns: Any, *shape: int, scale: float = 1.0, dtype: str = "float32") -> Any:
    values = _generator().standard_normal(shape) * scale
    return ns.jnp.asarray(values.astype(dtype))


def _normals(ns: Any, scale: float) -> tuple[np.random.Generator, Callable[..., Any]]:
    """Return a generator, and a function that draws float32 arrays of a shape from it."""
    generator = _generator()

    def draw(*shape: int) -> Any:
        values = generator.standard_normal(shape) * scale
        return ns.jnp.asarray(values.astype("float32"))

    return generator, draw


def _integers(ns: Any, generator: np.random.Generator, high: int, *shape: int) -> Any:
    return ns.jnp.asarray(generator.integers(0, high, shape).astype("int32"))


def _gradient_step(ns: Any, loss: Callable[..., Any], rate: float = 0.1, dtype: str = "float32"
                   ) -> Any:
    """jit of: loss and gradient, and plain gradient descent on every parameter.

    In a low-precision dtype the loss is computed in that dtype, from float32 parameters, and
    multiplied by 1024 so that small gradients do not underflow in float16.
    """
    def narrow(x: Any) -> Any:
        return x.astype(dtype) if x.dtype == "float32" else x

    def scaled(params: Any, x: Any, y: Any) -> Any:
        return loss(ns.jax.tree.map(narrow, params), narrow(x), y) * factor

    factor = 1.0 if dtype == "float32" else 1024.0

    def step(params: Any, x: Any, y: Any) -> Any:
        value, gradient = ns.jax.value_and_grad(scaled)(params, x, y)
        return value / factor, ns.jax.tree.map(lambda p, g: p - rate / factor * g, params, gradient)

    return ns.jax.jit(step)


def _cross_entropy(ns: Any, logits: Any, labels: Any) -> Any:
    log_probabilities = ns.jax.nn.log_softmax(logits)
    hits = log_probabilities * ns.jax.nn.one_hot(labels, 10)
    return -ns.jnp.mean(ns.jnp.sum(hits, -1))


def matmul(n: int, dtype: str = "float32") -> Builder:
    def build(ns: Any) -> Any:
        a = _normal(ns, n, n, dtype=dtype)
        b = _normal(ns, n, n, dtype=dtype)
        return ns.jax.jit(lambda a, b: a @ b), (a, b)
    return build


def elementwise(ns: Any, n: int = 1 << 24) -> Any:
    jnp = ns.jnp

    def f(x: Any) -> Any:
        return jnp.tanh(x) * 2 + jnp.sin(x) * jnp.exp(-x * x)

    return ns.jax.jit(f), (_normal(ns, n),)


def saxpy(ns: Any, n: int = 1 << 24) -> Any:
    return ns.jax.jit(lambda x: x * 2 + 1), (_normal(ns, n),)


def reduce_sum(ns: Any, n: int = 1 << 24) -> Any:
    return ns.jax.jit(lambda x: ns.jnp.sum(x)), (_normal(ns, n),)


def softmax(ns: Any, rows: int = 4096, columns: int = 4096) -> Any:
    return ns.jax.jit(lambda x: ns.jax.nn.softmax(x, axis=-1)), (_normal(ns, rows, columns),)


def layernorm_grad(ns: Any, rows: int = 4096) -> Any:
    jnp = ns.jnp

    def f(x: Any) -> Any:
        mean = jnp.mean(x, -1, keepdims=True)
        variance = jnp.var(x, -1, keepdims=True)
        return jnp.sum(jnp.tanh((x - mean) / jnp.sqrt(variance + 1e-5)))

    return ns.jax.jit(ns.jax.grad(f)), (_normal(ns, rows, 1024),)


def mlp_step(ns: Any, dtype: str = "float32", width: int = 512) -> Any:
    jnp, jax = ns.jnp, ns.jax
    generator, normal = _normals(ns, 0.05)
    sizes = [784, width, width, 10]
    params = [(normal(i, o), jnp.zeros((o,), "float32")) for i, o in zip(sizes, sizes[1:])]
    x = jnp.asarray(generator.standard_normal((128, 784)).astype("float32"))
    y = _integers(ns, generator, 10, 128)

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = params[-1]
        return _cross_entropy(ns, x @ w + b, y)

    return _gradient_step(ns, loss, dtype=dtype), (params, x, y)


def cnn_step(ns: Any, batch: int = 64) -> Any:
    jnp, jax, lax = ns.jnp, ns.jax, ns.lax
    generator, normal = _normals(ns, 0.05)
    params = dict(c1=normal(32, 1, 3, 3), c2=normal(64, 32, 3, 3),
                  w=normal(64 * 7 * 7, 10), b=normal(10))
    x = jnp.asarray(generator.standard_normal((batch, 1, 28, 28)).astype("float32"))
    y = _integers(ns, generator, 10, batch)

    def layer(x: Any, filters: Any) -> Any:
        x = jax.nn.relu(lax.conv_general_dilated(x, filters, (1, 1), "SAME"))
        window = (1, 1, 2, 2)
        return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")

    def loss(params: Any, x: Any, y: Any) -> Any:
        x = layer(layer(x, params["c1"]), params["c2"])
        return _cross_entropy(ns, x.reshape(batch, -1) @ params["w"] + params["b"], y)

    return _gradient_step(ns, loss), (params, x, y)


def gpt_step(ns: Any, layers: int = 4, width: int = 256, heads: int = 8, length: int = 128,
             batch: int = 8, vocabulary: int = 256, dtype: str = "float32") -> Any:
    jnp, jax = ns.jnp, ns.jax
    generator, normal = _normals(ns, 0.02)

    def layer() -> dict[str, Any]:
        return dict(qkv=normal(width, 3 * width), o=normal(width, width),
                    up=normal(width, 4 * width), dn=normal(4 * width, width),
                    g1=jnp.ones((width,), "float32"), g2=jnp.ones((width,), "float32"))

    params = dict(emb=normal(vocabulary, width), pos=normal(length, width),
                  out=normal(width, vocabulary), layers=[layer() for _ in range(layers)])
    x = _integers(ns, generator, vocabulary, batch, length)
    y = _integers(ns, generator, vocabulary, batch, length)
    mask = jnp.tril(jnp.ones((length, length), "bool"))
    scale = float(np.sqrt(width // heads))

    def norm(x: Any, gain: Any) -> Any:
        centred = x - jnp.mean(x, -1, keepdims=True)
        return centred / jnp.sqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * gain

    def attention(x: Any, p: Any) -> Any:
        q, k, v = (a.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)
                   for a in jnp.split(x @ p["qkv"], 3, -1))
        scores = jnp.where(mask, q @ k.swapaxes(-1, -2) / scale, -1e9)
        mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3)
        return mixed.reshape(batch, length, width) @ p["o"]

    def loss(params: Any, x: Any, y: Any) -> Any:
        h = params["emb"][x] + params["pos"]
        for p in params["layers"]:
            h = h + attention(norm(h, p["g1"]), p)
            h = h + jax.nn.gelu(norm(h, p["g2"]) @ p["up"]) @ p["dn"]
        log_probabilities = jax.nn.log_softmax(h @ params["out"])
        return -jnp.mean(jnp.take_along_axis(log_probabilities, y[..., None], -1))

    return _gradient_step(ns, loss, dtype=dtype), (params, x, y)


def rnn_grad(ns: Any, length: int = 256, width: int = 128, batch: int = 16) -> Any:
    jnp = ns.jnp
    _, normal = _normals(ns, 0.05)
    params = (normal(width, width), normal(width, width), normal(width))
    xs = normal(length, batch, width)

    def loss(params: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            h = jnp.tanh(x @ params[0] + h @ params[1] + params[2])
            return h, h
        _, hs = ns.lax.scan(cell, jnp.zeros((batch, width), "float32"), xs)
        return jnp.mean(hs ** 2)

    return ns.jax.jit(ns.jax.grad(loss)), (params, xs)


def scan_scalar(ns: Any, length: int = 100_000) -> Any:
    jnp = ns.jnp

    def lorenz(s: Any, _: Any) -> Any:
        ds = jnp.stack([10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]])
        return s + 0.001 * ds, None

    start = jnp.asarray(np.array([1.0, 1.0, 1.0], "float32"))
    return ns.jax.jit(lambda s: ns.lax.scan(lorenz, s, None, length=length)[0]), (start,)


def hessian_logreg(ns: Any, samples: int = 4096, features: int = 64) -> Any:
    jnp = ns.jnp
    generator, normal = _normals(ns, 1.0)
    x = normal(samples, features)
    y = jnp.asarray(generator.integers(0, 2, samples).astype("float32"))

    def loss(w: Any) -> Any:
        z = x @ w
        return jnp.mean(jnp.logaddexp(0.0, z) - y * z)

    return ns.jax.jit(ns.jax.hessian(loss)), (jnp.zeros((features,), "float32"),)


def nbody_grad(ns: Any, bodies: int = 2048) -> Any:
    jnp = ns.jnp

    def energy(p: Any) -> Any:
        d = p[:, None] - p[None]
        return -0.5 * jnp.sum(1 / jnp.sqrt(jnp.sum(d * d, -1) + 1e-3))

    return ns.jax.jit(ns.jax.grad(energy)), (_normal(ns, bodies, 3),)


def dispatch(ns: Any) -> Any:
    return ns.jax.jit(lambda x: x + 1), (ns.jnp.asarray(np.zeros(8, "float32")),)


def dispatch100(ns: Any) -> Any:
    leaves = {f"p{i}": ns.jnp.asarray(np.zeros(8, "float32")) for i in range(100)}
    return ns.jax.jit(lambda t: ns.jax.tree.map(lambda x: x + 1, t)), (leaves,)


WORKLOADS: dict[str, Builder] = {
    "matmul1024": matmul(1024),
    "matmul2048": matmul(2048),
    "saxpy16M": saxpy,
    "elementwise16M": elementwise,
    "sum16M": reduce_sum,
    "softmax4096": softmax,
    "layernorm_grad": layernorm_grad,
    "mlp_step": mlp_step,
    "cnn_step": cnn_step,
    "gpt_step": gpt_step,
    "rnn_grad": rnn_grad,
    "scan_scalar100k": scan_scalar,
    "scan_scalar2k": partial(scan_scalar, length=2000),
    "hessian_logreg": hessian_logreg,
    "nbody_grad": nbody_grad,
    "dispatch": dispatch,
    "dispatch100": dispatch100,
    **LOOPS, **LANES, **SINGLE,
}

# Smaller versions, for devices whose thread groups run on the processor.
SMALLER: dict[str, Builder] = {
    "matmul1024": matmul(200), "matmul2048": matmul(333),
    "saxpy16M": partial(saxpy, n=1 << 18), "elementwise16M": partial(elementwise, n=1 << 18),
    "sum16M": partial(reduce_sum, n=1 << 20), "softmax4096": partial(softmax, rows=64),
    "layernorm_grad": partial(layernorm_grad, rows=64), "mlp_step": partial(mlp_step, width=128),
    "cnn_step": partial(cnn_step, batch=4),
    "gpt_step": partial(gpt_step, layers=2, width=64, heads=4, length=32, batch=2),
    "rnn_grad": partial(rnn_grad, length=16, width=64, batch=4),
    "scan_scalar100k": partial(scan_scalar, length=1000),
    "scan_scalar2k": partial(scan_scalar, length=200),
    "hessian_logreg": partial(hessian_logreg, samples=512, features=24),
    "nbody_grad": partial(nbody_grad, bodies=200),
    "dispatch": dispatch, "dispatch100": dispatch100,
}

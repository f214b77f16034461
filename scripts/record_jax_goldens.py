"""Record JAX's answers to expressions in tests/golden/public.json, which the tests replay on fnx.

    python scripts/record_jax_goldens.py

Each expression can use jnp, lax, nn, random, np and the small arrays of ``tests/golden/inputs.py``.
Recorded are dtype, weak type, shape and values. Only public behavior is recorded.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"

STRONG = ["b", "i", "u", "f"]
WEAK = ["True", "2", "2.5"]
BINARY = ["add", "multiply", "divide", "floor_divide", "power", "maximum", "less"]

PROMOTION = [f"jnp.{op}({x}, {y})" for op in BINARY for x in STRONG for y in STRONG + WEAK] + [
    f"jnp.{op}({x}, {y})" for op in BINARY for x in WEAK for y in STRONG] + [
    f"jnp.{f}({x})" for f in ("exp", "abs", "floor", "sum", "mean", "max", "square", "isnan")
    for x in STRONG] + [
    "jnp.asarray(1) + f", "jnp.asarray(1.0) + i", "jnp.asarray([1, 2]) * 2.5", "i / i", "i // 2",
    "-i % 3", "f ** 2", "i ** 2", "i ** -f", "2 ** i", "f % 1.5", "-f // 2", "b & True", "i ^ 1",
    "i << 2", "-i >> 1", "jnp.where(b, 1, 2.5)", "jnp.where(b, i, 2)", "f == 1", "i == 1.0",
    "jnp.asarray(np.float64(3)) + f", "jnp.asarray(np.int64(3)) + u", "jnp.full((2,), 1)",
    "jnp.full_like(f, 1)", "jnp.arange(3)", "jnp.arange(3.0)", "jnp.arange(0.0, 1.0, 0.25)",
    "jnp.zeros(2, int)", "jnp.zeros(2, float)", "jnp.zeros(2, bool)", "f.astype(int)",
    "jnp.asarray([1e20, -1e20, np.nan]).astype(int)", "jnp.asarray([300.7, -1.5]).astype('uint32')",
    "jnp.concatenate([i, f])", "jnp.stack([i, u])", "jnp.clip(i, 1.5, 2)", "jnp.clip(f, 1, 2)",
    "jnp.var(i)", "jnp.std(b)", "jnp.prod(u)", "jnp.cumsum(b)", "jnp.argmax(f)", "jnp.any(i)",
]

INDEXING = [
    "x[1]", "x[-1, ::-1]", "x[:, 1:, ::2]", "x[..., 0]", "x[None, :, 0]", "x[out]", "x[:, out]",
    "x[np.array([0, 1]), :, np.array([2, 0])]", "x[:, np.array([0, 1]), np.array([2, 0])]",
    "x[np.array([[0], [1]]), np.array([0, 2])]", "x[x > 5]", "v[out]", "v[jnp.int32(9)]",
    "v.at[out].get()", "v.at[out].get(mode='fill')", "v.at[out].get(mode='fill', fill_value=-7)",
    "v.at[out].get(mode='clip')", "jnp.take(v, out)", "jnp.take(v, out, mode='clip')",
    "jnp.take(v, out, mode='wrap')", "jnp.take(i, out)", "jnp.take(u, out)", "jnp.take(b, out)",
    "jnp.take(x, np.array([1, 0]), axis=1)", "v.at[out].set(9.0)", "v.at[out].add(9.0)",
    "v.at[out].set(9.0, mode='clip')", "v.at[np.array([1, 1, 1])].add(1.0)",
    "v.at[np.array([1, 1, 1])].multiply(2.0)", "v.at[1:3].set(0)", "v.at[::-2].add(10)",
    "x.at[0, :, 1].set(-1)", "x.at[:, np.array([0, 2])].min(3)", "x.at[..., 0].max(7)",
    "x.at[1, np.array([0, 0])].add(np.arange(4.0))", "i.at[out].set(7)", "b.at[0].set(False)",
    "jnp.take_along_axis(x, np.array([[[1], [0], [3]], [[0], [1], [2]]]), -1)",
    "jnp.take_along_axis(x, np.array([[[1, 0, 0, 2]]]), 1)",
    "lax.dynamic_slice(x, (1, jnp.int32(1), jnp.int32(5)), (1, 2, 2))",
    "lax.dynamic_slice(v, (jnp.int32(-1),), (2,))",
    "lax.dynamic_update_slice(x, jnp.zeros((1, 2, 2)), (jnp.int32(5), 0, jnp.int32(1)))",
    "lax.dynamic_index_in_dim(x, 1, 1, False)", "lax.slice(x, (0, 1, 0), (2, 3, 3), (1, 1, 2))",
]

FUNCTIONS = [
    "jnp.einsum('ij,jk', m, m.T)", "jnp.einsum('ii->i', s)", "jnp.einsum('ii', s)",
    "jnp.einsum('...j,j->...', x[..., 1:], f)", "jnp.einsum('ij,jk,kl->il', m, m.T, m)",
    "jnp.einsum('bij,bkj->bik', x, x)", "jnp.einsum('i,j->ij', f, v)", "x[..., 1:] @ f",
    "x[..., 1:] @ m.T", "jnp.tensordot(x, m, ((1,), (1,)))", "jnp.dot(m, f)",
    "jnp.inner(m, m)", "jnp.outer(f, f)",
    "jnp.vdot(f, f)", "jnp.kron(f, f)", "jnp.trace(s)", "jnp.tril(s, 1)", "jnp.triu(s, -1)",
    "jnp.eye(3, 4, 1)", "jnp.tri(3, k=-1)", "jnp.linspace(0, 1, 7)", "jnp.linspace(f, 1, 3)",
    "jnp.linspace(0, 1, 4, endpoint=False)", "jnp.diag(f)", "jnp.diag(s, 1)", "jnp.diagonal(x)",
    "jnp.pad(m, ((1, 0), (0, 2)), constant_values=7)", "jnp.pad(v, 2, mode='reflect')",
    "jnp.pad(v, 2, mode='wrap')", "jnp.roll(x, (1, 2), (0, 2))", "jnp.roll(m, 5)",
    "jnp.repeat(m, 2, 1)", "jnp.repeat(v, np.array([1, 0, 2, 1, 3]))", "jnp.tile(m, (2, 1, 2))",
    "jnp.moveaxis(x, 0, -1)", "jnp.split(v, [1, 3])[1]", "jnp.array_split(v, 3)[2]",
    "jnp.cumsum(x, 1)", "jnp.cumprod(f)", "jnp.logaddexp(f, -f)", "jnp.hypot(f, 4.0)",
    "jnp.sign(-f)", "jnp.sinh(v - 2)", "jnp.cosh(v - 2)", "jnp.tan(f)", "jnp.exp2(f)",
    "jnp.log2(f)", "jnp.log10(f)", "jnp.round(f * 1.37, 1)", "jnp.nan_to_num(odd)",
    "jnp.max(odd)", "jnp.argmax(odd)", "jnp.argmin(odd)", "jnp.sum(odd, where=odd == odd)",
    "jnp.maximum(odd, 0)", "jnp.sign(odd)", "jnp.floor_divide(odd, 2)", "jnp.isclose(f, f + 1e-9)",
    "jnp.linalg.norm(m)", "jnp.linalg.norm(m, axis=1)", "jnp.linalg.norm(m, 1)",
    "jnp.linalg.norm(f, 3)", "jnp.linalg.norm(f, np.inf)", "jnp.var(m, 0, ddof=1)",
    "jnp.mean(x, (0, 2), keepdims=True)", "jnp.meshgrid(f, v)[0]",
    "nn.relu(v - 2)", "nn.gelu(v - 2)", "nn.gelu(v - 2, approximate=False)", "nn.silu(v - 2)",
    "nn.softplus(v - 2)", "nn.sigmoid(v - 2)", "nn.elu(v - 2)", "nn.selu(v - 2)",
    "nn.celu(v - 2, 0.5)", "nn.leaky_relu(v - 2)", "nn.log_sigmoid(v - 2)", "nn.mish(v - 2)",
    "nn.hard_swish(v - 2)", "nn.glu(x, 2)", "nn.softmax(x)", "nn.softmax(x, (0, 1))",
    "nn.log_softmax(x, 0)", "nn.logsumexp(x, 1)", "nn.softmax(f, where=b)",
    "nn.one_hot(np.array([0, 2, -1, 3]), 3)", "nn.one_hot(np.array([0, 2]), 3, axis=0)",
    "nn.standardize(x)", "lax.erf(v - 2)", "lax.erfc(v)", "lax.erf_inv(f / 4)", "lax.rsqrt(f)",
    "lax.clamp(1.0, f, 2.0)", "lax.rev(x, (0, 2))", "lax.pad(v, 0.0, [(-1, 2, 1)])",
    "lax.broadcast_in_dim(f, (3, 2), (0,))", "lax.reduce_max(x, (0, 1))", "lax.iota('int32', 4)",
    "lax.dot_general(x, x, (((2,), (2,)), ((0,), (0,))))", "lax.div(-i, 2)", "lax.rem(-i, 2)",
    "lax.shift_right_logical(-i, 1)", "lax.bitcast_convert_type(f, 'int32')",
    "lax.cumsum(v, reverse=True)", "lax.select_n(np.array([0, 1, 2]), f, -f, 10 * f)",
]

RANDOM = [
    "random.PRNGKey(0)", "random.PRNGKey(-1)", "random.PRNGKey(2**40 + 5)", "random.split(k)",
    "random.split(k, 5)", "random.split(k, (2, 3))", "random.fold_in(k, 3)",
    "random.fold_in(k, 2**32 - 1)", "random.bits(k)", "random.bits(k, (3, 5))",
    "random.uniform(k)", "random.uniform(k, (7,))", "random.uniform(k, (3,), minval=-2, maxval=9)",
    "random.randint(k, (20,), 0, 10)", "random.randint(k, (20,), -1000, 2**31 - 1)",
    "random.randint(k, (5,), 3, 3)", "random.randint(k, (2, 3), np.array([0, 5, 9]), 10)",
    "random.randint(k, (5,), 0, 1000, 'uint32')", "random.normal(k, (50,))",
    "random.normal(k, (3, 4))", "random.bernoulli(k, 0.3, (20,))", "random.rademacher(k, (9,))",
    "random.exponential(k, (9,))", "random.gumbel(k, (9,))", "random.laplace(k, (9,))",
    "random.logistic(k, (9,))", "random.truncated_normal(k, -2.0, 1.0, (20,))",
    "random.permutation(k, 1)", "random.permutation(k, 40)", "random.permutation(k, x, 1)",
    "random.choice(k, 10, (4, 2))", "random.choice(k, x, (3,), axis=2)",
    "random.choice(k, 10, (6,), replace=False)",
    "random.choice(k, 4, (9,), p=np.array([0.1, 0.2, 0.3, 0.4]))",
    "random.categorical(k, m)", "random.categorical(k, m, axis=0)",
    "random.categorical(k, m, shape=(3, 2))",
    "nn.initializers.glorot_normal()(k, (4, 3))", "nn.initializers.he_uniform()(k, (4, 3))",
    "nn.initializers.lecun_normal()(k, (4, 3))", "nn.initializers.normal(0.1)(k, (4, 3))",
]

_LANES = [
    "lax.psum(r, 'i')", "lax.psum(1, 'i') + r", "lax.psum(r > 14, 'i')", "lax.pmean(r, 'i')",
    "lax.pmean(r.astype(int), 'i')", "lax.pmax(r, 'i')", "lax.pmin({'a': -r}, 'i')['a']",
    "lax.axis_index('i')", "r * lax.axis_size('i')", "lax.all_gather(r, 'i')",
    "lax.all_gather(r, 'i', axis=-1)", "lax.all_gather(r, 'i', tiled=True)",
    "lax.ppermute(r, 'i', [(0, 1), (1, 2), (2, 0)])", "lax.pshuffle(r, 'i', [2, 0, 1])",
    "lax.pswapaxes(r, 'i', 0)", "lax.all_to_all(r, 'i', 0, 0)",
    "lax.all_to_all(jnp.outer(r, r), 'i', 0, 1)",
    "lax.all_to_all(jnp.outer(r, r), 'i', 1, 0, tiled=True)", "lax.psum_scatter(r, 'i')",
    "lax.psum_scatter(jnp.outer(r, r), 'i', scatter_dimension=1, tiled=True)",
    "vmap(lambda y: lax.psum(y, 'i') + lax.axis_index('i'), axis_name='i')(r) + lax.psum(r, 'i')",
    "vmap(lambda y: lax.psum(y * y, ('i', 'j')), axis_name='j')(r)",
    "vmap(lambda y: lax.axis_index(('j', 'i')) + y, axis_name='j')(r)",
    "grad(lambda r: (lax.psum(r * r, 'i') * r).sum())(r)",
    "grad(lambda r: (lax.all_gather(jnp.sin(r), 'i') * r).sum())(r)",
    "grad(lambda r: (lax.ppermute(r * r, 'i', [(0, 1), (1, 2), (2, 0)]) * r).sum())(r)",
    "grad(lambda r: (lax.all_to_all(r * r, 'i', 0, 0) * r).sum())(r)",
    "grad(lambda r: (lax.psum_scatter(r * r, 'i') * r).sum())(r)",
]
LANES = [f"vmap(lambda r: {body}, axis_name='i')(s)" for body in _LANES] + [
    "grad(lambda s: vmap(lambda r: lax.psum(r * r, 'i') * r, axis_name='i')(s).sum())(s)",
    "vmap(lambda a, b: a @ b, in_axes=(None, 1), out_axes=-1)(m, s)",
    "vmap(lambda d: d['a'] * d['b'], in_axes=({'a': 0, 'b': None},))({'a': s, 'b': 2})",
    "vmap(lambda: jnp.ones(2), axis_size=3, out_axes=1)()", "vmap(lambda r: 2.5, out_axes=0)(s)",
    "vmap(lambda r, j: r.at[j].add(r))(s, np.array([[0, 1, 1]] * 3))",
    "vmap(lambda r, j: r[j], in_axes=(0, None))(s, i)", "vmap(lambda r, j: r[j])(s, i - 1)",
    "vmap(lambda q: random.normal(q, (2,)))(random.split(k, 3))",
    "vmap(lambda q: random.bits(random.fold_in(q, 3)))(random.split(k, 3))",
]

_SCANS = {
    "lax.scan(lambda c, r: (c * 0.5 + r, c - r), 0.0, v)": 2,
    "lax.scan(lambda c, r: (c * 0.5 + r, c - r), 0, v, reverse=True)": 2,
    "lax.scan(lambda c, r: (c + 1, c * 2.5), 0, None, length=4)": 2,
    "lax.scan(lambda c, r: (c + 1.5, c), 0, v[:0])": 2,
    "lax.scan(lambda c, r: (c @ s * 0.1, (c * r).sum()), f, v, unroll=2)": 2,
    "lax.scan(lambda c, r: (jnp.where(r[1], c + r[0], c), ~r[1]), 0, (i, b))": 2,
    "lax.scan(lambda c, r: (c + r['a'].sum(), r['b'] * c), jnp.float32(1), {'a': m.T, 'b': f})": 2,
    "lax.scan(lambda c, r: ((c[1], c[0] + r), c[0]), (0, 1), i)[0]": 2,
    "lax.scan(lambda c, r: (c, 2.0), jnp.ones(()), f)": 2,
    "lax.scan(lambda c, r: (c.at[r].set(r * 1.5), c[r]), v, i, unroll=True)": 2,
    "lax.scan(lambda c, r: lax.scan(lambda d, q: (d * 0.9 + q, d), c, r), 0.0, m)": 2,
    "lax.scan(lambda c, r: (lax.cond(r > 1, lambda: c * 2, lambda: c + r), c), 1.0, f)": 2,
    "lax.scan(lambda c, r: (lax.while_loop(lambda d: d < r, lambda d: d * 2 + 1, c), c), 0., v)": 2,
}
_WINDOWS = [
    "{x}, 0.0, lax.add, (1, 2, 2)", "{x}, 1.0, lax.add, (1, 2, 2), (1, 1, 2), 'SAME'",
    "{x}, -jnp.inf, lax.max, (1, 3, 3), (1, 2, 2), 'SAME'", "{x}, 1.0, lax.mul, (2, 1, 3)",
    "{x}, jnp.inf, lax.min, (1, 2, 3), (1, 1, 1), ((0, 1), (2, 0), (1, 1))",
    "{x}, 0.0, lax.add, (1, 2, 2), (1, 1, 1), 'VALID', (1, 2, 3), (1, 1, 2)",
    "{v}, 0.0, lax.add, (3,), (2,), 'SAME_LOWER'", "{v}, 0.0, lax.add, (9,)",
    "{v}, 0.0, lambda a, c: a + c * c, (3,), (1,), 'SAME'",
    "{i}, 0, lambda a, c: lax.max(c, a), (2,)", "{b}, False, lax.bitwise_or, (2,)",
    "{v}, 2.0, lambda a, c: a * 0.5 + c, (3,), (1,), 'SAME', (2,)",
]
LOOPS = [f"{text}[{k}]" for text, n in _SCANS.items() for k in range(n)] + [
    "lax.map(lambda r: r * 2 + 1, i)", "lax.map(lambda r: r[0] @ r[1], (m, s[:2]))",
    "lax.fori_loop(2, 6, lambda j, c: c * 0.5 + j, 1)",
    "lax.fori_loop(3, 1, lambda j, c: c + 1, f)",
    "lax.fori_loop(0, i[1], lambda j, c: c + j * f, f)", "lax.fori_loop(-2, 3, lambda j, c: j, 0)",
    "lax.fori_loop(0, 4, lambda j, c: c.at[j].add(c[j - 1]), v)",
    "lax.while_loop(lambda c: c < 50, lambda c: c * 3, 1)",
    "lax.while_loop(lambda c: c.sum() < 50, lambda c: c @ s + 1, f)",
    "lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 1.5), (0, f))[1]",
    "lax.while_loop(lambda c: c < 0, lambda c: c + 1, 2.5)",
    "lax.cond(f[0] > 1, lambda q: q * 2, lambda q: q - 1, f)",
    "lax.cond(i[0], lambda: 1, lambda: 2)",
    "lax.cond(b[1], lambda q: q, lambda q: -q, operand=v)",
    "lax.cond(False, f, lambda q: q * 2, v, lambda q: q[:3])",
    "lax.switch(i[1], [lambda q: q, lambda q: q * q, lambda q: q + f], f)",
    "lax.switch(7, [lambda q: q, lambda q: q * q], f)", "lax.switch(-7, [lambda: 1, lambda: 2])",
    *[f"lax.associative_scan(lambda a, c: a * 0.5 + c * a, {x}, reverse={r})"
      for x in ("f", "v[:1]", "v[:0]") for r in (False, True)],
    "lax.associative_scan(lambda a, c: (a[0] * c[0], a[1] * c[0] + c[1]), (f, 2 * f))[1]",
    "lax.associative_scan(jnp.matmul, jnp.stack([s, s.T, -s]) * 0.1)",
    "lax.associative_scan(lax.max, x, axis=2)", "lax.associative_scan(lax.add, x, True, axis=1)",
    *[f"lax.{name}({x})" for name in ("cummax", "cummin", "cumsum", "cumprod", "cumlogsumexp")
      for x in ("v - 2", "x, 1", "x, 2, reverse=True")], "lax.cummax(odd)", "lax.cummin(i)",
    "lax.reduce(x, 0.0, lax.add, (0, 2))", "lax.reduce(x, 2.0, lambda a, c: c * a, (1,))",
    "lax.reduce(i, 7, lax.bitwise_xor, (0,))", "lax.reduce(b, True, lax.bitwise_and, (0,))",
    "lax.reduce(x, 0.0, lambda a, c: a + c * c, (0, 1))",
    "lax.reduce((x, -x), (0.0, 9.0), lambda a, c: (a[0] + c[0], lax.min(a[1], c[1])), (1,))[1]",
    "lax.reduce((s, s.T), (-1.0, -1.0), lambda a, c: (jnp.where(a[0] >= c[0], a[0], c[0]), "
    "jnp.where(a[0] >= c[0], a[1], c[1])), (1,))[1]",
    *["lax.reduce_window(" + w.format(x="x", v="v", i="i", b="b") + ")" for w in _WINDOWS],
    "lax.map(lambda r: jnp.sin(r) * v[0], v, batch_size=2)",
    *[f"grad(lambda q: jnp.sum({body} ** 2))({at})" for body, at in (
        ("lax.scan(lambda c, r: (jnp.sin(c) * r + q[0], c), q[1], q)[1]", "f"),
        ("lax.scan(lambda c, r: (c * r, c + r), jnp.ones(4), q[0], reverse=True)[0]", "x / 9"),
        ("lax.fori_loop(0, 4, lambda j, c: jnp.tanh(c @ s * 0.1) + q * j, q)", "f"),
        ("lax.cond(q[0] > 1, lambda: q * 2, lambda: jnp.exp(q))", "f"),
        ("lax.switch(i[1], [lambda p: p, lambda p: p * p, lambda p: p * q[0]], q)", "f"),
        ("lax.map(lambda r: r @ r, q)", "m"),
        ("lax.associative_scan(lambda a, c: a * c, q)", "f"),
        ("lax.cummax(q)", "f"), ("lax.cumlogsumexp(q)", "f"), ("lax.cumprod(q)", "f"),
        ("lax.reduce_window(q, 0.0, lax.add, (2, 2), (1, 2), 'SAME')", "m"),
        ("lax.reduce_window(q, -jnp.inf, lax.max, (2, 2), (1, 1), 'SAME')", "s"))],
    "vmap(lambda r, n: lax.fori_loop(0, n, lambda j, c: c * 0.5 + j, r))(s, i)",
    "vmap(lambda r: lax.while_loop(lambda c: c.sum() < 50, lambda c: c * 2 + 1, r))(s)",
    "vmap(lambda r, p: lax.cond(p, lambda c: c * 2, lambda c: c - 1, r))(s, b)",
    "vmap(lambda r: lax.scan(lambda c, e: (c * 0.5 + e, c), 1.0, r)[1])(s)",
]

MODES = [
    "jvp(lambda q: q * 2, (3.0,), (1.0,))[1]", "jvp(lambda q: q * f, (3.0,), (2.0,))[1]",
    "jvp(lambda q: q * 2, (3.0,), (jnp.ones(()),))[1]", "jvp(lambda q: 2.0, (3.0,), (1.0,))[1]",
    "jvp(lambda q, r: q @ r, [m, m.T], [m * m, m.T])[1]",
    "jvp(lambda q: (q * q, q), (f,), (v[:3],), has_aux=True)[1]",
    "jvp(lambda q: jnp.max(q), (v * 0,), (v,))[1]", "vjp(lambda q: q * 2, 3.0)[1](1.0)[0]",
    "vjp(lambda q: q * f, 3.0)[1](v[:3])[0]", "vjp(lambda q, r: (q * r, q), f, 4.0)[1]((f, f))[1]",
    "vjp(lambda q: q[i], v)[1](f)[0]", "linearize(lambda q: jnp.sin(q) * q.sum(), f)[1](v[:3])",
    "linearize(lambda q: q * q, 3.0)[1](1.0)",
    "vmap(linearize(lambda q: jnp.sin(q) * q.sum(), f)[1])(s)",
    "linear_transpose(lambda q: {'a': q.sum(), 'b': q * 2}, f)({'a': 1.0, 'b': f})[0]",
    "linear_transpose(lambda q, r: m @ q - r, f, v[:2])(v[:2])[1]",
    *[f"{jac}({body})({at})" for jac in ("jacfwd", "jacrev") for body, at in (
        ("lambda q: m @ q", "f"), ("lambda q: jnp.tanh(m @ q)", "f"), ("jnp.sin", "2.0"),
        ("lambda q: q * q.sum()", "s"), ("lambda q: q.max()", "jnp.ones(4)"),
        ("lambda q: q[i]", "v"), ("lambda q: q.at[out].add(1)", "v"),
        ("vmap(lambda q: q * q.sum())", "s"), ("lambda q: 2.5 * f", "v"))],
    *[f"{jac}(lambda q: {{'y': jnp.sin(q['a']) * q['b'], 'z': q['a'].sum()}})"
      f"({{'a': f, 'b': 3.0}})['{y}']['{a}']"
      for jac in ("jacfwd", "jacrev") for y in "yz" for a in "ab"],
    *[f"{jac}(lambda q, r: q * r * r, argnums={n})(f, 3.0){k}" for jac in ("jacfwd", "jacrev")
      for n, k in ((-1, ""), ((0, 1), "[0]"), ((1,), "[0]"))],
    "hessian(lambda q: (q ** 3).sum())(f)", "hessian(lambda q: q * q * q)(2.0)",
    "hessian(lambda q: jnp.logaddexp(0.0, m @ q / 9).sum())(f)", "hessian(lambda q: q * q)(f)",
    "hessian(lambda q: jnp.sin(q['a'] * q['b']).sum())({'a': f, 'b': 3.0})['a']['b']",
    "hessian(lambda q: jnp.sin(q['a'] * q['b']).sum())({'a': f, 'b': 3.0})['b']['a']",
    "hessian(lambda q, r: q * r * r, argnums=(0, 1))(2.0, 3.0)[1][0]",
    "hessian(lambda q: (q * q, q), has_aux=True)(2.0)[0]",
    "vmap(hessian(lambda q: (q ** 3).sum()))(s)", "vmap(jacrev(lambda q: q * q.sum()))(s)",
    "grad(lambda q: jnp.trace(hessian(lambda r: (r ** 3).sum())(q)))(f)",
    "jacfwd(jacfwd(lambda q: q * q * q.sum()))(f)",
    "jacrev(lambda q: lax.scan(lambda c, r: (c * r + jnp.sin(c), c), q[0], q)[1])(f)",
    "hessian(lambda q: lax.scan(lambda c, r: (c * r + jnp.sin(c), c), q[0], q)[0])(f)",
    "jacfwd(lambda q: lax.while_loop(lambda c: c.sum() < 50, lambda c: c * c + q, q))(f)",
    "hessian(lambda q: lax.cond(q.sum() > 1, lambda r: (r ** 3).sum(), lambda r: r.sum(), q))(f)",
    "grad(lambda q: grad(lambda r: (q * r * r).sum())(q).sum())(f)",
    "jvp(grad(lambda q: (q ** 3).sum()), (f,), (v[:3],))[1]",
]

GROUPS = {"promotion": PROMOTION, "indexing": INDEXING, "functions": FUNCTIONS, "random": RANDOM,
          "lanes": LANES, "loops": LOOPS, "modes": MODES}


def inputs() -> Any:
    """Import the module of shared inputs, by path, so that tests/ need not be a package."""
    spec = importlib.util.spec_from_file_location("inputs", GOLDEN / "inputs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(expression: str, names: dict[str, Any]) -> dict[str, Any]:
    """Return the value of an expression as plain data."""
    x = eval(expression, names)
    values = np.asarray(x)
    if hasattr(x, "dtype") and jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
        values = np.asarray(jax.random.key_data(x))
    return {"dtype": str(values.dtype), "weak": bool(getattr(x, "weak_type", False)),
            "shape": list(values.shape), "values": values.ravel().tolist()}


def main() -> None:
    names = inputs().names(jax, jax.numpy, jax.lax, jax.nn, jax.random)
    recorded = {group: {e: answer(e, names) for e in expressions}
                for group, expressions in GROUPS.items()}
    recorded["jax"] = jax.__version__  # type: ignore[assignment]
    lines = [f'  "jax": {json.dumps(jax.__version__)}']
    for group in GROUPS:
        rows = ",\n".join(f"    {json.dumps(e)}: {json.dumps(a)}"
                          for e, a in recorded[group].items())
        lines.append(f'  "{group}": {{\n{rows}\n  }}')
    (GOLDEN / "public.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

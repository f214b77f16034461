"""Sequence models: transformers, recurrent networks, state spaces, and decoding with a cache."""

import numpy as np

from programs.dense_nets import cross_entropy, layer_norm, mlp, residual_params, sgd_step
from programs.registry import Draws, program


def attention_params(d, width, layers, hidden=4):
    s = width ** -0.5
    return [dict(qkv=d.normal(width, 3 * width, scale=s), out=d.normal(width, width, scale=s))
            | residual_params(d, width, hidden * width, 1)[0] for _ in range(layers)]


def heads_of(x, heads):
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def attend(ns, q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
    if mask is not None:
        scores = ns.jnp.where(mask, scores, -1e9)
    return ns.jax.nn.softmax(scores) @ v


def transformer(ns, layers, x, heads, mask=None):
    jnp, jax = ns.jnp, ns.jax
    batch, length, width = x.shape
    for p in layers:
        h = layer_norm(jnp, x, p["scale"], p["shift"])
        q, k, v = (heads_of(a, heads) for a in jnp.split(h @ p["qkv"], 3, -1))
        mixed = attend(ns, q, k, v, mask).transpose(0, 2, 1, 3).reshape(batch, length, width)
        x = x + mixed @ p["out"]
        h = layer_norm(jnp, x, p["scale"], p["shift"])
        x = x + jax.nn.gelu(h @ p["up"]) @ p["down"]
    return x


SMALL = dict(batch=2, length=8, width=16, heads=2, layers=1)


@program(**SMALL, vocabulary=20)
def gpt_step(ns, batch=8, length=128, width=128, heads=4, layers=3, vocabulary=256):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params = dict(tokens=d.normal(vocabulary, width, scale=0.1),
                  places=d.normal(length, width, scale=0.1),
                  layers=attention_params(d, width, layers))
    mask = jnp.tril(jnp.ones((length, length), bool))

    def loss(p, x, y):
        h = transformer(ns, p["layers"], p["tokens"][x] + p["places"], heads, mask)
        log_p = jax.nn.log_softmax(h @ p["tokens"].T)
        return -jnp.mean(jnp.take_along_axis(log_p, y[..., None], -1))
    return (sgd_step(ns, loss), (params, d.integers(vocabulary, batch, length),
                                 d.integers(vocabulary, batch, length)))


@program({"": {}, "one head 2048": dict(batch=1, length=2048, width=64, heads=1, layers=1)},
         **SMALL)
def encoder_forward(ns, batch=8, length=196, width=192, heads=3, layers=4):
    d = Draws(ns)
    return (ns.jax.jit(lambda p, x: transformer(ns, p, x, heads)),
            (attention_params(d, width, layers), d.normal(batch, length, width)))


@program(batch=2, size=8, width=16, heads=2, layers=1, patch=4)
def vit_step(ns, batch=16, size=32, width=128, heads=4, layers=3, patch=4):
    jnp, d = ns.jnp, Draws(ns)
    count = (size // patch) ** 2
    params = dict(patch=d.normal(patch * patch * 3, width, scale=0.1), cls=d.normal(1, 1, width),
                  places=d.normal(count + 1, width, scale=0.1), head=d.normal(width, 10, scale=0.1),
                  layers=attention_params(d, width, layers))

    def loss(p, x, y):
        n = size // patch
        x = x.reshape(batch, n, patch, n, patch, 3).transpose(0, 1, 3, 2, 4, 5)
        x = x.reshape(batch, count, -1) @ p["patch"]
        x = jnp.concatenate([jnp.broadcast_to(p["cls"], (batch, 1, width)), x], 1) + p["places"]
        return cross_entropy(ns, transformer(ns, p["layers"], x, heads)[:, 0] @ p["head"], y)
    return (sgd_step(ns, loss), (params, d.uniform(batch, size, size, 3), d.integers(10, batch)))


def decode_layers(ns, p, token, caches, t, heads, length):
    """Run one token through all layers; return the logits and the updated caches."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    x, kept = p["tokens"][token] + p["places"][t], []
    batch, width = x.shape
    for layer, (ck, cv) in zip(p["layers"], caches):
        h = layer_norm(jnp, x, layer["scale"], layer["shift"])
        q, k, v = (a.reshape(batch, heads, 1, -1) for a in jnp.split(h @ layer["qkv"], 3, -1))
        ck = lax.dynamic_update_slice(ck, k, (0, 0, t, 0))
        cv = lax.dynamic_update_slice(cv, v, (0, 0, t, 0))
        mixed = attend(ns, q, ck, cv, jnp.arange(length) <= t)
        x = x + mixed.reshape(batch, width) @ layer["out"]
        h = layer_norm(jnp, x, layer["scale"], layer["shift"])
        x = x + jax.nn.gelu(h @ layer["up"]) @ layer["down"]
        kept.append((ck, cv))
    return x @ p["tokens"].T, kept


def decoder_params(ns, d, batch, length, width, heads, layers, vocabulary=256):
    params = dict(tokens=d.normal(vocabulary, width, scale=0.1),
                  places=d.normal(length, width, scale=0.1),
                  layers=attention_params(d, width, layers))
    empty = ns.jnp.zeros((batch, heads, length, width // heads))
    return params, [(empty, empty)] * layers


@program(**SMALL)
def gpt_decode_greedy(ns, batch=4, length=64, width=128, heads=4, layers=2):
    jnp, d = ns.jnp, Draws(ns)
    params, caches = decoder_params(ns, d, batch, length, width, heads, layers)

    @ns.jax.jit
    def decode(p, caches, first):
        def step(carry, t):
            token, caches = carry
            logits, caches = decode_layers(ns, p, token, caches, t, heads, length)
            token = jnp.argmax(logits, -1).astype(token.dtype)
            return (token, caches), token
        return ns.lax.scan(step, (first, caches), jnp.arange(length))[1].T
    return decode, (params, caches, d.integers(256, batch))


@program({"batch 1": dict(batch=1), "batch 8 wide": dict(batch=8, width=1024, heads=16, layers=2)},
         **SMALL)
def gpt_decode_one_token(ns, batch=1, length=512, width=512, heads=8, layers=4):
    d = Draws(ns)
    params, caches = decoder_params(ns, d, batch, length, width, heads, layers)
    f = ns.jax.jit(lambda p, caches, token, t: decode_layers(ns, p, token, caches, t, heads,
                                                             length))
    return f, (params, caches, d.integers(256, batch), ns.jnp.int32(length // 2))


@program(batch=2, heads=2, length=16, width=4, steps=4)
def kv_cache_updates(ns, batch=8, heads=16, length=512, width=64, steps=64):
    lax, d = ns.lax, Draws(ns)

    @ns.jax.jit
    def fill(cache, new):
        def step(i, cache):
            return lax.dynamic_update_slice(cache, new * i, (0, 0, i, 0))
        return lax.fori_loop(0, steps, step, cache)
    return fill, (d.normal(batch, heads, length, width), d.normal(batch, heads, 1, width))


@program({f"axis {axis}": dict(axis=axis) for axis in range(4)}, shape=(2, 2, 4, 4))
def donated_cache_update(ns, axis=2, shape=(8, 16, 512, 64)):
    """A step writes one place along an axis of a cache that it owns, and returns the cache."""
    jax, d = ns.jax, Draws(ns)
    update = jax.jit(lambda cache, new, i: ns.lax.dynamic_update_slice_in_dim(cache, new, i, axis),
                     donate_argnums=0)
    held = [d.normal(*shape)]

    def step(new, i):
        held[0] = update(held[0], new, i)
        return held[0]
    step.lower = lambda new, i: update.lower(held[0], new, i)
    return step, (d.normal(*[1 if a == axis else n for a, n in enumerate(shape)]),
                  ns.jnp.int32(1))


@program(batch=2, queries=4, length=8, width=16, heads=2)
def cross_attention_grad(ns, batch=8, queries=32, length=512, width=128, heads=4):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(w, x, context):
        q, k, v = (heads_of(a, heads) for a in (x @ w[0], context @ w[1], context @ w[2]))
        return jnp.mean(attend(ns, q, k, v) ** 2)
    w = [d.normal(width, width, scale=width ** -0.5) for _ in range(3)]
    return (jax.jit(jax.grad(loss)), (w, d.normal(batch, queries, width),
                                      d.normal(batch, length, width)))


@program(batch=1, length=16, width=8, heads=2, window=4)
def rotary_window_attention(ns, batch=4, length=512, width=256, heads=4, window=64):
    jnp, d = ns.jnp, Draws(ns)

    def rotate(x):
        half = x.shape[-1] // 2
        angle = jnp.arange(length)[:, None] * 10000.0 ** (-jnp.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle),
                                a * jnp.sin(angle) + b * jnp.cos(angle)], -1)

    @ns.jax.jit
    def forward(w, x):
        q, k, v = (heads_of(a, heads) for a in jnp.split(x @ w, 3, -1))
        i, j = jnp.arange(length)[:, None], jnp.arange(length)
        return attend(ns, rotate(q), rotate(k), v, (i >= j) & (i - j < window))
    return forward, (d.normal(width, 3 * width, scale=0.05), d.normal(batch, length, width))


@program(batch=1, length=8, width=8, heads=2)
def linear_attention(ns, batch=4, length=512, width=256, heads=4):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def forward(w, x):
        q, k, v = (heads_of(a, heads) for a in jnp.split(x @ w, 3, -1))
        q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1

        def step(carry, now):
            total, norm = carry
            q, k, v = now
            total, norm = total + k[..., :, None] * v[..., None, :], norm + k
            out = jnp.einsum("bhd,bhde->bhe", q, total) / jnp.sum(q * norm, -1, keepdims=True)
            return (total, norm), out
        size = width // heads
        start = jnp.zeros((batch, heads, size, size)), jnp.zeros((batch, heads, size))
        return ns.lax.scan(step, start, tuple(a.transpose(2, 0, 1, 3) for a in (q, k, v)))[1]
    return forward, (d.normal(width, 3 * width, scale=0.05), d.normal(batch, length, width))


def lstm(ns, p, xs, width):
    jax, jnp = ns.jax, ns.jnp

    def cell(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, -1)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h
    zeros = jnp.zeros((xs.shape[1], width))
    return ns.lax.scan(cell, (zeros, zeros), xs)[1]


def lstm_params(d, size, width):
    return dict(x=d.normal(size, 4 * width, scale=size ** -0.5),
                h=d.normal(width, 4 * width, scale=width ** -0.5), b=d.normal(4 * width, scale=0.1))


@program({"128": {}, "512": dict(batch=64, width=512, length=20)}, batch=2, length=5, size=8,
         width=8)
def lstm_forward(ns, batch=32, length=100, size=64, width=128):
    d = Draws(ns)
    return (ns.jax.jit(lambda p, xs: lstm(ns, p, xs, width)),
            (lstm_params(d, size, width), d.normal(length, batch, size)))


@program(batch=2, length=5, size=8, width=8)
def lstm_step(ns, batch=32, length=50, size=64, width=128):
    d = Draws(ns)

    def loss(p, xs, y):
        return ns.jnp.mean((lstm(ns, p, xs, width)[-1].sum(-1) - y) ** 2)
    return (sgd_step(ns, loss), (lstm_params(d, size, width), d.normal(length, batch, size),
                                 d.normal(batch)))


@program(batch=2, length=5, width=8)
def gru_language_model_step(ns, batch=16, length=64, width=128, vocabulary=128):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    s = width ** -0.5
    params = dict(emb=d.normal(vocabulary, width), out=d.normal(width, vocabulary, scale=s),
                  x=d.normal(width, 3 * width, scale=s), h=d.normal(width, 3 * width, scale=s))

    def loss(p, x, y):
        def cell(h, x):
            xz, xr, xn = jnp.split(x @ p["x"], 3, -1)
            hz, hr, hn = jnp.split(h @ p["h"], 3, -1)
            z, r = jax.nn.sigmoid(xz + hz), jax.nn.sigmoid(xr + hr)
            h = (1 - z) * jnp.tanh(xn + r * hn) + z * h
            return h, h
        hs = ns.lax.scan(cell, jnp.zeros((batch, width)), p["emb"][x.T])[1]
        return cross_entropy(ns, (hs @ p["out"]).reshape(-1, vocabulary), y.T.reshape(-1))
    return (sgd_step(ns, loss), (params, d.integers(vocabulary, batch, length),
                                 d.integers(vocabulary, batch, length)))


@program(batch=1, length=16, width=4, state=2)
def diagonal_ssm_by_associative_scan(ns, batch=4, length=1024, width=32, state=8):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def run(a, b, c, x):
        decay = jnp.broadcast_to(jnp.exp(-jnp.exp(a)), (length, batch, width, state))
        drive = x[..., None] * b

        def combine(left, right):
            return left[0] * right[0], right[0] * left[1] + right[1]
        _, h = ns.lax.associative_scan(combine, (decay, drive))
        return jnp.sum(h * c, -1)
    return run, (d.normal(width, state), d.normal(width, state), d.normal(width, state),
                 d.normal(length, batch, width))


@program(batch=1, length=16, width=4, state=2)
def selective_ssm_step(ns, batch=4, length=128, width=64, state=8):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params = dict(a=d.normal(width, state), dt=d.normal(width, width, scale=0.1),
                  b=d.normal(width, state, scale=0.1), c=d.normal(width, state, scale=0.1))

    def loss(p, x, y):
        dt = jax.nn.softplus(x @ p["dt"])
        decay = jnp.exp(-dt[..., None] * jnp.exp(p["a"]))
        drive = (dt * x)[..., None] * (x @ p["b"])[:, :, None]

        def step(h, now):
            decay, drive, c = now
            h = decay * h + drive
            return h, jnp.einsum("bds,bs->bd", h, c)
        out = ns.lax.scan(step, jnp.zeros((batch, width, state)), (decay, drive, x @ p["c"]))[1]
        return jnp.mean((out - y) ** 2)
    return (sgd_step(ns, loss), (params, d.normal(length, batch, width),
                                 d.normal(length, batch, width)))


@program(batch=1, beams=2, steps=4, vocabulary=12, width=8)
def beam_search(ns, batch=4, beams=8, steps=32, vocabulary=1000, width=64):
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)

    @jax.jit
    def search(emb, w, out):
        def step(carry, _):
            h, score, token, tokens, t = carry
            h = jnp.tanh(h @ w + emb[token])
            total = score[..., None] + jax.nn.log_softmax(h @ out)
            score, flat = lax.top_k(total.reshape(batch, -1), beams)
            parent, token = flat // vocabulary, flat % vocabulary
            h = jnp.take_along_axis(h, parent[..., None], 1)
            tokens = jnp.take_along_axis(tokens, parent[..., None], 1).at[:, :, t].set(token)
            return (h, score, token, tokens, t + 1), None
        score = jnp.where(jnp.arange(beams) == 0, 0.0, -1e9) * jnp.ones((batch, 1))
        start = (jnp.zeros((batch, beams, width)), score, jnp.zeros((batch, beams), jnp.int32),
                 jnp.zeros((batch, beams, steps), jnp.int32), 0)
        _, score, _, tokens, _ = lax.scan(step, start, None, length=steps)[0]
        return score, tokens
    return search, (d.normal(vocabulary, width), d.normal(width, width, scale=0.1),
                    d.normal(width, vocabulary, scale=0.3))


@program(batch=2, vocabulary=50)
def top_k_sampling(ns, batch=64, vocabulary=8000, k=40):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def sample(logits, key):
        best, which = jax.lax.top_k(logits / 0.8, k)
        chosen = jax.random.categorical(key, best)
        return jnp.take_along_axis(which, chosen[:, None], -1)[:, 0]
    return sample, (d.normal(batch, vocabulary), ns.random.key(0))


@program(batch=2, vocabulary=50)
def nucleus_sampling(ns, batch=64, vocabulary=8000):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def sample(logits, key):
        order = jnp.argsort(-logits, -1)
        p = jax.nn.softmax(jnp.take_along_axis(logits, order, -1))
        kept = jnp.cumsum(p, -1) - p < 0.9
        chosen = jax.random.categorical(key, jnp.where(kept, jnp.log(p), -jnp.inf))
        return jnp.take_along_axis(order, chosen[:, None], -1)[:, 0]
    return sample, (d.normal(batch, vocabulary, scale=3), ns.random.key(0))


@program(batch=2, length=6, width=8, classes=5)
def text_classifier_step(ns, batch=64, length=128, width=64, vocabulary=10_000, classes=20):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params = dict(emb=d.normal(vocabulary, width, scale=0.1), net=d.weights(width, 128, classes))

    def loss(p, x, length, y):
        mask = (jnp.arange(x.shape[1]) < length[:, None])[..., None]
        pooled = jnp.sum(p["emb"][x] * mask, 1) / jnp.sum(mask, 1)
        return cross_entropy(ns, mlp(jax.nn.relu, p["net"], pooled), y)
    return (sgd_step(ns, loss), (params, d.integers(vocabulary, batch, length),
                                 d.integers(length, batch, low=1), d.integers(classes, batch)))


@program(batch=1, length=16, width=4)
def dilated_causal_convolutions_step(ns, batch=8, length=512, width=32, layers=5):
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)
    kernels = [d.normal(width, width, 2, scale=0.2) for _ in range(layers)]

    def loss(kernels, x, y):
        for i, k in enumerate(kernels):
            h = lax.conv_general_dilated(x, k, (1,), [(2 ** i, 0)], rhs_dilation=(2 ** i,))
            x = x + jax.nn.relu(h)
        return jnp.mean((x - y) ** 2)
    return (sgd_step(ns, loss), (kernels, d.normal(batch, width, length),
                                 d.normal(batch, width, length)))


@program(batch=1, beams=2, steps=4, vocabulary=16, width=8)
def beam_search_until_all_end(ns, batch=4, beams=8, steps=16, vocabulary=1000, width=64):
    """Scores are divided by a power of the length; a loop ends when all beams have."""
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)
    weights = (d.normal(vocabulary, width), d.normal(width, width, scale=0.1),
               d.normal(width, vocabulary, scale=0.3))

    @jax.jit
    def search(weights, first):
        tokens, again, out = weights

        def more(state):
            return (state[0] < steps) & ~jnp.all(state[4])

        def extend(state):
            t, words, scores, h, ended, lengths = state
            h = jnp.tanh(h @ again + tokens[words[:, :, t]])
            only_end = jnp.where(jnp.arange(vocabulary) == 0, 0.0, -jnp.inf)
            log_p = jnp.where(ended[..., None], only_end, jax.nn.log_softmax(h @ out))
            total, longer = scores[..., None] + log_p, lengths + ~ended
            fair = total / (((5.0 + longer) / 6.0) ** 0.6)[..., None]
            best = lax.top_k(fair.reshape(batch, -1), beams)[1]
            parent, word = best // vocabulary, best % vocabulary

            def take(x):
                return jax.vmap(lambda a, i: a[i])(x, parent)
            scores = jnp.take_along_axis(total.reshape(batch, -1), best, 1)
            return (t + 1, take(words).at[:, :, t + 1].set(word), scores, take(h),
                    take(ended) | (word == 0), take(longer))
        words = jnp.zeros((batch, beams, steps + 1), jnp.int32).at[:, :, 0].set(first[:, None])
        scores = jnp.where(jnp.arange(beams) == 0, 0.0, -1e9) * jnp.ones((batch, 1))
        state = (0, words, scores, jnp.zeros((batch, beams, width)),
                 jnp.zeros((batch, beams), bool), jnp.ones((batch, beams), jnp.int32))
        _, words, scores, _, _, lengths = lax.while_loop(more, extend, state)
        return words, scores, lengths
    return search, (weights, d.integers(vocabulary, batch, low=1))

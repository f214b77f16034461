"""Dense networks: forward and training steps."""

from programs.registry import Draws, program

RATE = 0.01


def sgd_step(ns, loss):
    """jit of a step of plain gradient descent on all parameters."""
    def step(params, *batch):
        value, gradient = ns.jax.value_and_grad(loss)(params, *batch)
        return value, ns.jax.tree.map(lambda p, g: p - RATE * g, params, gradient)
    return ns.jax.jit(step)


def cross_entropy(ns, logits, labels):
    log_p = ns.jax.nn.log_softmax(logits)
    return -ns.jnp.mean(ns.jnp.sum(log_p * ns.jax.nn.one_hot(labels, logits.shape[-1]), -1))


def mlp(activation, params, x):
    for w, b in params[:-1]:
        x = activation(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def layer_norm(jnp, x, scale, shift):
    mean = jnp.mean(x, -1, keepdims=True)
    var = jnp.var(x, -1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5) * scale + shift


DIGITS = (784, 512, 512, 10)


@program({f"batch {n}": dict(batch=n) for n in (32, 128, 1024)}
         | {"100-300-300-300-7": dict(sizes=(100, 300, 300, 300, 7), batch=256),
            "2048x4 batch 64": dict(sizes=(2048,) * 5, batch=64),
            "16-64-64-1 batch 4096": dict(sizes=(16, 64, 64, 1), batch=4096)},
         sizes=(20, 16, 16, 5), batch=8)
def mlp_step(ns, sizes=DIGITS, batch=128):
    d = Draws(ns)
    params, x = d.weights(*sizes), d.normal(batch, sizes[0])
    y = d.integers(sizes[-1], batch)

    def loss(params, x, y):
        return cross_entropy(ns, mlp(ns.jax.nn.relu, params, x), y)
    return sgd_step(ns, loss), (params, x, y)


@program({"784-512-512-10 batch 1024": dict(batch=1024), "784-512-512-10 batch 1": dict(batch=1),
          "256-512-256 batch 1024": dict(sizes=(256, 512, 256), batch=1024),
          "64x12 batch 2048": dict(sizes=(64,) * 13, batch=2048),
          "1000-333-77-5 batch 300": dict(sizes=(1000, 333, 77, 5), batch=300)},
         sizes=(20, 16, 5), batch=8)
def mlp_forward(ns, sizes=DIGITS, batch=128):
    d = Draws(ns)
    f = ns.jax.jit(lambda params, x: mlp(ns.jax.nn.relu, params, x))
    return f, (d.weights(*sizes), d.normal(batch, sizes[0]))


@program(batch=8, width=16, depth=2)
def tanh_mlp_adam_step(ns, batch=256, width=128, depth=6):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params = d.weights(8, *[width] * depth, 1)
    x, y = d.normal(batch, 8), d.normal(batch, 1)
    zeros = jax.tree.map(jnp.zeros_like, params)

    def loss(params, x, y):
        return jnp.mean((mlp(jnp.tanh, params, x) - y) ** 2)

    def step(params, m, v, t, x, y):
        g = jax.grad(loss)(params, x, y)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        new = jax.tree.map(lambda p, m, v: p - 1e-3 * (m / (1 - 0.9 ** t)) / (
            jnp.sqrt(v / (1 - 0.999 ** t)) + 1e-8), params, m, v)
        return new, m, v, t + 1
    return jax.jit(step), (params, zeros, zeros, jnp.float32(1.0), x, y)


def residual_params(d, width, hidden, depth):
    ones, zeros = d.uniform(width, low=1, high=1.2), d.normal(width, scale=0.1)
    return [dict(scale=ones, shift=zeros, up=d.normal(width, hidden, scale=width ** -0.5),
                 down=d.normal(hidden, width, scale=hidden ** -0.5)) for _ in range(depth)]


def prenorm(ns, layers, x):
    for p in layers:
        h = layer_norm(ns.jnp, x, p["scale"], p["shift"])
        x = x + ns.jax.nn.gelu(h @ p["up"]) @ p["down"]
    return x


@program(batch=8, width=16, hidden=32, depth=2)
def prenorm_residual_forward(ns, batch=512, width=256, hidden=1024, depth=4):
    d = Draws(ns)
    layers = residual_params(d, width, hidden, depth)
    return ns.jax.jit(lambda p, x: prenorm(ns, p, x)), (layers, d.normal(batch, width))


@program(batch=8, width=16, hidden=32, depth=2)
def prenorm_residual_step(ns, batch=256, width=256, hidden=512, depth=4):
    d = Draws(ns)
    layers = residual_params(d, width, hidden, depth)

    def loss(layers, x, y):
        return ns.jnp.mean((prenorm(ns, layers, x) - y) ** 2)
    return sgd_step(ns, loss), (layers, d.normal(batch, width), d.normal(batch, width))


def gated(ns, layers, x):
    for p in layers:
        h = x * ns.lax.rsqrt(ns.jnp.mean(x * x, -1, keepdims=True) + 1e-6) * p["scale"]
        x = x + (ns.jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
    return x


def gated_params(d, width, hidden, depth):
    return [dict(scale=d.uniform(width, low=0.9), gate=d.normal(width, hidden, scale=0.05),
                 up=d.normal(width, hidden, scale=0.05),
                 down=d.normal(hidden, width, scale=0.05)) for _ in range(depth)]


@program(batch=8, width=16, hidden=24, depth=2)
def gated_mlp_forward(ns, batch=256, width=384, hidden=1024, depth=3):
    d = Draws(ns)
    return (ns.jax.jit(lambda p, x: gated(ns, p, x)),
            (gated_params(d, width, hidden, depth), d.normal(batch, width)))


@program(batch=8, width=16, hidden=24, depth=2)
def gated_mlp_step(ns, batch=256, width=256, hidden=688, depth=2):
    d = Draws(ns)

    def loss(p, x, y):
        return ns.jnp.mean((gated(ns, p, x) - y) ** 2)
    return (sgd_step(ns, loss),
            (gated_params(d, width, hidden, depth), d.normal(batch, width),
             d.normal(batch, width)))


@program(batch=8, width=16)
def batch_norm_mlp_step(ns, batch=512, width=256):
    jnp, d = ns.jnp, Draws(ns)
    params = [(w, b, d.uniform(o, low=0.9, high=1.1)) for (w, b), o in zip(
        d.weights(64, width, width, width), (width,) * 3)]

    def loss(params, x, y):
        for w, b, g in params:
            x = x @ w
            x = (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5) * g + b
            x = jnp.maximum(x, 0)
        return jnp.mean((x.sum(-1) / 100 - y) ** 2)
    return sgd_step(ns, loss), (params, d.normal(batch, 64), d.normal(batch))


@program(batch=8, width=16)
def dropout_mlp_step(ns, batch=256, width=512):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(params, x, y, key):
        for i, (w, b) in enumerate(params[:-1]):
            x = jax.nn.relu(x @ w + b)
            keep = jax.random.bernoulli(jax.random.fold_in(key, i), 0.8, x.shape)
            x = jnp.where(keep, x / 0.8, 0)
        w, b = params[-1]
        return cross_entropy(ns, x @ w + b, y)
    return (sgd_step(ns, loss), (d.weights(128, width, width, 10), d.normal(batch, 128),
                                 d.integers(10, batch), ns.random.key(0)))


@program(batch=8, size=24, hidden=16, code=4)
def autoencoder_step(ns, batch=256, size=784, hidden=256, code=32):
    d = Draws(ns)

    def loss(params, x):
        logits = mlp(ns.jax.nn.elu, params, x)
        return ns.jnp.mean(ns.jnp.maximum(logits, 0) - logits * x
                           + ns.jnp.log1p(ns.jnp.exp(-abs(logits))))
    return (sgd_step(ns, loss), (d.weights(size, hidden, code, hidden, size),
                                 d.uniform(batch, size)))


@program(batch=8, size=24, hidden=16, code=4)
def vae_step(ns, batch=128, size=784, hidden=400, code=20):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params = dict(encoder=d.weights(size, hidden, 2 * code), decoder=d.weights(code, hidden, size))

    def loss(params, x, key):
        mean, log_var = jnp.split(mlp(jax.nn.relu, params["encoder"], x), 2, axis=-1)
        z = mean + jnp.exp(0.5 * log_var) * jax.random.normal(key, mean.shape)
        logits = mlp(jax.nn.relu, params["decoder"], z)
        nll = jnp.sum(jnp.logaddexp(0.0, logits) - x * logits, -1)
        kl = -0.5 * jnp.sum(1 + log_var - mean ** 2 - jnp.exp(log_var), -1)
        return jnp.mean(nll + kl) / size
    return sgd_step(ns, loss), (params, d.uniform(batch, size), ns.random.key(1))


@program(batch=8, size=24, hidden=16)
def gan_step(ns, batch=128, size=784, hidden=256):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    g, c = d.weights(64, hidden, hidden, size), d.weights(size, hidden, hidden, 1)

    def fake(g, key):
        return jnp.tanh(mlp(jax.nn.leaky_relu, g, jax.random.normal(key, (batch, 64))))

    def critic_loss(c, g, x, key):
        real = mlp(jax.nn.leaky_relu, c, x)
        made = mlp(jax.nn.leaky_relu, c, fake(g, key))
        return jnp.mean(jax.nn.softplus(-real)) + jnp.mean(jax.nn.softplus(made))

    def maker_loss(g, c, key):
        return jnp.mean(jax.nn.softplus(-mlp(jax.nn.leaky_relu, c, fake(g, key))))

    @jax.jit
    def step(g, c, x, key):
        k1, k2 = jax.random.split(key)
        lc, gc = jax.value_and_grad(critic_loss)(c, g, x, k1)
        c = jax.tree.map(lambda p, q: p - RATE * q, c, gc)
        lg, gg = jax.value_and_grad(maker_loss)(g, c, k2)
        return lc, lg, jax.tree.map(lambda p, q: p - RATE * q, g, gg), c
    return step, (g, c, d.uniform(batch, size, low=-1), ns.random.key(2))


@program(batch=8, size=24, width=16)
def contrastive_step(ns, batch=256, size=256, width=256):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params = dict(a=d.weights(size, width, 128), b=d.weights(size, width, 128),
                  scale=jnp.float32(2.0))

    def loss(p, x, y):
        a, b = mlp(jax.nn.gelu, p["a"], x), mlp(jax.nn.gelu, p["b"], y)
        a = a / jnp.linalg.norm(a, axis=-1, keepdims=True)
        b = b / jnp.linalg.norm(b, axis=-1, keepdims=True)
        logits = a @ b.T * jnp.exp(p["scale"])
        rows = jnp.diagonal(jax.nn.log_softmax(logits, -1))
        columns = jnp.diagonal(jax.nn.log_softmax(logits, 0))
        return -(rows + columns).mean() / 2
    return sgd_step(ns, loss), (params, d.normal(batch, size), d.normal(batch, size))


def time_features(jnp, t, count):
    angles = t[:, None] * jnp.exp(-jnp.arange(count) / count * 6.0)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


@program(batch=8, size=24, width=16)
def diffusion_step(ns, batch=256, size=256, width=512):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params = d.weights(size + 64, width, width, size)

    def loss(params, x, key):
        k1, k2 = jax.random.split(key)
        t = jax.random.uniform(k1, (x.shape[0],))
        noise = jax.random.normal(k2, x.shape)
        keep = jnp.cos(t * jnp.pi / 2)[:, None]
        noisy = keep * x + jnp.sqrt(1 - keep ** 2) * noise
        inputs = jnp.concatenate([noisy, time_features(jnp, t * 1000, 32)], -1)
        return jnp.mean((mlp(jax.nn.silu, params, inputs) - noise) ** 2)
    return sgd_step(ns, loss), (params, d.normal(batch, size), ns.random.key(3))


@program(batch=8, size=8, width=16, depth=2)
def normalizing_flow_step(ns, batch=512, size=64, width=128, depth=6):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    half = size // 2
    params = [d.weights(half, width, 2 * half) for _ in range(depth)]

    def loss(params, x):
        log_det = jnp.zeros(x.shape[0])
        for p in params:
            a, b = x[:, :half], x[:, half:]
            log_s, t = jnp.split(mlp(jax.nn.relu, p, a), 2, -1)
            log_s = jnp.tanh(log_s)
            b = b * jnp.exp(log_s) + t
            log_det = log_det + log_s.sum(-1)
            x = jnp.concatenate([b, a], -1)
        return jnp.mean(0.5 * jnp.sum(x * x, -1) - log_det)
    return sgd_step(ns, loss), (params, d.normal(batch, size))


@program(batch=8, users=50, items=40, width=8)
def recommender_step(ns, batch=4096, users=100_000, items=20_000, width=64):
    jnp, d = ns.jnp, Draws(ns)
    params = dict(users=d.normal(users, width, scale=0.1), items=d.normal(items, width, scale=0.1),
                  bias=d.normal(items, scale=0.1))

    def loss(p, u, i, y):
        score = jnp.sum(p["users"][u] * p["items"][i], -1) + p["bias"][i]
        return jnp.mean((score - y) ** 2)
    return (sgd_step(ns, loss), (params, d.integers(users, batch), d.integers(items, batch),
                                 d.normal(batch)))


@program(batch=8, width=16)
def two_tower_ranking(ns, batch=64, items=20_000, width=64):
    jax, d = ns.jax, Draws(ns)
    tower = d.weights(32, 128, width)

    @jax.jit
    def rank(tower, x, items):
        return jax.lax.top_k(mlp(jax.nn.relu, tower, x) @ items.T, 10)
    return rank, (tower, d.normal(batch, 32), d.normal(items, width))


@program(batch=8, width=16)
def one_hot_columns_mlp_step(ns, batch=1024, width=256):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    sizes = (7, 12, 24, 50, 100)
    params = d.weights(sum(sizes) + 8, width, width, 1)

    def loss(params, columns, x, y):
        hot = [jax.nn.one_hot(c, n) for c, n in zip(columns, sizes)]
        return jnp.mean((mlp(jax.nn.relu, params, jnp.concatenate([*hot, x], -1))[:, 0] - y) ** 2)
    columns = [d.integers(n, batch) for n in sizes]
    return sgd_step(ns, loss), (params, columns, d.normal(batch, 8), d.normal(batch))


def position_encoding(jnp, x, octaves=10):
    parts = [x]
    for i in range(octaves):
        parts += [jnp.sin(2.0 ** i * x), jnp.cos(2.0 ** i * x)]
    return jnp.concatenate(parts, axis=-1)


@program(rays=4, samples=4, width=16)
def nerf_forward(ns, rays=256, samples=32, width=128):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params = d.weights(63, width, width, width, 4)

    @jax.jit
    def render(params, origins, directions):
        t = jnp.linspace(0.1, 4.0, samples)
        points = origins[:, None] + directions[:, None] * t[:, None]
        out = mlp(jax.nn.relu, params, position_encoding(jnp, points))
        color, density = jax.nn.sigmoid(out[..., :3]), jax.nn.relu(out[..., 3])
        alpha = 1 - jnp.exp(-density * (4.0 / samples))
        seen = jnp.cumprod(1 - alpha + 1e-7, axis=-1)
        weights = alpha * jnp.concatenate([jnp.ones_like(seen[:, :1]), seen[:, :-1]], -1)
        return (weights[..., None] * color).sum(-2)
    return render, (params, d.normal(rays, 3, scale=0.1), d.normal(rays, 3))


@program(points=16, width=16)
def nerf_step(ns, points=4096, width=128):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(params, x, y):
        out = mlp(jax.nn.relu, params, position_encoding(jnp, x))
        return jnp.mean((jax.nn.sigmoid(out) - y) ** 2)
    return (sgd_step(ns, loss), (d.weights(63, width, width, width, 3), d.normal(points, 3),
                                 d.uniform(points, 3)))


@program(points=16, width=16)
def siren_pde_residual_step(ns, points=1024, width=64):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def field(params, x, t):
        return mlp(lambda h: jnp.sin(3 * h), params, jnp.stack([x, t]))[0]

    def residual(params, x, t):
        u_t = jax.grad(field, 2)(params, x, t)
        u_xx = jax.grad(jax.grad(field, 1), 1)(params, x, t)
        return u_t - 0.1 * u_xx

    def loss(params, x, t):
        r = jax.vmap(residual, (None, 0, 0))(params, x, t)
        return jnp.mean(r ** 2)
    return (sgd_step(ns, loss), (d.weights(2, width, width, 1), d.uniform(points),
                                 d.uniform(points)))


@program(batch=8, width=16, experts=4)
def mixture_of_experts_forward(ns, batch=512, width=128, hidden=256, experts=8):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    gate = d.normal(width, experts)
    up, down = d.normal(experts, width, hidden, scale=0.1), d.normal(experts, hidden, width)

    @jax.jit
    def moe(gate, up, down, x):
        weight, which = jax.lax.top_k(jax.nn.softmax(x @ gate), 2)
        chosen = jnp.sum(jax.nn.one_hot(which, experts) * weight[..., None], 1)
        h = jax.nn.relu(jnp.einsum("bd,edh->beh", x, up))
        return jnp.einsum("beh,ehd,be->bd", h, down, chosen)
    return moe, (gate, up, down, d.normal(batch, width))


@program(batch=8, width=16, experts=4)
def mixture_of_experts_step(ns, batch=256, width=128, hidden=256, experts=4):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params = dict(gate=d.normal(width, experts, scale=0.1),
                  up=d.normal(experts, width, hidden, scale=0.1),
                  down=d.normal(experts, hidden, width, scale=0.1))

    def loss(p, x, y):
        share = jax.nn.softmax(x @ p["gate"])
        out = jax.vmap(lambda u, w: jax.nn.relu(x @ u) @ w)(p["up"], p["down"])
        return jnp.mean((jnp.einsum("be,ebd->bd", share, out) - y) ** 2)
    return sgd_step(ns, loss), (params, d.normal(batch, width), d.normal(batch, width))


@program(batch=8, size=4, width=16)
def deep_sets_step(ns, batch=128, size=32, width=128):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params = dict(each=d.weights(8, width, width), all=d.weights(width, width, 1))

    def loss(p, x, mask, y):
        h = jnp.where(mask[..., None], mlp(jax.nn.relu, p["each"], x), 0)
        pooled = h.sum(1) / mask.sum(1, keepdims=True)
        return jnp.mean((mlp(jax.nn.relu, p["all"], pooled)[:, 0] - y) ** 2)
    mask = ns.jnp.arange(size) < d.integers(size, batch, 1, low=1)
    return sgd_step(ns, loss), (params, d.normal(batch, size, 8), mask, d.normal(batch))


@program(batch=8, width=16)
def q_learning_step(ns, batch=256, width=128):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params, target = d.weights(8, width, width, 4), d.weights(8, width, width, 4)

    def loss(params, target, s, a, r, s2, done):
        q = jnp.take_along_axis(mlp(jax.nn.relu, params, s), a[:, None], 1)[:, 0]
        best = jnp.max(mlp(jax.nn.relu, target, s2), -1)
        error = q - jax.lax.stop_gradient(r + 0.99 * (1 - done) * best)
        return jnp.mean(jnp.where(abs(error) < 1, 0.5 * error ** 2, abs(error) - 0.5))
    return (sgd_step(ns, loss), (params, target, d.normal(batch, 8), d.integers(4, batch),
                                 d.normal(batch), d.normal(batch, 8), d.uniform(batch).round()))


@program(steps=8, envs=4, width=16)
def ppo_step(ns, steps=128, envs=16, width=64):
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)
    params = dict(pi=d.weights(16, width, width, 6), v=d.weights(16, width, width, 1))

    def advantages(reward, value):
        def back(carry, now):
            r, v, v_next = now
            carry = r + 0.99 * v_next - v + 0.99 * 0.95 * carry
            return carry, carry
        return lax.scan(back, jnp.zeros(envs), (reward, value[:-1], value[1:]), reverse=True)[1]

    def loss(p, s, a, old, reward):
        value = mlp(jnp.tanh, p["v"], s)[..., 0]
        gain = lax.stop_gradient(advantages(reward, value))
        log_p = jax.nn.log_softmax(mlp(jnp.tanh, p["pi"], s[:-1]))
        ratio = jnp.exp(jnp.take_along_axis(log_p, a[..., None], -1)[..., 0] - old)
        clipped = jnp.clip(ratio, 0.8, 1.2)
        policy = -jnp.mean(jnp.minimum(ratio * gain, clipped * gain))
        entropy = -jnp.mean(jnp.sum(jnp.exp(log_p) * log_p, -1))
        fit = jnp.mean((value[:-1] - lax.stop_gradient(gain + value[:-1])) ** 2)
        return policy + 0.5 * fit - 0.01 * entropy
    return (sgd_step(ns, loss), (params, d.normal(steps + 1, envs, 16), d.integers(6, steps, envs),
                                 -d.uniform(steps, envs, low=1, high=2), d.normal(steps, envs)))


@program(batch=2, patches=8, width=16)
def mlp_mixer_forward(ns, batch=8, patches=196, width=128, depth=4):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    ones, zeros = jnp.ones(width), jnp.zeros(width)
    layers = [dict(tokens=d.weights(patches, 64, patches), channels=d.weights(width, 512, width))
              for _ in range(depth)]

    @jax.jit
    def forward(layers, x):
        for p in layers:
            h = layer_norm(jnp, x, ones, zeros).transpose(0, 2, 1)
            x = x + mlp(jax.nn.gelu, p["tokens"], h).transpose(0, 2, 1)
            x = x + mlp(jax.nn.gelu, p["channels"], layer_norm(jnp, x, ones, zeros))
        return x.mean(1)
    return forward, (layers, d.normal(batch, patches, width))


@program(batch=8, width=8)
def bfloat16_mlp_forward(ns, batch=512, width=512):
    jax, d = ns.jax, Draws(ns)
    weights = [d.normal(width, width, scale=width ** -0.5).astype("bfloat16") for _ in range(3)]

    @jax.jit
    def forward(weights, x):
        for w in weights[:-1]:
            x = jax.nn.relu(x @ w)
        return (x @ weights[-1]).astype("float32")
    return forward, (weights, d.normal(batch, width).astype("bfloat16"))

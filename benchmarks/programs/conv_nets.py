"""Convolutional networks: forward and training steps."""

from programs.dense_nets import cross_entropy, sgd_step
from programs.registry import Draws, program


def conv(ns, x, w, stride=1, groups=1, padding="SAME"):
    return ns.lax.conv_general_dilated(x, w, (stride, stride), padding, feature_group_count=groups)


def conv_last(ns, x, w, stride=1):
    """Convolution of channels-last images."""
    return ns.lax.conv_general_dilated(x, w, (stride, stride), "SAME",
                                       dimension_numbers=("NHWC", "HWIO", "NHWC"))


def max_pool(ns, x, n=2):
    return ns.lax.reduce_window(x, -ns.jnp.inf, ns.lax.max, (1, 1, n, n), (1, 1, n, n), "VALID")


def kernel(d, out, into, n=3):
    return d.normal(out, into, n, n, scale=(into * n * n) ** -0.5)


def batch_norm(jnp, x, scale, shift, axes=(0, 2, 3)):
    mean, var = jnp.mean(x, axes, keepdims=True), jnp.var(x, axes, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5) * scale[:, None, None] + shift[:, None, None]


@program(batch=2)
def lenet_step(ns, batch=64):
    jax, d = ns.jax, Draws(ns)
    params = dict(c1=kernel(d, 6, 1, 5), c2=kernel(d, 16, 6, 5), dense=d.weights(784, 120, 84, 10))

    def loss(p, x, y):
        x = max_pool(ns, jax.nn.relu(conv(ns, x, p["c1"])))
        x = max_pool(ns, jax.nn.relu(conv(ns, x, p["c2"]))).reshape(batch, -1)
        for w, b in p["dense"]:
            x = jax.nn.relu(x) @ w + b
        return cross_entropy(ns, x, y)
    return sgd_step(ns, loss), (params, d.uniform(batch, 1, 28, 28), d.integers(10, batch))


def res_params(d, width, blocks):
    return [dict(a=kernel(d, width, width), b=kernel(d, width, width),
                 s1=d.uniform(width, low=0.9), t1=d.normal(width, scale=0.1),
                 s2=d.uniform(width, low=0.9), t2=d.normal(width, scale=0.1))
            for _ in range(blocks)]


def res_blocks(ns, blocks, x):
    jax, jnp = ns.jax, ns.jnp
    for p in blocks:
        h = jax.nn.relu(batch_norm(jnp, conv(ns, x, p["a"]), p["s1"], p["t1"]))
        x = jax.nn.relu(x + batch_norm(jnp, conv(ns, h, p["b"]), p["s2"], p["t2"]))
    return x


@program(batch=2, size=8, width=4, blocks=1)
def resnet_forward(ns, batch=8, size=32, width=32, blocks=4):
    d = Draws(ns)
    return (ns.jax.jit(lambda p, x: res_blocks(ns, p, x).mean((2, 3))),
            (res_params(d, width, blocks), d.normal(batch, width, size, size)))


@program(batch=2, size=8, width=4, blocks=1)
def resnet_step(ns, batch=16, size=32, width=16, blocks=3):
    jax, d = ns.jax, Draws(ns)
    params = dict(stem=kernel(d, width, 3), blocks=res_params(d, width, blocks),
                  down=kernel(d, 2 * width, width), out=d.normal(2 * width, 10, scale=0.1))

    def loss(p, x, y):
        x = res_blocks(ns, p["blocks"], conv(ns, x, p["stem"]))
        x = jax.nn.relu(conv(ns, x, p["down"], 2))
        return cross_entropy(ns, x.mean((2, 3)) @ p["out"], y)
    return sgd_step(ns, loss), (params, d.normal(batch, 3, size, size), d.integers(10, batch))


@program(batch=1, size=8, width=4)
def depthwise_separable_forward(ns, batch=8, size=32, width=64):
    jax, d = ns.jax, Draws(ns)
    layers = [(d.normal(width, 1, 3, 3, scale=0.3), kernel(d, width, width, 1)) for _ in range(3)]

    @jax.jit
    def forward(layers, x):
        for depthwise, point in layers:
            x = jax.nn.relu(conv(ns, conv(ns, x, depthwise, groups=width), point))
        return x
    return forward, (layers, d.normal(batch, width, size, size))


@program(batch=1, size=8, width=4)
def channels_last_step(ns, batch=16, size=32, width=32):
    jax, d = ns.jax, Draws(ns)
    params = dict(a=d.normal(3, 3, 3, width, scale=0.2), b=d.normal(3, 3, width, width, scale=0.05),
                  out=d.normal(width, 10, scale=0.1))

    def loss(p, x, y):
        x = jax.nn.relu(conv_last(ns, x, p["a"], 2))
        x = jax.nn.relu(conv_last(ns, x, p["b"]))
        return cross_entropy(ns, x.mean((1, 2)) @ p["out"], y)
    return sgd_step(ns, loss), (params, d.uniform(batch, size, size, 3), d.integers(10, batch))


def unet_params(d, width):
    return dict(a=kernel(d, width, 1), b=kernel(d, 2 * width, width), c=kernel(
        d, 4 * width, 2 * width), up2=kernel(d, 2 * width, 6 * width),
        up1=kernel(d, width, 3 * width), out=kernel(d, 1, width, 1))


def unet(ns, p, x):
    jax, jnp = ns.jax, ns.jnp

    def twice(x):
        return jnp.repeat(jnp.repeat(x, 2, axis=2), 2, axis=3)
    a = jax.nn.relu(conv(ns, x, p["a"]))
    b = jax.nn.relu(conv(ns, max_pool(ns, a), p["b"]))
    c = jax.nn.relu(conv(ns, max_pool(ns, b), p["c"]))
    b = jax.nn.relu(conv(ns, jnp.concatenate([twice(c), b], 1), p["up2"]))
    a = jax.nn.relu(conv(ns, jnp.concatenate([twice(b), a], 1), p["up1"]))
    return conv(ns, a, p["out"])


@program(batch=1, size=8, width=2)
def unet_forward(ns, batch=4, size=64, width=16):
    d = Draws(ns)
    return (ns.jax.jit(lambda p, x: unet(ns, p, x)),
            (unet_params(d, width), d.normal(batch, 1, size, size)))


@program(batch=1, size=8, width=2)
def unet_step(ns, batch=4, size=32, width=16):
    d = Draws(ns)

    def loss(p, x, y):
        return ns.jnp.mean((unet(ns, p, x) - y) ** 2)
    return (sgd_step(ns, loss), (unet_params(d, width), d.normal(batch, 1, size, size),
                                 d.normal(batch, 1, size, size)))


@program(batch=1, length=32, width=4)
def conv_in_time_step(ns, batch=16, length=1000, width=32):
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)
    kernels = [d.normal(width, 1, 9, scale=0.3), d.normal(width, width, 9, scale=0.06),
               d.normal(1, width, 1)]

    def loss(kernels, x, y):
        for k in kernels[:-1]:
            x = jax.nn.gelu(lax.conv_general_dilated(x, k, (2,), "SAME"))
        x = lax.conv_general_dilated(x, kernels[-1], (1,), "SAME")
        return jnp.mean((x.mean((1, 2)) - y) ** 2)
    return sgd_step(ns, loss), (kernels, d.normal(batch, 1, length), d.normal(batch))


@program(batch=1, size=6, width=2)
def conv_in_space_forward(ns, batch=2, size=24, width=8):
    jax, lax, d = ns.jax, ns.lax, Draws(ns)
    kernels = [d.normal(width, 1, 3, 3, 3, scale=0.3), d.normal(width, width, 3, 3, 3, scale=0.1)]

    @jax.jit
    def forward(kernels, x):
        for k in kernels:
            x = jax.nn.relu(lax.conv_general_dilated(x, k, (1, 1, 1), "SAME"))
        return x
    return forward, (kernels, d.normal(batch, 1, size, size, size))


@program(batch=1, width=4)
def transposed_conv_decoder(ns, batch=16, width=64):
    jax, d = ns.jax, Draws(ns)
    kernels = [d.normal(4, 4, width, width, scale=0.05), d.normal(4, 4, width, 1, scale=0.1)]

    @jax.jit
    def forward(w, kernels, z):
        x = jax.nn.relu(z @ w).reshape(batch, 7, 7, width)
        for k in kernels:
            x = jax.nn.relu(ns.lax.conv_transpose(x, k, (2, 2), "SAME"))
        return x
    return forward, (d.normal(32, 49 * width, scale=0.1), kernels, d.normal(batch, 32))


@program(batch=1, size=8, width=4)
def squeeze_excite_forward(ns, batch=8, size=32, width=64):
    jax, d = ns.jax, Draws(ns)

    @jax.jit
    def forward(k, down, up, x):
        x = jax.nn.silu(conv(ns, x, k))
        gate = jax.nn.sigmoid(jax.nn.relu(x.mean((2, 3)) @ down) @ up)
        return x * gate[:, :, None, None]
    return forward, (kernel(d, width, width), d.normal(width, width // 4, scale=0.1),
                     d.normal(width // 4, width, scale=0.3), d.normal(batch, width, size, size))


@program(batch=1, size=8, width=4)
def inception_concat_forward(ns, batch=8, size=28, width=16):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    ks = [kernel(d, width, width, n) for n in (1, 3, 5)]

    @jax.jit
    def forward(ks, last, x):
        x = jnp.concatenate([jax.nn.relu(conv(ns, x, k)) for k in ks] + [x], 1)
        return jax.nn.relu(conv(ns, x, last))
    return forward, (ks, kernel(d, width, 4 * width, 1), d.normal(batch, width, size, size))


@program(size=8, width=4)
def style_loss_grad(ns, size=64, width=32):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    ks = [kernel(d, width, 3), kernel(d, width, width)]

    def grams(ks, x):
        found = []
        for k in ks:
            x = jax.nn.relu(conv(ns, x, k))
            flat = x.reshape(x.shape[1], -1)
            found.append(flat @ flat.T / flat.shape[1])
        return found

    def loss(x, ks, style):
        return sum(jnp.mean((a - b) ** 2) for a, b in zip(grams(ks, x), grams(ks, style)))
    return (jax.jit(jax.grad(loss)), (d.uniform(1, 3, size, size), ks,
                                      d.uniform(1, 3, size, size)))


@program(batch=2, size=8, width=4)
def channels_last_batch_norm_state_step(ns, batch=8, size=16, width=16):
    """A residual block with running statistics, trained with momentum."""
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)

    def conv(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def norm(x, p, running):
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        kept = [0.9 * old + 0.1 * new for old, new in zip(running, (mean, variance))]
        return (x - mean) * lax.rsqrt(variance + 1e-5) * p[0] + p[1], kept
    params = dict(conv=[d.normal(3, 3, c, width, scale=0.1) for c in (3, width, width)],
                  norm=[(jnp.ones(width), jnp.zeros(width))] * 3,
                  head=d.normal(width, 10, scale=0.1))
    state = [[jnp.zeros(width), jnp.ones(width)]] * 3

    def loss(p, state, x, y):
        h, first = norm(conv(x, p["conv"][0]), p["norm"][0], state[0])
        h = jax.nn.relu(h)
        r, second = norm(conv(h, p["conv"][1]), p["norm"][1], state[1])
        r, third = norm(conv(jax.nn.relu(r), p["conv"][2]), p["norm"][2], state[2])
        log_p = jax.nn.log_softmax(jax.nn.relu(h + r).mean((1, 2)) @ p["head"])
        return -jnp.mean(jnp.take_along_axis(log_p, y[:, None], 1)), [first, second, third]

    @jax.jit
    def step(p, momentum, state, x, y):
        (value, state), g = jax.value_and_grad(loss, has_aux=True)(p, state, x, y)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, g)
        return jax.tree.map(lambda w, m: w - 0.1 * m, p, momentum), momentum, state, value
    return step, (params, jax.tree.map(jnp.zeros_like, params), state,
                  d.normal(batch, size, size, 3), d.integers(10, batch))

"""Particle systems, differential equations, state filters, and option prices."""

from programs.registry import Draws, program


@program(n=8, steps=2)
def n_body_leapfrog(ns, n=500, steps=10):
    jnp, d = ns.jnp, Draws(ns)

    def force(x):
        away = x[None] - x[:, None]
        near = jnp.sum(away ** 2, -1) + 0.01
        return jnp.sum(away / (near * jnp.sqrt(near))[..., None], 1) / n

    @ns.jax.jit
    def run(x, v):
        def step(state, _):
            x, v = state
            v = v + 0.005 * force(x)
            x = x + 0.01 * v
            v = v + 0.005 * force(x)
            return (x, v), 0.5 * jnp.sum(v ** 2)
        return ns.lax.scan(step, (x, v), None, length=steps)
    return run, (d.normal(n, 3), d.normal(n, 3, scale=0.1))


@program(n=8, steps=2)
def molecules_by_gradient(ns, n=300, steps=10):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    box = n ** (1 / 3) * 1.2

    def energy(x):
        away = x[:, None] - x[None]
        away = away - box * jnp.round(away / box)
        r2 = jnp.where(jnp.eye(n, dtype=bool), 1.0, jnp.sum(away ** 2, -1))
        s6 = 1 / jnp.maximum(r2, 0.7) ** 3
        near = (r2 < 6.25) & ~jnp.eye(n, dtype=bool)
        return 2 * jnp.sum(jnp.where(near, s6 * s6 - s6, 0))

    @jax.jit
    def run(x, v):
        def step(_, state):
            x, v, f = state
            x = jnp.mod(x + 0.002 * v + 0.5 * 0.002 ** 2 * f, box)
            new = -jax.grad(energy)(x)
            return x, v + 0.001 * (f + new), new
        x, v, _ = ns.lax.fori_loop(0, steps, step, (x, v, -jax.grad(energy)(x)))
        return energy(x), jnp.sum(v ** 2)
    side = -int(-n ** (1 / 3) // 1)
    grid = jnp.stack(jnp.meshgrid(*[jnp.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)[:n]
    return run, (grid * 1.15 + d.normal(n, 3, scale=0.02), d.normal(n, 3))


@program(n=8, neighbours=3)
def molecules_by_neighbour_lists(ns, n=10_000, neighbours=32):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def force(x, near, count):
        away = x[:, None] - x[near]
        r2 = jnp.sum(away ** 2, -1) + 0.5
        mask = (jnp.arange(neighbours) < count[:, None]) & (r2 < 4)
        s6 = 1 / r2 ** 3
        pair = jnp.where(mask, 24 * (2 * s6 * s6 - s6) / r2, 0)
        return jnp.sum(pair[..., None] * away, 1), jnp.sum(jnp.where(mask, s6 * s6 - s6, 0))
    return force, (d.normal(n, 3), d.integers(n, n, neighbours), d.integers(neighbours, n))


@program(n=10, count=20, steps=3)
def spring_network(ns, n=5000, count=20_000, steps=20):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def run(x, v, a, b, rest):
        def energy(x):
            length = jnp.sqrt(jnp.sum((x[a] - x[b]) ** 2, -1) + 1e-6)
            return 0.5 * jnp.sum((length - rest) ** 2)

        def step(_, state):
            x, v = state
            v = 0.99 * v - 0.01 * jax.grad(energy)(x)
            return x + 0.01 * v, v
        return ns.lax.fori_loop(0, steps, step, (x, v))
    return run, (d.normal(n, 2), d.normal(n, 2), d.integers(n, count), d.integers(n, count),
                 d.uniform(count))


def rk4(jax, f, y, h):
    def along(y, k, s):
        return jax.tree.map(lambda y, k: y + s * k, y, k)
    k1 = f(y)
    k2 = f(along(y, k1, h / 2))
    k3 = f(along(y, k2, h / 2))
    k4 = f(along(y, k3, h))
    return jax.tree.map(lambda y, a, b, c, d: y + h / 6 * (a + 2 * b + 2 * c + d), y, k1, k2, k3,
                        k4)


@program(n=4, steps=3)
def lorenz_by_rk4(ns, n=1000, steps=500):
    jax, d = ns.jax, Draws(ns)

    def f(s):
        x, y, z = s
        return 10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z

    @jax.jit
    def run(s):
        return ns.lax.scan(lambda s, _: (rk4(jax, f, s, 0.002), None), s, None, length=steps)[0]
    return run, (tuple(d.normal(n) for _ in range(3)),)


@program(n=6, steps=5)
def neural_ode_grad(ns, n=64, steps=20, width=64):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params = d.weights(2, width, width, 2)

    def loss(params, y0, y1):
        def f(y):
            (w1, b1), (w2, b2), (w3, b3) = params
            return jnp.tanh(jnp.tanh(y @ w1 + b1) @ w2 + b2) @ w3 + b3
        y = ns.lax.scan(lambda y, _: (rk4(jax, f, y, 0.05), None), y0, None, length=steps)[0]
        return jnp.mean((y - y1) ** 2)
    return jax.jit(jax.value_and_grad(loss)), (params, d.normal(n, 2), d.normal(n, 2))


@program(n=4)
def adaptive_steps_in_lanes(ns, n=1000):
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)

    def solve(mu, y0):
        def f(y):
            return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

        def step(state):
            t, y, h = state
            k1 = f(y)
            k2 = f(y + h * k1)
            euler, heun = y + h * k1, y + h / 2 * (k1 + k2)
            error = jnp.max(jnp.abs(euler - heun)) / 1e-2
            good = error < 1
            h2 = jnp.clip(h * 0.9 / jnp.sqrt(error + 1e-6), 0.2 * h, 2 * h)
            return (jnp.where(good, t + h, t), jnp.where(good, heun, y),
                    jnp.minimum(h2, jnp.maximum(1.0 - t, 1e-4)))
        return lax.while_loop(lambda s: s[0] < 0.99, step, (0.0, y0, 0.02))[1]
    return jax.jit(jax.vmap(solve)), (d.uniform(n), d.normal(n, 2))


@program(n=4, steps=5)
def double_pendulum_verlet(ns, n=2000, steps=300):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def run(a, b):
        def step(state, _):
            a, b, va, vb = state
            delta = a - b
            den = 2 - jnp.cos(delta) ** 2
            fa = (-2 * jnp.sin(a) - jnp.sin(delta) * (vb ** 2 + va ** 2 * jnp.cos(delta))
                  + jnp.cos(delta) * jnp.sin(b)) / den
            fb = (2 * jnp.sin(delta) * va ** 2 + 2 * jnp.sin(a) * jnp.cos(delta)
                  - 2 * jnp.sin(b)) / den
            va, vb = va + 0.002 * fa, vb + 0.002 * fb
            return (a + 0.002 * va, b + 0.002 * vb, va, vb), None
        zeros = jnp.zeros(n)
        return ns.lax.scan(step, (a, b, zeros, zeros), None, length=steps)[0]
    return run, (d.normal(n), d.normal(n))


@program(batch=2, length=5)
def kalman_filter(ns, batch=64, length=200, size=4):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    a = jnp.eye(size) + 0.1 * d.normal(size, size)
    q, r = 0.1 * jnp.eye(size), 0.5

    def one(seen):
        def step(state, y):
            x, p = state
            x, p = a @ x, a @ p @ a.T + q
            s = p[0, 0] + r
            gain = p[:, 0] / s
            x, p = x + gain * (y - x[0]), p - jnp.outer(gain, p[0])
            return (x, p), x
        return ns.lax.scan(step, (jnp.zeros(size), jnp.eye(size)), seen)[1]
    return jax.jit(jax.vmap(one)), (d.normal(batch, length),)


@program(n=16, size=2)
def boids(ns, n=500, steps=10, size=2):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def run(x, v):
        def step(state, _):
            x, v = state
            away = x[None] - x[:, None]
            far = jnp.sqrt(jnp.sum(away ** 2, -1) + 1e-6)
            see = jnp.where(far < 0.5, 1.0, 0.0) - jnp.eye(n)
            count = jnp.maximum(see.sum(1), 1)[:, None]
            centre = jnp.einsum("ij,ijk->ik", see, away) / count
            match = see @ v / count - v
            separation = -jnp.sum(jnp.where((far < 0.1)[..., None], away, 0), 1)
            v = v + 0.01 * centre + 0.05 * match + 0.1 * separation
            v = v / jnp.maximum(1, jnp.linalg.norm(v, axis=-1, keepdims=True))
            return (x + 0.02 * v, v), None
        return ns.lax.scan(step, (x, v), None, length=steps)[0]
    return run, (d.uniform(n, size), d.normal(n, size, scale=0.1))


@program(n=16, steps=3)
def sphere_tracing(ns, n=256, steps=32):
    jax, jnp = ns.jax, ns.jnp

    def distance(p):
        sphere = jnp.linalg.norm(p - jnp.array([0.0, 0.0, 3.0])) - 1
        return jnp.minimum(sphere, p[1] + 1)

    def pixel(x, y):
        ray = jnp.stack([x, y, 1.0])
        ray = ray / jnp.linalg.norm(ray)
        t = ns.lax.fori_loop(0, steps, lambda _, t: t + distance(t * ray), 0.0)
        normal = jax.grad(distance)(t * ray)
        return jnp.where(t < 20, jnp.maximum(normal @ jnp.array([0.5, 0.7, -0.5]), 0.1), 0.0)
    xs = jnp.linspace(-1, 1, n)
    return jax.jit(jax.vmap(jax.vmap(pixel, (0, None)), (None, 0))), (xs, xs)


@program(n=16, steps=5)
def mandelbrot(ns, n=600, steps=30):
    jnp = ns.jnp

    @ns.jax.jit
    def count(xs, ys):
        def step(_, state):
            x, y, k = state
            inside = x * x + y * y < 4
            new = x * x - y * y + xs, 2 * x * y + ys[:, None]
            return (jnp.where(inside, new[0], x), jnp.where(inside, new[1], y), k + inside)
        start = jnp.zeros((n, n)), jnp.zeros((n, n)), jnp.zeros((n, n), jnp.int32)
        k = ns.lax.fori_loop(0, steps, step, start)[2]
        return k.mean(0), (k == steps).mean()  # rounding decides single points
    return count, (jnp.linspace(-2, 0.5, n), jnp.linspace(-1.25, 1.25, n))


@program(paths=20, steps=5)
def monte_carlo_asian_option(ns, paths=20_000, steps=100):
    jax, jnp = ns.jax, ns.jnp

    @jax.jit
    def price(key, s0, vol):
        noise = jax.random.normal(key, (steps, paths))
        path = s0 * jnp.exp(jnp.cumsum((0.02 - 0.5 * vol ** 2) / steps
                                       + vol / jnp.sqrt(steps) * noise, 0))
        return jnp.exp(-0.02) * jnp.mean(jnp.maximum(path.mean(0) - 100, 0))
    return price, (ns.random.key(0), jnp.float32(100), jnp.float32(0.2))


@program(paths=20, steps=5)
def heston_by_scan(ns, paths=20_000, steps=50):
    jax, jnp = ns.jax, ns.jnp

    @jax.jit
    def greeks(key, s0):
        def price(s0, v0):
            def step(state, key):
                s, v = state
                z = jax.random.normal(key, (2, paths))
                root = jnp.sqrt(jnp.maximum(v, 1e-6) / steps)
                s = s * jnp.exp(-0.5 * v / steps + root * z[0])
                v = v + 2 * (0.04 - v) / steps + 0.3 * root * (-0.7 * z[0] + 0.714 * z[1])
                return (s, v), None
            start = jnp.full(paths, s0), jnp.full(paths, v0)
            s = ns.lax.scan(step, start, jax.random.split(key, steps))[0][0]
            return jnp.mean(jax.nn.softplus(s - 1.0))
        return jax.value_and_grad(price, (0, 1))(s0, 0.04)
    return greeks, (ns.random.key(1), jnp.float32(1))


@program(steps=8, options=3)
def american_put_by_tree(ns, steps=500, options=20):
    jax, jnp = ns.jax, ns.jnp

    def price(strike):
        up = jnp.exp(0.2 / jnp.sqrt(steps))
        p = (jnp.exp(0.05 / steps) - 1 / up) / (up - 1 / up)
        places = jnp.arange(steps + 1)

        def payoff(t):
            return jnp.maximum(strike - 100 * up ** (2.0 * places - t), 0)

        def step(i, v):
            wait = jnp.exp(-0.05 / steps) * (p * jnp.roll(v, -1) + (1 - p) * v)
            return jnp.maximum(wait, payoff(steps - 1 - i))
        return ns.lax.fori_loop(0, steps, step, payoff(steps))[0]
    return jax.jit(jax.vmap(price)), (jnp.linspace(80, 120, options),)


@program(n=20)
def black_scholes_greeks(ns, n=100_000):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def price(s, k, t, vol):
        d1 = (jnp.log(s / k) + 0.5 * vol ** 2 * t) / (vol * jnp.sqrt(t))
        cdf = jax.scipy.stats.norm.cdf
        return s * cdf(d1) - k * cdf(d1 - vol * jnp.sqrt(t))
    each = jax.vmap(jax.value_and_grad(price, (0, 2, 3)))
    gamma = jax.vmap(jax.grad(jax.grad(price)))
    return (jax.jit(lambda *a: (each(*a), gamma(*a))),
            (d.uniform(n, low=80, high=120), d.uniform(n, low=80, high=120),
             d.uniform(n, low=0.5, high=2), d.uniform(n, low=0.1, high=0.4)))


@program(assets=5, days=20)
def portfolio_value_at_risk(ns, assets=100, days=1000):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def risk(returns, w):
        w = jax.nn.softmax(w)
        cov = jnp.cov(returns, rowvar=False)
        daily = returns @ w
        wealth = jnp.cumprod(1 + daily)
        fall = 1 - wealth / ns.lax.cummax(wealth)
        return jnp.sqrt(w @ cov @ w), jnp.quantile(daily, 0.05), fall.max(), w * (cov @ w)
    return risk, (d.normal(days, assets, scale=0.01), d.normal(assets))


@program(molecules=2, atoms=4, width=8)
def forces_of_equivariant_net_step(ns, molecules=16, atoms=19, width=32):
    """The loss is of the derivative of an energy: its gradient is a second derivative."""
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def energy(p, position, kind):
        h = p["kinds"][kind]
        square = jnp.sum((position[:, None] - position) ** 2, -1, keepdims=True)
        basis = jnp.exp(-(square - jnp.linspace(0, 5, 16)) ** 2)
        for (w, b), (v, c) in p["layers"]:
            pairs = jnp.concatenate([jnp.broadcast_to(h[:, None], (atoms, atoms, width)),
                                     jnp.broadcast_to(h, (atoms, atoms, width)), basis], -1)
            messages = jax.nn.silu(pairs @ w + b) * (1 - jnp.eye(atoms))[..., None]
            h = h + jnp.tanh(messages.sum(1) @ v + c)
        return jnp.sum(h @ p["out"])

    def loss(p, positions, kinds, forces):
        e, slope = jax.vmap(jax.value_and_grad(energy, 1), (None, 0, 0))(p, positions, kinds)
        return jnp.mean((slope + forces) ** 2) + 1e-4 * jnp.mean(e) ** 2
    layers = [d.weights(2 * width + 16, width) + d.weights(width, width) for _ in range(2)]
    p = dict(kinds=d.normal(10, width), layers=layers, out=d.normal(width))
    return jax.jit(jax.value_and_grad(loss)), (
        p, d.normal(molecules, atoms, 3), d.integers(10, molecules, atoms),
        d.normal(molecules, atoms, 3))


@program(n=4, steps=2, passes=1)
def cloth_by_constraints(ns, n=32, steps=10, passes=5):
    """Distances are restored in turns: even and odd neighbors along each axis."""
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    def restore(x, axis, first):
        at = (slice(None),) * axis
        a, b = at + (slice(first, -1, 2),), at + (slice(first + 1, None, 2),)
        change = x[b] - x[a]
        length = jnp.linalg.norm(change, axis=-1, keepdims=True) + 1e-6
        part = 0.5 * (1 - 1 / length) * change
        return x.at[a].add(part).at[b].add(-part)

    @ns.jax.jit
    def run(x):
        top = x[0]

        def one_pass(_, x):
            for axis in (0, 1):
                for first in (0, 1):
                    x = restore(x, axis, first)
            return x.at[0].set(top)

        def step(state, _):
            x, before = state
            new = lax.fori_loop(0, passes, one_pass, 2 * x - before + jnp.array([0, -0.01, 0]))
            return (new, x), new[-1, -1]
        return lax.scan(step, (x, x), None, length=steps)
    return run, (jnp.stack([*jnp.meshgrid(jnp.arange(n), jnp.arange(n), indexing="ij"),
                            d.uniform(n, n)], -1),)

"""Optimizers over many parameters, higher derivatives, root finding, matrix algorithms in loops."""

from programs.dense_nets import mlp
from programs.registry import Draws, program


def many(d, count, width):
    """Parameters of several shapes, and their gradients."""
    shapes = [[(width, width), (width,), (width, 3), (7, width)][i % 4] for i in range(count)]
    return ({f"p{i}": d.normal(*s) for i, s in enumerate(shapes)},
            {f"p{i}": d.normal(*s, scale=0.1) for i, s in enumerate(shapes)})


SMALL = dict(count=8, width=6)


@program(**SMALL)
def adam_over_200_parameters(ns, count=200, width=128):
    jax, jnp = ns.jax, ns.jnp
    params, grads = many(Draws(ns), count, width)
    zeros = jax.tree.map(jnp.zeros_like, params)

    @jax.jit
    def step(params, grads, m, v, t):
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g ** 2, v, grads)
        params = jax.tree.map(lambda p, m, v: p - 1e-3 * (m / (1 - 0.9 ** t)) / (
            jnp.sqrt(v / (1 - 0.999 ** t)) + 1e-8) - 1e-5 * p, params, m, v)
        return params, m, v, t + 1
    return step, (params, grads, zeros, zeros, jnp.float32(3))


@program(**SMALL)
def clipped_momentum_over_200_parameters(ns, count=200, width=128):
    jax, jnp = ns.jax, ns.jnp
    params, grads = many(Draws(ns), count, width)

    @jax.jit
    def step(params, grads, m):
        norm = jnp.sqrt(sum(jnp.sum(g ** 2) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1, 1 / norm), grads)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, m, grads)
        return jax.tree.map(lambda p, m: p - 0.01 * m, params, m), m, norm
    return step, (params, grads, grads)


@program(**SMALL)
def lion_over_200_parameters(ns, count=200, width=128):
    jax, jnp = ns.jax, ns.jnp
    params, grads = many(Draws(ns), count, width)

    @jax.jit
    def step(params, grads, m):
        new = jax.tree.map(lambda p, g, m: p - 1e-4 * (jnp.sign(0.9 * m + 0.1 * g) + 0.1 * p),
                           params, grads, m)
        return new, jax.tree.map(lambda g, m: 0.99 * m + 0.01 * g, grads, m)
    return step, (params, grads, grads)


@program(**SMALL)
def adafactor_over_200_parameters(ns, count=200, width=128):
    jax, jnp = ns.jax, ns.jnp
    params, grads = many(Draws(ns), count, width)

    def start(p):
        return (jnp.zeros(p.shape[:-1]), jnp.zeros(p.shape[:-2] + p.shape[-1:])) \
            if p.ndim > 1 else (jnp.zeros(p.shape),)

    def update(p, g, state):
        g2 = g * g + 1e-30
        if p.ndim > 1:
            r, c = 0.9 * state[0] + 0.1 * g2.mean(-1), 0.9 * state[1] + 0.1 * g2.mean(-2)
            u = g / jnp.sqrt(r[..., None] * c[..., None, :] / r.mean(-1)[..., None, None])
            state = r, c
        else:
            state = (0.9 * state[0] + 0.1 * g2,)
            u = g / jnp.sqrt(state[0])
        u = u / jnp.maximum(1.0, jnp.sqrt(jnp.mean(u * u)))
        return p - 0.01 * u, state

    @jax.jit
    def step(params, grads, state):
        done = {k: update(params[k], grads[k], state[k]) for k in params}
        return {k: v[0] for k, v in done.items()}, {k: v[1] for k, v in done.items()}
    return step, (params, grads, {k: start(p) for k, p in params.items()})


@program(n=16, memory=3)
def lbfgs_two_loops(ns, n=20_000, memory=10):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def direction(s, y, g):
        q, kept = g, []
        for i in reversed(range(memory)):
            rho = 1 / (y[i] @ s[i])
            a = rho * (s[i] @ q)
            q = q - a * y[i]
            kept.append((rho, a))
        r = q * (s[-1] @ y[-1]) / (y[-1] @ y[-1])
        for i, (rho, a) in zip(range(memory), reversed(kept)):
            r = r + s[i] * (a - rho * (y[i] @ r))
        return -r
    s = d.normal(memory, n)
    return direction, (s, s * 0.7 + 0.1 * jnp.tanh(s), d.normal(n))


@program(size=12)
def muon_step(ns, size=256):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def step(w, g, m):
        m = 0.95 * m + g
        x = m / jnp.linalg.norm(m)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return w - 0.02 * x, m
    return step, (d.normal(size, size), d.normal(size, size), d.normal(size, size))


@program(n=12, size=4)
def hessian_of_logistic_loss(ns, n=4096, size=64):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(w, x, y):
        z = x @ w
        return jnp.mean(jnp.logaddexp(0.0, z) - y * z) + 0.01 * w @ w
    return (jax.jit(jax.hessian(loss)),
            (d.normal(size), d.normal(n, size), d.uniform(n).round()))


@program(width=6)
def hessian_of_mlp(ns, width=16):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(params, x, y):
        w1, w2 = params[:4 * width].reshape(4, width), params[4 * width:]
        return jnp.mean((jnp.tanh(x @ w1) @ w2 - y) ** 2)
    return (jax.jit(jax.hessian(loss)), (d.normal(5 * width), d.normal(256, 4), d.normal(256)))


@program(n=4, width=6)
def jacobians_by_both_modes(ns, n=64, width=64):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def f(x, params):
        return mlp(jnp.tanh, params, x)
    each = [jax.vmap(j(f), (0, None)) for j in (jax.jacfwd, jax.jacrev)]
    return (jax.jit(lambda x, p: [j(x, p) for j in each]),
            (d.normal(n, 16), d.weights(16, width, 12)))


@program(batch=4, width=6)
def per_example_gradients(ns, batch=128, width=128):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(params, x, y):
        return (mlp(jax.nn.relu, params, x)[0] - y) ** 2

    @jax.jit
    def clipped(params, x, y):
        grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, y)
        norm = jnp.sqrt(sum(jnp.sum(g.reshape(batch, -1) ** 2, -1) for g in jax.tree.leaves(grads)))
        scale = jnp.minimum(1, 1 / norm)
        return jax.tree.map(lambda g: jnp.tensordot(scale, g, 1) / batch, grads), norm
    return clipped, (d.weights(32, width, width, 1), d.normal(batch, 32), d.normal(batch))


@program(batch=4, width=6)
def hessian_vector_products_cg(ns, batch=512, width=64):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(params, x, y):
        return jnp.mean((mlp(jnp.tanh, params, x)[:, 0] - y) ** 2)

    @jax.jit
    def newton(params, x, y):
        g = jax.grad(loss)(params, x, y)

        def product(v):
            hv = jax.jvp(lambda p: jax.grad(loss)(p, x, y), (params,), (v,))[1]
            return jax.tree.map(lambda h, v: h + 0.5 * v, hv, v)

        def dot(a, b):
            return sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))

        def step(_, state):
            s, r, p = state
            hp = product(p)
            a = dot(r, r) / dot(p, hp)
            s = jax.tree.map(lambda s, p: s + a * p, s, p)
            r2 = jax.tree.map(lambda r, h: r - a * h, r, hp)
            b = dot(r2, r2) / dot(r, r)
            return s, r2, jax.tree.map(lambda r, p: r + b * p, r2, p)
        zero = jax.tree.map(jnp.zeros_like, g)
        return ns.lax.fori_loop(0, 5, step, (zero, g, g))[0]
    return newton, (d.weights(8, width, 1), d.normal(batch, 8), d.normal(batch))


@program(n=20)
def bisection_in_lanes(ns, n=4096):
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)

    def root(c):
        def f(x):
            return x ** 3 + x - c

        def step(state):
            low, high = state
            mid = (low + high) / 2
            return lax.cond(f(mid) > 0, lambda: (low, mid), lambda: (mid, high))
        low, high = lax.while_loop(lambda s: s[1] - s[0] > 1e-5, step,
                                   (jnp.float32(-10), jnp.float32(10)))
        return (low + high) / 2
    return jax.jit(jax.vmap(root)), (d.normal(n, scale=3),)


@program(n=20)
def newton_in_lanes(ns, n=100_000):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def root(c):
        def f(x):
            return jnp.exp(x) + x - c

        def step(x, _):
            return x - f(x) / jax.grad(f)(x), None
        return ns.lax.scan(step, 0.0, None, length=10)[0]
    return jax.jit(jax.vmap(root)), (d.uniform(n, low=1, high=5),)


@program(n=6, steps=10)
def implicit_derivative_of_fixed_point(ns, n=128, steps=60):
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)

    @jax.custom_vjp
    def solve(w, b):
        return lax.fori_loop(0, steps, lambda _, x: jnp.tanh(w @ x + b), jnp.zeros(n))

    def forward(w, b):
        x = solve(w, b)
        return x, (w, b, x)

    def backward(saved, g):
        w, b, x = saved
        pull = jax.vjp(lambda x: jnp.tanh(w @ x + b), x)[1]
        u = lax.fori_loop(0, steps, lambda _, u: g + pull(u)[0], g)
        return jax.vjp(lambda w, b: jnp.tanh(w @ x + b), w, b)[1](u)
    solve.defvjp(forward, backward)
    return (jax.jit(jax.grad(lambda w, b: jnp.sum(solve(w, b) ** 2), (0, 1))),
            (d.normal(n, n, scale=0.4 / n ** 0.5), d.normal(n)))


def positive(ns, d, n):
    a = d.normal(n, n)
    return a @ a.T / n + ns.jnp.eye(n)


@program(n=8)
def cholesky_by_columns(ns, n=128):
    jnp = ns.jnp

    @ns.jax.jit
    def cholesky(a):
        def column(j, low):
            rest = a[:, j] - low @ low[j]
            column = jnp.where(jnp.arange(n) >= j, rest / jnp.sqrt(rest[j]), 0)
            return low.at[:, j].set(column)
        return ns.lax.fori_loop(0, n, column, jnp.zeros_like(a))
    return cholesky, (positive(ns, Draws(ns), n),)


@program(n=8)
def lu_without_pivots(ns, n=200):
    jnp = ns.jnp

    @ns.jax.jit
    def lu(a):
        def step(k, a):
            below = jnp.arange(n) > k
            factor = jnp.where(below, a[:, k] / a[k, k], 0)
            a = a - factor[:, None] * jnp.where(below, a[k], 0)
            return a.at[:, k].set(jnp.where(below, factor, a[:, k]))
        return ns.lax.fori_loop(0, n, step, a)
    return lu, (positive(ns, Draws(ns), n),)


@program(m=10, n=6)
def qr_by_householder(ns, m=200, n=64):
    jnp = ns.jnp

    @ns.jax.jit
    def qr(a):
        def step(k, state):
            q, r = state
            x = jnp.where(jnp.arange(m) >= k, r[:, k], 0)
            sign = jnp.where(x[k] >= 0, 1.0, -1.0)
            v = x + sign * jnp.linalg.norm(x) * (jnp.arange(m) == k)
            v = v / jnp.linalg.norm(v)
            return q - 2 * jnp.outer(q @ v, v), r - 2 * jnp.outer(v, v @ r)
        return ns.lax.fori_loop(0, n, step, (jnp.eye(m), a))
    return qr, (Draws(ns).normal(m, n),)


@program(m=10, n=6)
def gram_schmidt(ns, m=500, n=64):
    jnp = ns.jnp

    @ns.jax.jit
    def orthogonal(a):
        def step(j, q):
            v = a[:, j] - q @ (q.T @ a[:, j])
            return q.at[:, j].set(v / jnp.linalg.norm(v))
        return ns.lax.fori_loop(0, n, step, jnp.zeros_like(a))
    return orthogonal, (Draws(ns).normal(m, n),)


@program(n=8, steps=4)
def power_iteration(ns, n=1000, steps=50):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def run(a, v):
        def step(_, v):
            w = a @ v
            return w / jnp.linalg.norm(w)
        v = ns.lax.fori_loop(0, steps, step, v)
        return v @ a @ v
    return run, (positive(ns, d, n), d.normal(n))


@program(n=8)
def conjugate_gradients(ns, n=1000):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    @ns.jax.jit
    def solve(a, b):
        def step(state):
            x, r, p, rr, i = state
            ap = a @ p
            alpha = rr / (p @ ap)
            x, r = x + alpha * p, r - alpha * ap
            new = r @ r
            return x, r, r + new / rr * p, new, i + 1
        start = jnp.zeros_like(b), b, b, b @ b, 0
        return lax.while_loop(lambda s: (s[3] > 1e-6) & (s[4] < 200), step, start)[0]
    return solve, (positive(ns, d, n), d.normal(n))


@program(n=8, steps=4)
def jacobi_iteration(ns, n=800, steps=50):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def solve(a, b):
        diagonal = jnp.diagonal(a)
        rest = a - jnp.diag(diagonal)
        return ns.lax.scan(lambda x, _: ((b - rest @ x) / diagonal, None), jnp.zeros_like(b), None,
                           length=steps)[0]
    return solve, (d.uniform(n, n) / n + 2 * jnp.eye(n), d.normal(n))


@program(n=8)
def gauss_seidel(ns, n=400):
    d = Draws(ns)

    @ns.jax.jit
    def sweep(a, b, x):
        def row(i, x):
            return x.at[i].set((b[i] - a[i] @ x + a[i, i] * x[i]) / a[i, i])
        return ns.lax.fori_loop(0, n, row, x)
    return sweep, (d.uniform(n, n) / n + 2 * ns.jnp.eye(n), d.normal(n), d.normal(n))


@program(n=20, batch=2)
def tridiagonal_by_thomas(ns, n=1000, batch=64):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    @ns.jax.jit
    def solve(a, b, c, rhs):
        def down(carry, now):
            c_before, d_before = carry
            a, b, c, r = now
            w = b - a * c_before
            carry = c / w, (r - a * d_before) / w
            return carry, carry

        def up(x, now):
            x = now[1] - now[0] * x
            return x, x
        zeros = jnp.zeros(batch)
        rows = lax.scan(down, (zeros, zeros), (a, b, c, rhs))[1]
        return lax.scan(up, zeros, rows, reverse=True)[1]
    return solve, (d.uniform(n, batch), d.uniform(n, batch, low=3, high=4), d.uniform(n, batch),
                   d.normal(n, batch))


@program(n=8)
def inverse_by_newton_schulz(ns, n=256):
    jnp = ns.jnp

    @ns.jax.jit
    def inverse(a):
        x = a.T / (jnp.abs(a).sum(0).max() * jnp.abs(a).sum(1).max())
        return ns.lax.fori_loop(0, 12, lambda _, x: x @ (2 * jnp.eye(n) - a @ x), x)
    return inverse, (positive(ns, Draws(ns), n),)


@program(n=8)
def matrix_exponential_by_taylor(ns, n=200):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def exponential(a):
        def term(carry, k):
            total, power = carry
            power = power @ (a / 16) / k
            return (total + power, power), None
        eye = jnp.eye(n)
        total = ns.lax.scan(term, (eye, eye), jnp.arange(1.0, 13.0))[0][0]
        return ns.lax.fori_loop(0, 4, lambda _, x: x @ x, total)
    return exponential, (d.normal(n, n, scale=n ** -0.5),)


@program(n=8, m=6, steps=3)
def sinkhorn(ns, n=500, m=400, steps=50):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def plan(x, y):
        cost = jnp.sum((x[:, None] - y[None]) ** 2, -1)

        def step(_, fg):
            f, g = fg
            f = -0.1 * jax.nn.logsumexp((g[None] - cost) / 0.1, 1) - 0.1 * jnp.log(n)
            g = -0.1 * jax.nn.logsumexp((f[:, None] - cost) / 0.1, 0) - 0.1 * jnp.log(m)
            return f, g
        f, g = ns.lax.fori_loop(0, steps, step, (jnp.zeros(n), jnp.zeros(m)))
        return jnp.sum(jnp.exp((f[:, None] + g[None] - cost) / 0.1) * cost)
    return plan, (d.uniform(n, 2), d.uniform(m, 2))


@program(n=12, m=10, rank=3, steps=3)
def nonnegative_factors(ns, n=500, m=300, rank=20, steps=20):
    d = Draws(ns)

    @ns.jax.jit
    def fit(v, w, h):
        def step(_, wh):
            w, h = wh
            h = h * (w.T @ v) / (w.T @ w @ h + 1e-6)
            return w * (v @ h.T) / (w @ (h @ h.T) + 1e-6), h
        return ns.lax.fori_loop(0, steps, step, (w, h))
    return fit, (d.uniform(n, m), d.uniform(n, rank), d.uniform(rank, m))

"""Fields on grids whose steps read neighbors, by roll, pad, slices or a convolution."""

from programs.registry import Draws, program


def loop(ns, step, steps):
    """jit of so many steps, by a scan."""
    return ns.jax.jit(lambda s: ns.lax.scan(lambda s, _: (step(s), None), s, None,
                                            length=steps)[0])


@program({"": {}, "inside of a larger buffer": dict(start=4099)}, n=64, steps=4)
def burgers_by_roll(ns, n=4096, steps=200, start=0):
    """The field starts at an element of a buffer of four times its size."""
    jnp, d = ns.jnp, Draws(ns)

    def step(u):
        du = (jnp.roll(u, -1) - jnp.roll(u, 1)) * 0.5
        ddu = jnp.roll(u, -1) - 2 * u + jnp.roll(u, 1)
        return u - 0.1 * u * du + 0.1 * ddu
    f = loop(ns, step, steps)
    if not start:
        return f, (d.normal(n, scale=0.3),)
    return (ns.jax.jit(lambda whole: f(whole[start:start + n])),
            (d.normal(start + 4 * n, scale=0.3),))


@program(n=64)
def one_roll_stencil(ns, n=1_000_000):
    jnp = ns.jnp
    return (ns.jax.jit(lambda u: u + 0.1 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1))),
            (Draws(ns).normal(n),))


@program({"64": dict(n=64, steps=500), "512": dict(n=512, steps=30), "500x333": dict(
    n=500, m=333, steps=30)}, n=16, m=12, steps=3)
def game_of_life_by_roll(ns, n=512, m=None, steps=30):
    jnp, d = ns.jnp, Draws(ns)

    def step(s):
        near = sum(jnp.roll(s, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - s
        return ((near == 3) | ((s == 1) & (near == 2))).astype(s.dtype)
    return loop(ns, step, steps), (d.integers(2, n, m or n),)


@program(n=16, steps=3)
def game_of_life_by_convolution(ns, n=256, steps=30):
    jnp, d = ns.jnp, Draws(ns)
    kernel = jnp.ones((3, 3)).at[1, 1].set(0.0)[None, None]

    def step(s):
        near = ns.lax.conv_general_dilated(s[None, None], kernel, (1, 1), "SAME")[0, 0]
        return jnp.where((near == 3) | ((s == 1) & (near == 2)), 1.0, 0.0)
    return loop(ns, step, steps), (d.uniform(n, n).round(),)


@program(n=16, steps=3)
def heat_by_slices(ns, n=512, steps=100):
    d = Draws(ns)

    def step(u):
        inner = u[1:-1, 1:-1] + 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
                                       - 4 * u[1:-1, 1:-1])
        return u.at[1:-1, 1:-1].set(inner)
    return loop(ns, step, steps), (d.uniform(n, n),)


@program(n=16, steps=3)
def heat_by_pad(ns, n=512, steps=100):
    jnp, d = ns.jnp, Draws(ns)

    def step(u):
        p = jnp.pad(u, 1, mode="edge")
        return u + 0.2 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)
    return loop(ns, step, steps), (d.uniform(n, n),)


@program(n=8, steps=3)
def heat_in_space_by_roll(ns, n=64, steps=30):
    jnp, d = ns.jnp, Draws(ns)

    def step(u):
        return u + 0.1 * (sum(jnp.roll(u, s, a) for a in range(3) for s in (-1, 1)) - 6 * u)
    return loop(ns, step, steps), (d.uniform(n, n, n),)


@program(n=16, steps=3)
def wave_by_roll(ns, n=512, steps=50):
    jnp, d = ns.jnp, Draws(ns)

    def step(state):
        now, before = state
        around = sum(jnp.roll(now, s, a) for a in (0, 1) for s in (-1, 1)) - 4 * now
        return 2 * now - before + 0.2 * around, now
    start = d.normal(n, n)
    return loop(ns, step, steps), ((start, start),)


@program(n=16, steps=3)
def gray_scott(ns, n=256, steps=100):
    jnp, d = ns.jnp, Draws(ns)

    def around(u):
        return jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) \
            - 4 * u

    def step(state):
        u, v = state
        react = u * v * v
        return (u + 0.16 * around(u) - react + 0.035 * (1 - u),
                v + 0.08 * around(v) + react - 0.1 * v)
    return loop(ns, step, steps), ((d.uniform(n, n, low=0.5), d.uniform(n, n, high=0.3)),)


@program(n=16, steps=3)
def shallow_water(ns, n=256, steps=50):
    jnp, d = ns.jnp, Draws(ns)

    def dx(f):
        return (jnp.roll(f, -1, 1) - jnp.roll(f, 1, 1)) * 0.5

    def dy(f):
        return (jnp.roll(f, -1, 0) - jnp.roll(f, 1, 0)) * 0.5

    def step(state):
        h, u, v = state
        u = u - 0.01 * (u * dx(u) + v * dy(u) + 9.8 * dx(h))
        v = v - 0.01 * (u * dx(v) + v * dy(v) + 9.8 * dy(h))
        return h - 0.01 * (dx(h * u) + dy(h * v)), u, v
    fields = tuple(d.normal(n, n, scale=0.01) + s for s in (1, 0, 0))
    return loop(ns, step, steps), (fields,)


@program(n=12, steps=2)
def lattice_boltzmann(ns, n=128, steps=30):
    jnp, d = ns.jnp, Draws(ns)
    moves = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    cx, cy = (jnp.array([float(m[i]) for m in moves]) for i in (0, 1))
    w = jnp.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)

    def step(f):
        f = jnp.stack([jnp.roll(f[i], m, (0, 1)) for i, m in enumerate(moves)])
        rho = f.sum(0)
        ux = jnp.tensordot(cx, f, 1) / rho
        uy = jnp.tensordot(cy, f, 1) / rho
        cu = 3 * (cx[:, None, None] * ux + cy[:, None, None] * uy)
        even = rho * w[:, None, None] * (1 + cu + 0.5 * cu ** 2 - 1.5 * (ux ** 2 + uy ** 2))
        return f - 0.6 * (f - even)
    return loop(ns, step, steps), (d.uniform(9, n, n, low=0.1, high=0.12),)


@program(n=32, steps=4)
def advection_upwind(ns, n=20_000, steps=200):
    jnp, d = ns.jnp, Draws(ns)

    def step(u):
        left, right = u - jnp.roll(u, 1), jnp.roll(u, -1) - u
        return u - 0.4 * jnp.where(u > 0, u * left, u * right)
    return loop(ns, step, steps), (d.uniform(n, low=-0.5, high=0.5),)


@program(n=16, steps=3)
def poisson_by_jacobi(ns, n=256, steps=200):
    jnp, d = ns.jnp, Draws(ns)
    b = d.normal(n, n)

    @ns.jax.jit
    def solve(b):
        def step(i, u):
            p = jnp.pad(u, 1)
            return 0.25 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - b)
        u = ns.lax.fori_loop(0, steps, step, jnp.zeros_like(b))
        return u, jnp.abs(u).max()
    return solve, (b,)


@program(n=32, steps=4)
def rule_30(ns, n=4096, steps=1000):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def run(s):
        def step(s, _):
            s = jnp.roll(s, 1) ^ (s | jnp.roll(s, -1))
            return s, s
        return ns.lax.scan(step, s, None, length=steps)[1]
    return run, (d.integers(2, n, dtype="uint8"),)


@program(n=16, steps=3)
def maxwell_fdtd(ns, n=256, steps=60):
    jnp, d = ns.jnp, Draws(ns)

    def step(state):
        e, hx, hy = state
        hx = hx.at[:, :-1].add(-0.5 * (e[:, 1:] - e[:, :-1]))
        hy = hy.at[:-1, :].add(0.5 * (e[1:, :] - e[:-1, :]))
        e = e.at[1:, 1:].add(0.5 * (hy[1:, 1:] - hy[:-1, 1:] - hx[1:, 1:] + hx[1:, :-1]))
        return e, hx, hy
    zeros = jnp.zeros((n, n))
    return loop(ns, step, steps), ((d.normal(n, n), zeros, zeros),)


@program(n=16, steps=3)
def cahn_hilliard(ns, n=256, steps=40):
    jnp, d = ns.jnp, Draws(ns)

    def laplace(u):
        return jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) \
            - 4 * u

    def step(c):
        return c + 0.01 * laplace(c ** 3 - c - 0.5 * laplace(c))
    return loop(ns, step, steps), (d.normal(n, n, scale=0.1),)


@program(n=16, steps=3)
def gradient_through_heat(ns, n=128, steps=50):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(u0, k, target):
        def step(u, _):
            around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) \
                + jnp.roll(u, -1, 1) - 4 * u
            return u + k * around, None
        u, _ = ns.lax.scan(step, u0, None, length=steps)
        return jnp.mean((u - target) ** 2)
    return (jax.jit(jax.value_and_grad(loss, (0, 1))),
            (d.normal(n, n), d.uniform(n, n, low=0.1, high=0.2), d.normal(n, n)))


@program(n=16, steps=3)
def navier_stokes_projection(ns, n=128, steps=10):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    def at(f, i, j):
        return jnp.roll(f, (-i, -j), (0, 1))

    def step(state):
        u, v = state

        def moved(f):
            fx, fy = (at(f, 1, 0) - at(f, -1, 0)) / 2, (at(f, 0, 1) - at(f, 0, -1)) / 2
            around = at(f, 1, 0) + at(f, -1, 0) + at(f, 0, 1) + at(f, 0, -1) - 4 * f
            return f + 0.05 * (-u * fx - v * fy + 0.1 * around)
        u, v = moved(u), moved(v)
        div = (at(u, 1, 0) - at(u, -1, 0) + at(v, 0, 1) - at(v, 0, -1)) / 2

        def relax(_, p):
            return (at(p, 1, 0) + at(p, -1, 0) + at(p, 0, 1) + at(p, 0, -1) - div) / 4
        p = lax.fori_loop(0, 20, relax, jnp.zeros_like(u))
        return (u - (at(p, 1, 0) - at(p, -1, 0)) / 2, v - (at(p, 0, 1) - at(p, 0, -1)) / 2)
    return loop(ns, step, steps), ((d.normal(n, n), d.normal(n, n)),)


@program(n=6, steps=2)
def maxwell_in_space_by_slices(ns, n=24, steps=10):
    """Yee's scheme: each component of a curl is added to a part of an array of zeros."""
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    def difference(f, axis, part, sign):
        at = (slice(None),) * axis
        late, early = at + (slice(1, None),), at + (slice(None, -1),)
        return at + (part,), sign * (f[late] - f[early])

    def curl(f, part):
        components = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            total = jnp.zeros((n, n, n))
            for at, change in (difference(f[k], j, part, 1), difference(f[j], k, part, -1)):
                total = total.at[at].add(change)
            components.append(total)
        return jnp.stack(components)

    @ns.jax.jit
    def run(e, h, permittivity):
        def step(t, fields):
            e, h = fields
            h = h - 0.5 * curl(e, slice(None, -1))
            e = e + 0.5 * curl(h, slice(1, None)) / permittivity
            return e.at[2, n // 2, n // 2, n // 2].add(jnp.sin(0.3 * t)), h
        return lax.fori_loop(0, steps, step, (e, h))
    return run, (d.normal(3, n, n, n), d.normal(3, n, n, n), d.uniform(n, n, n, low=1, high=3))


@program(n=9, cycles=1)
def poisson_by_multigrid(ns, n=129, cycles=4):
    """Cycles over grids of half the width each, down to 5 by 5."""
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    def residual(u, f):
        inner = slice(1, -1)
        near = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        scale = (u.shape[0] - 1) ** 2
        return jnp.zeros_like(u).at[inner, inner].set(
            f[inner, inner] - scale * (4 * u[inner, inner] - near))

    def smooth(u, f, times):
        rate = 0.2 / (u.shape[0] - 1) ** 2
        return lax.fori_loop(0, times, lambda _, u: u + rate * residual(u, f), u)

    def refine(coarse):
        m = 2 * coarse.shape[0] - 1
        u = jnp.zeros((m, m)).at[::2, ::2].set(coarse)
        u = u.at[1::2, ::2].set(0.5 * (coarse[1:] + coarse[:-1]))
        return u.at[:, 1::2].set(0.5 * (u[:, 2::2] + u[:, :-2:2]))

    def cycle(u, f):
        if u.shape[0] <= 5:
            return smooth(u, f, 20)
        u = smooth(u, f, 3)
        half = u.shape[0] // 2 + 1
        error = cycle(jnp.zeros((half, half)), residual(u, f)[::2, ::2])
        return smooth(u + refine(error), f, 3)

    @ns.jax.jit
    def run(f):
        u = jnp.zeros_like(f)
        for _ in range(cycles):
            u = cycle(u, f)
        return u, jnp.abs(residual(u, f)).max()
    return run, (d.normal(n, n),)

"""Linear algebra, transforms, complex numbers, differential equations and sparse matrices."""

import importlib

import numpy as np

from programs.registry import Draws, program


def of_scipy(ns, name):
    """Import a module of the target's ``scipy``."""
    return importlib.import_module(f"{ns.jax.__name__}.scipy.{name}")


@program(steps=5, tracks=2)
def kalman_filter_of_tracks(ns, steps=200, tracks=64):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    a = jnp.array([[1, 0, 0.1, 0], [0, 1, 0, 0.1], [0, 0, 1, 0], [0, 0, 0, 1]])
    h = jnp.array([[1.0, 0, 0, 0], [0, 1, 0, 0]])
    q, r = 0.01 * jnp.eye(4), 0.2 * jnp.eye(2)

    @jax.jit
    @jax.vmap
    def run(seen):
        def step(state, z):
            x, p = state
            x, p = a @ x, a @ p @ a.T + q
            s = h @ p @ h.T + r
            gain = jnp.linalg.solve(s, h @ p).T
            error = z - h @ x
            x, p = x + gain @ error, (jnp.eye(4) - gain @ h) @ p
            log_p = -0.5 * (error @ jnp.linalg.solve(s, error) + jnp.linalg.slogdet(s)[1])
            return (x, p), (x, log_p)
        _, (path, log_p) = ns.lax.scan(step, (jnp.zeros(4), jnp.eye(4)), seen)
        return path, log_p.sum()
    return run, (d.normal(tracks, steps, 2).cumsum(1) * 0.1,)


@program(points=6)
def gaussian_process(ns, points=300):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    linalg = of_scipy(ns, "linalg")

    def loss(params, x, y):
        scale, length, noise = (jnp.exp(params[name]) for name in ("scale", "length", "noise"))
        distances = ((x[:, None] - x[None]) / length) ** 2
        k = scale * jnp.exp(-0.5 * distances) + (noise + 1e-4) * jnp.eye(points)
        factor = linalg.cho_factor(k, lower=True)
        return 0.5 * y @ linalg.cho_solve(factor, y) + jnp.log(jnp.diag(factor[0])).sum()

    @jax.jit
    def run(params, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return value, jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads)
    x = d.uniform(points, low=-3, high=3)
    params = {name: jnp.asarray(v) for name, v in (
        ("scale", 0.0), ("length", -1.0), ("noise", -2.0))}
    return run, (params, x, jnp.sin(2 * x) + 0.1 * d.normal(points))


@program(n=16, steps=2)
def vorticity_by_fourier_series(ns, n=128, steps=20):
    jax, jnp = ns.jax, ns.jnp
    kx, ky = jnp.meshgrid(jnp.fft.fftfreq(n, 1 / n), jnp.fft.rfftfreq(n, 1 / n), indexing="ij")
    k2 = kx ** 2 + ky ** 2
    inverse = jnp.where(k2 == 0, 0, 1 / jnp.where(k2 == 0, 1, k2))
    keep = (abs(kx) < n / 3) & (ky < n / 3)
    decay = jnp.exp(-1e-3 * k2 * 0.01)

    def rate(w_hat):
        psi = inverse * w_hat
        u, v, wx, wy = (jnp.fft.irfft2(1j * k * f) for k, f in (
            (ky, psi), (-kx, psi), (kx, w_hat), (ky, w_hat)))
        return jnp.where(keep, -jnp.fft.rfft2(u * wx + v * wy), 0)

    @jax.jit
    def run(w):
        def step(w_hat, _):
            middle = w_hat + 0.005 * rate(w_hat)
            return decay * (w_hat + 0.01 * rate(middle)), None
        w_hat, _ = ns.lax.scan(step, jnp.fft.rfft2(w), None, length=steps)
        return jnp.fft.irfft2(w_hat), (abs(w_hat) ** 2).sum()
    y, x = np.meshgrid(*[np.arange(n) * 2 * np.pi / n] * 2)
    return run, (jnp.asarray(np.float32(np.sin(3 * x) * np.cos(2 * y) + 0.1 * np.cos(5 * x + y))),)


@program(rows=9, columns=4, kept=2)
def principal_components(ns, rows=2000, columns=64, kept=8):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def run(x):
        centered = (x - x.mean(0)) / x.std(0)
        _, s, vh = jnp.linalg.svd(centered, full_matrices=False)
        signs = jnp.sign(vh[jnp.arange(columns), abs(vh).argmax(1)])
        parts = (vh * signs[:, None])[:kept]
        scores = centered @ parts.T
        error = ((centered - scores @ parts) ** 2).mean()
        return scores.std(0), (s ** 2 / (s ** 2).sum())[:kept], error
    return run, (d.normal(rows, columns) @ d.normal(columns, columns),)


@program(sites=3, steps=3)
def quantum_evolution(ns, sites=7, steps=200):
    jax, jnp = ns.jax, ns.jnp
    linalg = of_scipy(ns, "linalg")
    sx, sz = jnp.array([[0, 1], [1, 0]]), jnp.array([[1.0, 0], [0, -1]])

    def at(site, op):
        out = jnp.eye(1)
        for i in range(sites):
            out = jnp.kron(out, op if i == site else jnp.eye(2))
        return out
    zs = [at(i, sz) for i in range(sites)]

    @jax.jit
    def run(field):
        h = -sum(zs[i] @ zs[i + 1] for i in range(sites - 1)) - field * sum(
            at(i, sx) for i in range(sites))
        u = linalg.expm(-0.05j * h)
        psi = jnp.zeros(2 ** sites, "complex64").at[0].set(1)

        def step(psi, _):
            psi = u @ psi
            return psi, jnp.vdot(psi, zs[0] @ psi).real
        psi, seen = ns.lax.scan(step, psi, length=steps)
        return abs(psi) ** 2, seen
    return run, (jnp.asarray(0.7),)


@program(points=9, knots=4)
def cubic_spline_fit(ns, points=2000, knots=40):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    h = 1 / (knots - 1)
    grid = jnp.linspace(0, 1, knots)

    def moments(values):  # second derivatives, 0 at both ends
        right = 6 * (values[2:] - 2 * values[1:-1] + values[:-2]) / h ** 2
        ones = jnp.ones(knots - 2)
        inner = ns.lax.linalg.tridiagonal_solve(
            ones.at[0].set(0), 4 * ones, ones.at[-1].set(0), right[:, None])
        return jnp.pad(inner[:, 0], 1)

    def spline(values, x):
        m = moments(values)
        i = jnp.clip((x / h).astype(int), 0, knots - 2)
        a, b = (grid[i + 1] - x) / h, (x - grid[i]) / h
        bend = (a ** 3 - a) * m[i] + (b ** 3 - b) * m[i + 1]
        return a * values[i] + b * values[i + 1] + bend * h ** 2 / 6

    @jax.jit
    def run(x, y):
        design = jax.jacfwd(lambda v: spline(v, x))(jnp.zeros(knots))
        values, _, _, _ = jnp.linalg.lstsq(design, y)
        return values, ((spline(values, x) - y) ** 2).mean()
    x = d.uniform(points)
    return run, (x, jnp.sin(7 * x) + 0.05 * d.normal(points))


@program(points=4, steps=1)
def fit_of_predators_and_prey(ns, points=20, steps=5):
    jax, jnp = ns.jax, ns.jnp
    odeint = importlib.import_module(f"{ns.jax.__name__}.experimental.ode").odeint
    t = jnp.linspace(0.0, 4.0, points)

    def rate(y, t, k):
        prey, hunters = y
        return jnp.stack([k[0] * prey - k[1] * prey * hunters,
                          k[2] * prey * hunters - k[3] * hunters])

    def loss(log_k, seen):
        path = odeint(rate, jnp.array([1.0, 0.5]), t, jnp.exp(log_k), rtol=1e-5, atol=1e-5)
        return ((path - seen) ** 2).mean()

    @jax.jit
    def run(log_k, seen):
        def step(log_k, _):
            value, slope = jax.value_and_grad(loss)(log_k, seen)
            return log_k - 0.05 * slope, value
        return ns.lax.scan(step, log_k, None, length=steps)
    seen = odeint(rate, jnp.array([1.0, 0.5]), t, jnp.array([1.1, 0.9, 0.8, 1.2]))
    return run, (jnp.zeros(4), seen)


@program(n=4)
def poisson_by_conjugate_gradients(ns, n=64):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    sparse = importlib.import_module(f"{ns.jax.__name__}.experimental.sparse")
    cg = of_scipy(ns, "sparse.linalg").cg
    i = np.arange(n * n).reshape(n, n)
    pairs = np.concatenate([np.stack([p.ravel(), q.ravel()], 1) for p, q in (
        (i, i), (i[1:], i[:-1]), (i[:-1], i[1:]), (i[:, 1:], i[:, :-1]), (i[:, :-1], i[:, 1:]))])
    values = np.where(pairs[:, 0] == pairs[:, 1], 4.0, -1.0).astype("float32")
    laplacian = sparse.BCOO((jnp.asarray(values), jnp.asarray(pairs)), shape=(n * n, n * n))

    @jax.jit
    def run(laplacian, b):
        x, _ = cg(lambda v: laplacian @ v, b, tol=1e-4, maxiter=150)
        return x, jnp.linalg.norm(laplacian @ x - b) / jnp.linalg.norm(b)
    return run, (laplacian, d.normal(n * n))


@program(n=16, images=1)
def filters_of_images(ns, n=128, images=8):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    signal = of_scipy(ns, "signal")
    x = jnp.arange(-3, 4)
    blur = jnp.exp(-(x[:, None] ** 2 + x ** 2) / 3.0)
    blur = blur / blur.sum()
    sobel = jnp.array([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])

    @jax.jit
    @jax.vmap
    def run(image):
        smooth = signal.convolve2d(image, blur, mode="same")
        dx, dy = (signal.convolve2d(smooth, k, mode="same") for k in (sobel, sobel.T))
        strength = jnp.hypot(dx, dy)
        angle = jnp.arctan2(dy, dx)
        kernel = jnp.fft.rfft2(blur, (n, n))
        wiener = jnp.conj(kernel) / (abs(kernel) ** 2 + 0.01)
        sharp = jnp.fft.irfft2(jnp.fft.rfft2(smooth) * wiener, (n, n))
        return jnp.where(strength > 1, strength, 0), jnp.cos(angle) * strength, sharp
    return run, (d.uniform(images, n, n),)


@program(channels=2, length=64, window=16)
def spectral_densities(ns, channels=16, length=16384, window=256):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    signal = of_scipy(ns, "signal")

    @jax.jit
    def run(x):
        x = signal.detrend(x)
        freq, power = signal.welch(x, fs=100.0, nperseg=window)
        _, cross = signal.csd(x[:1], x, fs=100.0, nperseg=window)
        coherence = abs(cross) ** 2 / (power[:1] * power)
        _, _, z = signal.stft(x[0], fs=100.0, nperseg=window)
        total = of_scipy(ns, "integrate").trapezoid(power, freq)
        return power, coherence, abs(z).mean(-1), freq[power.argmax(-1)], total
    t = np.arange(length) / 100
    waves = np.sin(2 * np.pi * t * np.linspace(3, 20, channels)[:, None]).astype("float32")
    return run, (jnp.asarray(waves) + d.normal(channels, length),)

"""Sampling, fitting and describing data."""

from programs.registry import Draws, program


@program(chains=4, steps=5, size=2)
def metropolis(ns, chains=256, steps=200, size=8):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def log_p(x):
        return -0.5 * jnp.sum(x ** 2, -1) + jnp.sum(jnp.cos(2 * x), -1)

    @jax.jit
    def run(key, x):
        def step(x, key):
            k1, k2 = jax.random.split(key)
            new = x + 0.5 * jax.random.normal(k1, x.shape)
            take = jnp.log(jax.random.uniform(k2, (chains,))) < log_p(new) - log_p(x)
            return jnp.where(take[:, None], new, x), take.mean()
        return ns.lax.scan(step, x, jax.random.split(key, steps))
    return run, (ns.random.key(0), d.normal(chains, size))


@program(chains=4, steps=2, size=3)
def hamiltonian_monte_carlo(ns, chains=64, steps=20, size=16):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    scale = d.uniform(size, low=0.5, high=2)

    def energy(x):
        return 0.5 * jnp.sum((x / scale) ** 2)
    force = jax.vmap(jax.grad(energy))

    @jax.jit
    def run(key, x):
        def step(x, key):
            k1, k2 = jax.random.split(key)
            p0 = jax.random.normal(k1, x.shape)

            def leap(_, state):
                q, p = state
                p = p - 0.05 * force(q)
                q = q + 0.1 * p
                return q, p - 0.05 * force(q)
            q, p = ns.lax.fori_loop(0, 10, leap, (x, p0))
            gain = jax.vmap(energy)(x) - jax.vmap(energy)(q) + 0.5 * jnp.sum(p0 ** 2 - p ** 2, -1)
            take = jnp.log(jax.random.uniform(k2, (chains,))) < gain
            return jnp.where(take[:, None], q, x), None
        return ns.lax.scan(step, x, jax.random.split(key, steps))[0]
    return run, (ns.random.key(1), d.normal(chains, size))


@program(n=8, steps=2)
def ising_checkerboard(ns, n=256, steps=20):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    even = (jnp.arange(n)[:, None] + jnp.arange(n)) % 2 == 0

    @jax.jit
    def run(key, s):
        def half(s, key, which):
            near = sum(jnp.roll(s, k, a) for a in (0, 1) for k in (-1, 1))
            flip = jax.random.uniform(key, s.shape) < jax.nn.sigmoid(-0.88 * s * near)
            return jnp.where(flip & which, -s, s)

        def step(s, key):
            k1, k2 = jax.random.split(key)
            s = half(half(s, k1, even), k2, ~even)
            return s, s.mean()
        return ns.lax.scan(step, s, jax.random.split(key, steps))
    return run, (ns.random.key(2), 2 * d.uniform(n, n).round() - 1)


@program(steps=5)
def gibbs_of_two_normals(ns, steps=20_000):
    jax, jnp = ns.jax, ns.jnp

    @jax.jit
    def run(key):
        noise = jax.random.normal(key, (steps, 2))

        def step(y, z):
            x = 0.8 * y + 0.6 * z[0]
            y = 0.8 * x + 0.6 * z[1]
            return y, (x, y)
        return ns.lax.scan(step, jnp.float32(0), noise)[1]
    return run, (ns.random.key(3),)


@program(n=16, steps=3)
def particle_filter(ns, n=20_000, steps=5):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def run(key, seen):
        def step(x, now):
            key, y = now
            k1, k2 = jax.random.split(key)
            x = 0.9 * x + jnp.sin(x) + 0.5 * jax.random.normal(k1, x.shape)
            w = jax.nn.softmax(-0.5 * (y - x) ** 2)
            mean = jnp.sum(w * x)
            u = (jax.random.uniform(k2) + jnp.arange(n)) / n
            x = x[jnp.clip(jnp.searchsorted(jnp.cumsum(w), u), 0, n - 1)]
            return x, mean
        return ns.lax.scan(step, jnp.zeros(n), (jax.random.split(key, steps), seen))[1]
    return run, (ns.random.key(4), d.normal(steps))


@program(n=30, k=3, steps=2)
def k_means(ns, n=10_000, k=20, size=16, steps=10):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def fit(x, c):
        def step(c, _):
            far = jnp.sum((x[:, None] - c[None]) ** 2, -1)
            hot = jax.nn.one_hot(jnp.argmin(far, 1), k)
            return hot.T @ x / jnp.maximum(hot.sum(0)[:, None], 1), far.min(1).mean()
        return ns.lax.scan(step, c, None, length=steps)
    x = d.normal(n, size)
    return fit, (x, x[:k])


@program(n=30, k=3, steps=2)
def k_means_by_segment_sum(ns, n=20_000, k=50, size=8, steps=5):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def fit(x, c):
        def step(_, c):
            far = (x ** 2).sum(1)[:, None] - 2 * x @ c.T + (c ** 2).sum(1)
            which = far.argmin(1)
            total = jax.ops.segment_sum(x, which, k)
            count = jax.ops.segment_sum(jnp.ones(n), which, k)
            return jnp.where(count[:, None] > 0, total / jnp.maximum(count, 1)[:, None], c)
        return ns.lax.fori_loop(0, steps, step, c)
    x = d.normal(n, size)
    return fit, (x, x[:k])


@program(n=30, k=3, steps=2)
def gaussian_mixture_em(ns, n=5000, k=8, size=8, steps=10):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def fit(x, mean):
        def step(_, state):
            mean, var, weight = state
            log_p = -0.5 * jnp.sum((x[:, None] - mean) ** 2 / var + jnp.log(var), -1)
            r = jax.nn.softmax(log_p + jnp.log(weight), -1)
            total = r.sum(0)[:, None]
            mean = r.T @ x / total
            var = jnp.einsum("nk,nkd->kd", r, (x[:, None] - mean) ** 2) / total + 1e-3
            return mean, var, r.mean(0)
        start = mean, jnp.ones((k, size)), jnp.full(k, 1 / k)
        return ns.lax.fori_loop(0, steps, step, start)
    x = d.normal(n, size)
    return fit, (x, x[:k])


@program(n=20, m=5)
def gaussian_process_mean_by_cg(ns, n=600, m=200):
    jnp, d = ns.jnp, Draws(ns)

    def kernel(a, b):
        far = jnp.sum((a[:, None] - b[None]) ** 2, -1)
        return jnp.exp(-far / 0.5)

    @ns.jax.jit
    def predict(x, y, new):
        k = kernel(x, x) + 5 * jnp.eye(n)

        def step(_, state):
            s, r, p = state
            kp = k @ p
            a = (r @ r) / (p @ kp)
            r2 = r - a * kp
            return s + a * p, r2, r2 + (r2 @ r2) / (r @ r) * p
        alpha = ns.lax.fori_loop(0, 15, step, (jnp.zeros(n), y, y))[0]
        return kernel(new, x) @ alpha
    return predict, (d.normal(n, 3), d.normal(n), d.normal(m, 3))


@program(n=20, size=5, steps=3)
def pca_by_power(ns, n=5000, size=64, steps=30):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def components(x, q):
        x = x - x.mean(0)
        cov = x.T @ x / (n - 1)

        def step(_, q):
            q = cov @ q
            a = q[:, 0] / jnp.linalg.norm(q[:, 0])
            b = q[:, 1] - a * (a @ q[:, 1])
            return jnp.stack([a, b / jnp.linalg.norm(b)], 1)
        q = ns.lax.fori_loop(0, steps, step, q)
        return x @ q, jnp.var(x @ q, axis=0)
    return components, (d.normal(n, size) * (1 + 3 / (1 + ns.jnp.arange(size))), d.normal(size, 2))


@program(n=50)
def describe_columns(ns, n=100_000, columns=10):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def describe(x):
        mean, std = x.mean(0), x.std(0)
        z = (x - mean) / std
        quartiles = jnp.quantile(x, jnp.array([0.25, 0.5, 0.75]), axis=0)
        return (mean, std, x.min(0), x.max(0), quartiles, (z ** 3).mean(0), (z ** 4).mean(0) - 3)
    return describe, (d.normal(n, columns),)


@program(n=50)
def histogram_by_hand(ns, n=500_000, bins=64):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def count(x):
        low, high = x.min(), x.max()
        at = jnp.clip(((x - low) / (high - low) * bins).astype(jnp.int32), 0, bins - 1)
        return jnp.zeros(bins, jnp.int32).at[at].add(1)
    return count, (d.normal(n),)


@program(n=50)
def histogram_of_numpy(ns, n=100_000):
    d = Draws(ns)
    return ns.jax.jit(lambda x: ns.jnp.histogram(x, bins=50, range=(-4, 4))[0]), (d.normal(n),)


@program(n=20, steps=3, size=4)
def linear_regression_by_descent(ns, n=2000, steps=200, size=32):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def fit(x, y):
        def loss(w):
            return jnp.mean((x @ w - y) ** 2)
        return ns.lax.scan(lambda w, _: (w - 0.05 * jax.grad(loss)(w), loss(w)), jnp.zeros(size),
                           None, length=steps)
    return fit, (d.normal(n, size), d.normal(n))


@program(n=20, size=4)
def logistic_regression_by_newton(ns, n=5000, size=16):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def fit(x, y):
        def solve(a, b):
            def step(_, state):
                s, r, p = state
                ap = a @ p
                alpha = (r @ r) / (p @ ap + 1e-20)
                r2 = r - alpha * ap
                return s + alpha * p, r2, r2 + (r2 @ r2) / (r @ r + 1e-20) * p
            return ns.lax.fori_loop(0, size, step, (jnp.zeros_like(b), b, b))[0]

        def newton(w, _):
            p = jax.nn.sigmoid(x @ w)
            g = x.T @ (p - y) + w
            h = (x * (p * (1 - p))[:, None]).T @ x + jnp.eye(size)
            return w - solve(h, g), None
        return ns.lax.scan(newton, jnp.zeros(size), None, length=6)[0]
    return fit, (d.normal(n, size), d.uniform(n).round())


@program(n=20, size=6, steps=3)
def lasso_by_ista(ns, n=500, size=200, steps=100):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def fit(x, y):
        def step(w, _):
            w = w - 0.1 / n * (x.T @ (x @ w - y))
            return jnp.sign(w) * jnp.maximum(jnp.abs(w) - 0.01, 0), None
        return ns.lax.scan(step, jnp.zeros(size), None, length=steps)[0]
    return fit, (d.normal(n, size), d.normal(n))


@program(n=20, samples=5)
def bootstrap_of_mean(ns, n=1000, samples=1000):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def run(key, x):
        def one(key):
            return jnp.mean(x[jax.random.randint(key, (n,), 0, n)])
        means = jax.vmap(one)(jax.random.split(key, samples))
        return means.mean(), means.std(), jnp.percentile(means, jnp.array([2.5, 97.5]))
    return run, (ns.random.key(5), d.normal(n))


@program(n=20, samples=5)
def permutation_test(ns, n=500, samples=200):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def run(key, a, b):
        both = jnp.concatenate([a, b])

        def one(key):
            mixed = jax.random.permutation(key, both)
            return mixed[:n].mean() - mixed[n:].mean()
        found = jax.vmap(one)(jax.random.split(key, samples))
        return jnp.mean(jnp.abs(found) >= jnp.abs(a.mean() - b.mean()))
    return run, (ns.random.key(6), d.normal(n), d.normal(n) + 0.05)


@program(n=20, m=10)
def kernel_density(ns, n=5000, m=1000):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def density(x, at):
        z = (at[:, None] - x[None]) / 0.2
        return jnp.mean(jnp.exp(-0.5 * z * z), 1) / (0.2 * jnp.sqrt(2 * jnp.pi))
    return density, (d.normal(n), d.normal(m))


@program(n=20, size=4)
def correlation_matrix(ns, n=5000, size=200):
    return ns.jax.jit(lambda x: ns.jnp.corrcoef(x, rowvar=False)), (Draws(ns).normal(n, size),)


@program(n=12)
def tsne_gradient(ns, n=500):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(y, p):
        far = jnp.sum((y[:, None] - y[None]) ** 2, -1)
        q = (1 - jnp.eye(n)) / (1 + far)
        return jnp.sum(p * (jnp.log(p + 1e-9) - jnp.log(q / q.sum() + 1e-9)))
    p = d.uniform(n, n)
    return jax.jit(jax.grad(loss)), (d.normal(n, 2), p / p.sum())


@program(arms=4, steps=10)
def thompson_bandit(ns, arms=10, steps=2000):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def run(key, truth):
        def step(state, key):
            total, count = state
            k1, k2 = jax.random.split(key)
            guess = total / (count + 1) + jax.random.normal(k1, (arms,)) / jnp.sqrt(count + 1)
            arm = jnp.argmax(guess)
            reward = truth[arm] + jax.random.normal(k2)
            return (total.at[arm].add(reward), count.at[arm].add(1)), reward
        start = jnp.zeros(arms), jnp.zeros(arms)
        return ns.lax.scan(step, start, jax.random.split(key, steps))
    return run, (ns.random.key(7), d.normal(arms))


@program(n=30)
def moving_statistics(ns, n=200_000, window=50):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def run(x):
        total = jnp.cumsum(jnp.concatenate([jnp.zeros(1), x]))
        square = jnp.cumsum(jnp.concatenate([jnp.zeros(1), x * x]))
        mean = (total[window:] - total[:-window]) / window
        var = (square[window:] - square[:-window]) / window - mean ** 2
        return mean, jnp.sqrt(jnp.maximum(var, 0) + 1e-3)
    return run, (d.normal(max(n, 2 * window), scale=0.1),)


@program(n=12, samples=8)
def permutation_test_of_groups(ns, n=300, samples=200, groups=4):
    """An analysis of variance: permutations of the labels by keys, in lanes."""
    jax, jnp, random, d = ns.jax, ns.jnp, ns.random, Draws(ns)

    @jax.jit
    def run(x, labels, key):
        def statistic(labels):
            count = jax.ops.segment_sum(jnp.ones(n), labels, groups)
            means = jax.ops.segment_sum(x, labels, groups) / count
            between = jnp.sum(count * (means - x.mean()) ** 2) / (groups - 1)
            return between / (jnp.sum((x - means[labels]) ** 2) / (n - groups))
        observed = statistic(labels)
        null = jax.vmap(lambda k: statistic(random.permutation(k, labels)))(
            random.split(key, samples))
        return observed, jnp.mean(null >= observed), jnp.percentile(null, jnp.array([50.0, 95.0]))
    return run, (d.normal(n), jnp.arange(n) % groups, random.PRNGKey(0))


@program(n=10, size=3, steps=3)
def evidence_of_linear_regression(ns, n=500, size=40, steps=20):
    """Both variances by MacKay's iteration, then the predictive distribution."""
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def run(x, y, new):
        gram, target = x.T @ x, x.T @ y
        eigenvalues = jnp.linalg.eigvalsh(gram)

        def update(_, precisions):
            a, b = precisions
            factor = jax.scipy.linalg.cho_factor(a * jnp.eye(size) + b * gram, lower=True)
            mean = b * jax.scipy.linalg.cho_solve(factor, target)
            count = jnp.sum(b * eigenvalues / (a + b * eigenvalues))
            return count / (mean @ mean), (n - count) / jnp.sum((y - x @ mean) ** 2)
        a, b = ns.lax.fori_loop(0, steps, update, (jnp.float32(1), jnp.float32(1)))
        covariance = jnp.linalg.inv(a * jnp.eye(size) + b * gram)
        mean = b * covariance @ target
        return new @ mean, 1 / b + jnp.einsum("ni,ij,nj->n", new, covariance, new), a, b
    x = d.normal(n, size)
    return run, (x, x @ d.normal(size) + d.normal(n), d.normal(50, size))


@program(n=8, sweeps=2)
def potts_checkerboard(ns, n=64, sweeps=10, states=4):
    jax, jnp, lax, random, d = ns.jax, ns.jnp, ns.lax, ns.random, Draws(ns)

    @jax.jit
    def run(spins, key):
        parity = (jnp.arange(n)[:, None] + jnp.arange(n)) % 2

        def half(spins, key, which):
            alike = sum(jax.nn.one_hot(jnp.roll(spins, shift, axis), states)
                        for shift in (1, -1) for axis in (0, 1))
            return jnp.where(parity == which, random.categorical(key, 1.1 * alike), spins)

        def sweep(spins, key):
            even, odd = random.split(key)
            spins = half(half(spins, even, 0), odd, 1)
            return spins, jnp.bincount(spins.ravel(), length=states).max() / n ** 2
        return lax.scan(sweep, spins, random.split(key, sweeps))
    return run, (d.integers(states, n, n), random.PRNGKey(0))


@program(particles=20, steps=2)
def tempered_particles(ns, particles=1000, steps=20, size=3):
    """Particles move from a normal distribution to another, resampled at each temperature."""
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def log_likelihood(x):
        return -jnp.sum((x ** 2 - 1) ** 2, -1)

    @jax.jit
    def run(key, x):
        betas = jnp.linspace(0, 1, steps + 1)

        def step(state, inputs):
            x, evidence = state
            before, beta, key = inputs
            k1, k2, k3 = jax.random.split(key, 3)
            weights = (beta - before) * log_likelihood(x)
            evidence = evidence + jax.nn.logsumexp(weights) - jnp.log(particles)
            x = x[jax.random.categorical(k1, weights, shape=(particles,))]
            new = x + 0.3 * jax.random.normal(k2, x.shape)

            def log_p(x):
                return beta * log_likelihood(x) - 0.5 * jnp.sum(x ** 2, -1)
            take = jnp.log(jax.random.uniform(k3, (particles,))) < log_p(new) - log_p(x)
            return (jnp.where(take[:, None], new, x), evidence), take.mean()
        return ns.lax.scan(step, (x, 0.0),
                           (betas[:-1], betas[1:], jax.random.split(key, steps)))
    return run, (ns.random.key(6), d.normal(particles, size))

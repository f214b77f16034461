"""Tables, features and distances."""

from programs.dense_nets import mlp, sgd_step
from programs.registry import Draws, program


@program(n=20)
def concat_of_20_columns_and_dense(ns, n=100_000, columns=20):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def f(columns, w):
        return jnp.tanh(jnp.concatenate([c[:, None] for c in columns], 1) @ w)
    return f, ([d.normal(n) for _ in range(columns)], d.normal(columns, 16))


@program({"(n, 1)": {}, "axis 0": dict(axis=0)}, n=20)
def concat_of_20(ns, n=100_000, axis=1):
    jnp, d = ns.jnp, Draws(ns)
    return (ns.jax.jit(lambda xs: jnp.concatenate(xs, axis) * 2),
            ([d.normal(n, 1) for _ in range(20)],))


@program(n=20)
def stack_of_20_features(ns, n=50_000):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def features(x, y):
        kept = [x, y, x * y, x / (1 + abs(y)), jnp.sin(x), jnp.cos(y), jnp.exp(-x * x), x > y,
                jnp.log1p(abs(x)), jnp.sqrt(abs(y)), jnp.tanh(x), x ** 2, y ** 3, x - y, x + y,
                jnp.maximum(x, y), jnp.minimum(x, y), abs(x), jnp.sign(y), jnp.floor(x)]
        return jnp.stack(kept, axis=-1)
    return features, (d.normal(n), d.normal(n))


@program(n=20)
def columns_to_net_step(ns, n=5000, width=64):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(params, table, y):
        x = jnp.stack([(c - c.mean()) / c.std() for c in table.values()], -1)
        x = jnp.concatenate([x, x ** 2, jnp.sin(x)], -1)
        return jnp.mean((mlp(jax.nn.relu, params, x)[:, 0] - y) ** 2)
    table = {f"column {i}": d.normal(n) for i in range(12)}
    return sgd_step(ns, loss), (d.weights(36, width, 1), table, d.normal(n))


@program(n=20, classes=5)
def one_hot_times_matrix(ns, n=20_000, classes=1000, width=64):
    jax, d = ns.jax, Draws(ns)
    return (jax.jit(lambda i, w: jax.nn.one_hot(i, classes) @ w),
            (d.integers(classes, n), d.normal(classes, width)))


@program(n=20)
def standardize_and_clip(ns, n=100_000, columns=32):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def f(x):
        x = jnp.where(jnp.isnan(x), 0, x)
        return jnp.clip((x - x.mean(0)) / (x.std(0) + 1e-6), -3, 3)
    return f, (d.normal(n, columns),)


@program(n=20)
def bucketize_and_embed(ns, n=100_000):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def f(x, edges, table):
        return table[jnp.searchsorted(edges, x)]
    return f, (d.normal(n), jnp.linspace(-3, 3, 31), d.normal(32, 16))


@program(n=40, window=5)
def rolling_windows_features(ns, n=20_000, window=30):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def f(x):
        w = x[jnp.arange(n - window + 1)[:, None] + jnp.arange(window)]
        return jnp.stack([w.mean(1), w.std(1), w.min(1), w.max(1), w[:, -1] - w[:, 0]], 1)
    return f, (d.normal(n),)


@program(n=12)
def pairwise_squared_distances(ns, n=1000, size=32):
    d = Draws(ns)
    return (ns.jax.jit(lambda x, y: ns.jnp.sum((x[:, None] - y[None]) ** 2, -1)),
            (d.normal(n, size), d.normal(n, size)))


@program(n=12)
def pairwise_manhattan_distances(ns, n=1000, size=32):
    d = Draws(ns)
    return (ns.jax.jit(lambda x, y: ns.jnp.sum(abs(x[:, None] - y[None]), -1)),
            (d.normal(n, size), d.normal(n, size)))


@program(n=12)
def pairwise_distances_grad(ns, n=400, size=16):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(x):
        far = jnp.sqrt(jnp.sum((x[:, None] - x[None]) ** 2, -1) + 1e-6)
        return jnp.mean(jnp.maximum(1 - far, 0) ** 2)
    return jax.jit(jax.grad(loss)), (d.normal(n, size),)


@program(n=12)
def cosine_similarity(ns, n=1000, size=128):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def f(x):
        x = x / jnp.linalg.norm(x, axis=-1, keepdims=True)
        return (x @ x.T - jnp.eye(x.shape[0])).max(1)
    return f, (d.normal(n, size),)


@program(n=20, queries=5)
def nearest_neighbours_vote(ns, n=10_000, queries=500, size=16):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def predict(x, y, q):
        far = (q ** 2).sum(1)[:, None] - 2 * q @ x.T + (x ** 2).sum(1)
        _, near = jax.lax.top_k(-far, 5)
        return jnp.argmax(jax.nn.one_hot(y[near], 10).sum(1), -1)
    return predict, (d.normal(n, size), d.integers(10, n), d.normal(queries, size))


@program(n=20)
def polynomial_features_ridge(ns, n=20_000, size=12):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def f(x, y):
        i, j = jnp.triu_indices(size)
        z = jnp.concatenate([jnp.ones((n, 1)), x, x[:, i] * x[:, j]], 1)
        return z.T @ z / n, z.T @ y / n
    return f, (d.normal(n, size), d.normal(n))


@program(n=20, rows=16)
def hashed_features_step(ns, n=10_000, rows=4096, fields=8):
    jnp, d = ns.jnp, Draws(ns)

    def loss(w, ids, y):
        h = (ids.astype("uint32") * jnp.uint32(2654435761)) >> 7
        z = w[(h % rows).astype("int32")].sum(1)
        return jnp.mean(jnp.logaddexp(0.0, z) - y * z)
    ids = d.integers(1 << 30, n, fields)
    return sgd_step(ns, loss), (d.normal(rows), ids, d.uniform(n).round())


@program(n=30)
def group_by_mean_and_rank(ns, n=100_000, groups=500):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def f(x, g):
        total = jax.ops.segment_sum(x, g, groups)
        count = jax.ops.segment_sum(jnp.ones_like(x), g, groups)
        mean = total / jnp.maximum(count, 1)
        return x - mean[g], jnp.argsort(mean)
    return f, (d.normal(n), d.integers(groups, n))


@program(n=30)
def confusion_matrix_and_auc(ns, n=50_000):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def f(score, y):
        guess = (score > 0.5).astype(jnp.int32)
        table = jnp.zeros((2, 2), jnp.int32).at[y, guess].add(1)
        rank = jnp.argsort(jnp.argsort(score)) + 1
        hits = y.sum()
        auc = (jnp.sum(jnp.where(y == 1, rank, 0) / n) - hits * (hits + 1.0) / 2 / n) / (
            hits * ((n - hits) / n))
        return table, auc
    return f, (d.uniform(n), d.integers(2, n))


@program(n=20, classes=7)
def label_smoothed_cross_entropy_grad(ns, n=512, classes=10_000):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(logits, y):
        target = 0.9 * jax.nn.one_hot(y, classes) + 0.1 / classes
        return -jnp.mean(jnp.sum(target * jax.nn.log_softmax(logits), -1))
    return jax.jit(jax.value_and_grad(loss)), (d.normal(n, classes), d.integers(classes, n))


@program(n=20, width=8)
def masked_mean_pooling(ns, n=256, length=128, width=256):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def f(x, mask):
        m = mask[..., None].astype(x.dtype)
        mean = (x * m).sum(1) / jnp.maximum(m.sum(1), 1)
        top = jnp.where(mask[..., None], x, -jnp.inf).max(1)
        return jnp.concatenate([mean, top], -1)
    return f, (d.normal(n, length, width), d.uniform(n, length) > 0.3)


@program(queries=4, documents=50, size=8, k=3)
def retrieval_of_most_similar(ns, queries=64, documents=5000, size=64, k=10):
    """The k nearest documents of each query by cosine, and how good their order is."""
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def run(q, documents, relevant):
        q = q / jnp.linalg.norm(q, axis=-1, keepdims=True)
        documents = documents / jnp.linalg.norm(documents, axis=-1, keepdims=True)
        scores, index = ns.lax.top_k(q @ documents.T, k)
        hits = relevant[jnp.arange(queries)[:, None], index]
        gain = jnp.sum(hits / jnp.log2(jnp.arange(k) + 2.0), -1)
        reciprocal = jnp.max(hits / (jnp.arange(k) + 1), -1)
        return scores, index, gain.mean(), reciprocal.mean()
    return run, (d.normal(queries, size), d.normal(documents, size),
                 d.uniform(queries, documents).round())

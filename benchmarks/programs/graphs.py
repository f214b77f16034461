"""Graphs as edge lists or matrices, and dynamic programming."""

from programs.dense_nets import cross_entropy, mlp, sgd_step
from programs.registry import Draws, program


def edges(d, nodes, count):
    return d.integers(nodes, count), d.integers(nodes, count)


@program(nodes=20, count=60, steps=3)
def page_rank_by_edges(ns, nodes=20_000, count=200_000, steps=20):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def rank(source, to):
        degree = jnp.maximum(jnp.zeros(nodes).at[source].add(1.0), 1.0)

        def step(_, r):
            return 0.15 / nodes + 0.85 * jnp.zeros(nodes).at[to].add((r / degree)[source])
        return ns.lax.fori_loop(0, steps, step, jnp.full(nodes, 1.0 / nodes))
    return rank, edges(d, nodes, count)


@program(nodes=20, steps=3)
def page_rank_by_matrix(ns, nodes=1000, steps=50):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def rank(a):
        p = a / jnp.maximum(a.sum(0), 1.0)
        return ns.lax.fori_loop(0, steps, lambda _, r: 0.15 / nodes + 0.85 * (p @ r),
                                jnp.full(nodes, 1.0 / nodes))
    return rank, ((d.uniform(nodes, nodes) > 0.98).astype("float32"),)


@program(nodes=20, count=60)
def breadth_first_search(ns, nodes=20_000, count=100_000):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    @ns.jax.jit
    def search(source, to):
        def step(state):
            depth, level, _ = state
            seen = jnp.zeros(nodes, bool).at[to].max(depth[source] == level)
            fresh = seen & (depth < 0)
            return jnp.where(fresh, level + 1, depth), level + 1, fresh.any()
        start = jnp.full(nodes, -1).at[0].set(0), jnp.int32(0), jnp.bool_(True)
        return lax.while_loop(lambda s: s[2], step, start)[:2]
    return search, edges(d, nodes, count)


@program(nodes=20, count=30)
def connected_components(ns, nodes=20_000, count=20_000):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    @ns.jax.jit
    def label(a, b):
        def step(state):
            names, _ = state
            low = jnp.minimum(names[a], names[b])
            new = names.at[a].min(low).at[b].min(low)
            new = new[new]
            return new, jnp.any(new != names)
        return lax.while_loop(lambda s: s[1], step, (jnp.arange(nodes), jnp.bool_(True)))[0]
    return label, edges(d, nodes, count)


@program(nodes=20, count=60, steps=4)
def shortest_paths_bellman_ford(ns, nodes=10_000, count=80_000, steps=20):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def paths(source, to, length):
        def step(_, best):
            return best.at[to].min(best[source] + length)
        return ns.lax.fori_loop(0, steps, step, jnp.full(nodes, jnp.inf).at[0].set(0.0))
    return paths, (*edges(d, nodes, count), d.uniform(count))


@program(nodes=12)
def shortest_paths_floyd_warshall(ns, nodes=200):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def paths(a):
        def step(k, a):
            return jnp.minimum(a, a[:, k, None] + a[None, k, :])
        return ns.lax.fori_loop(0, nodes, step, a)
    return paths, (d.uniform(nodes, nodes, low=1, high=100),)


@program(nodes=20)
def triangle_count(ns, nodes=500):
    jnp, d = ns.jnp, Draws(ns)
    a = (d.uniform(nodes, nodes) > 0.9).astype("float32")
    return ns.jax.jit(lambda a: (jnp.sum((a @ a) * a), jnp.sum((a @ a) * a, 1))), (a,)


@program(nodes=20, count=60, width=4)
def gcn_step(ns, nodes=2000, count=20_000, width=64):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    def loss(params, x, source, to, y):
        degree = jnp.zeros(nodes).at[to].add(1.0) + 1
        for i, (w, b) in enumerate(params):
            h = x @ w
            x = (jax.ops.segment_sum(h[source], to, nodes) + h) / degree[:, None] + b
            x = jax.nn.relu(x) if i < len(params) - 1 else x
        return cross_entropy(ns, x, y)
    return (sgd_step(ns, loss), (d.weights(32, width, 7), d.normal(nodes, 32),
                                 *edges(d, nodes, count), d.integers(7, nodes)))


@program(nodes=20, count=60, width=4)
def message_passing_step(ns, nodes=1000, count=8000, width=64):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)
    params = dict(edge=d.weights(2 * width + 4, width, width), node=d.weights(
        2 * width, width, width))

    def loss(p, h, e, source, to, y):
        for _ in range(2):
            pair = jnp.concatenate([h[source], h[to], e], -1)
            m = mlp(jax.nn.relu, p["edge"], pair)
            got = jnp.zeros((nodes, width)).at[to].add(m)
            h = h + mlp(jax.nn.relu, p["node"], jnp.concatenate([h, got], -1))
        return jnp.mean((h.sum(-1) - y) ** 2)
    return (sgd_step(ns, loss), (params, d.normal(nodes, width), d.normal(count, 4),
                                 *edges(d, nodes, count), d.normal(nodes)))


@program(nodes=20, count=60, width=4)
def graph_attention_forward(ns, nodes=2000, count=20_000, width=64):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def forward(w, a, x, source, to):
        h = x @ w
        score = jax.nn.leaky_relu(h[source] @ a[0] + h[to] @ a[1], 0.2)
        top = jax.ops.segment_max(score, to, nodes)
        e = jnp.exp(score - top[to])
        share = e / jax.ops.segment_sum(e, to, nodes)[to]
        return jax.nn.elu(jax.ops.segment_sum(share[:, None] * h[source], to, nodes))
    return forward, (d.normal(32, width, scale=0.2), d.normal(2, width), d.normal(nodes, 32),
                     *edges(d, nodes, count))


@program(states=4, length=8)
def viterbi(ns, states=64, length=500):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    @ns.jax.jit
    def decode(move, seen):
        def forward(score, now):
            total = score[:, None] + move
            return total.max(0) + now, total.argmax(0)
        score, back = lax.scan(forward, seen[0], seen[1:])
        last = score.argmax()

        def trace(state, back):
            return back[state], state
        first, rest = lax.scan(trace, last, back, reverse=True)
        return score.max(), jnp.concatenate([first[None], rest])
    return decode, (d.normal(states, states), d.normal(length, states))


@program(states=4, length=8, batch=2)
def hmm_log_likelihood_grad(ns, states=32, length=200, batch=8):
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)

    def likelihood(move, seen):
        def step(alpha, now):
            alpha = jax.nn.logsumexp(alpha[:, None] + move, 0) + now
            return alpha, None
        return jax.nn.logsumexp(lax.scan(step, seen[0], seen[1:])[0])

    def loss(move, seen):
        move = jax.nn.log_softmax(move, -1)
        return -jnp.mean(jax.vmap(likelihood, (None, 0))(move, seen))
    return (jax.jit(jax.value_and_grad(loss)),
            (d.normal(states, states), d.normal(batch, length, states)))


@program(n=8, batch=2)
def edit_distance(ns, n=128, batch=32):
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)

    def distance(a, b):
        def row(above, x):
            def cell(left, now):
                up, corner, y = now
                best = jnp.minimum(jnp.minimum(up, left) + 1, corner + (x != y))
                return best, best
            first = above[0] + 1
            rest = lax.scan(cell, first, (above[1:], above[:-1], b))[1]
            return jnp.concatenate([first[None], rest]), None
        return lax.scan(row, jnp.arange(n + 1), a)[0][-1]
    return (jax.jit(jax.vmap(distance)), (d.integers(4, batch, n), d.integers(4, batch, n)))


@program(n=8)
def dynamic_time_warping(ns, n=300):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    @ns.jax.jit
    def warp(a, b):
        cost = abs(a[:, None] - b[None])

        def row(above, now):
            def cell(left, now):
                cost, up, corner = now
                best = cost + jnp.minimum(jnp.minimum(up, corner), left)
                return best, best
            rest = lax.scan(cell, jnp.inf, (now, above[1:], above[:-1]))[1]
            return jnp.concatenate([jnp.array([jnp.inf]), rest]), None
        start = jnp.full(n + 1, jnp.inf).at[0].set(0.0)
        return lax.scan(row, start, cost)[0][-1]
    return warp, (d.normal(n), d.normal(n))


@program(items=5, room=20)
def knapsack(ns, items=100, room=10_000):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    @ns.jax.jit
    def best(weight, value):
        places = jnp.arange(room + 1)

        def step(table, item):
            w, v = item
            without = jnp.where(places >= w, table[jnp.maximum(places - w, 0)], -jnp.inf)
            return jnp.maximum(table, without + v), None
        return lax.scan(step, jnp.zeros(room + 1), (weight, value))[0]
    return best, (d.integers(room // 4, items, low=1), d.uniform(items))


@program(length=8, labels=3, classes=5, batch=2)
def ctc_loss_grad(ns, length=100, labels=20, classes=32, batch=8):
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)
    places = 2 * labels + 1

    def loss(logits, y):
        log_p = jax.nn.log_softmax(logits)
        extended = jnp.zeros(places, jnp.int32).at[1::2].set(y)
        skip = (extended != 0) & (extended != jnp.roll(extended, 2)) & (jnp.arange(places) > 1)
        low = -1e30

        def step(alpha, now):
            one = jnp.concatenate([jnp.array([low]), alpha[:-1]])
            two = jnp.where(skip, jnp.concatenate([jnp.array([low, low]), alpha[:-2]]), low)
            return jnp.logaddexp(jnp.logaddexp(alpha, one), two) + now[extended], None
        start = jnp.full(places, low).at[:2].set(log_p[0, extended[:2]])
        alpha = lax.scan(step, start, log_p[1:])[0]
        return -jnp.logaddexp(alpha[-1], alpha[-2])
    f = jax.jit(jax.value_and_grad(lambda x, y: jax.vmap(loss)(x, y).mean()))
    return f, (d.normal(batch, length, classes), d.integers(classes, batch, labels, low=1))


@program(n=8)
def longest_common_subsequence_by_table(ns, n=400):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    @ns.jax.jit
    def longest(a, b):
        def row(i, table):
            def cell(j, table):
                hit = table[i, j] + 1
                miss = jnp.maximum(table[i, j + 1], table[i + 1, j])
                return table.at[i + 1, j + 1].set(jnp.where(a[i] == b[j], hit, miss))
            return lax.fori_loop(0, n, cell, table)
        return lax.fori_loop(0, n, row, jnp.zeros((n + 1, n + 1), jnp.int32))[n, n]
    return longest, (d.integers(4, n), d.integers(4, n))


@program(n=8)
def needleman_wunsch_by_table(ns, n=200):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    @ns.jax.jit
    def align(a, b):
        def row(table, i):
            def cell(table, j):
                score = jnp.where(a[i] == b[j], 1.0, -1.0)
                gap = jnp.maximum(table[i, j + 1], table[i + 1, j]) - 1.0
                return table.at[i + 1, j + 1].set(jnp.maximum(table[i, j] + score, gap)), None
            return lax.scan(cell, table, jnp.arange(n))[0], None
        edge = -jnp.arange(n + 1.0)
        start = jnp.zeros((n + 1, n + 1)).at[0].set(edge).at[:, 0].set(edge)
        return lax.scan(row, start, jnp.arange(n))[0]
    return align, (d.integers(4, n), d.integers(4, n))


@program(n=50)
def sieve_of_eratosthenes(ns, n=20_000):
    jnp, lax = ns.jnp, ns.lax

    @ns.jax.jit
    def count(prime):
        def cross_out(p, prime):
            def multiple(state):
                at, prime = state
                return at + p, prime.at[at].set(False)

            def of_prime(prime):
                return lax.while_loop(lambda s: s[0] < n, multiple, (p * p, prime))[1]
            return lax.cond(prime[p], of_prime, lambda prime: prime, prime)
        return lax.fori_loop(2, int(n ** 0.5) + 1, cross_out, prime).sum()
    return count, (jnp.ones(n, bool),)


@program(n=30, bins=5)
def histogram_by_loop(ns, n=20_000, bins=100):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    @ns.jax.jit
    def counts(x):
        return lax.fori_loop(0, n, lambda i, h: h.at[x[i]].add(1), jnp.zeros(bins, jnp.int32))
    return counts, (d.integers(bins, n),)


@program(n=8, steps=3)
def value_iteration(ns, n=500, steps=50):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def solve(p, r):
        p = p / p.sum(-1, keepdims=True)

        def step(_, v):
            return jnp.max(r + 0.95 * jnp.einsum("ast,t->as", p, v), 0)
        return ns.lax.fori_loop(0, steps, step, jnp.zeros(n))
    return solve, (d.uniform(4, n, n), d.normal(4, n))


@program(n=64, length=4)
def find_by_rolling_hash(ns, n=50000, length=12, patterns=8):
    """Hashes of all prefixes by an associative scan; those of windows are differences."""
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)

    @jax.jit
    def find(text, patterns):
        base = jnp.full(n, 257, jnp.uint32)

        def join(a, b):
            return a[0] * b[0], a[1] * b[0] + b[1]
        powers, hashes = lax.associative_scan(join, (base, text.astype(jnp.uint32)))
        before = jnp.concatenate([jnp.zeros(1, jnp.uint32), hashes[:-length]])
        windows = hashes[length - 1:] - before * powers[length - 1]

        def of_pattern(p):
            return lax.fori_loop(0, length, lambda i, h: h * 257 + p[i].astype(jnp.uint32),
                                 jnp.uint32(0))
        hits = windows == jax.vmap(of_pattern)(patterns)[:, None]
        return hits.sum(1), jnp.argmax(hits, 1)
    text = d.integers(101, n, low=97, dtype="uint8")
    return find, (text, jnp.stack([text[i * 7:i * 7 + length] for i in range(patterns)]))


@program(sims=4, actions=3, batch=2)
def tree_search_in_lanes(ns, sims=64, actions=5, batch=32):
    """Each lane walks down a tree of its own, adds a node, and updates the counts on the way."""
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)
    nodes = sims + 1

    def one(prior, values):
        def simulate(i, tree):
            child, visits, total = tree

            def choose(node):
                mean = total[node] / jnp.maximum(visits[node], 1)
                bonus = prior[node] * jnp.sqrt(visits[node].sum() + 1) / (1 + visits[node])
                return jnp.argmax(mean + bonus)

            def has_child(walk):
                node, action, depth = walk
                return (child[node, action] >= 0) & (depth < 20)

            def descend(walk):
                node, action, depth = walk
                node = child[node, action]
                return node, choose(node), depth + 1
            node, action, _ = lax.while_loop(has_child, descend, (0, choose(0), 0))
            child = child.at[node, action].set(i + 1)
            visits = visits.at[node, action].add(1.0).at[0, action].add(0.5)
            total = total.at[node, action].add(values[i]).at[0, action].add(0.5 * values[i])
            return child, visits, total
        empty = jnp.zeros((nodes, actions))
        child = jnp.full((nodes, actions), -1)
        _, visits, total = lax.fori_loop(0, sims, simulate, (child, empty, empty))
        return visits[0], total[0]
    return jax.jit(jax.vmap(one)), (jax.nn.softmax(d.normal(batch, nodes, actions)),
                                    d.uniform(batch, sims))

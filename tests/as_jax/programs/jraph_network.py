"""jraph: a graph network trained on two graphs, padded and batched."""

import json

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import optax


def ring(n, seed):
    rng = np.random.default_rng(seed)
    return jraph.GraphsTuple(
        n_node=jnp.array([n]), n_edge=jnp.array([n]), nodes=jnp.asarray(rng.normal(size=(n, 3)),
                                                                        jnp.float32),
        edges=jnp.ones((n, 2)), globals=jnp.zeros((1, 2)), senders=jnp.arange(n),
        receivers=(jnp.arange(n) + 1) % n)


BATCH = jraph.pad_with_graphs(jraph.batch([ring(4, 0), ring(6, 1)]), 16, 20, 4)
TARGETS = jnp.array([1.0, -1.0, 0.0, 0.0])


def predict(params, graph):
    def dense(name):
        return jraph.concatenated_args(lambda x: jnp.tanh(x @ params[name]))
    net = jraph.GraphNetwork(dense("edges"), dense("nodes"), dense("globals"))
    return net(graph).globals.sum(-1)


@jax.jit
def step(params, opt):
    def loss(params):
        mask = jraph.get_graph_padding_mask(BATCH)
        return jnp.sum(jnp.where(mask, (predict(params, BATCH) - TARGETS) ** 2, 0))
    value, grads = jax.value_and_grad(loss)(params)
    updates, opt = optax.adam(0.05).update(grads, opt)
    return optax.apply_updates(params, updates), opt, value


def main():
    keys = jax.random.split(jax.random.key(0), 3)
    params = {"edges": jax.random.normal(keys[0], (10, 4)) / 3,
              "nodes": jax.random.normal(keys[1], (13, 5)) / 3,
              "globals": jax.random.normal(keys[2], (11, 3)) / 3}
    opt, losses = optax.adam(0.05).init(params), []
    for _ in range(8):
        params, opt, value = step(params, opt)
        losses.append(float(value))
    softmax = jraph.segment_softmax(jnp.arange(6.0), jnp.array([0, 0, 1, 1, 1, 2]), 3)
    parts = jraph.unbatch(jraph.unpad_with_graphs(BATCH))
    print(json.dumps({"losses": losses, "softmax": softmax.tolist(),
                      "sizes": [int(g.n_node[0]) for g in parts],
                      "gcn": jraph.GraphConvolution(lambda n: n * 2.0)(BATCH).nodes.tolist()}))


if __name__ == "__main__":
    main()

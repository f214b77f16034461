"""Twenty steps of every optimizer of optax, except those that need svd, and of optimizer
wrappers."""

import json
import sys
import warnings

import jax
import jax.numpy as jnp
import optax
from optax import contrib

warnings.simplefilter("ignore")

STEPS = 20
PLAIN = {
    "adabelief": 0.03, "adadelta": 1.0, "adafactor": 0.03, "adagrad": 0.1, "adam": 0.03,
    "adamax": 0.03, "adamaxw": 0.03, "adamw": 0.03, "adan": 0.03, "amsgrad": 0.03,
    "fromage": 0.03, "lamb": 0.03, "lars": 0.1, "lion": 0.01, "nadam": 0.03, "nadamw": 0.03,
    "noisy_sgd": 0.1, "novograd": 0.03, "optimistic_adam": 0.03, "optimistic_adam_v2": 0.03,
    "optimistic_gradient_descent": 0.1, "polyak_sgd": 1.0, "radam": 0.03, "rmsprop": 0.01,
    "rprop": 0.01, "sgd": 0.1, "sign_sgd": 0.01, "signum": 0.01, "sm3": 0.1, "yogi": 0.03,
}
OPTIMIZERS = {
    **{name: (lambda name=name, rate=rate: getattr(optax, name)(rate))
       for name, rate in PLAIN.items()},
    "lbfgs": lambda: optax.lbfgs(),
    "lbfgs backtracking": lambda: optax.lbfgs(
        linesearch=optax.scale_by_backtracking_linesearch(8)),
    "sgd momentum nesterov": lambda: optax.sgd(0.05, momentum=0.9, nesterov=True),
    "adam of bfloat16": lambda: optax.adam(0.03, mu_dtype=jnp.bfloat16),
    "rmsprop centered": lambda: optax.rmsprop(0.01, centered=True, momentum=0.9),
    "adafactor factored": lambda: optax.adafactor(0.03, min_dim_size_to_factor=2, momentum=0.9),
    "scheduled": lambda: optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 0.1, 5, 20)),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(
        learning_rate=optax.exponential_decay(0.1, 5, 0.5)),
    "chain": lambda: optax.chain(
        optax.clip_by_global_norm(0.5), optax.zero_nans(), optax.centralize(),
        optax.add_decayed_weights(1e-3), optax.ema(0.9), optax.trace(0.5), optax.scale(-0.1)),
    "clipped": lambda: optax.chain(
        optax.clip(0.1), optax.clip_by_block_rms(0.05), optax.adaptive_grad_clip(0.1),
        optax.scale_by_param_block_rms(), optax.scale_by_param_block_norm(), optax.sgd(0.5)),
    "normalized": lambda: optax.chain(
        optax.normalize_by_update_norm(), optax.scale_by_stddev(), optax.scale_by_trust_ratio(),
        optax.keep_params_nonnegative(), optax.sgd(0.05)),
    "noise": lambda: optax.chain(optax.add_noise(0.01, 0.55, 7), optax.sgd(0.1)),
    "distance over gradients": lambda: optax.chain(
        optax.scale_by_distance_over_gradients(), optax.sgd(1.0)),
    "lookahead": lambda: optax.lookahead(optax.sgd(0.1), 5, 0.5),
    "multi steps": lambda: optax.MultiSteps(optax.adam(0.05), 4),
    "apply every": lambda: optax.chain(optax.sgd(0.1), optax.apply_every(3)),
    "apply if finite": lambda: optax.apply_if_finite(optax.adam(0.03), 3),
    "flatten": lambda: optax.flatten(optax.adam(0.03)),
    "masked": lambda: optax.masked(optax.sgd(0.1), {"w": True, "b": False, "v": True}),
    "partition": lambda: optax.partition(
        {"fast": optax.adam(0.1), "slow": optax.sgd(0.01)}, {"w": "fast", "b": "slow",
                                                             "v": "fast"}),
    "selective": lambda: optax.selective_transform(
        optax.adam(0.05), freeze_mask={"w": True, "b": False, "v": False}),
    "conditional": lambda: optax.conditionally_mask(
        optax.adam(0.05), lambda step, **_: step % 2 == 0),
    "acprop": lambda: contrib.acprop(0.03),
    "ademamix": lambda: contrib.ademamix(0.03),
    "adopt": lambda: contrib.adopt(0.03),
    "cocob": lambda: contrib.cocob(),
    "dadapt_adamw": lambda: contrib.dadapt_adamw(),
    "dog": lambda: contrib.dog(1.0),
    "dowg": lambda: contrib.dowg(1.0),
    "madgrad": lambda: contrib.madgrad(0.03),
    "mechanize": lambda: contrib.mechanize(optax.adam(0.03)),
    "momo": lambda: contrib.momo(1.0),
    "momo_adam": lambda: contrib.momo_adam(0.05),
    "muon": lambda: contrib.muon(0.03),
    "normalize": lambda: optax.chain(contrib.normalize(), optax.sgd(0.05)),
    "prodigy": lambda: contrib.prodigy(),
    "reduce on plateau": lambda: optax.chain(
        optax.adam(0.05), contrib.reduce_on_plateau(patience=2, cooldown=1)),
    "sam": lambda: contrib.sam(optax.sgd(0.1), optax.chain(
        contrib.normalize(), optax.sgd(0.05)), sync_period=2),
    "schedule_free": lambda: contrib.schedule_free(optax.sgd(0.1), 0.1),
    "schedule_free_adamw": lambda: contrib.schedule_free_adamw(0.05),
    "schedule_free_sgd": lambda: contrib.schedule_free_sgd(0.1),
    "simplified_ademamix": lambda: contrib.simplified_ademamix(0.01),
    "sophia": lambda: contrib.sophia(0.03),
}
VALUED = {"polyak_sgd", "lbfgs", "lbfgs backtracking", "momo", "momo_adam", "reduce on plateau"}


JITTED = {"adam", "adafactor factored", "lbfgs", "lbfgs backtracking", "multi steps", "sophia",
          "schedule_free_adamw", "injected"}


def data():
    x = jnp.sin(jnp.arange(36.0)).reshape(12, 3)
    return x, jnp.cos(2 * x @ jnp.asarray([[1.0], [-0.5], [0.25]]))


def parameters():
    return {"w": jnp.cos(jnp.arange(12.0)).reshape(3, 4), "b": jnp.full(4, 0.1),
            "v": jnp.sin(jnp.arange(4.0) + 1).reshape(4, 1)}


def loss(p):
    x, y = data()
    return jnp.mean((jnp.tanh(x @ p["w"] + p["b"]) @ p["v"] - y) ** 2)


gradient = jax.jit(jax.value_and_grad(loss))


def losses(name, optimizer):
    """Return the loss of each step; updates are jitted for some optimizers, as in most programs."""
    def update(g, state, p, value):
        given = {"value": value} if name in VALUED else {}
        if name.startswith("lbfgs"):
            given |= {"grad": g, "value_fn": loss}
        if name == "sophia":
            given["obj_fn"] = loss
        updates, state = optimizer.update(g, state, p, **given)
        return optax.apply_updates(p, updates), state

    if name in JITTED:
        update = jax.jit(update)
    p = parameters()
    if name == "lookahead":
        p = optax.LookaheadParams.init_synced(p)
    state = optimizer.init(p)
    found = []
    for _ in range(STEPS):
        value, g = gradient(getattr(p, "fast", p))
        p, state = update(g, state, p, value)
        found.append(float(value))
    return found


def private():
    """Per-example gradients, each clipped."""
    optimizer = contrib.dpsgd(0.1, 1.0, 0.1, 3)
    p = parameters()
    state = optimizer.init(p)
    found = []

    def one(p, x, y):
        return jnp.mean((jnp.tanh(x @ p["w"] + p["b"]) @ p["v"] - y) ** 2)

    @jax.jit
    def step(p, state):
        g = jax.vmap(jax.grad(one), (None, 0, 0))(p, *data())
        updates, state = optimizer.update(g, state, p)
        return optax.apply_updates(p, updates), state, loss(p)

    for _ in range(STEPS):
        p, state, value = step(p, state)
        found.append(float(value))
    return found


def main():
    wanted = sys.argv[1:]
    programs = {**{name: (lambda name=name, make=make: losses(name, make()))
                   for name, make in OPTIMIZERS.items()}, "dpsgd": private}
    print(json.dumps({name: run() for name, run in programs.items()
                      if not wanted or name in wanted}))


if __name__ == "__main__":
    main()

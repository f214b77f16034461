"""orbax-checkpoint: save a training state, restore it as it was and into new shapes of a tree."""

import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp

OPTIMIZER = optax.adam(0.1)


@jax.jit
def step(state):
    grads = jax.grad(lambda p: jnp.sum((p["w"] @ p["w"].T - 1) ** 2) + jnp.sum(p["b"] ** 2))(
        state["params"])
    updates, opt = OPTIMIZER.update(grads, state["opt"])
    return {"params": optax.apply_updates(state["params"], updates), "opt": opt,
            "step": state["step"] + 1}


def main():
    params = {"w": jnp.sin(jnp.arange(6.0)).reshape(2, 3), "b": jnp.arange(3, dtype=jnp.bfloat16)}
    state = {"params": params, "opt": OPTIMIZER.init(params), "step": jnp.int32(0)}
    with tempfile.TemporaryDirectory() as folder:
        options = ocp.CheckpointManagerOptions(max_to_keep=2)
        with ocp.CheckpointManager(Path(folder) / "run", options=options) as manager:
            for i in range(4):
                state = step(state)
                manager.save(i, args=ocp.args.StandardSave(state))
            manager.wait_until_finished()
            shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
            restored = manager.restore(3, args=ocp.args.StandardRestore(shapes))
            kept = manager.all_steps()
        again = step(restored)
        checkpointer = ocp.StandardCheckpointer()
        checkpointer.save(Path(folder) / "params", state["params"])
        checkpointer.wait_until_finished()
        plain = checkpointer.restore(Path(folder) / "params")
    print(json.dumps({
        "restored": [x.astype(jnp.float32).tolist() for x in jax.tree.leaves(restored)],
        "again": [x.astype(jnp.float32).tolist() for x in jax.tree.leaves(again["params"])],
        "kept": list(kept), "plain": plain["w"].tolist(),
        "bfloat16": int(restored["params"]["b"].dtype == jnp.bfloat16)}))


if __name__ == "__main__":
    main()

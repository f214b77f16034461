"""jax-md: energy, forces, minimization and molecular dynamics of Lennard-Jones particles."""

import json

import jax
import jax.numpy as jnp
from jax_md import energy, minimize, partition, quantity, simulate, space

BOX, N = 6.0, 25
DISPLACEMENT, SHIFT = space.periodic(BOX)
ENERGY = energy.lennard_jones_pair(DISPLACEMENT)
GRID = jnp.stack(jnp.meshgrid(jnp.arange(5.0), jnp.arange(5.0)), -1).reshape(N, 2) * 1.2
START = GRID + 0.03 * jax.random.normal(jax.random.key(0), (N, 2))


@jax.jit
def relax(position):
    init, step = minimize.fire_descent(ENERGY, SHIFT)
    state = jax.lax.fori_loop(0, 40, lambda i, s: step(s), init(position))
    return state.position


@jax.jit
def dynamics(key, position):
    init, step = simulate.nve(ENERGY, SHIFT, 2e-3)
    state = init(key, position, kT=0.1)

    def record(state, _):
        state = step(state)
        return state, ENERGY(state.position) + quantity.kinetic_energy(momentum=state.momentum)
    return jax.lax.scan(record, state, None, length=100)


def main():
    relaxed = relax(START)
    state, energies = dynamics(jax.random.key(1), relaxed)
    neighbor_fn, near = energy.lennard_jones_neighbor_list(
        DISPLACEMENT, BOX, format=partition.Dense)
    neighbors = neighbor_fn.allocate(START)
    force = quantity.force(ENERGY)(START)
    print(json.dumps({
        "energy": float(ENERGY(START)), "near": float(near(START, neighbors)),
        "force": force[:4].tolist(), "relaxed": float(ENERGY(relaxed)),
        "energies": energies[::20].tolist(), "position": state.position[:3].tolist(),
        "overflow": bool(neighbors.update(START + 0.01).did_buffer_overflow)}))


if __name__ == "__main__":
    main()

"""evosax: CMA-ES, OpenAI-ES, differential evolution and particle swarms on a test function."""

import json

import jax
import jax.numpy as jnp
from evosax.algorithms import CMA_ES, PSO, DifferentialEvolution, Open_ES, SimpleGA

CENTER = jnp.array([0.5, -1.0, 0.25, 2.0])


def fitness(population):
    x = population - CENTER
    return jnp.sum(x ** 2 + 0.1 * (1 - jnp.cos(4 * x)), axis=-1)


def evolve(strategy, first, generations):
    params = strategy.default_params

    @jax.jit
    def run(key):
        key, start = jax.random.split(key)
        state = strategy.init(start, *first, params)

        def step(state, key):
            ask, tell = jax.random.split(key)
            population, state = strategy.ask(ask, state, params)
            values = fitness(population)
            state, _ = strategy.tell(tell, population, values, state, params)
            return state, values.min()
        return jax.lax.scan(step, state, jax.random.split(key, generations))[1]
    return run(jax.random.key(1)).tolist()


def main():
    start = jnp.zeros(4)
    population = jax.random.normal(jax.random.key(0), (16, 4))
    crowd = (population, fitness(population))
    print(json.dumps({
        "openai": evolve(Open_ES(16, start), (start,), 12),
        "cma": evolve(CMA_ES(16, start), (start,), 5),
        "differential": evolve(DifferentialEvolution(16, start), crowd, 12),
        "swarm": evolve(PSO(16, start), crowd, 12),
        "genetic": evolve(SimpleGA(16, start), crowd, 12)}))


if __name__ == "__main__":
    main()

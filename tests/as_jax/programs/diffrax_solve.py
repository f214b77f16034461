"""diffrax: a Lotka-Volterra orbit, its adjoint, a stiff and a stochastic equation, an event."""

import json

import diffrax as dfx
import jax
import jax.numpy as jnp


def predator_prey(t, y, args):
    prey, predator = y
    a, b, c, d = args
    return jnp.stack([a * prey - b * prey * predator, -c * predator + d * prey * predator])


@jax.jit
def solve(args):
    return dfx.diffeqsolve(
        dfx.ODETerm(predator_prey), dfx.Tsit5(), t0=0.0, t1=8.0, dt0=0.1,
        y0=jnp.array([10.0, 5.0]), args=args, saveat=dfx.SaveAt(ts=jnp.linspace(0, 8, 9)),
        stepsize_controller=dfx.PIDController(rtol=1e-4, atol=1e-6))


@jax.jit
@jax.grad
def sensitivity(args):
    return jnp.sum(solve(args).ys[-1])


@jax.jit
def stiff(y0):
    term = dfx.ODETerm(lambda t, y, args: -50.0 * (y - jnp.cos(t)))
    return dfx.diffeqsolve(term, dfx.Kvaerno3(), 0.0, 1.0, 0.01, y0,
                           stepsize_controller=dfx.PIDController(rtol=1e-3, atol=1e-5)).ys


@jax.jit
def stochastic(key):
    path = dfx.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=(), key=key)
    terms = dfx.MultiTerm(dfx.ODETerm(lambda t, y, args: -y),
                          dfx.ControlTerm(lambda t, y, args: 0.2, path))
    return dfx.diffeqsolve(terms, dfx.Euler(), 0.0, 1.0, 0.02, jnp.float32(1.0)).ys


@jax.jit
def bounce(height):
    event = dfx.Event(lambda t, y, args, **kwargs: y[0], direction=False)
    term = dfx.ODETerm(lambda t, y, args: jnp.stack([y[1], -9.81]))
    return dfx.diffeqsolve(term, dfx.Tsit5(), 0.0, jnp.inf, 0.05, jnp.stack([height, 0.0]),
                           event=event).ts


def main():
    args = jnp.array([0.6, 0.1, 0.4, 0.05])
    solution = solve(args)
    print(json.dumps({
        "orbit": solution.ys.tolist(), "steps": int(solution.stats["num_accepted_steps"]),
        "gradient": sensitivity(args).tolist(), "stiff": stiff(jnp.float32(2.0)).tolist(),
        "stochastic": stochastic(jax.random.key(0)).tolist(),
        "event": bounce(jnp.float32(3.0)).tolist()}))


if __name__ == "__main__":
    main()

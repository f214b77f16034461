"""jaxopt's solvers on small problems, except those that factorize matrices."""

import json
import sys

import jax
import jax.numpy as jnp
import jaxopt
import optax
from jaxopt import loss, objective, projection, prox

X = jnp.sin(jnp.arange(36.0)).reshape(12, 3)
Y = X @ jnp.asarray([1.0, -2.0, 0.5]) + 0.1 * jnp.cos(jnp.arange(12.0))
START = jnp.asarray([0.3, 0.2, -0.1])


def squares(w, scale=1.0):
    return jnp.mean((X @ w - Y) ** 2) + 0.1 * scale * jnp.sum(w ** 4)


def residual(w):
    return X @ (w + 0.1 * w ** 3) - Y


def run(solver, start=START, *args):
    """Return the parameters and the number of steps."""
    params, state = solver.run(start, *args)
    return [*params.tolist(), int(state.iter_num)]


def steps(solver, start=START, *args, count=8):
    """Return the parameters after a fixed number of steps, for solvers whose number of steps
    depends on rounding."""
    params, state = start, solver.init_state(start, *args)
    update = jax.jit(solver.update)
    for _ in range(count):
        params, state = update(params, state, *args)
    return params.tolist()


def lasso():
    solver = jaxopt.ProximalGradient(lambda w: jnp.mean((X @ w - Y) ** 2), prox.prox_lasso)
    params, state = START, solver.init_state(START, 0.1)
    update = jax.jit(solver.update)
    for _ in range(8):
        params, state = update(params, state, 0.1)
    return params.tolist()


def implicit():
    """Return the derivative of a solution with respect to the problem's data."""
    solver = jaxopt.GradientDescent(squares, maxiter=200, tol=1e-6, stepsize=0.1,
                                    implicit_diff=True)
    return jax.jacobian(lambda s: solver.run(START, s).params)(1.0).tolist()


PROGRAMS = {
    "gradient descent": lambda: steps(jaxopt.GradientDescent(squares)),
    "of a step size": lambda: run(jaxopt.GradientDescent(squares, stepsize=0.1, maxiter=30,
                                                         acceleration=False)),
    "bfgs": lambda: steps(jaxopt.BFGS(squares)),
    "lbfgs": lambda: steps(jaxopt.LBFGS(squares)),
    "lbfgs backtracking": lambda: steps(jaxopt.LBFGS(squares, linesearch="backtracking")),
    "lbfgs hager-zhang": lambda: steps(jaxopt.LBFGS(squares, linesearch="hager-zhang")),
    "conjugate gradients": lambda: steps(jaxopt.NonlinearCG(squares)),
    "optax": lambda: steps(jaxopt.OptaxSolver(squares, optax.adam(0.1))),
    "armijo": lambda: steps(jaxopt.ArmijoSGD(squares)),
    "polyak": lambda: steps(jaxopt.PolyakSGD(squares, max_stepsize=0.5)),
    "lasso": lasso,
    "on the simplex": lambda: steps(jaxopt.ProjectedGradient(
        squares, projection.projection_simplex), jnp.full(3, 1 / 3)),
    "mirror descent": lambda: steps(jaxopt.MirrorDescent(
        squares, jaxopt.MirrorDescent.make_projection_grad(
            lambda y, _: jax.nn.softmax(y), jnp.log), stepsize=0.5), jnp.full(3, 1 / 3), None),
    "coordinates": lambda: steps(jaxopt.BlockCoordinateDescent(
        objective.least_squares, prox.prox_lasso), START, 0.1, (X, Y)),
    "gauss-newton": lambda: steps(jaxopt.GaussNewton(residual), count=3),
    "fixed point": lambda: run(jaxopt.FixedPointIteration(
        lambda w: 0.5 * jnp.cos(w), maxiter=20, tol=1e-4)),
    "broyden": lambda: steps(jaxopt.Broyden(lambda w: w - 0.5 * jnp.cos(w)), count=3),
    "bisection": lambda: [float(jaxopt.Bisection(
        lambda x: x ** 3 - x - 2, 1.0, 2.0, maxiter=20).run().params)],
    "implicit": implicit,
    "losses": lambda: [float(f) for f in (
        loss.binary_logistic_loss(1, 0.3), loss.huber_loss(0.2, 1.5),
        loss.multiclass_logistic_loss(1, START), loss.multiclass_sparsemax_loss(1, START))],
    "projections": lambda: jnp.concatenate([
        projection.projection_l1_ball(START * 9, 1.0), projection.projection_l2_ball(START, 0.1),
        projection.projection_box(START, (0.0, 0.2)), projection.projection_hyperplane(
            START, (jnp.ones(3), 1.0))]).tolist(),
}


def main():
    wanted = sys.argv[1:]
    print(json.dumps({name: program() for name, program in PROGRAMS.items()
                      if not wanted or name in wanted}))


if __name__ == "__main__":
    main()

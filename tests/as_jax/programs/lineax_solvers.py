"""lineax: linear systems by several solvers, structured operators, derivatives of solutions."""

import json

import jax
import jax.numpy as jnp
import jax.random as jr
import lineax as lx

MATRIX = jr.normal(jr.key(0), (6, 6)) + 6 * jnp.eye(6)
SPD = MATRIX @ MATRIX.T / 6
TALL = jr.normal(jr.key(1), (9, 4))
VECTOR = jr.normal(jr.key(2), (6,))


@jax.jit
def general(matrix, vector):
    return lx.linear_solve(lx.MatrixLinearOperator(matrix), vector).value


@jax.jit
def positive_definite(matrix, vector):
    operator = lx.MatrixLinearOperator(matrix, lx.positive_semidefinite_tag)
    direct = lx.linear_solve(operator, vector, lx.Cholesky()).value
    iterative = lx.linear_solve(operator, vector, lx.CG(rtol=1e-6, atol=1e-6)).value
    return direct, iterative


@jax.jit
def least_squares(matrix, vector):
    return lx.linear_solve(lx.MatrixLinearOperator(matrix), vector, lx.QR()).value, \
        lx.linear_solve(lx.MatrixLinearOperator(matrix), vector, lx.SVD()).value


@jax.jit
def structured(vector):
    tridiagonal = lx.TridiagonalLinearOperator(jnp.full(6, 4.0), jnp.ones(5), -jnp.ones(5))
    diagonal = lx.DiagonalLinearOperator(jnp.arange(1.0, 7))
    function = lx.FunctionLinearOperator(lambda x: 2 * x + jnp.roll(x, 1),
                                         jax.ShapeDtypeStruct((6,), jnp.float32))
    return [lx.linear_solve(operator, vector).value for operator in (tridiagonal, diagonal)] + [
        lx.linear_solve(function, vector, lx.GMRES(rtol=1e-6, atol=1e-6)).value]


def main():
    gradient = jax.jit(jax.grad(lambda m, v: jnp.sum(general(m, v) ** 2)))(MATRIX, VECTOR)
    batch = jax.vmap(general, in_axes=(None, 0))(MATRIX, jnp.stack([VECTOR, -VECTOR, 2 * VECTOR]))
    print(json.dumps({
        "general": general(MATRIX, VECTOR).tolist(), "gradient": gradient.tolist(),
        "batch": batch.tolist(),
        "positive_definite": [x.tolist() for x in positive_definite(SPD, VECTOR)],
        "least_squares": [x.tolist() for x in least_squares(TALL, jnp.arange(9.0))],
        "structured": [x.tolist() for x in structured(VECTOR)]}))


if __name__ == "__main__":
    main()

"""Rules of primitives, under the names of ``jax.interpreters``: ad, batching, mlir,
partial_eval."""

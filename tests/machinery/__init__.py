"""Programs that use JAX's machinery, run on JAX and on fnx."""

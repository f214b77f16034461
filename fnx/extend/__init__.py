"""Modules for libraries, under the names of ``jax.extend``."""

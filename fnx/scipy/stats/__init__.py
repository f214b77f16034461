"""Densities of distributions, as in ``jax.scipy.stats``."""

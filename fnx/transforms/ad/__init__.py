"""Derivatives: one row per op, and the walks that read them."""

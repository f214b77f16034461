"""Automatic differentiation: the derivative rule of each op, and the walks that apply them."""

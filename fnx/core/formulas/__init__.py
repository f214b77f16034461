"""Definitions of ops and of special functions as formulas over simpler ops."""

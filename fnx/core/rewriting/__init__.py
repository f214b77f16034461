"""Pattern matching, rewrite rules, and the algebra of index expressions.

Expressions of dtype ``index`` are polynomials over RANGEs, VARs and whatever does not resolve
(symbolic.py): ``simplify``, ``bounds``, ``linear_terms``, ``coefficient``, ``prove(condition)``,
and ``ravel`` / ``unravel`` for mixed-radix indices, which cancel if they are aligned.
"""

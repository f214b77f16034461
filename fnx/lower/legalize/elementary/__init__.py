"""Elementary functions written as graphs of basic IEEE operations.

``FORMULAS`` of a module maps each op to the function that computes it, with the largest errors seen
in units in the last place, with and without fused multiply-add (float32: 42 million bit patterns
and 2 million ordinary arguments; float64: 60,000 arguments against mpmath).

Polynomials (constant term first) are minimax fits by ``scripts/fit_polynomials.py``; ``--check``
verifies the error bounds of those stored here. The noted error is weighted: it is relative to the
whole function. Constants from other sources name the source.
"""

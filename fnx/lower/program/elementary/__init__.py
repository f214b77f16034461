"""Elementary functions written as graphs of basic IEEE operations.

``FORMULAS`` of a file says which op each of its functions computes, with the largest errors seen,
in units in the last place, fused or not (float32: 42 million bit patterns and 2 million ordinary
arguments; float64: 60,000 arguments against mpmath).

Polynomials (constant term first) are own minimax fits: ``scripts/fit_polynomials.py`` derives
them, and with ``--check`` verifies the error bounds of those that stand here. The error noted is
weighted: it is relative to the whole function. Where a constant has another source, it is named.
"""

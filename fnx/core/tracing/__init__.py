"""Running a function once on leaves, and closing its graph into a FUNCTION.

Effects (host_callbacks.py, core/scope/callbacks.py): ``CALLBACK(handle, token, operands...)`` calls
a Python function. Each effect takes the token of the one before it, so two equal prints stay two,
in order; a FUNCTION with effects has a token as its last parameter and its last result
(``ClosedFunction.effects``). Outside all traces effects happen at once, or with the results of the
public call.
"""

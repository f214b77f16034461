"""Open trace scopes, what they own, and storage: what a trace may look at.

scope.py holds the open traces, a thread-local stack, and the named axes that they open, which are
part of the key of every trace. Each trace owns its LEAFs, which may have known values.
``scope.resolve_leaves(node)`` replaces leaves by their values, or raises TracedValueError (there is
no value) or LeakedTracerError (the trace is closed). Errors name the transforms that were open,
each with the user's line.
"""

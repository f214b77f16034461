"""Functions with custom rules: CUSTOM nodes, and the API that creates them.

``custom_jvp``, ``custom_vjp``, ``fnx.call(vjp=, jvp=, vmap=)``, ``custom_root`` and the like are
one op: ``CUSTOM(function, rules..., captures..., arguments...)``. The rules are traced at a call
under a derivative, else when a derivative of the traced call is taken (lazy_rules.py),
once per signature; if one needs a value (Python's ``if``) that an eager transform knows, it is
traced for these values only. What any of them captures is an operand of all. Lowering inlines the
function and drops the rules.

A rule that calls its own function contains a CUSTOM that says how many rules further out its rules
are (core/ir/recursive_rules.py), so derivatives of any order terminate. Under vmap each rule is
batched; the cotangent of an operand without a batch axis is a sum over the batch. A function that
is mapped inside its own rule becomes a loop over the elements. A vmap rule (``custom_vmap``,
``vmap=``) is traced when a batch asks for it, and once for two elements at the call, which finds
its captures and effects.
"""

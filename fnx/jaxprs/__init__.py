"""Jaxprs: a function as a list of equations, a view of its graph; and primitives.

    make.py        make_jaxpr: trace a function, and view the graph
    syntax.py      Var, Literal, JaxprEqn, Jaxpr, ClosedJaxpr
    view.py        graph -> jaxpr, by the table in op_rows.py (ops) and bodies.py (ops with bodies)
    evaluate.py    jaxpr -> graph: eval_jaxpr binds the primitive of each equation
    primitive.py   Primitive: binds by its builder, or by the rules of the user
    user_rules.py  a primitive of the user's in a graph: a CUSTOM whose rules are made when needed
    registries.py  the tables of rules: primitive_jvps, primitive_batchers, ...
    printer.py     a jaxpr as text; layout.py: line breaks

The design is in docs/jaxprs.md. Nothing here is loaded before it is used.
"""

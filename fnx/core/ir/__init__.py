"""The graph: op table, dtypes, interned nodes, checked constructors, expressions."""

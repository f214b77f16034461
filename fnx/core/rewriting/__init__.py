"""Pattern matching, rewrite rules, and the algebra of index expressions."""

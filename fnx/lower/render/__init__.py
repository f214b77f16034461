"""program level -> source text: one file for each language."""

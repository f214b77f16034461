"""Functions with custom rules: CUSTOM nodes, and the API that creates them."""

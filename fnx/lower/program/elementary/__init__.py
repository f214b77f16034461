"""Elementary functions written as graphs of basic IEEE operations."""

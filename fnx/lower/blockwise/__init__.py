"""Products that are read by sums only: computed by blocks, never written."""

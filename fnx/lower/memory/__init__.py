"""Memory: which buffers share, donation, updates in place, and the commands over them."""

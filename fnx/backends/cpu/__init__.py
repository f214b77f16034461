"""The host as a queue device: memory, worker threads, native command loop."""

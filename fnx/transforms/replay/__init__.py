"""Dispatch of jitted calls: signatures, captures, caches, fast path; and lowering for readers."""

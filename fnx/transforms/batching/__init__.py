"""Batching: a FUNCTION of one element -> the FUNCTION of a whole batch of them."""

"""Compute products that are only summed by tiles, as in FlashAttention, without writing them."""

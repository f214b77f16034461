"""The disk cache: byte strings by digest, private files, writes in the background."""

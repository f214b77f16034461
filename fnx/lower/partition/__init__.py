"""Several processes: a FUNCTION on whole arrays -> one on the blocks of a process.

    partition.py   the walk: blocks of results from those of operands; bodies; entry
    combine.py     sums that do not depend on each other share one message
    indexed.py     gathers and scatters along axes that are cut
    reshard.py     blocks with other cuts: by collectives, or slices of what all processes have
    windows.py     slices of axes that are cut: rows at the borders of blocks are exchanged
"""

"""Legalization: ops, dtypes and index widths that a target lacks, written with those it has."""

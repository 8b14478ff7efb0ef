"""Segments of a program that run as machine code: the same registers and memory, the same bits."""

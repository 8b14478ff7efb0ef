"""Kernels judged: whether they compile, are right, safe and deterministic, and how fast they would be."""

"""Tensor maps: how the copy engine is told what a tensor is, and what it then copies."""

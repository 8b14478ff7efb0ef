"""Matrix products of tensor cores as native code, bit for bit those of ``ptxlab.numbers``."""

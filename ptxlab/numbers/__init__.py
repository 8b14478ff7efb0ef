"""Number formats, rounding, and the arithmetic of tensor cores, to the bit."""

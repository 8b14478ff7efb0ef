"""What is beyond an SM: what the L2 cache has, what DRAM moves, and atomics that meet."""

"""One SM, clock by clock: what its warps issue, its pipes, its queues and L1, its tensor cores, and what is copied to it."""

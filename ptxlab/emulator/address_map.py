"""Where everything is for a program: memory of this process, windows of state spaces, what is allocated."""

HOST_END = 1 << 48
"""The end of what Linux gives a process on x86-64 and aarch64, unless it asks for more."""

# Generic address windows. Global and constant memory are at their own addresses.
WINDOW_SIZE = 1 << 40
SHARED_WINDOW, LOCAL_WINDOW, FUNCTION_WINDOW, PARAM_WINDOW = (
    HOST_END + number * WINDOW_SIZE for number in range(4)
)
FIRST_ADDRESS = HOST_END + 16 * WINDOW_SIZE

RANK_SHIFT = 24
"""Above these bits of a shared address is the rank of its CTA in the cluster, as on sm_90."""

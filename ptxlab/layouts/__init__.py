"""Layout algebra: shapes and strides, swizzles, and the banks of shared memory."""

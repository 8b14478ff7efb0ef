"""Machine code for this processor, made with LLVM where llvmlite is installed (``ptxlab[native]``)."""

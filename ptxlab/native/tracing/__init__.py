"""The numpy function of an operation, called with values of machine code, writes its own machine code."""

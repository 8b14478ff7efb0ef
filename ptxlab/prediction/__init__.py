"""How long a kernel would take on a GPU that is not here: its machine code run on a model of an SM."""

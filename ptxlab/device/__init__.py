"""Where programs run: the Device, Module, Kernel and Buffer protocol, on a GPU or the emulator."""

"""What programs of others need that launch kernels of their own on the emulator."""

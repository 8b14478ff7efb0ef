"""What a dot product becomes: exactly, in IEEE arithmetic, and on the tensor cores of each chip."""

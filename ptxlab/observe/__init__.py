"""What a launch on the emulator does, seen by watchers of it."""

"""What the command line can do: one folder a verb, with its options, body and view."""

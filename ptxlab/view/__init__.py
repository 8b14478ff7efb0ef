"""Result objects as text for people and as JSON for programs; one module a kind of result."""

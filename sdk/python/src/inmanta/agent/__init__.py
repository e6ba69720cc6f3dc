"""Code of one agent: handlers, their context and their cache."""

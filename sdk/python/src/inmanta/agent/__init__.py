"""What runs on behalf of one agent: handlers, their context and their cache."""

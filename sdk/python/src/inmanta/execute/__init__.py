"""What code of modules sees of a model while it is compiled."""

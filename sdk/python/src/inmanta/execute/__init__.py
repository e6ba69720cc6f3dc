"""The model as seen by module code during a compile."""

"""Support for module tests: compile small models and deploy their resources in this process."""

"""Tests of modules: compile small models and deploy what they export, with the module's code in this process."""

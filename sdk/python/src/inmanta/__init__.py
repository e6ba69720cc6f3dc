"""The names that modules import. What runs them lives in `orrery_sdk`."""

# The release whose interface this package offers; modules compare against it.
__version__ = "20.1.0"

# True in tests of modules: what would be turned into text then is an error instead.
RUNNING_TESTS: bool = False

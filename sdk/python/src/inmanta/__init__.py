"""Public names for modules. The implementation is in `orrery_sdk`."""

# The emulated release; modules compare against it.
__version__ = "20.1.0"

# True in module tests: values that would be converted to text are an error instead.
RUNNING_TESTS: bool = False

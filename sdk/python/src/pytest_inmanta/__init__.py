"""Public names for module tests. The implementation is in `orrery_sdk.testing`."""

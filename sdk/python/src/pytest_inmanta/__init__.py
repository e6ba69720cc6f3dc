"""The names that tests of modules import. What is behind them lives in `orrery_sdk.testing`."""

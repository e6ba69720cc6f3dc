"""The response to an API call."""

from __future__ import annotations

from typing import Any


class Result:
    """A status code and its data."""

    def __init__(self, code: int = 0, result: Any = None, **_others: object) -> None:
        self.code = code
        self._result = result

    @property
    def result(self) -> Any:
        """The data, usually a dict."""
        return self._result

    def get_result(self) -> Any:
        """The same as `result`."""
        return self._result

    def available(self) -> bool:
        """Always true: a result has its response."""
        return True

    def wait(self, timeout: int = 60) -> None:
        """Does nothing: the response is available."""

    def value(self) -> Any:
        """The data of the response; raises if the call failed."""
        if not 200 <= self.code < 300:
            message = self._result.get("message") if isinstance(self._result, dict) else self._result
            raise BadRequest(f"the call failed with code {self.code}: {message}", self.code)
        if isinstance(self._result, dict) and "data" in self._result:
            return self._result["data"]
        return self._result

    def __repr__(self) -> str:
        return f"Result(code={self.code}, result={self._result!r})"


class BadRequest(Exception):
    """A rejected call."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

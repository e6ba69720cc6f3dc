"""The answer to a call of the API."""

from __future__ import annotations

from typing import Any


class Result:
    """A status code and what came with it."""

    def __init__(self, code: int = 0, result: Any = None, **_others: object) -> None:
        self.code = code
        self._result = result

    @property
    def result(self) -> Any:
        """What came with the code; a dict, mostly."""
        return self._result

    def get_result(self) -> Any:
        """The same as `result`."""
        return self._result

    def available(self) -> bool:
        """Whether the answer is there; always, since a result is made of it."""
        return True

    def wait(self, timeout: int = 60) -> None:
        """There is nothing to wait for any more."""

    def value(self) -> Any:
        """The data of an answer; raises if the call did not go well."""
        if not 200 <= self.code < 300:
            message = self._result.get("message") if isinstance(self._result, dict) else self._result
            raise BadRequest(f"the call failed with code {self.code}: {message}", self.code)
        if isinstance(self._result, dict) and "data" in self._result:
            return self._result["data"]
        return self._result

    def __repr__(self) -> str:
        return f"Result(code={self.code}, result={self._result!r})"


class BadRequest(Exception):
    """A call that was refused."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

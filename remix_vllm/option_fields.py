"""Types and ranges of options: one checker per kind of value, and the error all of them raise."""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec


class OptionError(ValueError):
    """An option's value is not allowed. The text names the option, its value and what is
    allowed."""

    def __init__(self, name: str, value: Any, allowed: str) -> None:
        super().__init__(f"remix option {name}={value!r}: {allowed}")
        self.name = name
        self.value = value


class OptionField(Protocol):
    def check(self, name: str, value: Any) -> None:
        """Raise :class:`OptionError` unless ``value`` is allowed."""

    def normalise(self, value: Any) -> Any:
        """The checked value in the type the options record holds."""


class _Number(msgspec.Struct, frozen=True):
    low: float
    high: float | None
    whole: bool
    optional: bool

    def check(self, name: str, value: Any) -> None:
        if value is None and self.optional:
            return
        kinds = (int,) if self.whole else (int, float)
        inside = isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
        if inside and self.low <= value and (self.high is None or value <= self.high):
            return
        kind = "a whole number" if self.whole else "a number"
        upper = "" if self.high is None else f" and at most {self.high}"
        none = ", or null" if self.optional else ""
        raise OptionError(name, value, f"must be {kind} of at least {self.low}{upper}{none}")

    def normalise(self, value: Any) -> int | float | None:
        if value is None:
            return None
        return int(value) if self.whole else float(value)


class _Choice(msgspec.Struct, frozen=True):
    values: tuple[Any, ...]

    def check(self, name: str, value: Any) -> None:
        # `True in (1, 0)` holds, so the type is compared as well.
        if not any(value == v and type(value) is type(v) for v in self.values):
            listed = ", ".join(map(repr, self.values))
            raise OptionError(name, value, f"must be one of {listed}")

    def normalise(self, value: Any) -> Any:
        return value


def number(low: float, high: float | None) -> OptionField:
    return _Number(low, high, whole=False, optional=False)


def integer(low: int, high: int | None, optional: bool = False) -> OptionField:
    return _Number(low, high, whole=True, optional=optional)


def choice(values: Sequence[Any]) -> OptionField:
    return _Choice(tuple(values))


class _Boolean(msgspec.Struct, frozen=True):
    def check(self, name: str, value: Any) -> None:
        # The OpenAI API's `vllm_xargs` turns JSON true and false into 1 and 0.
        if value not in (True, False):
            raise OptionError(name, value, "must be true or false")

    def normalise(self, value: Any) -> bool:
        return bool(value)


def boolean() -> OptionField:
    return _Boolean()

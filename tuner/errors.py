"""Errors that callers may catch. Rejections of candidates are values (`tuner.rejections`), not errors."""

from __future__ import annotations


class TunerError(Exception):
    """Root of every error that meshwright raises on purpose."""


class InvalidValue(TunerError, ValueError):
    """A value object was built from numbers that contradict each other; the text names them and what would be legal."""


class UnknownName(TunerError, LookupError):
    """A model, slice, shape or option of that name does not exist.

    `nearest` holds the closest legal names, best first, for an edge (a command line, a service) to suggest.
    """

    def __init__(self, message: str, *, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.nearest = nearest


class PlanNotFound(TunerError, LookupError):
    """No plan stands on any rung of the lookup ladder; the text says what each rung lacked."""


class StoreError(TunerError):
    """The database cannot serve the call: missing, locked, at another revision or corrupt."""


class ToolchainMissing(TunerError, ImportError):
    """A library that the call needs (jax, libtpu) is not installed; the text says what to install."""

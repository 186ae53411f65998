"""Errors that pass: which ones they are, and trying a store's method again when one of them ends it.

Every method of a store is one transaction, so a method that failed has changed nothing and may run again, except where
the connection broke during the commit: then nobody knows, and only what may happen twice is tried again.
"""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from tuner.errors import StoreError

log = logging.getLogger(__name__)

PAUSES_S = (0.05, 0.15, 0.5, 1.5)
"""What is waited before each further try, give or take a half, so that those who clashed do not clash again."""

# Serialization failures and deadlocks, in which the server rolled back; servers that shut down or start.
_PASSING = frozenset({"40001", "40P01", "55P03", "57P01", "57P02", "57P03"})

_TWICE = frozenset(
    {
        "open_study",
        "save_trials",
        "count_refusals",
        "save_screened",
        "save_compiled",
        "publish",
        "close_task",
        "end_trial",
        "renew",
        "release",
        "retire",
    }
)
"""Methods that change nothing when they run once more."""

Method = TypeVar("Method", bound=Callable[..., Any])


class CommitUnknown(StoreError):
    """The connection broke while a transaction was committed: whether it was is not known."""


def passes(error: BaseException | None) -> bool:
    """Returns whether the same call may succeed a moment later."""
    return isinstance(error, DBAPIError) and (
        error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _PASSING
    )


def unreachable(error: BaseException | None) -> bool:
    """Returns whether no connection could be made; worth another try only if there was one a moment ago."""
    return isinstance(error, DBAPIError) and error.statement is None and not error.connection_invalidated


def patient(method: Method) -> Method:
    """Returns a store's method that is tried again while errors pass, as often as there are `PAUSES_S`."""

    @functools.wraps(method)
    def trying(*args: Any, **kwargs: Any) -> Any:
        for number, pause_s in enumerate(PAUSES_S, start=1):
            try:
                return method(*args, **kwargs)
            except CommitUnknown as error:
                if method.__name__ not in _TWICE:
                    raise
                log.warning("%s: %s; trying again", method.__name__, error)
            except StoreError as error:
                cause = error.__cause__
                if not passes(cause) and not (number > 1 and unreachable(cause)):
                    raise
                log.warning("%s: %s; trying again", method.__name__, error)
            time.sleep(pause_s * random.uniform(0.5, 1.5))
        return method(*args, **kwargs)

    return trying  # type: ignore[return-value]


def make_patient(cls: type) -> None:
    """Makes every public method that a class defines patient."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, patient(method))

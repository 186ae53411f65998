"""Results that are kept for a while: made once however many readers ask at once, and forgotten when there are many."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Value]):
    revision: Hashable
    made: float
    value: Value


class Kept(Generic[Value]):
    """Values by key, the least used forgotten first; of each key one revision, the last.

    Args:
        most: values that are kept.
        clock: monotonic, in seconds.
    """

    def __init__(self, most: int = 32, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._entries: OrderedDict[Hashable, _Entry[Value]] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(
        self, key: Hashable, make: Callable[[], Value], *, revision: Hashable = None, fresh_s: float = 0.0
    ) -> Value:
        """Returns the value of a key; readers who ask while it is made wait for it.

        Args:
            key: of the value.
            make: makes it.
            revision: of what it is made from; a value of another one is made again,
            fresh_s: unless it is younger than this.
        """
        found = self._find(key, revision, fresh_s)
        if found is not None:
            return found.value
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            found = self._find(key, revision, fresh_s)
            if found is not None:
                return found.value
            try:
                value = make()
            finally:
                with self._lock:
                    self._making.pop(key, None)
            with self._lock:
                self._entries[key] = _Entry(revision, self._clock(), value)
                self._entries.move_to_end(key)
                while len(self._entries) > self._most:
                    self._entries.popitem(last=False)
            return value

    def _find(self, key: Hashable, revision: Hashable, fresh_s: float) -> _Entry[Value] | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if entry.revision != revision and self._clock() - entry.made >= fresh_s:
                return None
            self._entries.move_to_end(key)
            return entry

"""Which compiler made a program: versions of jax, jaxlib and libtpu, and the ambient flags.

Read from installed package metadata and the environment, so that a deploy fills it in without importing JAX.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from tuner.canonical import Fingerprint
from tuner.errors import InvalidValue

FLAG_VARIABLES = ("LIBTPU_INIT_ARGS", "XLA_FLAGS")
"""Environment variables whose flags are part of a toolchain."""

_VERSION = re.compile(r"[0-9A-Za-z.+_!-]{1,64}")
_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Versions and ambient flags. Flags that the search chose belong to the plan instead.

    Attributes:
        jax, jaxlib, libtpu: versions; empty if not installed.
        flags: (variable, value) of the ambient flag variables that are set, with their flags sorted.
    """

    jax: str
    jaxlib: str
    libtpu: str
    flags: tuple[tuple[str, str], ...] = ()

    @property
    def fingerprint(self) -> Fingerprint:
        """Named steps, so that a miss can say what changed."""
        return Fingerprint.of({"jax": self.jax, "jaxlib": self.jaxlib, "libtpu": self.libtpu, **dict(self.flags)})

    @property
    def jax_release(self) -> tuple[int, int]:
        """Major and minor version of jax; (0, 0) if it is not installed."""
        major, minor = (*self.jax.split("."), "0", "0")[:2]
        return int(major or 0), int(minor)

    @property
    def digest(self) -> str:
        """SHA-256 of the fingerprint."""
        return self.fingerprint.hex

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {"jax": self.jax, "jaxlib": self.jaxlib, "libtpu": self.libtpu, "flags": dict(self.flags)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Toolchain:
        """Reads what `to_json` wrote."""
        return cls(
            jax=str(document["jax"]),
            jaxlib=str(document["jaxlib"]),
            libtpu=str(document["libtpu"]),
            flags=tuple(sorted((str(k), str(v)) for k, v in document.get("flags", {}).items())),
        )

    @property
    def spelled(self) -> str:
        """One line that `parse` reads: ``jax=0.12.0.1,jaxlib=0.12.0.1,libtpu=0.0.50.1;XLA_FLAGS=--a --b``.

        A semicolon inside of a flag is written ``%3B``, a percent sign ``%25``.
        """
        versions = f"jax={self.jax},jaxlib={self.jaxlib},libtpu={self.libtpu}"
        return ";".join([versions, *(f"{name}={_escaped(value)}" for name, value in self.flags)])

    @classmethod
    def parse(cls, text: str) -> Toolchain:
        """Reads `spelled`. Raises InvalidValue, with an example, for other text."""
        versions, *flags = text.split(";")
        parts = dict(part.partition("=")[::2] for part in versions.split(","))
        set_ = dict(part.partition("=")[::2] for part in flags)
        legal = set(parts) == {"jax", "jaxlib", "libtpu"} and all(map(_VERSION.fullmatch, parts.values()))
        if not legal or len(set_) != len(flags) or set(set_) - set(FLAG_VARIABLES):
            raise InvalidValue(
                f"toolchain {text[:_SHOWN]!r} is not like jax=0.12.0.1,jaxlib=0.12.0.1,libtpu=0.0.50.1, with "
                f"{' and '.join(f';{name}=...' for name in FLAG_VARIABLES)} where these are set"
            )
        environ = {name: value.replace("%3B", ";").replace("%25", "%") for name, value in set_.items()}
        return cls(**parts, flags=_flags(environ))

    def __str__(self) -> str:
        flags = "".join(f", {name}={value}" for name, value in self.flags)
        return f"jax {self.jax or 'none'}, libtpu {self.libtpu or 'none'}{flags}"


def installed_toolchain(environ: Mapping[str, str] | None = None) -> Toolchain:
    """Returns the toolchain of this environment, without importing any of it."""
    environ = os.environ if environ is None else environ
    return Toolchain(jax=_version("jax"), jaxlib=_version("jaxlib"), libtpu=_version("libtpu"), flags=_flags(environ))


def _flags(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    flags = {name: " ".join(sorted(environ.get(name, "").split())) for name in FLAG_VARIABLES}
    return tuple((name, value) for name, value in flags.items() if value)


def _escaped(flags: str) -> str:
    return flags.replace("%", "%25").replace(";", "%3B")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""

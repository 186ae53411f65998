"""Names and declared identity of a workload, as plans and lookups use them. All parsing of such names is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.canonical import digest
from tuner.errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKey:
    """What a plan was made for.

    Attributes:
        model: for example ``wan2.1-t2v-14b``.
        shape: for example ``832x480x81``; empty for a workload without shapes.
        variant: what differs from the model's default use, for example ``videos=2`` or ``no-guidance``; usually empty.
        identity: declared identity, name to text: revision, configuration digest, dtypes and so on.
    """

    model: str
    shape: str
    variant: str = ""
    identity: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.model or any(mark in self.model for mark in "@+"):
            raise InvalidValue(f"model name {self.model!r} is empty or holds '@' or '+'")
        object.__setattr__(self, "identity", tuple(sorted(self.identity)))

    @classmethod
    def of(cls, name: str, identity: Mapping[str, str]) -> WorkloadKey:
        """Builds a key from a workload's name ``model@shape+variant`` and its declared identity."""
        head, _, variant = name.partition("+")
        model, _, shape = head.partition("@")
        return cls(model=model, shape=shape, variant=variant, identity=tuple(identity.items()))

    @property
    def name(self) -> str:
        """``model@shape+variant`` without the parts that are empty."""
        return self.model + (f"@{self.shape}" if self.shape else "") + (f"+{self.variant}" if self.variant else "")

    @property
    def revision(self) -> str:
        """The declared revision; empty if none is declared."""
        return dict(self.identity).get("revision", "")

    @property
    def digest(self) -> str:
        """SHA-256 over the name and the identity."""
        return digest([self.name, list(self.identity)])

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {"model": self.model, "shape": self.shape, "variant": self.variant, "identity": dict(self.identity)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> WorkloadKey:
        """Reads what `to_json` wrote."""
        return cls(
            model=document["model"],
            shape=document["shape"],
            variant=document.get("variant", ""),
            identity=tuple(document.get("identity", {}).items()),
        )

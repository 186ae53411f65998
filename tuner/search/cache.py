"""Screens and compiles behind a cache by content, so that an equal candidate is never screened or compiled twice.

Two levels: what was asked (workload, slice, toolchain, candidate) leads straight to the result, so a warm run lowers
nothing; the digest of the lowered program leads to the result of another candidate that lowers to the same program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tuner.canonical import digest
from tuner.layouts.layout import Candidate
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.ports import Compiled, Compiler, Screened, Screener, WorkloadSpec
from tuner.rejections import Rejection, RejectReason
from tuner.slices.slice import Slice
from tuner.stores import ContentKey, ProgramStore

# A verdict of these kinds may differ on another try (a busy machine), so it is not kept.
_TRANSIENT = frozenset({RejectReason.TIMEOUT, RejectReason.COMPILER_ABORT, RejectReason.SCREEN_ABORT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a search looks at: the workload, its code, where it shall run, and the toolchain that compiles."""

    workload: WorkloadKey
    source: str
    spec: WorkloadSpec
    slice: Slice
    toolchain: Toolchain

    def key(self, candidate: Candidate) -> ContentKey:
        """Returns the content key of a candidate."""
        return ContentKey(
            workload_digest=digest([self.workload.digest, self.source]),
            slice_name=self.slice.name,
            wrap=self.slice.wrap,
            toolchain_digest=self.toolchain.digest,
            candidate_digest=candidate.digest,
        )


class CachedScreener:
    """Answers from the store where it can; asks the screener for the rest and stores in batches."""

    def __init__(self, screener: Screener, store: ProgramStore, subject: Subject, *, batch: int = 32) -> None:
        self._screener = screener
        self._store = store
        self._subject = subject
        self._batch = batch

    def screen(self, candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, Screened | Rejection, bool]]:
        """Yields (candidate, outcome, whether it was cached) for every candidate, known ones first."""
        keys = {candidate.digest: self._subject.key(candidate) for candidate in candidates}
        known = self._store.screened(list(keys.values()))
        missing = []
        for candidate in candidates:
            outcome = known.get(keys[candidate.digest].digest)
            if outcome is None:
                missing.append(candidate)
            else:
                yield candidate, outcome, True
        if missing:
            yield from self._ask(missing, keys)

    def _ask(
        self, missing: Sequence[Candidate], keys: dict[str, ContentKey]
    ) -> Iterator[tuple[Candidate, Screened | Rejection, bool]]:
        fresh: dict[ContentKey, Screened | Rejection] = {}
        try:
            for candidate, outcome in self._screener.screen(self._subject.spec, self._subject.slice, missing):
                if not _transient(outcome):
                    fresh[keys[candidate.digest]] = outcome
                if len(fresh) >= self._batch:
                    self._store.save_screened(fresh)
                    fresh = {}
                yield candidate, outcome, False
        finally:
            if fresh:
                self._store.save_screened(fresh)


class CachedCompiler:
    """Answers from the store where it can; compiles and stores otherwise."""

    def __init__(self, compiler: Compiler, store: ProgramStore, subject: Subject) -> None:
        self._compiler = compiler
        self._store = store
        self._subject = subject

    def compile(self, candidate: Candidate) -> tuple[Compiled | Rejection, bool]:
        """Returns the outcome and whether it was cached."""
        key = self._subject.key(candidate)
        outcome = self._store.compiled(key)
        if outcome is not None:
            return _from_cache(outcome), True
        found: list[Compiled | Rejection] = []

        def known(lowered_digest: str) -> bool:
            same = self._store.compiled_program(lowered_digest, key)
            if same is not None:
                found.append(same)
            return same is not None

        fresh = self._compiler.compile(self._subject.spec, self._subject.slice, candidate, known=known)
        if found:
            self._store.save_compiled(key, _digest(found[0]), found[0])
            return _from_cache(found[0]), True
        assert fresh is not None
        if not _transient(fresh):
            self._store.save_compiled(key, _digest(fresh), fresh)
        return fresh, False


def _transient(outcome: Screened | Compiled | Rejection) -> bool:
    return isinstance(outcome, Rejection) and outcome.reason in _TRANSIENT


def _digest(outcome: Compiled | Rejection) -> str:
    return outcome.lowered_digest if isinstance(outcome, Compiled) else ""


def _from_cache(outcome: Compiled | Rejection) -> Compiled | Rejection:
    return replace(outcome, cached=True) if isinstance(outcome, Compiled) else outcome

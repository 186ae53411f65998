"""Screens and compiles behind a cache by content, so that an equal candidate is never screened or compiled twice.

Two levels: what was asked (workload, slice, toolchain, candidate) leads straight to the result, so a warm run lowers
nothing; the digest of the lowered program leads to the result of another candidate that lowers to the same program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.canonical import digest
from tuner.heartbeat import Heartbeat
from tuner.layouts.layout import Candidate
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.ports import Compiled, Compiler, Screened, Screener, WorkloadSpec
from tuner.rejections import Rejection, RejectReason
from tuner.slices.slice import Slice
from tuner.stores import ContentKey, ProgramStore, Store

# A verdict of these kinds may differ on another try (a busy machine), so it is not kept.
_TRANSIENT = frozenset({RejectReason.TIMEOUT, RejectReason.COMPILER_ABORT, RejectReason.SCREEN_ABORT})

MOST_ABORTS = 2
"""Tries of a candidate that aborts the compiler, over all workers."""

WAIT_S = 0.25
"""Between two looks for what another worker is at."""


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
        return self.key_of(candidate.digest)

    def key_of(self, candidate_digest: str) -> ContentKey:
        """Returns the content key of the candidate of a digest."""
        return ContentKey(
            workload_digest=digest([self.workload.digest, self.source]),
            slice_name=self.slice.name,
            wrap=self.slice.wrap,
            toolchain_digest=self.toolchain.digest,
            candidate_digest=candidate_digest,
        )


class CachedScreener:
    """Answers from the store where it can; asks the screener for the rest and stores in batches.

    With a heartbeat, what another worker screens is waited for instead of screened again.
    """

    def __init__(
        self,
        screener: Screener,
        store: ProgramStore,
        subject: Subject,
        *,
        batch: int = 32,
        heartbeat: Heartbeat | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._screener = screener
        self._store = store
        self._subject = subject
        self._batch = batch
        self._heartbeat = heartbeat
        self._pause = pause

    def screen(self, candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, Screened | Rejection, bool]]:
        """Yields (candidate, outcome, whether it was cached) for every candidate, known ones first."""
        keys = {candidate.digest: self._subject.key(candidate) for candidate in candidates}
        missing = list(candidates)
        while missing:
            known = self._store.screened([keys[candidate.digest] for candidate in missing])
            for candidate in missing:
                outcome = known.get(keys[candidate.digest].digest)
                if outcome is not None:
                    yield candidate, outcome, True
            missing = [candidate for candidate in missing if keys[candidate.digest].digest not in known]
            taken = self._take(missing, keys)
            if taken:
                yield from self._ask(taken, keys)
                asked = {candidate.digest for candidate in taken}
                missing = [candidate for candidate in missing if candidate.digest not in asked]
            elif missing:
                self._pause(WAIT_S)

    def _take(self, missing: Sequence[Candidate], keys: Mapping[str, ContentKey]) -> list[Candidate]:
        if self._heartbeat is None:
            return list(missing)
        taken: list[Candidate] = []
        for candidate in missing:
            if len(taken) == self._batch:
                break
            if self._heartbeat.claim(_screen_resource(keys[candidate.digest])) is not None:
                taken.append(candidate)
        # Another worker may have screened one between the look and the claim.
        done = self._store.screened([keys[candidate.digest] for candidate in taken])
        for candidate in taken:
            if keys[candidate.digest].digest in done:
                self._heartbeat.release(_screen_resource(keys[candidate.digest]))
        return [candidate for candidate in taken if keys[candidate.digest].digest not in done]

    def _ask(
        self, missing: Sequence[Candidate], keys: Mapping[str, ContentKey]
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
            if self._heartbeat is not None:
                for candidate in missing:
                    self._heartbeat.release(_screen_resource(keys[candidate.digest]))


class CachedCompiler:
    """Answers from the store where it can; compiles and stores otherwise.

    With a heartbeat, a program that another worker compiles, for whichever candidate lowers to it, is waited for.
    A candidate that aborts the compiler is given `MOST_ABORTS` tries over all workers and studies.
    """

    def __init__(
        self,
        compiler: Compiler,
        store: Store,
        subject: Subject,
        *,
        heartbeat: Heartbeat | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._compiler = compiler
        self._store = store
        self._subject = subject
        self._heartbeat = heartbeat
        self._pause = pause

    def compile(self, candidate: Candidate) -> tuple[Compiled | Rejection, bool]:
        """Returns the outcome and whether it was cached."""
        key = self._subject.key(candidate)
        outcome = self._store.compiled(key)
        if outcome is not None:
            self._store.use_program(key)
            return _from_cache(outcome), True
        found: list[Compiled | Rejection] = []
        held: list[str] = []

        def known(lowered_digest: str) -> bool:
            resource = _program_resource(lowered_digest, key)
            while (same := self._store.compiled_program(lowered_digest, key)) is None:
                if self._heartbeat is None:
                    return False
                if self._heartbeat.claim(resource) is not None:
                    held.append(resource)
                    break
                self._pause(WAIT_S)
            same = same or self._store.compiled_program(lowered_digest, key)
            if same is not None:
                found.append(same)
            return same is not None

        try:
            fresh = self._compiler.compile(self._subject.spec, self._subject.slice, candidate, known=known)
            if found:
                self._store.save_compiled(key, _digest(found[0]), found[0])
                return _from_cache(found[0]), True
            assert fresh is not None
            fresh = self._final(key, fresh)
            if not _transient(fresh):
                self._store.save_compiled(key, _digest(fresh), fresh)
        finally:
            for resource in held:
                assert self._heartbeat is not None
                self._heartbeat.release(resource)
        return fresh, False

    def _final(self, key: ContentKey, outcome: Compiled | Rejection) -> Compiled | Rejection:
        """Counts an abort; the last one that is tolerated becomes a verdict that stays."""
        if not isinstance(outcome, Rejection) or outcome.reason is not RejectReason.COMPILER_ABORT:
            return outcome
        aborts = self._store.count_abort(key, outcome.detail)
        if aborts < MOST_ABORTS:
            return outcome
        return replace(
            outcome,
            detail=f"aborted the compiler {aborts} times, it is not tried again: {outcome.detail}",
            numbers={**outcome.numbers, "aborts": aborts},
        )


def compile_resource(key_digest: str) -> str:
    """Returns the name of the lease of a content key's candidate; for an empty one, the prefix of all of them."""
    return f"compile/{key_digest}"


def _screen_resource(key: ContentKey) -> str:
    return f"screen/{key.digest}"


def _program_resource(lowered_digest: str, key: ContentKey) -> str:
    return f"program/{digest([lowered_digest, key.slice_name, list(key.wrap), key.toolchain_digest])}"


def _transient(outcome: Screened | Compiled | Rejection) -> bool:
    if not isinstance(outcome, Rejection) or outcome.reason not in _TRANSIENT:
        return False
    return outcome.numbers.get("aborts", 0) < MOST_ABORTS


def _digest(outcome: Compiled | Rejection) -> str:
    return outcome.lowered_digest if isinstance(outcome, Compiled) else ""


def _from_cache(outcome: Compiled | Rejection) -> Compiled | Rejection:
    return replace(outcome, cached=True) if isinstance(outcome, Compiled) else outcome

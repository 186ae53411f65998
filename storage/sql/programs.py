"""Results of screens and compiles in a database, compressed and addressed by content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from storage.documents import (
    compiled_from_json,
    compiled_to_json,
    packed,
    screened_from_json,
    screened_to_json,
    unpacked,
)
from storage.engines import take_turn
from storage.schema import ProgramKeyRow, ProgramRow, ScreenRow
from storage.sql.database import Part, rejected_columns, rejection_of, wrap_text
from tuner.ports import Compiled, Screened
from tuner.rejections import Rejection
from tuner.stores import ContentKey, ProgramStore

_KEYS_AT_ONCE = 30_000  # SQLite takes 32766 parameters in one statement


class SqlProgramStore(Part, ProgramStore):
    """`ProgramStore` over our tables."""

    def screened(self, keys: Sequence[ContentKey]) -> Mapping[str, Screened | Rejection]:
        """Returns what is known of these keys, by key digest."""
        digests = sorted({key.digest for key in keys})
        found: dict[str, Screened | Rejection] = {}
        with self._db.read() as session:
            for start in range(0, len(digests), _KEYS_AT_ONCE):
                wanted = ScreenRow.key_digest.in_(digests[start : start + _KEYS_AT_ONCE])
                for row in session.scalars(select(ScreenRow).where(wanted)):
                    found[row.key_digest] = rejection_of(row) or screened_from_json(unpacked(row.body or b""))
        return found

    def save_screened(self, outcomes: Mapping[ContentKey, Screened | Rejection]) -> None:
        """Stores screen outcomes; an outcome that is there stays."""
        now = self._db.now()
        rows = [_screen_columns(key, outcome) | {"stored_at": now} for key, outcome in outcomes.items()]
        rows.sort(key=lambda row: str(row["key_digest"]))
        with self._db.write() as session:
            self._db.insert_new(session, ScreenRow, rows)

    def compiled(self, key: ContentKey) -> Compiled | Rejection | None:
        """Returns what the compiler made of a key, or None if it has not been asked."""
        query = select(ProgramRow).join(ProgramKeyRow, ProgramKeyRow.program_id == ProgramRow.id)
        with self._db.read() as session:
            return _program(session.scalars(query.where(ProgramKeyRow.key_digest == key.digest)).one_or_none())

    def compiled_program(self, lowered_digest: str, key: ContentKey) -> Compiled | Rejection | None:
        """Returns the compile result of an equal lowered program, or None."""
        if not lowered_digest:
            return None
        with self._db.read() as session:
            return _program(session.scalars(_same_program(lowered_digest, key)).one_or_none())

    def save_compiled(self, key: ContentKey, lowered_digest: str, outcome: Compiled | Rejection) -> None:
        """Stores a compile outcome under its key and its lowered digest; an outcome that is there stays."""
        now = self._db.now()
        columns = _program_columns(key, lowered_digest, outcome) | {"stored_at": now}
        with self._db.write() as session:
            take_turn(session, f"compile {key.digest}")
            if session.get(ProgramKeyRow, key.digest) is not None:
                return
            if lowered_digest:
                self._db.insert_new(session, ProgramRow, [columns])
                program_id = session.scalars(_same_program(lowered_digest, key)).one().id
            else:
                program = ProgramRow(**columns)
                session.add(program)
                session.flush()
                program_id = program.id
            session.add(
                ProgramKeyRow(
                    key_digest=key.digest,
                    program_id=program_id,
                    workload_digest=key.workload_digest,
                    candidate_digest=key.candidate_digest,
                    stored_at=now,
                )
            )


def _same_program(lowered_digest: str, key: ContentKey) -> Any:
    return select(ProgramRow).where(
        ProgramRow.lowered_digest == lowered_digest,
        ProgramRow.slice_name == key.slice_name,
        ProgramRow.wrap == wrap_text(key.wrap),
        ProgramRow.toolchain_digest == key.toolchain_digest,
    )


def _where(key: ContentKey) -> dict[str, str]:
    return {
        "slice_name": key.slice_name,
        "wrap": wrap_text(key.wrap),
        "toolchain_digest": key.toolchain_digest,
    }


def _screen_columns(key: ContentKey, outcome: Screened | Rejection) -> dict[str, Any]:
    rejection = outcome if isinstance(outcome, Rejection) else None
    return {
        "key_digest": key.digest,
        "workload_digest": key.workload_digest,
        **_where(key),
        "candidate_digest": key.candidate_digest,
        "lowered_digest": outcome.digest if isinstance(outcome, Screened) else None,
        "body": packed(screened_to_json(outcome)) if isinstance(outcome, Screened) else None,
        **rejected_columns(rejection),
    }


def _program_columns(key: ContentKey, lowered_digest: str, outcome: Compiled | Rejection) -> dict[str, Any]:
    compiled = outcome if isinstance(outcome, Compiled) else None
    rejection = outcome if isinstance(outcome, Rejection) else None
    memory = compiled.program.memory if compiled else None
    return {
        "lowered_digest": lowered_digest or None,
        **_where(key),
        "compile_s": compiled.compile_s if compiled else None,
        "memory_bytes": memory.total_bytes if memory else None,
        "body": packed(compiled_to_json(compiled)) if compiled else None,
        **rejected_columns(rejection),
    }


def _program(row: ProgramRow | None) -> Compiled | Rejection | None:
    if row is None:
        return None
    return rejection_of(row) or compiled_from_json(unpacked(row.body or b""))

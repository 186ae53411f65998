"""A night over the real compiler: the file that says what to tune, and the desk that tunes it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import storage
from adapters.measuring import Measurement, When, missing_devices
from adapters.models.registry import resolve
from adapters.search import opened
from tuner.calibration.calibration import calibration
from tuner.calibration.records import constants
from tuner.errors import InvalidValue, UnknownName
from tuner.layouts.layout import Candidate
from tuner.network.cost import Degraded, Network
from tuner.nightly.desk import Searched
from tuner.nightly.matrix import Entry, Matrix, read_matrix
from tuner.plans.toolchain import Toolchain
from tuner.search.events import Listener
from tuner.search.outcome import Outcome
from tuner.search.revision import study_key
from tuner.search.settings import Settings
from tuner.slices.names import parse_slice
from tuner.stores import StudyKey


def read_file(path: Path) -> Matrix:
    """Reads a ``nightly.toml``.

    Raises InvalidValue naming the file, the key, its value and what would be legal. A workload of your own
    (``package.module:attribute``) is not looked at: its code may break on any day, which is for its entry to report.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidValue(f"{path}: {error}") from error
    try:
        matrix = read_matrix(document)
    except InvalidValue as error:
        raise InvalidValue(f"{path}: {error}") from error
    for entry in matrix.entries:
        try:
            _check(entry)
        except (UnknownName, InvalidValue) as error:
            raise InvalidValue(f"{path}: {entry.source}, {entry.name}: {error}") from error
    return matrix


def _check(entry: Entry) -> None:
    """Raises UnknownName or InvalidValue if there is no such preset, shape or link."""
    slice_ = parse_slice(entry.slice_name)
    Network(slice_, calibration(slice_.generation_name), tuple(map(Degraded.parse, entry.constraints.links)))
    if ":" not in entry.spec.model:
        resolve(entry.spec)


class CompilerDesk:
    """A `tuner.nightly.desk.Desk` over the processes that screen and compile, started anew for each entry.

    Args:
        db: database URL; None for the default.
        toolchain: the installed one.
        jobs: compiles at once; None for one on each processor.
        timeout_s: time for one compile.
    """

    def __init__(self, *, db: str | None, toolchain: Toolchain, jobs: int | None, timeout_s: float) -> None:
        self._db = db
        self._toolchain = toolchain
        self._jobs = jobs
        self._timeout_s = timeout_s

    def key(self, entry: Entry) -> StudyKey:
        """Returns the key of the study that a search of the entry is."""
        slice_ = parse_slice(entry.slice_name)
        with storage.open_store(self._db, read_only=True) as store:
            known = constants(store, slice_.generation_name, self._toolchain)
        return study_key(resolve(entry.spec), slice_, self._toolchain, entry.constraints, known)

    def measures(self, entry: Entry) -> bool:
        """Returns whether a search of the entry would measure."""
        return entry.measure != When.NEVER and not missing_devices(parse_slice(entry.slice_name))

    def recheck(self, entry: Entry, candidate: Candidate, settings: Settings, listener: Listener) -> Outcome:
        """Compiles and places one candidate."""
        with opened(
            spec=entry.spec,
            slice_name=entry.slice_name,
            db=self._db,
            settings=settings,
            listener=listener,
            jobs=1,
            timeout_s=self._timeout_s,
        ) as search:
            return search.recheck(candidate)

    def search(self, entry: Entry, settings: Settings, device_s: float | None, listener: Listener) -> Searched:
        """Searches, and measures if the entry says so and there is time for it."""
        notes: list[str] = []
        with opened(
            spec=entry.spec,
            slice_name=entry.slice_name,
            db=self._db,
            settings=settings,
            listener=listener,
            jobs=self._jobs,
            timeout_s=self._timeout_s,
            measurement=Measurement(when=When(entry.measure) if device_s != 0 else When.NEVER, budget_s=device_s),
            told=notes.append,
        ) as search:
            outcome = search.run()
        measured = outcome.measured
        if measured is not None:
            notes.append(f"{len(measured.timed)} candidates measured")
            if measured.left_out:
                notes.append(f"no time on devices was left for {measured.left_out} more")
        return Searched(outcome=outcome, device_s=0.0 if measured is None else measured.device_s, note="; ".join(notes))

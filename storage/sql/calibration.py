"""Observations and fits in a database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from storage.documents import clean, packed, strict, unpacked, utc
from storage.schema_calibration import FitRow, ObservationRow
from storage.sql.database import Part
from tuner.calibration.fitted import Fit
from tuner.calibration.observation import Observation, Origin
from tuner.calibration.records import CalibrationStore
from tuner.plans.toolchain import Toolchain


class SqlCalibrationStore(Part, CalibrationStore):
    """`CalibrationStore` over our tables."""

    def save_observations(self, observations: Sequence[Observation]) -> None:
        """Adds rows."""
        with self._db.write() as session:
            session.add_all([_row(observation) for observation in observations])

    def observations(self, generation: str, toolchain: Toolchain | None = None) -> Sequence[Observation]:
        """Returns the rows of a generation, oldest first."""
        wanted = select(ObservationRow).where(ObservationRow.generation == generation)
        if toolchain is not None:
            wanted = wanted.where(ObservationRow.toolchain_digest == toolchain.digest)
        with self._db.read() as session:
            return [_observation(row) for row in session.scalars(wanted.order_by(ObservationRow.id))]

    def save_fit(self, fit: Fit) -> None:
        """Adds a fit."""
        with self._db.write() as session:
            session.add(
                FitRow(
                    generation=fit.generation,
                    toolchain_digest=fit.toolchain.digest,
                    jax=fit.toolchain.jax,
                    libtpu=fit.toolchain.libtpu,
                    calibration_digest=fit.calibration.digest,
                    used=fit.used,
                    error_before=fit.error_before,
                    error_after=fit.error_after,
                    observed_rows=fit.rows,
                    document=strict(fit.to_json()),
                    fitted_at=utc(fit.fitted_at),
                )
            )

    def fits(self, generation: str | None = None, *, limit: int | None = None) -> Sequence[Fit]:
        """Returns fits, newest first."""
        wanted = select(FitRow).order_by(FitRow.id.desc()).limit(limit)
        if generation is not None:
            wanted = wanted.where(FitRow.generation == generation)
        with self._db.read() as session:
            return [Fit.from_json(row.document) for row in session.scalars(wanted)]

    def fit_in_use(self, generation: str, toolchain: Toolchain) -> Fit | None:
        """Returns the newest fit that searches take, or None."""
        wanted = (
            select(FitRow)
            .where(FitRow.generation == generation, FitRow.toolchain_digest == toolchain.digest, FitRow.used)
            .order_by(FitRow.id.desc())
            .limit(1)
        )
        with self._db.read() as session:
            row = session.scalars(wanted).one_or_none()
            return None if row is None else Fit.from_json(row.document)


def _row(observation: Observation) -> ObservationRow:
    return ObservationRow(
        generation=observation.slice.generation_name,
        slice_name=observation.slice.name,
        toolchain_digest=observation.toolchain.digest,
        jax=observation.toolchain.jax,
        libtpu=observation.toolchain.libtpu,
        what=observation.what,
        name=clean(observation.name),
        origin=observation.origin.value,
        device_kind=clean(observation.device_kind),
        host=clean(observation.host),
        median_s=observation.seconds,
        samples_s=list(observation.samples_s),
        body=packed(observation.to_json()),
        observed_at=utc(observation.observed_at),
    )


def _observation(row: ObservationRow) -> Observation:
    return Observation.from_json(
        unpacked(row.body),
        what=row.what,
        name=row.name,
        samples_s=tuple(row.samples_s),
        origin=Origin(row.origin),
        device_kind=row.device_kind,
        host=row.host,
        observed_at=row.observed_at,
    )

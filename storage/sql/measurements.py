"""Measurements in a database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from storage.documents import clean, strict, utc
from storage.schema_measurements import MeasurementRow
from storage.sql.database import Part
from tuner.measurements import Measurement, MeasurementStore, Source


class SqlMeasurementStore(Part, MeasurementStore):
    """`MeasurementStore` over our table."""

    def save_measurement(self, measurement: Measurement) -> Measurement:
        """Stores a measurement and returns it with its id and time."""
        observed_at = utc(measurement.observed_at) or self._db.now()
        with self._db.write() as session:
            row = MeasurementRow(
                source=measurement.source,
                plan_id=measurement.plan_id,
                study=clean(measurement.study),
                trial=measurement.trial,
                model=clean(measurement.workload.model),
                slice_name=measurement.slice.name,
                toolchain_digest=measurement.toolchain.digest,
                jax=measurement.toolchain.jax,
                libtpu=measurement.toolchain.libtpu,
                candidate_digest=measurement.candidate.digest,
                device_kind=clean(measurement.device_kind),
                host=clean(measurement.host),
                step_s=measurement.step_s,
                predicted_s=measurement.predicted_s,
                samples=measurement.count,
                samples_s=list(measurement.samples_s),
                document=strict(measurement.document()),
                observed_at=observed_at,
            )
            session.add(row)
            session.flush()
            return _stored(row)

    def measurements(
        self,
        *,
        source: Source | None = None,
        plan_id: int | None = None,
        study: str | None = None,
        slice_name: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Measurement]:
        """Returns the measurements that have all that is asked for, newest first."""
        asked = {"source": source, "plan_id": plan_id, "study": study, "slice_name": slice_name}
        wanted = [getattr(MeasurementRow, name) == value for name, value in asked.items() if value is not None]
        query = select(MeasurementRow).where(*wanted).order_by(MeasurementRow.id.desc()).limit(limit)
        with self._db.read() as session:
            return [_stored(row) for row in session.scalars(query)]


def _stored(row: MeasurementRow) -> Measurement:
    return Measurement.of_document(
        row.document,
        id=row.id,
        source=row.source,
        plan_id=row.plan_id,
        study=row.study,
        trial=row.trial,
        device_kind=row.device_kind,
        host=row.host,
        step_s=row.step_s,
        predicted_s=row.predicted_s,
        count=row.samples,
        samples_s=tuple(row.samples_s),
        observed_at=row.observed_at,
    )

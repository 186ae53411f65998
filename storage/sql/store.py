"""The SQL store: SQLite and PostgreSQL through the same statements."""

from __future__ import annotations

from sqlalchemy import Engine

from storage.revision import require_head
from storage.sharing import close_engine
from storage.sql.calibration import SqlCalibrationStore
from storage.sql.database import Clock, Database, utc_now
from storage.sql.experience import SqlExperienceStore
from storage.sql.leases import SqlLeaseStore
from storage.sql.measurements import SqlMeasurementStore
from storage.sql.nights import SqlNightStore
from storage.sql.plans import SqlPlanStore
from storage.sql.programs import SqlProgramStore
from storage.sql.studies import SqlTrialStore
from storage.sql.upkeep import SqlUpkeepStore
from storage.sql.work import SqlWorkStore
from tuner.stores import Store


class SqlStore(
    SqlTrialStore,
    SqlExperienceStore,
    SqlProgramStore,
    SqlPlanStore,
    SqlLeaseStore,
    SqlWorkStore,
    SqlUpkeepStore,
    SqlNightStore,
    SqlMeasurementStore,
    SqlCalibrationStore,
    Store,
):
    """Everything in one database, whose schema is at our revision (`storage.open_store` sees to that)."""

    def __init__(self, engine: Engine, *, clock: Clock = utc_now) -> None:
        super().__init__(Database(engine, clock=clock))
        self._closed = False

    @property
    def database(self) -> Database:
        """What the views read from."""
        return self._db

    def check(self) -> None:
        """Raises StoreError with what to run unless the database answers and is at our revision."""
        require_head(self._db.engine)

    def close(self) -> None:
        """Releases the connections, unless other stores on the same server use them."""
        if not self._closed:
            self._closed = True
            close_engine(self._db.engine)

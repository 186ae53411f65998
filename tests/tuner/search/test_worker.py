from dataclasses import replace
from typing import Any

import pytest

from storage.memory import MemoryStore
from tests.storage.samples import study_key
from tests.storage.work_contract import task
from tuner.errors import InvalidValue, StoreError
from tuner.search.worker import MOST_FAILURES, Worker
from tuner.work import Task


class Place:
    """A store with open studies, a worker at it, and what it did."""

    def __init__(self, studies: int = 0) -> None:
        self.store = MemoryStore()
        self.served: list[int] = []
        self.said: list[str] = []
        self.pauses = 0
        for number in range(studies):
            study = self.store.open_study(study_key(space_revision=str(number)))
            self.store.publish(task(study.id))

    def serve(self, task: Task) -> None:
        self.served.append(task.study_id)
        self.store.close_task(task.study_id)

    def pause(self, seconds: float) -> None:
        self.pauses += 1

    def run(self, **changes: Any) -> int:
        arguments: dict[str, Any] = {"serve": self.serve, "once": True, "told": self.said.append, "pause": self.pause}
        return Worker(self.store, **(arguments | changes)).run()


def test_it_serves_every_open_study_and_ends_when_there_is_none() -> None:
    place = Place(studies=3)
    assert place.run() == 3
    assert place.served == [1, 2, 3]


def test_studies_with_the_fewest_workers_come_first() -> None:
    place = Place(studies=3)
    for number, study in enumerate((1, 1, 3)):
        place.store.claim(f"worker/{study}/{number}", owner=str(number), ttl_s=60)
    place.run()
    assert place.served == [2, 3, 1]


def test_a_study_that_does_not_fit_is_left_to_others_with_the_reason() -> None:
    place = Place(studies=2)
    place.run(fits=lambda task: "libtpu 1 is now 2" if task.study_id == 1 else "")
    assert place.served == [2]
    assert any("study 1" in line and "libtpu 1 is now 2" in line for line in place.said)
    assert [task.study_id for task in place.store.tasks()] == [1]


@pytest.mark.parametrize("error", [InvalidValue("no such model"), ModuleNotFoundError("no module 'mine'")])
def test_a_study_that_cannot_be_served_here_is_left_until_it_is_opened_anew(error: Exception) -> None:
    place = Place(studies=1)
    tries = []

    def serve(task: Task) -> None:
        tries.append(task)
        if len(tries) == 1:
            raise error
        place.serve(task)

    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            place.store.publish(replace(tries[0], slice_name="v5e-4x4"))

    ticks = iter(range(100))
    place.run(serve=serve, once=False, idle_s=10, pause=pause, clock=lambda: float(next(ticks)))
    assert len(tries) == 2
    assert any(str(error) in line for line in place.said)


def test_a_database_out_of_order_is_waited_for_and_not_for_ever() -> None:
    place = Place(studies=1)
    failures = [3]

    def serve(task: Task) -> None:
        if failures[0]:
            failures[0] -= 1
            raise StoreError("no space is left")
        place.serve(task)

    place.run(serve=serve)
    assert place.served == [1]
    assert sum("no space is left" in line for line in place.said) == 3
    broken, failures[0] = Place(studies=1), 10**9
    with pytest.raises(StoreError, match="no space is left"):
        broken.run(serve=serve)
    assert broken.pauses >= MOST_FAILURES - 1


def test_it_waits_for_studies_until_it_has_been_idle_for_too_long() -> None:
    place = Place()
    time = [0.0]

    def pause(seconds: float) -> None:
        time[0] += seconds
        if time[0] == 4.0:
            study = place.store.open_study(study_key())
            place.store.publish(task(study.id))

    assert place.run(once=False, idle_s=6.0, pause=pause, clock=lambda: time[0]) == 1
    assert time[0] == 10.0


def test_a_study_that_stays_open_is_not_joined_in_a_hurry() -> None:
    place = Place(studies=1)

    def serve(task: Task) -> None:
        place.served.append(task.study_id)
        if len(place.served) == 3:
            place.store.close_task(task.study_id)

    place.run(serve=serve)
    assert place.served == [1, 1, 1]
    assert place.pauses == 2


def test_being_told_to_stop_passes() -> None:
    def serve(task: Task) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Place(studies=1).run(serve=serve)

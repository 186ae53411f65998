"""Which parameters of a layout matter: Optuna's evaluators on what a study found, in a process in the background.

A page never waits for it. The evaluation of a study is kept with the revision that it was made from; while the study
goes on, the last one is shown with the number of trials that it knew.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass

from adapters.web.evaluation import LEAST_TRIALS

_LOG = logging.getLogger(__name__)
_KEPT = 64
_LONGEST_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """What an evaluation found.

    Attributes:
        state: ``ready``, ``computing``, or why there is none: ``too-few``, ``alike`` (no parameter varied), ``missing``
            (Optuna is not installed), ``failed``.
        evaluator: of Optuna, by name.
        trials: that it knew.
        shares: (parameter, share) of the step time's variation, largest first.
        revision: of the study when it was made.
    """

    state: str
    evaluator: str = ""
    trials: int = 0
    shares: tuple[tuple[str, float], ...] = ()
    revision: str = ""


class Importances:
    """Evaluations of the studies of one database, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: OrderedDict[int, Importance] = OrderedDict()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def get(self, url: str, study_id: int, revision: str, trials: int) -> Importance:
        """Returns the evaluation of a study: of this revision, or the last one while a newer is computed.

        Args:
            url: of the database.
            study_id: the study.
            revision: of the study now.
            trials: of it that have a step time.
        """
        if trials < LEAST_TRIALS:
            return Importance(state="too-few", trials=trials)
        if importlib.util.find_spec("optuna") is None:
            return Importance(state="missing")
        with self._lock:
            known = self._done.get(study_id)
            if known is not None and known.revision == revision:
                return known
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._compute, args=(url, study_id, revision), name="importance", daemon=True
                )
                self._thread.start()
            return known or Importance(state="computing", trials=trials)

    def wait(self, timeout_s: float) -> None:
        """Waits for the evaluation that is being computed, if one is."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def close(self) -> None:
        """Ends what is computed."""
        process = self._process
        if process is not None:
            process.kill()
        self.wait(_LONGEST_S)

    def _compute(self, url: str, study_id: int, revision: str) -> None:
        found = Importance(state="failed", revision=revision)
        try:
            found = self._run(url, study_id, revision)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            _LOG.warning("the importance of parameters of study %d is not known: %s", study_id, error)
        finally:
            with self._lock:
                self._done[study_id] = found
                self._done.move_to_end(study_id)
                while len(self._done) > _KEPT:
                    self._done.popitem(last=False)
                self._thread = self._process = None

    def _run(self, url: str, study_id: int, revision: str) -> Importance:
        command = [sys.executable, "-m", "adapters.web.evaluation"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            self._process = process
            try:
                out, said = process.communicate(json.dumps({"url": url, "study_id": study_id}), timeout=_LONGEST_S)
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise ValueError(f"the evaluation ended with code {process.returncode}: {said.strip()[-300:]}")
        answer = json.loads(out)
        shares = tuple((str(name), float(share)) for name, share in answer.pop("shares", ()))
        return Importance(**answer, shares=shares, revision=revision)

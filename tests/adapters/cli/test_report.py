from __future__ import annotations

import json

from tests.adapters.cli.test_cli import Run, database, run

__all__ = ["database", "run"]  # fixtures


def test_a_report_stands_beside_the_prediction_and_promotes_nothing(run: Run, database: str) -> None:
    done = run("report", "1", "--step-ms", "812", "--samples", "200", "--db", database)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Production, plan 1: 812.0 ms over 200 steps, 1.62 of the predicted 500.0 ms."
    shown = run("explain", "1", "--db", database)
    assert "production  812.0 ms over 200 steps, 1.62 of the prediction" in shown.stdout
    assert "500.0 ms (predicted)" in shown.stdout
    document = json.loads(run("explain", "1", "--format", "json", "--db", database).stdout)
    assert (document["predicted_s"], document["measured_s"], document["ratio"]) == (0.5, None, None)
    assert document["production"][0]["step_s"] == 0.812
    assert document["production"][0]["device_kind"] == "TPU v5 lite"


def test_a_time_of_other_devices_is_refused(run: Run, database: str) -> None:
    done = run("report", "1", "--step-ms", "812", "--device", "cpu", "--db", database)
    assert done.returncode == 2
    assert "does not run on 'cpu'; its devices are TPU v5 lite, TPU v5e" in done.stderr


def test_no_such_plan_is_exit_code_3(run: Run, database: str) -> None:
    assert run("report", "7", "--step-ms", "812", "--db", database).returncode == 3


def test_a_step_takes_time(run: Run, database: str) -> None:
    assert run("report", "1", "--step-ms", "0", "--db", database).returncode == 2


def test_a_plan_for_a_tpu_is_not_verified_on_cpu_devices(run: Run, database: str) -> None:
    done = run("verify", "1", "--db", database)
    assert done.returncode != 0

from pathlib import Path

import pytest

from tests import fuzz

FEW = 60


def test_plan_files() -> None:
    fuzz.plan_files(4 * FEW)


def test_kept_answers(tmp_path: Path) -> None:
    fuzz.kept_answers(2 * FEW, tmp_path)


def test_settings(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    fuzz.settings_files(FEW, tmp_path)


def test_requests(tmp_path: Path) -> None:
    fuzz.http_requests(4 * FEW, tmp_path)

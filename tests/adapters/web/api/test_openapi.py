"""The description of the API is true: requests made from it, legal and not, are answered as it says."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from starlette.testclient import TestClient

from adapters.web.api.openapi import description
from adapters.web.app import create_app
from adapters.web.limits import Limits
from tests.adapters.web.conftest import TOKEN, filled

EXAMPLES = 20
OPERATIONS = [(path, method) for path, methods in description("", page=1)["paths"].items() for method in methods]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Any:
    # Schemathesis counts a refusal for length (413, 414, 431) as no refusal, so length is left to its own tests.
    limits = Limits(target_bytes=1 << 24, header_bytes=1 << 24, body_bytes=1 << 24)
    app = create_app(filled(tmp_path_factory.mktemp("api")), token=TOKEN, limits=limits)
    return schemathesis.openapi.from_asgi("/openapi.json", app)


@pytest.mark.parametrize(
    ("path", "method", "mode"),
    [
        (path, method, mode)
        for path, method in OPERATIONS
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        # What takes no parameters cannot be asked wrongly.
        if path.startswith("/v1/") or mode is GenerationMode.POSITIVE
    ],
)
def test_the_description_is_true(api: Any, path: str, method: str, mode: GenerationMode) -> None:
    @given(case=api[path][method].as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
    )
    def check(case: Any) -> None:
        case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"} if case.method == "POST" else {})

    check()


def test_links_begin_with_the_proxys_prefix(url: str) -> None:
    with TestClient(create_app(url, root_path="/prefix")) as client:
        assert client.get("/openapi.json").json()["servers"] == [{"url": "/prefix"}]

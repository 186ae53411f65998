from __future__ import annotations

import sys
import types

import pytest

from adapters.models.registry import models, resolve
from tuner.errors import InvalidValue, UnknownName
from tuner.ports import WorkloadSpec

SHAPE = {"shape": "832x480x81"}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("some_package_of_a_user")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_every_model_resolves_and_has_a_line_about_it() -> None:
    assert set(models()) >= {"wan2.1-t2v-1.3b", "wan2.1-t2v-14b", "wan2.1-i2v-14b"}
    for name, line in models().items():
        assert line
        assert "\n" not in line
        assert resolve(WorkloadSpec(model=name, parameters=SHAPE)).name == f"{name}@832x480x81"


@pytest.mark.parametrize("typed", ["wan2.1-t2v-1.3", "Wan2.1-T2V-1.3B", "wan-t2v-1.3b"])
def test_an_unknown_model_gets_the_nearest(typed: str) -> None:
    with pytest.raises(UnknownName, match=typed) as caught:
        resolve(WorkloadSpec(model=typed, parameters=SHAPE))
    assert caught.value.nearest[0] == "wan2.1-t2v-1.3b"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "needs a shape"),
        (SHAPE | {"frames": 3}, "no parameter frames"),
        (SHAPE | {"videos": 0}, "videos is 0"),
        (SHAPE | {"videos": True}, "videos is True"),
        (SHAPE | {"guidance": "no"}, "guidance is 'no'"),
        (SHAPE | {"dtype": "int8"}, "dtype is 'int8'; legal: bfloat16, float32"),
        ({"shape": "832x480x80"}, "nearest legal shape is 832x480x81"),
    ],
)
def test_illegal_parameters(parameters: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        resolve(WorkloadSpec(model="wan2.1-t2v-1.3b", parameters=parameters))


def test_a_workload_of_a_user(module: types.ModuleType) -> None:
    made = resolve(WorkloadSpec(model="wan2.1-t2v-1.3b", parameters=SHAPE))
    module.ready = made  # type: ignore[attr-defined]
    module.make = lambda shape: resolve(  # type: ignore[attr-defined]
        WorkloadSpec(model="wan2.1-t2v-14b", parameters={"shape": shape})
    )
    assert resolve(WorkloadSpec(model=f"{module.__name__}:ready")) is made
    assert resolve(WorkloadSpec(model=f"{module.__name__}:make", parameters=SHAPE)).name.startswith("wan2.1-t2v-14b@")
    with pytest.raises(InvalidValue, match="takes no parameters; got shape"):
        resolve(WorkloadSpec(model=f"{module.__name__}:ready", parameters=SHAPE))


def test_what_is_no_workload(module: types.ModuleType) -> None:
    module.workload, module.empty = 3, object  # type: ignore[attr-defined]
    with pytest.raises(InvalidValue, match="is a int"):
        resolve(WorkloadSpec(model=f"{module.__name__}:workload"))
    with pytest.raises(InvalidValue, match="without name, "):
        resolve(WorkloadSpec(model=f"{module.__name__}:empty"))
    with pytest.raises(UnknownName, match="no attribute 'workloads'") as caught:
        resolve(WorkloadSpec(model=f"{module.__name__}:workloads"))
    assert caught.value.nearest == (f"{module.__name__}:workload",)


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(UnknownName, match="no module 'not_a_module_of_anyone'"):
        resolve(WorkloadSpec(model="not_a_module_of_anyone:workload"))

"""Models by name: the presets that come with the package, and a user's own by ``package.module:attribute``."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import cast

from adapters.jax.step import JaxWorkload
from adapters.models.wan.config import PRESETS, VideoShape, parse_shape
from adapters.models.wan.workload import build
from tuner.errors import InvalidValue, UnknownName
from tuner.ports import WorkloadSpec

__all__ = ["VideoShape", "models", "parse_shape", "resolve"]

_MEMBERS = ("name", "identity", "source", "space", "verdict", "baselines", "tuned", "step")


def models() -> Mapping[str, str]:
    """Returns the names of the presets with a line about each."""
    return {name: preset.what for name, preset in PRESETS.items()}


def resolve(spec: WorkloadSpec) -> JaxWorkload:
    """Builds the workload that a spec names.

    ``package.module:attribute`` is a workload, or a function that returns one and takes the spec's parameters by name.
    Raises UnknownName, with the nearest names, if there is none, and InvalidValue if what is found is no workload or
    its parameters are not legal.
    """
    if spec.model in PRESETS:
        return build(spec.model, spec.parameters)
    if ":" in spec.model:
        return _imported(spec)
    nearest = tuple(difflib.get_close_matches(spec.model.lower(), PRESETS, n=3, cutoff=0.4))
    hint = f"the nearest are {', '.join(nearest)}" if nearest else f"there are {', '.join(PRESETS)}"
    raise UnknownName(
        f"no model {spec.model!r}; {hint}; a workload of your own is named package.module:attribute", nearest=nearest
    )


def _imported(spec: WorkloadSpec) -> JaxWorkload:
    module_name, _, attribute = spec.model.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; what it imports is not
        raise UnknownName(f"no module {module_name!r} to import for the workload {spec.model!r}") from error
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        nearest = tuple(f"{module_name}:{name}" for name in difflib.get_close_matches(attribute, public, n=3))
        raise UnknownName(f"module {module_name!r} has no attribute {attribute!r}", nearest=nearest)
    found = getattr(module, attribute)
    if not _is_workload(found):
        if not callable(found):
            raise InvalidValue(
                f"{spec.model} is a {type(found).__name__}, neither a workload nor a function that makes one"
            )
        found = found(**spec.parameters)
        if not _is_workload(found):
            missing = [member for member in _MEMBERS if not hasattr(found, member)]
            raise InvalidValue(
                f"{spec.model} made a {type(found).__name__} without {', '.join(missing)}; a workload has them"
            )
    elif spec.parameters:
        raise InvalidValue(f"{spec.model} is a workload and takes no parameters; got {', '.join(spec.parameters)}")
    return cast(JaxWorkload, found)


def _is_workload(value: object) -> bool:
    return not isinstance(value, type) and all(hasattr(value, member) for member in _MEMBERS)

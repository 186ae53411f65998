"""What those who know a model tell a lookup, without JAX: legal shapes, and what is deployed without a plan."""

from __future__ import annotations

from dataclasses import replace

from adapters.models.wan.config import PRESETS, parse_shape
from adapters.models.wan.deployed import deployed
from tuner.errors import InvalidValue, UnknownName
from tuner.layouts.layout import Layout
from tuner.plans.lookup import Answer, Deployed, Query, Rung
from tuner.plans.near import NOT_CHECKED
from tuner.slices.names import parse_slice


def informed(query: Query, answer: Answer) -> Answer:
    """Returns an answer with what the model says where it is one of the presets.

    A near shape that the model does not take is no answer, for which no layout of it is legal; one that it takes keeps
    the plan legal, because what a layout divides (heads, channels, guidance) does not depend on the shape and tokens
    are padded. Where there is no plan, the answer is what people deploy today.
    """
    if answer.rung not in (Rung.NEAR_SHAPE, Rung.NONE) or query.model not in PRESETS:
        return answer
    try:
        parse_shape(query.shape)
    except InvalidValue as error:
        return Answer(rung=Rung.NONE, plan=None, reasons=(str(error),))
    if answer.plan is not None:
        legal = f"{query.model} takes this shape, and the plan's layout is legal for every shape that it takes"
        reasons = (legal if reason == NOT_CHECKED else reason for reason in answer.reasons)
        return replace(answer, reasons=tuple(reasons))
    return _baseline(query, answer)


def _baseline(query: Query, answer: Answer) -> Answer:
    from tuner.placements.default import jax_default  # with NumPy, which an answer with a plan does without

    try:
        slice_ = parse_slice(query.slice_name)
    except (UnknownName, InvalidValue):
        return answer
    axes, options = deployed(slice_.num_devices, guidance="no-guidance" not in query.variant.split(","))
    layout = Layout.of(axes, options)
    found = Deployed(layout=layout, slice=slice_, placement=jax_default(slice_, layout))
    reasons = (*answer.reasons, "this is what people deploy without a plan: nothing says that it is fast, or fits")
    return Answer(rung=Rung.BASELINE, plan=None, reasons=reasons, deployed=found)

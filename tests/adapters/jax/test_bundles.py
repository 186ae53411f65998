"""Reading cycles from a dump of bundles. What the compiler really dumps is asked in tests/tuner/calibration."""

from __future__ import annotations

import pytest

from adapters.jax.bundles import BundlesError, Cycles, read_cycles

HEADER = "= control target key start\nLB: loop body\n= control target key end\n\n"


def dump(*bundles: str) -> str:
    """Bundles written as the compiler writes them; ``LB``, ``PF`` before a text are its labels."""
    lines = []
    for address, text in enumerate(bundles):
        label, _, body = text.partition(":")
        shown = hex(address) if address else "   0"
        lines.append(f"{shown:>6} {label:2} : > {{ {body} }}" if address else f"{shown:>6}   :  {{ {body} }}")
    return HEADER + "\n".join(lines) + "\n"


def branch(region: int) -> list[str]:
    return [f":%1 = sbr.rel (%p1) target = $region{region}", *[":"] * 4]


def kernel(*, start: int, products: int, finish: int, predicated: bool) -> str:
    body = [":%2 = vmatmul.f32.gmra.mxu0 %v1"] * products
    if predicated:
        body = [*branch(50), *body, "PF:%s4 = sld /* Start/End empty region 50 */"]
    return dump(
        ":%s0 = smov 0",
        "LB:%s1 = sadd.s32 1, %s0",
        *branch(60),
        *branch(48),
        *[":%3 = vst [vmem:[#allocation5] sm:$0xff]"] * start,
        "PF:%s3 = sld\nwindow_bounds: (1, 64, 1) /* Start/End empty region 48 :: Start region 49 */",
        *body,
        *branch(52),
        *[":%5 = vrcp.f32 %v9"] * finish,
        "PF:%s5 = sld /* Start/End empty region 52 */",
        "PF:%s6 = sld /* Start/End empty region 60 */",
        *branch(99),
        ":%7 = sfence",
    )


@pytest.mark.parametrize(("predicated", "around"), [(False, 24), (True, 30)])
def test_a_step_is_what_it_does_not_skip(predicated: bool, around: int) -> None:
    text = kernel(start=7, products=100, finish=11, predicated=predicated)
    assert read_cycles(text) == Cycles(step=100 + around, start=7, finish=11)


def test_what_is_not_the_kernel_is_refused() -> None:
    with pytest.raises(BundlesError, match="0 loop bodies"):
        read_cycles("")
    with pytest.raises(BundlesError, match="start and a finish"):
        read_cycles(dump(":%s0 = smov 0", "LB:%s1 = sadd.s32 1, %s0", *branch(99)))


def test_products_outside_the_middle_are_refused() -> None:
    text = kernel(start=1, products=2, finish=1, predicated=False)
    with pytest.raises(BundlesError, match="no matrix products"):
        read_cycles(text.replace("vst [vmem", "vmatmul [vmem"))

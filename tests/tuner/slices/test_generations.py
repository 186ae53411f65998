import pytest

from tuner.errors import UnknownName
from tuner.slices.generations import GENERATIONS, MIB, generation, generation_of_kind


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TPU v4", "v4"),
        ("TPU v5 lite", "v5e"),
        ("TPU v5e", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v5p", "v5p"),
        ("TPU v6 lite", "v6e"),
        ("TPU v6e", "v6e"),
        ("TPU7x", "v7x"),
    ],
)
def test_one_chip_has_several_names(kind: str, name: str) -> None:
    assert generation_of_kind(kind).name == name


def test_unknown_names_list_the_legal_ones() -> None:
    with pytest.raises(UnknownName, match="v4, v5e, v5p, v6e, v7x"):
        generation("v3")
    with pytest.raises(UnknownName, match="TPU v5 lite"):
        generation_of_kind("TPU v4 lite")


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_kernel_fits_the_core_and_a_core_fits_the_chip(name: str) -> None:
    entry = generation(name)
    assert entry.scoped_vmem_bytes <= entry.vmem_bytes < entry.hbm_bytes
    assert entry.hbm_bytes % MIB == 0

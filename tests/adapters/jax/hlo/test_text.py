from __future__ import annotations

import pytest

from adapters.jax.hlo.text import balanced_end, parse
from tests.adapters.jax.hlo.fixtures import VERSIONS, names, text
from tuner.errors import InvalidValue

KERNEL = """HloModule jit_step, is_scheduled=true, num_partitions=8

%body (param: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %param = (s32[], f32[8,128]{1,0:T(8,128)}) parameter(0)
  %x = f32[8,128]{1,0:T(8,128)} get-tuple-element(%param), index=1
  %kernel = f32[8,128]{1,0} custom-call(%x), custom_call_target="a", frontend_attributes={kernel_metadata={
"xprof_metadata":"{\\"block_q\\": 512, \\"open\\": \\"{\\"}"
}}, backend_config={"debug":"\\nRing{cores:{4}"}
  %after = f32[8,128]{1,0:T(8,128)} negate(%kernel)
  %i = s32[] get-tuple-element(%param), index=0
  ROOT %result = (s32[], f32[8,128]{1,0:T(8,128)}) tuple(%i, /*index=1*/%after)
}

ENTRY %main (a: f32[8,128]) -> f32[8,128] {
  ROOT %a = f32[8,128]{1,0:T(8,128)} parameter(0)
}
"""


def test_an_instruction_over_several_lines_ends_where_its_brackets_balance() -> None:
    module = parse(KERNEL)
    body = module["body"]
    assert list(body.instructions) == ["param", "x", "kernel", "after", "i", "result"]
    kernel = body.instructions["kernel"]
    assert kernel.json("kernel_metadata=") == {"xprof_metadata": '{"block_q": 512, "open": "{"}'}
    assert kernel.config == {"debug": "\nRing{cores:{4}"}
    assert body.root.operands == ("i", "after")
    assert (module.entry, module.partitions) == ("main", 8)


def test_text_that_is_not_a_schedule_is_refused() -> None:
    with pytest.raises(InvalidValue, match="not the text of a scheduled HLO module"):
        parse("module @jit_step {\n}\n")
    with pytest.raises(InvalidValue, match="no ENTRY"):
        parse("HloModule a, is_scheduled=true\n")


def test_strings_do_not_count_as_brackets() -> None:
    assert balanced_end('({"a)":")"}) rest', 0) == 12
    with pytest.raises(InvalidValue, match="open"):
        balanced_end("(a, (b)", 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_line_of_a_compiled_text_is_lost(version: str) -> None:
    for name in names(version):
        written = text(version, name)
        module = parse(written)
        read = sum(len(computation.instructions) for computation in module.computations.values())
        assert read == sum(" = " in line and line.startswith("  ") for line in written.split("\n")), name
        for computation in module.computations.values():
            for instruction in computation.instructions.values():
                assert all(operand in computation.instructions for operand in instruction.operands), instruction

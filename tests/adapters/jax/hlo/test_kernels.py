from __future__ import annotations

import pytest

from adapters.jax.hlo.kernels import attention_kernel
from adapters.jax.hlo.text import parse
from tuner.program.program import AttentionKernel

KERNEL = """HloModule jit_step, is_scheduled=true

ENTRY %main () -> bf16[4,2048,128] {{
  %q = bf16[4,2048,128]{{2,1,0}} parameter(0)
  %k = bf16[4,4096,128]{{2,1,0}} parameter(1)
  %v = bf16[4,4096,128]{{2,1,0}} parameter(2)
  %rows = {rows}{{1,0}} parameter(3)
  ROOT %{name} = bf16[4,2048,128]{{2,1,0}} custom-call(%q, %k, %v, %rows), \
custom_call_target="tpu_custom_call", frontend_attributes={{kernel_metadata={{
"xprof_metadata":"{{\\"block_q\\": 512, \\"block_kv\\": 1024, \\"block_kv_compute\\": 256}}"
}}}}
}}
"""


@pytest.mark.parametrize(
    ("name", "rows", "masked"),
    [
        ("splash_mha_fwd_no_residuals.1", "s32[2048,128]", True),
        ("splash_mha_fwd_segmented_no_residuals.1", "s32[2048,128]", False),
        ("splash_mha_fwd_no_residuals.1", "s8[2048,128]", False),
        ("splash_mha_fwd_no_residuals.1", "s32[4096,128]", False),
    ],
)
def test_a_mask_by_index_brings_the_indices_of_the_queries(name: str, rows: str, masked: bool) -> None:
    main = parse(KERNEL.format(name=name, rows=rows))["main"]
    assert attention_kernel(main, main.root) == AttentionKernel(
        name=name, heads=4, q_len=2048, kv_len=4096, head_dim=128, blocks=(512, 1024, 256), masked=masked
    )

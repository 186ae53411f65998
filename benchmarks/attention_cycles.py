"""Makes ``tuner/calibration/attention_cycles.json``: cycles of splash attention, from the compiler's own bundles.

    python benchmarks/attention_cycles.py --generation v5e --generation v6e

One compile at a time, 2 to 10 s each; every result is written at once, and a second run compiles only what is missing.
Query blocks go up until the compiler refuses one; longer ones are refused too and are not asked. Tables of another
toolchain stay as they are, so both interpreters can write into one file.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from adapters.jax.bundles import derive
from tuner.calibration.attention_table import Variant
from tuner.slices.generations import generation as generation_named

TARGET = Path(__file__).parents[1] / "tuner" / "calibration" / "attention_cycles.json"
COLUMNS = ["block_q", "block_kv", "block_kv_compute", "step_cycles", "start_cycles", "finish_cycles", "vmem_bytes"]
QUERIES = (256, 512, 1024, 1536, 2048, 3072, 4096)
# Key/value blocks with their compute blocks. Powers of two, and lengths between them that tile what is left of 32760 or
# 75600 tokens on 4 to 16 chips.
PAIRS = (
    *((2048, 1024), (1024, 512), (1024, 1024), (2048, 512), (512, 512), (3072, 1024), (256, 256), (1536, 768)),
    *((512, 256), (2048, 2048), (4096, 1024), (1280, 1280), (640, 640), (384, 384), (768, 768), (1536, 512)),
    *((1920, 640), (2560, 1280), (1024, 256)),
)
# A variant is kept as a ratio to the plain kernel, and never needs more VMEM: a few blocks are enough.
SAMPLES = ((512, 512), (1024, 512), (2048, 1024))


def toolchain() -> str:
    return " ".join(f"{name} {metadata.version(name)}" for name in ("jax", "jaxlib", "libtpu"))


def load() -> dict[str, Any]:
    if TARGET.exists():
        return json.loads(TARGET.read_text())
    return {"kernel": "jax.experimental.pallas.ops.tpu.splash_attention", "columns": COLUMNS, "tables": []}


def save(document: dict[str, Any]) -> None:
    # Newest toolchain first: readers take the first table that matches.
    document["tables"].sort(key=lambda table: _version(table["toolchain"]), reverse=True)
    lines = []
    for table in document["tables"]:
        head = json.dumps({name: value for name, value in table.items() if name not in ("rows", "too_large")})[1:-1]
        rows = {name: ",\n    ".join(map(json.dumps, sorted(table[name]))) for name in ("rows", "too_large")}
        body = ", ".join(f'"{name}": [\n    {text}\n  ]' if text else f'"{name}": []' for name, text in rows.items())
        lines.append(f"  {{{head}, {body}}}")
    head = json.dumps({name: value for name, value in document.items() if name != "tables"})[1:-1]
    text = f'{{{head}, "tables": [\n' + ",\n".join(lines) + "\n]}\n"
    json.loads(text)
    temporary = TARGET.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, TARGET)


def _version(name: str) -> list[int]:
    return [int(part) for part in name.split()[1].split(".")]


def table_of(document: dict[str, Any], generation: str, head_dim: int, variant: Variant) -> dict[str, Any]:
    key = {"generation": generation, "head_dim": head_dim, "variant": str(variant), "toolchain": toolchain()}
    for table in document["tables"]:
        if all(table[name] == value for name, value in key.items()):
            return table
    table = {**key, "limit_bytes": generation_named(generation).scoped_vmem_bytes, "rows": [], "too_large": []}
    document["tables"].append(table)
    return table


def fill(generation: str, head_dim: int, variant: Variant, pairs: list[tuple[int, int]], queries: list[int]) -> None:
    for key, compute in pairs:
        for query in queries:
            document = load()
            table = table_of(document, generation, head_dim, variant)
            blocks = (query, key, compute)
            if any(tuple(row[:3]) == blocks for row in table["rows"]):
                continue
            if any(row[0] <= query and tuple(row[1:3]) == (key, compute) for row in table["too_large"]):
                break
            began = time.monotonic()
            result = derive(generation, head_dim, blocks, variant)
            if result.cycles is None:
                table["too_large"].append([*blocks, result.vmem_bytes])
                table["limit_bytes"] = result.limit_bytes
            else:
                cycles = result.cycles
                table["rows"].append([*blocks, cycles.step, cycles.start, cycles.finish, result.vmem_bytes])
            save(document)
            print(
                f"{generation} {head_dim} {variant} {blocks}: {result} ({time.monotonic() - began:.1f} s)", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generation", action="append", required=True)
    parser.add_argument("--head-dim", type=int, action="append")
    parser.add_argument("--sparse", action="store_true", help="every second query block and few key blocks")
    arguments = parser.parse_args()
    pairs = list(PAIRS)
    queries = list(QUERIES)
    if arguments.sparse:
        pairs = pairs[:5]
        queries = list(QUERIES[1::2])
    for head_dim in arguments.head_dim or [128]:
        for generation in arguments.generation:
            for variant in (Variant.MASKED, Variant.SEGMENTED, Variant.RESIDUALS):
                fill(generation, head_dim, variant, list(SAMPLES), [512] if arguments.sparse else [512, 2048])
            fill(generation, head_dim, Variant.PLAIN, pairs, queries)


if __name__ == "__main__":
    main()

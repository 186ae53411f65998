"""Asks the TPU compiler, ahead of time, in which order it walks groups. Run as a program: JSON on stdin and stdout.

A case is {"topology", "config", "wrap", "groups", "op", "kib"}; groups list [x, y, z, core]. The answer to each is
{"rings": [[position in the flattened groups, ...], ...], "strategy", "emitter", "debug"} or {"error"}. The compiler
says it only in its log ("Replica info table"), which goes to file descriptor 2 and is read from there.
"""

import json
import os
import re
import sys
import tempfile

MODULES = (
    "net_util",
    "all_reduce_strategies",
    "all_reduce_emitter",
    "all_gather_emitter",
    "rotated_pincer_emitter_base",
)
os.environ.update(
    TPU_SKIP_MDS_QUERY="1",
    JAX_PLATFORMS="cpu",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",
    TPU_STDERR_LOG_LEVEL="0",
    TPU_MIN_LOG_LEVEL="0",
    TPU_VMODULE=",".join(f"{module}=5" for module in MODULES) + ",net_router_emitter=9",
)

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec  # noqa: E402

ENTRY = re.compile(r"device:(\d+) \(global:(\d+)\) --> replica:\d+ partition:\d+ ordinal::\d+ cw:(\d+) ccw:\d+")
ROUTES = re.compile(r"chip:(\d+) map:\{([^}]*)\}")
ROUTE = re.compile(r"(\d+):[xyz][+-]\d+\(\d+-\d+-(\d+)\)")
known = {}


def devices(case):
    key = json.dumps([case["topology"], case["config"], case.get("wrap")])
    if key not in known:
        wrap = {"wrap": case["wrap"]} if case.get("wrap") else {}
        topology = topologies.get_topology_desc(
            platform="tpu", topology_name=case["topology"], chip_config_name=case["config"], **wrap
        )
        known[key] = {(*device.coords, device.core_on_chip): device for device in topology.devices}
    return known[key]


def lowered(case):
    by_place = devices(case)
    groups, op = case["groups"], case["op"]
    size = len(groups[0])
    grid = np.array([by_place[tuple(place)] for group in groups for place in group], dtype=object)
    mesh = Mesh(grid.reshape(len(groups), size), ("group", "member"), axis_types=(AxisType.Auto,) * 2)
    both = PartitionSpec(("group", "member"))
    rows = case["kib"] * 1024 // 256
    run = {
        "all-reduce": lambda x: jax.lax.psum(x, "member"),
        "all-gather": lambda x: jax.lax.all_gather(x, "member", tiled=True),
        "reduce-scatter": lambda x: jax.lax.psum_scatter(x, "member", tiled=True),
        "all-to-all": lambda x: jax.lax.all_to_all(
            x.reshape(size, -1, 128), "member", split_axis=0, concat_axis=1, tiled=True
        ),
        "collective-permute": lambda x: jax.lax.ppermute(x, "member", [(k, (k + 1) % size) for k in range(size)]),
    }[op]
    out = PartitionSpec("group") if op in ("all-reduce", "all-gather") else both
    step = jax.shard_map(run, mesh=mesh, in_specs=both, out_specs=out, check_vma=False)
    shape = jax.ShapeDtypeStruct((len(grid) * rows, 128), "bfloat16", sharding=NamedSharding(mesh, both))
    return jax.jit(step).trace(shape).lower(lowering_platforms=("tpu",))


def logged(run):
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            outcome = run()
        except Exception as error:
            outcome = error
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        log.seek(0)
        return outcome, log.read().decode(errors="replace")


def rings(log, executable, size):
    """The walks as positions in the flattened groups.

    Where the compiler chose the order, the log has it in physical chips (or numbers of routes to them); where it took
    the listed one, only the executable has it.
    """
    entries = [tuple(map(int, found)) for found in ENTRY.findall(log.split("eplica info table")[-1])]
    if not entries or "Failed to construct rectangular" in log:
        return walked(table(executable.serialize(), size))
    routes = {}
    if "use_routing_table_indices:1" in log:
        routes = {int(chip): {int(k): int(v) for k, v in ROUTE.findall(text)} for chip, text in ROUTES.findall(log)}
    position = {physical: logical for physical, logical, _ in entries}
    after = {physical: routes.get(physical, {}).get(cw, cw) for physical, _, cw in entries}
    return walked({position[physical]: position[target] for physical, target in after.items()})


def table(blob, size):
    """The executable holds int32 rows (ordinal, clockwise, counter-clockwise, new ordinal), one for each logical id."""
    for start in range(min(len(blob) - 16 * size, 4096)):
        rows = np.frombuffer(blob, np.int32, 4 * size, start).reshape(size, 4)
        after, before = rows[:, 1], rows[:, 2]
        if (
            rows.min() >= 0
            and rows.max() < size
            and (before[after] == np.arange(size)).all()
            and (after != np.arange(size)).all()
        ):
            return dict(enumerate(after.tolist()))
    return {}


def walked(after):
    seen, out = set(), []
    for start in sorted(after):
        ring, at = [], start
        while at in after and at not in seen:
            seen.add(at)
            ring.append(at)
            at = after[at]
        if ring:
            out.append(ring)
    return out


def algorithm(text, log):
    found = {"emitter": "", "strategy": ""}
    at = text.find('"collective_algorithm_config":')
    if at >= 0:
        config, _ = json.JSONDecoder().raw_decode(text[at + len('"collective_algorithm_config":') :])
        found.update({key: config.get(key, "") for key in found})
    phases = re.findall(r"Emitting AllReduce with strategy: (\w+)\{colors:(\d+) phases:(\d+)\}", log)
    if phases and not found["strategy"]:
        found["strategy"] = "{}/colors:{}/phases:{}".format(*phases[-1])
    return found


def answer(case):
    try:
        low = lowered(case)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    compiled, log = logged(low.compile)
    if isinstance(compiled, Exception):
        return {"error": str(compiled)[:300]}
    text = compiled.as_text()
    found = algorithm(text, log)
    size = sum(map(len, case["groups"]))
    walks = rings(log, compiled.runtime_executable(), size) if case["op"] == "all-reduce" else []
    steps = re.findall(r"Schedule created :: iterations:(\d+)", log)
    return {
        "rings": walks,
        "synchronous": "-start" not in text,
        "schedule_steps": int(steps[-1]) if steps else 0,
        **found,
    }


if __name__ == "__main__":
    for case in json.load(sys.stdin):
        print(json.dumps(answer(case)), flush=True)

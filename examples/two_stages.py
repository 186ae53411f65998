"""A model without a scan whose two stages are sharded differently: a convolutional encoder over images, then a
classifier over channels. The mesh axis `split` cuts rows in the first stage and channels in the second.

Try it: meshwright tune examples.two_stages:workload --slice v5e-2x2
"""

import jax
import jax.numpy as jnp

from adapters.jax.workload import Argument, FunctionWorkload, Sharding
from tuner.layouts.space import Dimension

BATCH, SIDE, CHANNELS, CLASSES = 32, 64, 256, 4096


def forward(s: Sharding, params: dict[str, jax.Array], images: jax.Array) -> jax.Array:
    """Returns class scores of a batch of images."""
    x = s.constrain(images, "batch", "rows", None, None)
    for name in ("conv1", "conv2"):
        x = jax.lax.conv_general_dilated(x, params[name], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = s.constrain(jax.nn.relu(x), "batch", "rows", None, None)
    features = s.constrain(x.mean(axis=(1, 2)), "batch", "channels")
    hidden = s.constrain(jax.nn.relu(features @ params["dense"]), "batch", "channels")
    return s.constrain(jnp.asarray(hidden @ params["head"], jnp.float32), "batch", "classes")


workload = FunctionWorkload(
    model="two-stages",
    function=forward,
    arguments=(
        {
            "conv1": Argument(shape=(3, 3, CHANNELS, CHANNELS), names=(None, None, None, None)),
            "conv2": Argument(shape=(3, 3, CHANNELS, CHANNELS), names=(None, None, None, None)),
            "dense": Argument(shape=(CHANNELS, CHANNELS), names=(None, None)),
            "head": Argument(shape=(CHANNELS, CLASSES), names=(None, "classes")),
        },
        Argument(shape=(BATCH, SIDE, SIDE, CHANNELS), names=("batch", "rows", None, None)),
    ),
    dimensions=(
        Dimension(name="data", sizes=(1, 2, 4, 8), what="batch"),
        Dimension(name="split", sizes=(1, 2, 4, 8), what="rows, then channels and classes"),
    ),
    rules={"batch": ("data",), "rows": ("split",), "channels": ("split",), "classes": ("split",)},
    results=("batch", "classes"),
)

"""JAX: what it takes, computes, and gets when it asks for too much. LIMIT_MIB is the job's limit, if there is one."""
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp

limit = int(os.environ.get("LIMIT_MIB", "0"))
device = jax.devices()[0]
print("jax", jax.__version__, "on", device.platform)
if device.platform not in ("gpu", "cuda"):
    sys.exit("JAX has no GPU")
values = jnp.arange(1 << 20, dtype=jnp.float32)
right = float((values * 2).sum()) == float((values + values).sum())
print("ok: a sum" if right else "FAILED: a sum")
stats = device.memory_stats() or {}
print("memory it may take:", stats.get("bytes_limit", 0) >> 20, "MiB")
pieces = []
try:
    while limit and len(pieces) * 64 < 2 * limit:
        pieces.append(jnp.ones(64 << 20, dtype=jnp.uint8).block_until_ready())
except Exception as error:  # XLA's own type differs between versions
    print(f"refused after {len(pieces) * 64} MiB: {type(error).__name__}")
held = not limit or len(pieces) * 64 < limit
print("ok: held to the limit" if held else "FAILED: more than the limit was had")
sys.exit(not (right and held))

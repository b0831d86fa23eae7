"""PyTorch: what it sees, computes, and gets when it asks for too much. LIMIT_MIB is the job's limit, if there is one."""
import os
import sys

import torch

MIB = 1 << 20
limit = int(os.environ.get("LIMIT_MIB", "0"))
failures = []


def expect(what, is_so):
    print(f"{'ok' if is_so else 'FAILED'}: {what}")
    if not is_so:
        failures.append(what)


print("torch", torch.__version__, "CUDA", torch.version.cuda)
free, total = torch.cuda.mem_get_info()
print(f"total {total // MIB} MiB, free {free // MIB} MiB")
if limit:
    expect("it sees the limit", total == limit * MIB)
a = torch.eye(1024, device="cuda") + 0.001 * torch.randn(1024, 1024, device="cuda")
product = (a @ torch.linalg.inv(a)).cpu()
expect("a matrix times its inverse is 1", torch.allclose(product, torch.eye(1024), atol=0.01))
print(f"after that free {torch.cuda.mem_get_info()[0] // MIB} MiB, reserved by torch {torch.cuda.memory_reserved() // MIB} MiB")
pieces = []
try:
    while limit and len(pieces) * 64 < 2 * limit:
        pieces.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError:
    print(f"refused after {len(pieces) * 64} MiB")
if limit:
    expect("more than the limit is refused", len(pieces) * 64 < limit)
    pieces.clear()
    torch.cuda.empty_cache()
    expect("and what was freed can be had again", torch.ones(64 * MIB, dtype=torch.uint8, device="cuda").sum().item() == 64 * MIB)
sys.exit(bool(failures))

-- job_submit.lua turns --gpu-mem and --gpu-sm into gres/shard, so that Slurm packs jobs by GPU memory. Put it beside slurm.conf,
-- together with vgpu_submit.lua, and set JobSubmitPlugins=lua in slurm.conf.
-- If you have a job_submit.lua already, copy everything above the first function to its top, and the two calls into your functions.

-- For each type of GPU, what one GPU has: shards (Count in gres.conf divided by the number of GPUs of the node) and memory. Never more
-- than the total without the reserve that `nvidia-smi --query-gpu=memory.total,memory.reserved --format=csv` shows on a node, or jobs
-- are accepted and then fail there.
local gpus = {
  a100 = { shards = 78, memory = "78G" }, -- "80 GB": 81920 MiB, of which the driver keeps some
  l40s = { shards = 44, memory = "44G" }, -- "48 GB": 46068 MiB, not quite 45 GiB
}
-- Which types of GPU the jobs of a partition can get. Not needed if a shard stands for the same memory on all GPUs.
local partitions = {
  -- inference = { "l40s" },
}
-- A job with --gpu-mem and --gres=gpu: "keep", it has the whole GPUs and is held to its limit on them; or "refuse".
local whole_gpus = "keep"
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local vgpu = dofile(here .. "vgpu_submit.lua").setup{ gpus = gpus, partitions = partitions, whole_gpus = whole_gpus }

function slurm_job_submit(job, partition_list, uid)
  -- If the result is not slurm.SUCCESS, the user has been told why: return it.
  return vgpu.submit(job, partition_list)
end

function slurm_job_modify(job, record, partition_list, uid)
  return vgpu.modify(job, record, uid)
end

return slurm.SUCCESS

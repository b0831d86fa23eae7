-- job_submit.lua: --gpu-mem becomes gres/shard, so that Slurm packs jobs by GPU memory. To be put beside slurm.conf,
-- together with vgpu_submit.lua, and JobSubmitPlugins=lua into slurm.conf.
-- Who has a job_submit.lua already: copy what stands above the first function to its top, and the two calls into yours.

-- What one GPU of a type has: shards (Count in gres.conf, divided by the node's GPUs) and memory.
local gpus = {
  a100 = { shards = 80, memory = "80G" },
  l40s = { shards = 48, memory = "48G" },
}
-- Which types the jobs of a partition can get. Not needed where a shard is worth the same on all GPUs.
local partitions = {
  -- inference = { "l40s" },
}
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local vgpu = dofile(here .. "vgpu_submit.lua").setup{ gpus = gpus, partitions = partitions, whole_gpus = "refuse" }

function slurm_job_submit(job, partition_list, uid)
  -- When it is not slurm.SUCCESS, a sentence for the user has been left: return it.
  return vgpu.submit(job, partition_list)
end

function slurm_job_modify(job, record, partition_list, uid)
  return vgpu.modify(job, record, uid)
end

return slurm.SUCCESS

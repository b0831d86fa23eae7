-- etc/job_submit.lua and etc/vgpu_submit.lua under a stand-in for Slurm's Lua interface, in both spellings it has had.
-- lua5.1 job_submit_test.lua SOURCE_DIRECTORY

local source = assert(arg[1], "usage: job_submit_test.lua SOURCE_DIRECTORY")
local passed, failed = 0, 0

local function expect(name, expected, actual)
  if expected == actual then
    passed = passed + 1
    return
  end
  failed = failed + 1
  print(("FAIL  %s\n  expected: %s\n  actual:   %s"):format(name, tostring(expected), tostring(actual)))
end

-- ---- the stand-in ---------------------------------------------------------------------------------------------------

local said
slurm = { SUCCESS = 0, ERROR = -1, log_user = function(...) said = string.format(...) end, log_info = string.format }

local readable = {}
local fields_of_slurm = "gres tres_per_node tres_per_job tres_per_socket tres_per_task features partition spank_job_env"
for name in fields_of_slurm:gmatch("%S+") do
  readable[name] = name == "gres" and "tres_per_node" or name
end

-- A job as slurmctld shows it: `gres` is another name for tres_per_node; writing it adds the prefix of that version.
local function new_job(prefix, fields)
  local hidden = { tres_per_node = fields.gres and fields.gres:gsub("[^,]+", prefix .. "%0") }
  for _, name in ipairs{ "tres_per_job", "tres_per_socket", "tres_per_task" } do
    hidden[name] = fields[name] and fields[name]:gsub("[^,]+", prefix .. "%0")
  end
  hidden.features, hidden.partition = fields.features, fields.partition
  for i, value in ipairs(fields) do
    hidden.spank_job_env = hidden.spank_job_env or {}
    hidden.spank_job_env[i - 1] = value
  end
  return setmetatable({}, {
    __index = function(_, name)
      return hidden[assert(readable[name], "job." .. name .. " was read; Slurm has no such field")]
    end,
    __newindex = function(_, name, value)
      assert(name == "gres", "job." .. name .. " was written")
      assert(not value:find("gres[:/]"), "the prefix would be doubled: " .. value)
      hidden.tres_per_node = value:gsub("[^,]+", prefix .. "%0")
    end,
  })
end

local function mem(value) return "_SLURM_SPANK_OPTION_vgpu_gpu_mem=" .. value end
local function sm(value) return "_SLURM_SPANK_OPTION_vgpu_gpu_sm=" .. value end

-- ---- values ---------------------------------------------------------------------------------------------------------

local vgpu = dofile(source .. "/etc/vgpu_submit.lua")

local function meaning(text)
  local value, why = vgpu.memory(text)
  if not value then return "refused: " .. why end
  if value.bytes then return ("bytes %d"):format(value.bytes) end
  return ("millionths %d"):format(value.millionths)
end

local rows = 0
for line in io.lines(source .. "/tests/node/gpu_mem_values.txt") do
  if not line:find("^#") then
    local text, expected = line:match('^"(.*)"\t(.*)$')
    expect(("value %q"):format(text), expected, meaning(text))
    rows = rows + 1
  end
end
expect("the table of values was read", true, rows > 50)

-- ---- jobs -----------------------------------------------------------------------------------------------------------

local one = { gpus = { a100 = { shards = 8, memory = "8G" } } }
local same_worth = { gpus = { a100 = { shards = 80, memory = "80G" }, t4 = { shards = 16, memory = "16G" } } }
local mixed = {
  gpus = { a100 = { shards = 8, memory = "80G" }, t4 = { shards = 8, memory = "16G" } },
  partitions = { big = { "a100" }, small = { "t4" }, both = { "a100", "t4" } },
}
local refuse = { gpus = one.gpus, whole_gpus = "refuse" }
local odd = { gpus = { odd = { shards = 7, memory = "24564M" } } }

-- What the job asks for afterwards ("" for nothing), without Slurm's prefix, and what is said; or why it is refused.
local cases = {
  { one, {}, "" },
  { one, { gres = "gpu:2" }, "gpu:2" },
  { one, { gres = "shard:3" }, "shard:3" },
  { one, { "_SLURM_SPANK_OPTION_other_gpu_mem=50" }, "" },

  { one, { mem("5G") }, "shard:5" },
  { one, { "X=1", mem("5G") }, "shard:5" },
  { one, { mem("1K") }, "shard:1" },
  { one, { mem("1G") }, "shard:1" },
  { one, { mem("1073741825B") }, "shard:2" },
  { one, { mem("4.1G") }, "shard:5" },
  { one, { mem("8G") }, "shard:8" },
  { one, { mem("50%") }, "shard:4" },
  { one, { mem("51%") }, "shard:5" },
  { one, { mem("100%") }, "shard:8" },
  { one, { mem("0.000001%") }, "shard:1" },
  { odd, { mem("24564M") }, "shard:7" },
  { odd, { mem("3509M") }, "shard:1" },
  { odd, { mem("3510M") }, "shard:2" },

  { one, { mem("8.000001G") }, refused = "has more than 8G; ask for at most that" },
  { one, { mem("9G") }, refused = "has more than 8G; ask for at most that" },
  { one, { mem("") }, refused = "the value is empty; give a size like 8G" },
  { one, { mem("8") }, refused = "the unit is missing" },
  { one, { mem("-1G") }, refused = "cannot be negative" },
  { one, { mem("0G") }, refused = "zero" },
  { one, { mem("5G%s%d") }, refused = "%-%-gpu%-mem=5G%%s%%d: 'G%%s%%d' is not a unit" },
  { one, { mem("5G\27[31m") }, refused = "%-%-gpu%-mem=5G%?%[31m: there are blanks" },
  { one, { mem("4G,4G") }, refused = "there are several values; give one" },
  { one, { mem("50%,50%") }, refused = "there are several values; give one" },
  { one, { mem("4G,") }, refused = "there are several values; give one" },
  { one, { mem("4G"), mem("4G") }, "shard:4" },
  { one, { mem("4G"), mem("2G") }, refused = "given twice" },

  { one, { sm("50") }, "shard:4" },
  { one, { sm("51%") }, "shard:5" },
  { one, { sm("100") }, "shard:8" },
  { one, { sm("50"), gres = "lustre:2" }, "lustre:2,shard:4" },
  { one, { sm("50"), gres = "shard:1" }, "shard:1" },
  { one, { sm("50"), gres = "gpu:1" }, "gpu:1" },
  { one, { sm("50"), tres_per_job = "gpu:1" }, "" },
  { one, { sm("50"), mem("1G") }, "shard:1" },
  { one, { sm("50"), mem("none") }, "" },
  { one, { sm("0") }, refused = "%-%-gpu%-sm=0: that is not from 1 to 100" },
  { one, { sm("101") }, refused = "that is not from 1 to 100" },
  { one, { sm("none") }, refused = "that is no percentage; give a share of the GPU's time like 50" },
  { one, { sm("4,5") }, refused = "several values" },
  { one, { sm("50"), sm("25") }, refused = "given twice" },

  { one, { mem("none") }, "" },
  { one, { mem("none"), gres = "gpu:2" }, "gpu:2" },
  { one, { mem("none"), gres = "shard:2" }, refused = "without a limit a GPU cannot be shared, and shard:2 does" },
  { one, { mem("none"), tres_per_task = "shard:2" }, refused = "without a limit a GPU cannot be shared" },
  { one, { mem("None") }, refused = "does not start with a digit" },

  { one, { mem("4G"), gres = "shard:1" }, "shard:4", "raised to shard:4" },
  { one, { mem("4G"), gres = "shard" }, "shard:4", "raised to shard:4" },
  { one, { mem("4G"), gres = "shard:4" }, "shard:4" },
  { one, { mem("4G"), gres = "shard:6" }, "shard:6" },
  { one, { mem("4G"), gres = "lustre:2" }, "lustre:2,shard:4" },
  { one, { mem("4G"), gres = "lustre:2,shard:1,nic" }, "lustre:2,nic,shard:4", "raised to shard:4" },
  { one, { mem("4G"), gres = "shard=1" }, "shard:4", "raised to shard:4" },
  { one, { mem("4G"), gres = "shard:1k" }, refused = "is no number of shards" },
  { one, { mem("4G"), gres = "mps:50" }, refused = "mps:50 asks" },
  { one, { mem("4G"), tres_per_task = "shard:1" }, refused = "shard:1 asks" },

  { one, { mem("4G"), gres = "shard:4,shard:1" }, twice = "shard:4 and shard:1 are asked for together" },
  { one, { mem("4G"), gres = "shard:4,lustre:1,shard=1" }, twice = "ask for shard once" },
  { one, { gres = "shard:4, shard:1" }, twice = "ask for shard once" },
  { one, { mem("4G"), gres = "gpu:2,gpu:1" }, twice = "ask for gpu once" },
  { one, { gres = "gpu:a100:2,gpu:a100" }, twice = "ask for gpu:a100 once" },
  { one, { tres_per_task = "shard:1,shard:2" }, twice = "ask for shard once" },
  { one, { gres = "mps:50,mps:10" }, twice = "ask for mps once" },
  { one, { gres = "gpu:a100:1,gpu:t4:1" }, "gpu:a100:1,gpu:t4:1" },
  { one, { gres = "lustre:1,lustre:2" }, "lustre:1,lustre:2" },

  { one, { mem("4G"), gres = "gpu:1" }, "gpu:1", "leave gpu:1 out to share one" },
  { one, { mem("4G"), gres = "gpu" }, "gpu", "leave gpu out to share one" },
  { one, { mem("4G"), tres_per_job = "gpu:1" }, "", "leave gpu:1 out to share one" },
  { one, { mem("4G"), tres_per_task = "gpu:1" }, "" },
  { one, { mem("4G"), gres = "gpu:2" }, "gpu:2" },
  { one, { mem("4G,2G"), gres = "gpu:2" }, "gpu:2" },
  { one, { mem("4G,50%"), tres_per_job = "gpu:3" }, "" },
  { one, { mem("4G,2G"), gres = "gpu:1" }, refused = "there are 2 values, and gpu:1 asks for another number" },
  { one, { mem("4G,"), gres = "gpu:2" }, refused = "the value is empty" },
  { one, { mem("8"), gres = "gpu:2" }, refused = "the unit is missing" },
  { one, { mem("9G"), gres = "gpu:2" }, refused = "a100, has no more than 8G; ask for at most that$" },
  { same_worth, { mem("60G"), gres = "gpu:2" }, refused = "t4, has no more than 16G; ask for at most that, or choose a larger" },
  { same_worth, { mem("60G"), gres = "gpu:2", features = "a100" }, "gpu:2" },
  { same_worth, { mem("60G"), gres = "gpu:a100:2" }, "gpu:a100:2" },
  { same_worth, { mem("60G"), gres = "gpu:t4:2" }, refused = "t4, has no more than 16G" },
  { mixed, { mem("60G"), gres = "gpu:2", partition = "big" }, "gpu:2" },

  { refuse, { mem("4G") }, "shard:4" },
  { refuse, { mem("4G"), gres = "gpu:1" }, refused = "gpu:1 asks for GPUs in another way" },
  { refuse, { mem("4G"), gres = "gpu:a100:2" }, refused = "gpu:a100:2 asks for GPUs in another way" },
  { refuse, { mem("4G"), tres_per_job = "gpu:2" }, refused = "gpu:2 asks" },
  { refuse, { mem("4G"), tres_per_task = "gpu:1" }, refused = "gpu:1 asks" },
  { refuse, { mem("4G"), tres_per_socket = "gpu:1" }, refused = "gpu:1 asks" },

  { same_worth, { mem("5G") }, "shard:5" },
  { same_worth, { mem("60G") }, "shard:60" },
  { same_worth, { mem("81G") }, refused = "has more than 80G" },
  { same_worth, { mem("50%") }, "shard:40", "40 on a100, 8 on t4; the job asks for 40 shards" },
  { same_worth, { sm("50") }, "shard:40", "40 on a100, 8 on t4; the job asks for 40 shards" },
  { same_worth, { mem("50%"), features = "t4" }, "shard:8" },
  { same_worth, { mem("50%"), features = "fast&a100" }, "shard:40" },
  { same_worth, { mem("50%"), features = "a100|t4" }, "shard:40", "40 on a100, 8 on t4; the job asks for 40 shards" },
  { same_worth, { mem("50%"), features = "a1000" }, "shard:40", "40 on a100, 8 on t4; the job asks for 40 shards" },
  { same_worth, { mem("20G"), features = "t4" }, refused = "has more than 16G" },

  { mixed, { mem("8G"), partition = "big" }, "shard:1" },
  { mixed, { mem("8G"), partition = "small" }, "shard:4" },
  { mixed, { mem("8G"), partition = "big,small" }, refused = "choose by" },
  { mixed, { mem("8G"), partition = "both" }, refused = "choose by" },
  { mixed, { mem("8G"), partition = "both", features = "t4" }, "shard:4" },
  { mixed, { mem("8G"), partition = "unknown" }, refused = "choose by" },
  { mixed, { mem("40G"), partition = "both" }, "shard:4" },
  { mixed, { mem("50%"), partition = "both" }, "shard:4" },
  { mixed, { sm("50"), partition = "both" }, "shard:4" },
  { mixed, { mem("8G") }, "shard:4" }, -- the default partition is "small", see below
}

local partition_list = { big = { flag_default = 0 }, small = { flag_default = 1 } }

for _, prefix in ipairs{ "gres:", "gres/" } do
  for i, case in ipairs(cases) do
    local site, fields, asks, sentence = case[1], case[2], case[3], case[4]
    local name = ("job %d with %s: %s %s"):format(i, prefix, fields[1] or "", fields.gres or "")
    local job = new_job(prefix, fields)
    said = nil
    local status = vgpu.setup(site).submit(job, partition_list)
    if case.twice then
      expect(name .. ", status", slurm.ERROR, status)
      expect(name .. ": " .. tostring(said), true, (said or ""):find(case.twice, 1, true) ~= nil)
    elseif case.refused then
      expect(name .. ", status", slurm.ERROR, status)
      expect(name .. ": " .. tostring(said), true, (said or ""):find(case.refused) ~= nil)
      local form = "^vgpu: %-%-gpu%-[ms][em]m?=[ -~]*: .*; ."
      expect(name .. ": form of: " .. tostring(said), true, (said or ""):find(form) ~= nil)
    else
      expect(name, asks:gsub("[^,]+", prefix .. "%0"), job.tres_per_node or "")
      expect(name .. ", status", slurm.SUCCESS, status)
      expect(name .. ", what was said", sentence,
        said and (said:match("raised to shard:%d+") or said:match("leave .* out to share one") or said:match("%d+ on .* shards")))
    end
  end
end

-- ---- changes of a waiting job ---------------------------------------------------------------------------------------

local changes = { -- had, wants, uid, allowed, the job's option, what it wants per task
  { "shard:4", "shard:1", 1000, false },
  { "shard:4", "shard", 1000, false },
  { "shard:4", "gpu:1", 1000, false },
  { "shard:4", "lustre:1", 1000, false },
  { "shard:4", "shard:4k", 1000, false },
  { "lustre:1,shard:4", "shard:3,lustre:1", 1000, false },
  { "shard:4", "shard:4", 1000, true },
  { "shard:4", "shard:8", 1000, true },
  { "shard:4", nil, 1000, true },
  { "gpu:2", "gpu:1", 1000, true },
  { nil, "gpu:1", 1000, true },
  { "shard:4", "shard:1", 0, true },
  { "shard:4", "shard:4,shard:1", 1000, false },
  { "gpu:1", "shard:4,shard:1", 1000, false },
  { "gpu:1", "shard:1", 1000, true },
  { "gpu:1", "shard:1", 1000, false, mem("4G") },
  { "shard:4", nil, 1000, false, nil, "shard:1" },
  { "gpu:1", nil, 1000, true, nil, "gpu:1" },
}
for _, prefix in ipairs{ "gres:", "gres/" } do
  for i, change in ipairs(changes) do
    local record = new_job(prefix, { change[5], gres = change[1] })
    local job = new_job(prefix, { gres = change[2], tres_per_task = change[6] })
    said = nil
    local status = vgpu.setup(one).modify(job, record, change[3])
    expect("change " .. i .. " with " .. prefix, change[4] and slurm.SUCCESS or slurm.ERROR, status)
    expect("change " .. i .. " says why", not change[4], said ~= nil)
  end
end

-- ---- the site's table, and the file as it is shipped ----------------------------------------------------------------

local tables = {
  { {}, "the table is empty" },
  { { gpus = { a = { shards = 0, memory = "8G" } } }, "a: shards = 0" },
  { { gpus = { a = { shards = 2.5, memory = "8G" } } }, "a: shards = 2.5" },
  { { gpus = { a = { memory = "8G" } } }, "a: shards = nil" },
  { { gpus = { a = { shards = 2001, memory = "8G" } } }, "from 1 to 2000" },
  { { gpus = { a = { shards = 8 } } }, "a: memory = nil" },
  { { gpus = { a = { shards = 8, memory = 8 } } }, "the unit is missing" },
  { { gpus = { a = { shards = 8, memory = "50%" } } }, "that is no size" },
  { { gpus = one.gpus, partitions = { p = { "b" } } }, "there is no type b" },
  { { gpus = one.gpus, whole_gpus = "no" }, "whole_gpus = no" },
}
for i, row in ipairs(tables) do
  local fine, why = pcall(vgpu.setup, row[1])
  expect("table " .. i .. ": " .. tostring(why), true, not fine and why:find(row[2], 1, true) ~= nil)
end

expect("job_submit.lua loads", slurm.SUCCESS, dofile(source .. "/etc/job_submit.lua"))
local job = new_job("gres/", { mem("5G") })
expect("job_submit.lua submits", slurm.SUCCESS, slurm_job_submit(job, partition_list, 1000))
expect("job_submit.lua charges", "gres/shard:5", job.tres_per_node)
for _, fields in ipairs{ { mem("8G"), sm("50") }, { mem("8G"), sm("50"), gres = "gpu:1" }, { sm("50") } } do
  expect("job_submit.lua as shipped", slurm.SUCCESS, slurm_job_submit(new_job("gres/", fields), partition_list, 1000))
end
expect("job_submit.lua knows an L40S", slurm.ERROR, slurm_job_submit(new_job("gres/", { mem("45G"), features = "l40s" }), {}, 1000))
local less = new_job("gres/", { gres = "shard:1" })
expect("job_submit.lua guards", slurm.ERROR, slurm_job_modify(less, job, partition_list, 1000))

print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)

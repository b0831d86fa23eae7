-- The scheduler's side of --gpu-mem and --gpu-sm: how many shards a job needs. job_submit.lua loads this file and has the
-- site's table; do not edit anything here.
--
-- setup(site)                     the rules of one site:
--   .submit(job, partition_list)  a job with such an option gets gres/shard, or a message that says why not
--   .modify(job, record, uid)     the shards of a waiting job cannot be lowered
--                                 both refuse a request that names the same gres twice
-- memory(text)                    what a value of --gpu-mem means; the same rules as in node/values.h
--
-- Runs inside slurmctld, in Lua 5.1 to 5.4. It does not depend on how Slurm spells a request ("gres:shard:8" up to
-- 23.02, "gres/shard:8" since 23.11): it reads both, and writes the field `gres`, to which Slurm itself adds the prefix.

local M = {}

-- ---- values of --gpu-mem --------------------------------------------------------------------------------------------

local SMALLEST = 512
local LARGEST = (2 ^ 33 - 1) * 512
local EXAMPLE = "give a size like 8G, 1.5G or 512M, or a share of the GPU like 50%"
local EXPONENT = { b = 0, k = 1, m = 2, g = 3, t = 4 }

-- floor(millionths * 1024^exponent / 10^6), a digit of base 1024 at a time: a double holds every step exactly.
local function scaled(millionths, exponent)
  local result = math.floor(millionths / 1e6)
  local rest = millionths - result * 1e6
  for _ = 1, exponent do
    rest = rest * 1024
    local digit = math.floor(rest / 1e6)
    result = result * 1024 + digit
    rest = rest - digit * 1e6
  end
  return result
end

local function bad_start(text)
  if text == "" then return "the value is empty" end
  if text:find("[\127-\255]") then return "that is not plain ASCII" end
  if text:find("[\1-\32]") then return "there are blanks in it" end
  if text:sub(1, 1) == "-" then return "a limit cannot be negative" end
  if not text:find("^[0-9]") then return "it does not start with a digit" end
end

-- { bytes = N } or { millionths = N } (of one percent), or nil and why not.
function M.memory(text)
  local why = bad_start(text)
  if why then return nil, why end
  local whole, point, decimals, unit = text:match("^([0-9]+)(%.?)([0-9]*)(.*)$")
  if #whole > 12 then return nil, "the number is too large" end
  if point == "" then
    unit, decimals = decimals .. unit, ""
  elseif #decimals > 6 then
    return nil, "there are more than six decimals"
  elseif decimals == "" then
    return nil, "there is no digit behind the point"
  end
  local fraction = tonumber((decimals .. "000000"):sub(1, 6))
  whole = tonumber(whole)
  local is_zero = whole == 0 and fraction == 0
  if unit == "%" then
    if is_zero then return nil, "a limit of zero leaves nothing to run with" end
    if whole * 1e6 + fraction > 100e6 then return nil, "there is no more than 100% of a GPU" end
    return { millionths = whole * 1e6 + fraction }
  end
  if unit == "" then return nil, "the unit is missing" end
  local letter, spelling = unit:lower():match("^([bkmgt])(.*)$")
  local known = letter and (spelling == "" or letter ~= "b" and (spelling == "b" or spelling == "ib"))
  if not known then return nil, "'" .. M.shown(unit) .. "' is not a unit" end
  if letter == "b" and point ~= "" then return nil, "there are no fractions of a byte" end
  if is_zero then return nil, "a limit of zero leaves nothing to run with" end
  local bytes = whole * 1024 ^ EXPONENT[letter]
  if bytes <= LARGEST then bytes = bytes + scaled(fraction, EXPONENT[letter]) end
  if bytes < SMALLEST then return nil, "less than 512B cannot be accounted for" end
  if bytes > LARGEST then return nil, "4TiB and more cannot be accounted for" end
  return { bytes = bytes }
end

-- The same for --gpu-sm: "1" to "100", with or without a percent sign.
function M.share(text)
  local percent = tonumber(text:match("^([0-9]+)%%?$"))
  if not percent then return nil, "that is no percentage" end
  if percent < 1 or percent > 100 then return nil, "that is not from 1 to 100" end
  return { millionths = percent * 1e6 }
end

-- A user's input, made safe for a terminal and a log.
function M.shown(text)
  local plain = text:sub(1, 40):gsub("[^ -~]", "?")
  return #text > 40 and plain .. "..." or plain
end

-- ---- requests as Slurm spells them ----------------------------------------------------------------------------------

-- "gres:gpu:a100:2,gres/shard:4" as { {text = "gpu:a100:2", name = "gpu", count = 2}, ... }. A count of nil is one that
-- only Slurm can interpret.
function M.requests(text)
  local found = {}
  for item in (text or ""):gmatch("[^,%s]+") do
    item = item:gsub("^gres[:/]", "")
    local name, rest = item:match("^([^:=]+)[:=]?(.*)$")
    -- The last part is a count, or a type: then the count is one.
    local last = (rest or ""):match("[^:=]*$")
    local count = 1
    if last:find("^[0-9]") then count = last:find("^[0-9]+$") and tonumber(last) or nil end
    found[#found + 1] = { text = item, name = name or "", count = count }
  end
  return found
end

local function of_name(requests, name)
  for _, request in ipairs(requests) do
    if request.name == name then return request end
  end
end

local FIELDS = { "tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task" }

-- Slurm takes the last of several requests for the same gres, whatever the others say. Of gpu, each type is one.
local ONCE = { gpu = true, shard = true, mps = true }
local function asked_twice(job)
  for _, field in ipairs(FIELDS) do
    local seen = {}
    for _, request in ipairs(M.requests(job[field])) do
      local what = request.name == "gpu" and request.text:gsub("[:=][0-9][^:=]*$", "") or request.name
      if ONCE[request.name] and seen[what] then
        local sentence = "%s and %s are asked for together, and Slurm takes only the last of them; ask for %s once"
        return sentence:format(M.shown(seen[what].text), M.shown(request.text), M.shown(what))
      end
      seen[what] = request
    end
  end
end

-- ---- the site's table -----------------------------------------------------------------------------------------------

local MOST_SHARDS = 2000 -- shards times bytes has to be exact in a double

-- Called while slurmctld loads the script: slurmctld logs the message and keeps the script that it had.
local function bad_table(what, why) error("vgpu: job_submit.lua: " .. what .. ": " .. why, 0) end

local function checked_gpus(gpus)
  local types = {}
  for name, gpu in pairs(gpus) do
    local value, why = M.memory(tostring(gpu.memory))
    if not value or not value.bytes then
      bad_table(name .. ": memory = " .. tostring(gpu.memory), (why or "that is no size") .. "; " .. EXAMPLE)
    end
    local shards = gpu.shards
    if type(shards) ~= "number" or shards < 1 or shards > MOST_SHARDS or shards ~= math.floor(shards) then
      bad_table(name .. ": shards = " .. tostring(shards), "that is not a whole number from 1 to " .. MOST_SHARDS)
    end
    types[name] = { shards = shards, bytes = value.bytes, memory = gpu.memory }
  end
  if not next(types) then bad_table("gpus", "the table is empty; it needs a line for every type of GPU") end
  return types
end

local function checked_partitions(partitions, types)
  for partition, names in pairs(partitions) do
    for _, name in ipairs(names) do
      if not types[name] then bad_table("partitions: " .. partition, "there is no type " .. name .. " in gpus") end
    end
  end
  return partitions
end

-- gpus = { type = { shards =, memory = } }, partitions = { name = { type, ... } } and whole_gpus = "keep" (a job with
-- --gpu-mem and --gres=gpu keeps its GPUs, and is held to the limit on them) or "refuse" (it has to choose).
function M.setup(given)
  local site = { types = checked_gpus(given.gpus or {}), whole_gpus = given.whole_gpus or "keep" }
  site.partitions = checked_partitions(given.partitions or {}, site.types)
  if site.whole_gpus ~= "refuse" and site.whole_gpus ~= "keep" then
    bad_table("whole_gpus = " .. tostring(site.whole_gpus), "it can be \"keep\" or \"refuse\"")
  end
  return {
    submit = function(job, partition_list) return M.submit(site, job, partition_list) end,
    modify = M.modify,
  }
end

-- ---- which GPUs a job can get ---------------------------------------------------------------------------------------

-- The types named in --constraint, if any: every word of it that is one.
local function types_of_features(features, types)
  local names = {}
  for word in (features or ""):gmatch("[%w_%-%.]+") do
    if types[word] then names[word] = true end
  end
  return next(names) and names
end

-- The types of all partitions the job may run in; nil when the table says nothing about one of them.
local function types_of_partitions(partition, partition_list, partitions)
  if not partition then
    for name, record in pairs(partition_list or {}) do
      if record.flag_default == 1 then partition = name end
    end
  end
  local names = {}
  for name in (partition or ""):gmatch("[^,]+") do
    if not partitions[name] then return nil end
    for _, gpu in ipairs(partitions[name]) do names[gpu] = true end
  end
  return next(names) and names
end

local function sorted(names)
  local list = {}
  for name in pairs(names) do list[#list + 1] = name end
  table.sort(list)
  return list
end

-- Shards for a value on one type of GPU; nil when it does not fit.
local function shards_on(gpu, value)
  if value.millionths then return math.ceil(gpu.shards * value.millionths / 100e6) end
  if value.bytes > gpu.bytes then return nil end
  return math.ceil(value.bytes * gpu.shards / gpu.bytes)
end

-- How many shards, and a remark if that is more than some GPUs need; or nil and why. A share that is another number on each type
-- of GPU becomes the largest one: too many shards only cost room, too few would let a job in that does not fit.
local function shards_needed(value, types, names)
  local needed, differ, largest, counts = nil, false, nil, {}
  for _, name in ipairs(names) do
    local gpu = types[name]
    local count = shards_on(gpu, value)
    if not largest or gpu.bytes > largest.bytes then largest = gpu end
    differ = differ or (count and needed and count ~= needed)
    needed = count and math.max(count, needed or 0) or needed
    counts[#counts + 1] = ("%d on %s"):format(count or 0, name)
  end
  if not needed then
    return nil, "no GPU that the job can get has more than " .. largest.memory .. "; ask for at most that"
  end
  if not differ then return needed end
  local choice = "; choose by --constraint=" .. table.concat(names, " or --constraint=")
  if value.bytes then return nil, "that is not the same number of shards on every GPU that the job can get" .. choice end
  return needed, ("that is %s; the job asks for %d shards"):format(table.concat(counts, ", "), needed) .. choice
end

-- Why a job that keeps its whole GPUs would fail on one of the nodes that it can get; nil if on none.
local function misfit(request, values, types, names)
  local _, commas = values:gsub(",", "")
  if commas > 0 and request.field == "tres_per_node" and request.count and request.count ~= commas + 1 then
    local sentence = "there are %d values, and %s asks for another number of GPUs; give one for each, or one for all"
    return sentence:format(commas + 1, M.shown(request.text))
  end
  for text in (values .. ","):gmatch("([^,]*),") do
    local value, why = M.memory(text)
    if not value then return why .. "; " .. EXAMPLE end
    for _, name in ipairs(names) do
      if value.bytes and value.bytes > types[name].bytes then
        local most = "a GPU that the job can get, " .. name .. ", has no more than " .. types[name].memory
        return most .. "; ask for at most that" .. (#names > 1 and ", or choose a larger one by --constraint" or "")
      end
    end
  end
end

-- ---- what Slurm calls -----------------------------------------------------------------------------------------------

local function remark(asked, what) slurm.log_user("%s", "vgpu: " .. asked.option .. "=" .. M.shown(asked.text) .. ": " .. what) end

local function refuse(asked, why)
  remark(asked, why)
  return slurm.ERROR
end

-- An option as the plugin sent it; nil if there is none. The plugin never sends it twice with different values.
local function sent(job, name)
  local text, twice
  for _, entry in pairs(job.spank_job_env or {}) do
    local value = entry:match("^_SLURM_SPANK_OPTION_vgpu_" .. name .. "=(.*)$")
    twice = twice or (value and text and text ~= value)
    text = text or value
  end
  return text and { option = "--" .. name:gsub("_", "-"), text = text, twice = twice }
end

-- The first request for GPUs in a form that `wanted` names: as "gpu", "mps", "shard" (per node), or "shard elsewhere".
local function gpu_request(job, wanted)
  for _, field in ipairs(FIELDS) do
    for _, request in ipairs(M.requests(job[field])) do
      local form = request.name == "shard" and field ~= "tres_per_node" and "shard elsewhere" or request.name
      request.field = field
      if wanted[form] then return request end
    end
  end
end

local SHARES = { shard = true, ["shard elsewhere"] = true, mps = true }
local OTHERWISE = { gpu = true, mps = true, ["shard elsewhere"] = true }
local ANY = { gpu = true, shard = true, mps = true, ["shard elsewhere"] = true }

-- A job without a limit has its GPUs for itself.
local function submit_unlimited(job, asked)
  local share = gpu_request(job, SHARES)
  if not share then return slurm.SUCCESS end
  return refuse(asked, "without a limit a GPU cannot be shared, and " .. M.shown(share.text) .. " does; ask for --gres=gpu")
end

-- --gpu-mem with --gres=gpu or the like.
local function submit_whole(site, asked, request, names)
  if site.whole_gpus == "refuse" or request.name ~= "gpu" then
    local other = M.shown(request.text)
    return refuse(asked, "it shares a GPU, and " .. other .. " asks for GPUs in another way; leave out one of the two")
  end
  local typed = request.text:match("^gpu:([^:=]+)")
  local why = misfit(request, asked.text, site.types, site.types[typed] and { typed } or names)
  if why then return refuse(asked, why) end
  if request.count == 1 and (request.field == "tres_per_node" or request.field == "tres_per_job") then
    local sentence = "vgpu: %s takes a whole GPU, of which the job may use %s; leave %s out to share one"
    slurm.log_user("%s", sentence:format(M.shown(request.text), M.shown(asked.text), M.shown(request.text)))
  end
  return slurm.SUCCESS
end

-- The job asks for `needed` shards from now on, unless it asked for more.
local function charge(job, asked, needed)
  local requests = M.requests(job.tres_per_node)
  local had = of_name(requests, "shard")
  if had and not had.count then
    return refuse(asked, "--gres=" .. M.shown(had.text) .. " is no number of shards; leave it out")
  end
  if had and had.count >= needed then return slurm.SUCCESS end
  local gres = {}
  for _, other in ipairs(requests) do
    if other ~= had then gres[#gres + 1] = other.text end
  end
  gres[#gres + 1] = string.format("shard:%d", needed)
  job.gres = table.concat(gres, ",")
  if had then
    local sentence = "vgpu: --gres=%s is less than --gpu-mem=%s needs; raised to shard:%d"
    slurm.log_user("%s", sentence:format(had.text, asked.text, needed))
  end
  return slurm.SUCCESS
end

function M.submit(site, job, partition_list)
  local twice = asked_twice(job)
  if twice then
    slurm.log_user("%s", "vgpu: " .. twice)
    return slurm.ERROR
  end
  local asked = sent(job, "gpu_mem")
  local time = sent(job, "gpu_sm")
  -- A share of the time alone comes with the same share of the memory, for jobs that ask for no GPU in words of Slurm's.
  if not asked and time and not gpu_request(job, ANY) then asked = time end
  if not asked then return slurm.SUCCESS end
  if asked.twice then return refuse(asked, "it was given twice, with different values; give it once") end
  if asked ~= time and asked.text == "none" then return submit_unlimited(job, asked) end

  local names = sorted(types_of_features(job.features, site.types)
    or types_of_partitions(job.partition, partition_list, site.partitions)
    or site.types)
  local request = gpu_request(job, OTHERWISE)
  if request then return submit_whole(site, asked, request, names) end
  if asked.text:find(",") then
    return refuse(asked, "a job that shares a GPU gets one on each node, and there are several values; give one")
  end
  local value, why
  if asked == time then
    value, why = M.share(asked.text)
    if not value then return refuse(asked, why .. "; give a share of the GPU's time like 50") end
  else
    value, why = M.memory(asked.text)
    if not value then return refuse(asked, why .. "; " .. EXAMPLE) end
  end
  local needed
  needed, why = shards_needed(value, site.types, names)
  if not needed then return refuse(asked, why) end
  if why then remark(asked, why) end
  return charge(job, asked, needed)
end

-- Why a waiting job may not be changed in this way; nil if it may.
local function bad_change(job, record)
  local twice = asked_twice(job)
  if twice then return twice end
  local had = of_name(M.requests(record.tres_per_node), "shard")
  local resubmit = "; submit it again"
  if had and gpu_request(job, { ["shard elsewhere"] = true, mps = true }) then
    return "the job's " .. had.text .. " cannot be changed into another request" .. resubmit .. " with that"
  end
  if job.tres_per_node == nil then return nil end
  local wants = of_name(M.requests(job.tres_per_node), "shard")
  if not had and wants and sent(record, "gpu_mem") then
    return "the job asked for its --gpu-mem together with whole GPUs, which cannot become shards" .. resubmit .. " without them"
  end
  if not had or (wants and wants.count and had.count and wants.count >= had.count) then return nil end
  return "the job's " .. had.text .. " stands for its --gpu-mem and cannot be lowered" .. resubmit .. " with less"
end

function M.modify(job, record, uid)
  local why = uid ~= 0 and bad_change(job, record)
  if not why then return slurm.SUCCESS end
  slurm.log_user("%s", "vgpu: " .. why)
  -- scontrol of 22.05 shows only "Unspecified error"; the administrator finds the reason in this log.
  slurm.log_info("%s", "vgpu: uid " .. string.format("%d", uid) .. ": " .. why)
  return slurm.ERROR
end

return M

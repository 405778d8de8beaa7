-- job_submit.lua: refuses or holds jobs that no QPU would serve, with one sentence for the user.
--
-- slurmctld calls this at every submission, so it asks nobody: it reads the file that the service
-- writes every few seconds (`file` in [slurm.availability]). If the file is missing, or older than it
-- says it may be, every job is let through.
--
-- A site that has a job_submit.lua of its own loads this one there, and calls qtide_check(job_desc):
--   dofile("/etc/slurm/qtide/job_submit.lua")

local FILE = "/etc/slurm/qtide/availability"

local function read_facts()
   local file = io.open(FILE, "r")
   if file == nil then return nil end
   local facts = {devices = {}, accounts = {}, names = {}}
   for line in file:lines() do
      local key, rest = line:match("^(%S+) (.*)$")
      if key == "written" then
         facts.written, facts.fresh = rest:match("^(%d+) (%d+)$")
      elseif key == "licence" then
         facts.before, facts.after = rest:match("^(%S*)%* ?(%S*)$")
      elseif key == "when_down" then
         facts.when_down = rest
      elseif key == "device" then
         local name, state, more = rest:match("^(%S+) (%S+) ?(.*)$")
         local back, why = more:match("^(%d+) (.*)$")
         facts.devices[name] = {up = state == "up", back = tonumber(back or 0), why = why or ""}
         table.insert(facts.names, name)
      elseif key == "account" then
         local name, why = rest:match("^(%S+) (.*)$")
         facts.accounts[name] = why
      end
   end
   file:close()
   if facts.written == nil or facts.before == nil then return nil end
   if os.time() > tonumber(facts.written) + tonumber(facts.fresh) then return nil end
   return facts
end

-- The devices whose licences a job asks for, such as star for qpu_star:1.
local function devices_of(facts, licences)
   local found = {}
   for word in (licences or ""):gmatch("[^,;]+") do
      local name = word:match("^([^:=@]+)")
      local first, last = #facts.before, #facts.after
      if name ~= nil and #name > first + last and name:sub(1, first) == facts.before
         and (last == 0 or name:sub(-last) == facts.after) then
         table.insert(found, name:sub(first + 1, #name - last))
      end
   end
   return found
end

local function hours(seconds)
   return os.date("%Y-%m-%d %H:%M", seconds)
end

-- Returns what to do (nil, "refuse" or "hold") and a sentence.
function qtide_judge(facts, licences, account, minutes)
   local devices = devices_of(facts, licences)
   for _, name in ipairs(devices) do
      local device = facts.devices[name]
      if device == nil then
         return "refuse", string.format("there is no QPU %s; there are: %s", name,
                                        table.concat(facts.names, ", "))
      end
   end
   if #devices > 0 and account ~= nil and facts.accounts[account] ~= nil then
      return "refuse", string.format("the account %s %s", account, facts.accounts[account])
   end
   for _, name in ipairs(devices) do
      local device = facts.devices[name]
      local known = minutes ~= nil and minutes < 4294967294
      local over = known and os.time() + 60 * minutes or math.huge
      local longer = device.back == 0 or device.back > over
      if not device.up and longer and facts.when_down ~= "wait" then
         local back = device.back == 0 and "it is not known when it will be back"
                      or "it will be back at " .. hours(device.back)
         return facts.when_down, string.format("the QPU %s is away (%s); %s", name, device.why, back)
      end
   end
   return nil, nil
end

function qtide_check(job_desc)
   local facts = read_facts()
   if facts == nil then return slurm.SUCCESS end
   local account = job_desc.account or job_desc.default_account
   local action, why = qtide_judge(facts, job_desc.licenses, account, job_desc.time_limit)
   if action == "refuse" then
      slurm.log_user("%s", why)
      return slurm.ERROR
   elseif action == "hold" then
      slurm.log_user("%s; the job is held, release it then: scontrol release JOB", why)
      job_desc.priority = 0
   end
   return slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   return qtide_check(job_desc)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return slurm.SUCCESS
end

return slurm.SUCCESS

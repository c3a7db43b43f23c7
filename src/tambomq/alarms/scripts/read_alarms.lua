#!lua flags=no-writes
-- read_alarms: return the alarms that hold.
--
-- KEYS  alarms  hash  tambo:alarms
-- ARGV  none
-- REPLY of each process that has some, its alarms as JSON

local alarms = KEYS[1]

local reply, found = {}, redis.call('HVALS', alarms)
if #found == 0 then
  return reply
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, value in ipairs(found) do
  local till, text = value:match('^(%d+) (.*)$')
  if till and tonumber(till) > now then
    reply[#reply + 1] = text
  end
end
return reply

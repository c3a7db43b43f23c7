-- due_queues: find the queues whose first delayed job is due soon, or which cannot be read.
--
-- KEYS  delayed  …  zset  {chasqui:<queue>}:delayed
-- ARGV  within   ms from now
-- REPLY number of a queue, from 0, for each that has a job due by then or cannot be read

local within = ARGV[1]

local time = redis.call('TIME')
local until_ms = time[1] * 1000 + math.floor(time[2] / 1000) + within
local found = {}
for number, delayed in ipairs(KEYS) do
  local head = redis.pcall('ZRANGE', delayed, 0, 0, 'WITHSCORES')
  if head.err or head[2] and tonumber(head[2]) <= until_ms then
    found[#found + 1] = number - 1
  end
end
return found

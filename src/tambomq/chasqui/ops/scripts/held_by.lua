#!lua flags=no-writes
-- held_by: list the jobs that a worker owns, the oldest first.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
-- ARGV  group     consumer group
--       consumer  the worker
--       limit     maximum number
-- REPLY entry, idle milliseconds, deliveries, job id and name of each; '' if it cannot be decoded
-- NEEDS prefix

local stream = KEYS[1]
local group, consumer, limit = ARGV[1], ARGV[2], ARGV[3]

local found = {}
for _, row in ipairs(redis.call('XPENDING', stream, group, '-', '+', limit, consumer)) do
  local entry, id, name = row[1], '', ''
  local fields = (redis.call('XRANGE', stream, entry, entry)[1] or {'', {}})[2]
  -- If a field occurs twice, the first one counts.
  for i = #fields - 1, 1, -2 do
    if fields[i] == 'd' then
      id = job_id(fields[i + 1])
    elseif fields[i] == 'n' then
      name = fields[i + 1]
    end
  end
  found[#found + 1] = {entry, row[3], row[4], id, name}
end
return found

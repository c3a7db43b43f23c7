#!lua flags=no-writes
-- held_by: tell which jobs a worker has, the oldest first.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
-- ARGV  group     whose
--       consumer  the worker
--       limit     at most so many
-- REPLY entry, idle milliseconds, deliveries, job id and name of each; '' for what cannot be read

local stream = KEYS[1]
local group, consumer, limit = ARGV[1], ARGV[2], ARGV[3]

local found = {}
for _, row in ipairs(redis.call('XPENDING', stream, group, '-', '+', limit, consumer)) do
  local entry, id, name = row[1], '', ''
  local fields = (redis.call('XRANGE', stream, entry, entry)[1] or {'', {}})[2]
  -- The first of each counts.
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

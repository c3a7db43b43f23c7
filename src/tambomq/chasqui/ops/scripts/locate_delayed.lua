#!lua flags=no-writes
-- locate_delayed: look for a job among those that are not due yet, a part of them at a time.
--
-- KEYS  delayed  zset  {chasqui:<queue>}:delayed
-- ARGV  cursor   where to go on, 0 to begin
--       id       the job's
-- REPLY where to go on, 0 at the end; and if it was found its member and when it is due

local delayed = KEYS[1]
local cursor, id = ARGV[1], ARGV[2]

local found = redis.call('ZSCAN', delayed, cursor, 'COUNT', 500)
for i = 1, #found[2], 2 do
  local member = found[2][i]
  local skip, length = prefix(member)
  if skip and job_id(member:sub(skip + length + 1)) == id then
    return {found[1], member, found[2][i + 1]}
  end
end
return {found[1]}

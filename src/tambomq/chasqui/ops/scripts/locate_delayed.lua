#!lua flags=no-writes
-- locate_delayed: find a delayed job, one page per call.
--
-- KEYS  delayed  zset  {chasqui:<queue>}:delayed
-- ARGV  cursor   scan cursor; 0 to start
--       id       job id
-- REPLY next position, 0 at the end; and if it was found its member and when it is due
-- NEEDS prefix

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

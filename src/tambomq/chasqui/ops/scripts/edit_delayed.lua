-- edit_delayed: replace the payload of a delayed job, and set when it is due.
--
-- KEYS  delayed  zset    {chasqui:<queue>}:delayed
--       index    string  {chasqui:<queue>}:didx:<id>
-- ARGV  member   the delayed member, as it was found
--       new      the member that replaces it
--       due      when it is due, in ms
-- REPLY 1 replaced, 0 the job is no longer there as it was found

local delayed, index = KEYS[1], KEYS[2]
local member, new, due = ARGV[1], ARGV[2], ARGV[3]

if redis.call('ZREM', delayed, member) == 0 then
  return 0
end
redis.call('ZADD', delayed, due, new)
if redis.call('GET', index) == member then
  redis.call('SET', index, new, 'KEEPTTL')
end
return 1

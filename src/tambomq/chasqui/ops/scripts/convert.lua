#!lua flags=allow-oom
-- convert: rewrite delayed members from the page's dialect to the engine's, with the same due times.
--
-- KEYS  delayed      zset    {chasqui:<queue>}:delayed
--       index        …       string {chasqui:<queue>}:didx:<id>, of each job
-- ARGV  old, new     …       a member as it is, and as it is to be
-- REPLY how many were still there

local delayed = KEYS[1]
local index = {unpack(KEYS, 2)}

local count = 0
for i = 1, #ARGV, 2 do
  local old, new = ARGV[i], ARGV[i + 1]
  local due = redis.call('ZSCORE', delayed, old)
  if due then
    redis.call('ZADD', delayed, due, new)
    redis.call('ZREM', delayed, old)
    local own = index[(i + 1) / 2]
    if redis.pcall('GET', own) == old then
      redis.call('SET', own, new, 'KEEPTTL')
    end
    count = count + 1
  end
end
return count

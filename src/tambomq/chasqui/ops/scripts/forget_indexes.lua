-- forget_indexes: forget by what jobs would be cancelled that are due.
--
-- KEYS  delayed  zset  {chasqui:<queue>}:delayed
--       index    …     string {chasqui:<queue>}:didx:<id>, of each job
-- ARGV  none
-- REPLY how many were forgotten

local delayed = KEYS[1]

local count = 0
for _, index in ipairs({unpack(KEYS, 2)}) do
  -- The id may have been scheduled anew: that job can still be cancelled.
  local member = redis.pcall('GET', index)
  if type(member) ~= 'string' or not redis.call('ZSCORE', delayed, member) then
    count = count + redis.call('UNLINK', index)
  end
end
return count

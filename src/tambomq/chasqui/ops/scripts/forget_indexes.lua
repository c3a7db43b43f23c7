-- forget_indexes: delete the cancellation indexes of jobs that are no longer delayed.
--
-- KEYS  delayed  zset  {chasqui:<queue>}:delayed
--       index    …     string {chasqui:<queue>}:didx:<id>, of each job
-- ARGV  none
-- REPLY how many were deleted

local delayed = KEYS[1]

local count = 0
for _, index in ipairs({unpack(KEYS, 2)}) do
  -- If the id was scheduled again, that job must stay cancellable.
  local member = redis.pcall('GET', index)
  if type(member) ~= 'string' or not redis.call('ZSCORE', delayed, member) then
    count = count + redis.call('UNLINK', index)
  end
end
return count

-- acquire_leadership: take or renew the leader lock, unless another holder has it.

local function acquire_leadership(lock, holder, ttl)
  local leader = redis.call('GET', lock)
  if leader and leader ~= holder then
    return false
  end
  redis.call('SET', lock, holder, 'EX', ttl)
  return true
end

-- leads: for other scripts: become or stay the leader, if nobody else is.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function leads(lock, holder, ttl)
  local who = redis.call('GET', lock)
  if who and who ~= holder then
    return false
  end
  redis.call('SET', lock, holder, 'EX', ttl)
  return true
end

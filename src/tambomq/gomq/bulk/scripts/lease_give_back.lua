#!lua flags=allow-oom
-- lease_give_back: let the peer of a lease whose query is gone count as silent, before its time.
--
-- KEYS  last_action  string  LASTACTION_<peer>
--       ledger       hash    LEASE_<lease>:<key>
-- ARGV  keep_s       for how long the time of the last action is kept
--       gone         who had it and is known to be dead; '' for nobody
-- REPLY how many messages the open claim has; 'held' and who has the lease

local last_action, ledger = KEYS[1], KEYS[2]
local keep_s, gone = ARGV[1], ARGV[2]

local now, held, claim, size = loose(ledger, gone)
if held then
  return held
elseif not claim then
  return {0}
end
redis.call('SET', last_action, 1, 'EX', keep_s)
redis.call('HSET', ledger, 'until', now, 'hidden_until', now)
return {tonumber(size) or 0}

#!lua flags=allow-oom
-- lease_give_back: let the peer of a dead query's lease time out at once.
--
-- KEYS  last_action  string  LASTACTION_<peer>
--       ledger       hash    LEASE_<lease>:<key>
-- ARGV  keep_s       TTL of LASTACTION_<peer>, in seconds
--       dead_holder  label of a holder that is known to be dead; '' if none
-- REPLY how many messages the open claim has; 'held' and the holder's label
-- NEEDS require_unheld

local last_action, ledger = KEYS[1], KEYS[2]
local keep_s, dead_holder = ARGV[1], ARGV[2]

local now, held, claim, size = require_unheld(ledger, dead_holder)
if held then
  return held
elseif not claim then
  return {0}
end
redis.call('SET', last_action, 1, 'EX', keep_s)
redis.call('HSET', ledger, 'until', now, 'hidden_until', now)
return {tonumber(size) or 0}

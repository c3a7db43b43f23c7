#!lua flags=allow-oom
-- lease_renew: renew a lease, and keep its peer connected.
--
-- KEYS  last_action  string  LASTACTION_<peer>
--       handed       string  HANDED_<consumer>_<peer>
--       ledger       hash    LEASE_<lease>:<key>
-- ARGV  owner        owner token of the caller
--       lease_ms     for how long from now
--       hide_ms      how long the peer is not disconnected, in ms
--       keep_s       TTL of LASTACTION_<peer>, in seconds
-- REPLY 1 if the open claim was lost, else 0; 'fenced' and the current holder's label
-- NEEDS unacked_batch

local last_action, handed, ledger = KEYS[1], KEYS[2], KEYS[3]
local owner, lease_ms, hide_ms, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local lease = redis.call('HMGET', ledger, 'owner', 'label', 'mark')
if lease[1] ~= owner then
  return {'fenced', lease[2] or ''}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', last_action, time[1], 'EX', keep_s)
redis.call('HSET', ledger, 'until', now + lease_ms, 'hidden_until', now + hide_ms)
local unacked = read_unacked(handed)
return {lease[3] and (not unacked or unacked[1] ~= lease[3]) and 1 or 0}

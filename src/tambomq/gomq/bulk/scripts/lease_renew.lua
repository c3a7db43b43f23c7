#!lua flags=allow-oom
-- lease_renew: keep a lease, and its peer connected.
--
-- KEYS  last_action  string  LASTACTION_<peer>
--       handed       string  HANDED_<consumer>_<peer>
--       ledger       hash    LEASE_<lease>:<key>
-- ARGV  owner        who has the lease
--       lease_ms     for how long from now
--       hide_ms      for how long nobody disconnects the peer
--       keep_s       for how long the time of the last action is kept
-- REPLY 1 if the open claim was taken away, else 0; 'fenced' and who has the lease

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
local kept = read_kept(handed)
return {lease[3] and (not kept or kept[1] ~= lease[3]) and 1 or 0}

-- lease_attach: let one query have a lease.
--
-- KEYS  leases    set   the leases on a queue
--       ledger    hash  what is known of this one
-- ARGV  lease     its name
--       owner     the token of who wants it
--       label     who that is
--       lease_ms  for how long
--       gone      who had it and is known to be dead; '' for nobody
-- REPLY 'held', who has it, until (ms), now (ms); or 'ours', acked, claim, mark, released, and 1 if
--       others may have had the messages of the claim

local leases, ledger = KEYS[1], KEYS[2]
local lease, owner, label, lease_ms, gone = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local held = redis.call('HMGET', ledger, 'owner', 'until', 'label')
local alive = now < (tonumber(held[2]) or 0) and (gone == '' or held[3] ~= gone)
if held[1] and held[1] ~= owner and alive then
  return {'held', held[3] or '', tonumber(held[2]), now}
end
redis.call('SADD', leases, lease)
redis.call('HSET', ledger, 'owner', owner, 'label', label, 'until', now + lease_ms)
local stored = redis.call('HMGET', ledger, 'acked', 'claim', 'mark', 'released', 'hidden_until',
  'lapsed')
local lapsed = now >= (tonumber(stored[5]) or 0)
-- Remembered with the claim: whoever attaches again before it has ended is told the same.
if lapsed and stored[2] then
  redis.call('HSET', ledger, 'lapsed', stored[3])
elseif stored[2] and stored[6] == stored[3] then
  lapsed = true
end
return {'ours', tonumber(stored[1]) or 0, tonumber(stored[2]) or 0, stored[3] or '',
  tonumber(stored[4]) or 0, lapsed and 1 or 0}

-- lease_attach: give a lease to a query, unless a live query holds it.
--
-- KEYS  leases       set   leases of a queue
--       ledger       hash  its ledger
-- ARGV  lease        its name
--       owner        owner token of the caller
--       label        name of the caller for others
--       lease_ms     lease time, in ms
--       dead_holder  label of a holder that is known to be dead; '' if none
-- REPLY 'held', the holder's label, until (ms), now (ms); or 'ours', acked, claim, mark, released, and
--       1 if others may have received the messages of the claim

local leases, ledger = KEYS[1], KEYS[2]
local lease, owner, label, lease_ms, dead_holder = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local held = redis.call('HMGET', ledger, 'owner', 'until', 'label')
local alive = now < (tonumber(held[2]) or 0) and (dead_holder == '' or held[3] ~= dead_holder)
if held[1] and held[1] ~= owner and alive then
  return {'held', held[3] or '', tonumber(held[2]), now}
end
redis.call('SADD', leases, lease)
redis.call('HSET', ledger, 'owner', owner, 'label', label, 'until', now + lease_ms)
local stored = redis.call('HMGET', ledger, 'acked', 'claim', 'mark', 'released', 'hidden_until',
  'lapsed')
local lapsed = now >= (tonumber(stored[5]) or 0)
-- Stored with the claim: a query that attaches again before the claim has ended gets the same answer.
if lapsed and stored[2] then
  redis.call('HSET', ledger, 'lapsed', stored[3])
elseif stored[2] and stored[6] == stored[3] then
  lapsed = true
end
return {'ours', tonumber(stored[1]) or 0, tonumber(stored[2]) or 0, stored[3] or '',
  tonumber(stored[4]) or 0, lapsed and 1 or 0}

#!lua flags=allow-oom
-- lease_claim: claim the waiting messages for a lease, and keep them until they are acknowledged.
--
-- KEYS  last_action  string  LASTACTION_<peer>
--       handed       string  HANDED_<consumer>_<peer>
--       list         list    MESSAGES_<key>_<consumer>_<peer>
--       ledger       hash    LEASE_<lease>:<key>
-- ARGV  owner        owner token of the caller
--       number       of the claim
--       claim_token  token of the claim, if it is new
--       count        how many at most
--       free_bytes   maximum total size, in bytes
--       hide_ms      how long the peer is not disconnected, in ms
--       keep_s       TTL of LASTACTION_<peer>, in seconds
--       key          key of the messages
-- REPLY how many are in the claim, how many of them are new, its token; 'fenced' and the current
--       holder's label; 'wrong_claim' and the number of the last ended claim
-- NEEDS unacked_batch, take, requeue_unacked, claims

local last_action, handed, list, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, number, claim_token, count = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local free_bytes, hide_ms, keep_s, key = tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8]

local refused, claim, known = refused_claim(ledger, owner, number)
if refused then
  return refused
end
-- If an earlier reply was lost, report the claim as it is; nothing new is claimed.
local old = read_unacked(handed)
if old and claim and old[1] == known then
  return {#(old[2][2] or {}), 0, old[1]}
end
local function list_of()
  return list
end
-- An unacknowledged batch that belongs to no claim is requeued.
if old then
  requeue_unacked(handed, '', list_of)
end
local taken, broken = {}, nil
if count > 0 then
  taken, broken = take({key}, list_of, count, free_bytes, 0)
end
if broken then
  return redis.error_reply(broken)
end
local time = redis.call('TIME')
redis.call('SET', last_action, time[1], 'EX', keep_s)
redis.call('HDEL', ledger, 'claim', 'mark')
if #taken == 0 then
  return {0, 0, ''}
end
redis.call('SET', handed, cmsgpack.pack({claim_token, taken}))
redis.call('HSET', ledger, 'claim', number, 'mark', claim_token, 'size', #taken[2],
  'hidden_until', time[1] * 1000 + math.floor(time[2] / 1000) + hide_ms)
redis.call('HDEL', ledger, 'released')
return {#taken[2], #taken[2], claim_token}

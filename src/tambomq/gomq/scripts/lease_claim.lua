#!lua flags=allow-oom
-- lease_claim: hand what waits for a lease to it, and keep it until it is acknowledged.
--
-- KEYS  last_action  string  LASTACTION_<peer>
--       handed       string  HANDED_<consumer>_<peer>
--       list         list    MESSAGES_<key>_<consumer>_<peer>
--       ledger       hash    LEASE_<lease>:<key>
-- ARGV  owner        who has the lease
--       number       of the claim
--       mark         a name for it, if it is new
--       count        how many at most
--       room         bytes in all
--       hide_ms      for how long nobody disconnects the peer
--       keep_s       for how long the time of the last action is kept
--       key          whose messages
-- REPLY how many are in the claim, how many of them are new, its mark; 'fenced' and who has the
--       lease; 'astray' and how many claims are over

local last_action, handed, list, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, number, mark, count = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local room, hide_ms, keep_s, key = tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8]

local refused, claim, known = not_to_make(ledger, owner, number)
if refused then
  return refused
end
-- What was claimed and never told is told now, as it is.
local old = read_kept(handed)
if old and claim and old[1] == known then
  return {#(old[2][2] or {}), 0, old[1]}
end
local function list_of()
  return list
end
-- A batch that is nobody's claim waits again.
if old then
  unhand(handed, '', list_of)
end
local taken, broken = {}, nil
if count > 0 then
  taken, broken = take({key}, list_of, count, room, 0)
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
redis.call('SET', handed, cmsgpack.pack({mark, taken}))
redis.call('HSET', ledger, 'claim', number, 'mark', mark, 'size', #taken[2],
  'hidden_until', time[1] * 1000 + math.floor(time[2] / 1000) + hide_ms)
redis.call('HDEL', ledger, 'released')
return {#taken[2], #taken[2], mark}

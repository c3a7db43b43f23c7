#!lua flags=allow-oom
-- lease_acknowledge: forget the messages of a claim whose batch is committed.
--
-- KEYS  handed  string  HANDED_<consumer>_<peer>
--       ledger  hash    LEASE_<lease>:<key>
-- ARGV  owner   who has the lease
--       number  of the claim
--       mark    the claim's name, '' if there cannot be one
-- REPLY 0, how many are forgotten, 0, 0, 1 if they were taken away; 'fenced' and who has the
--       lease; 'astray' and the number of the claim that is open instead

local handed, ledger = KEYS[1], KEYS[2]
local owner, number, mark = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local refused, claim = not_to_end(ledger, owner, number, mark)
if refused then
  return refused
end
local kept, done = read_kept(handed), 0
local ours = claim and kept and kept[1] == mark
if ours then
  done = #(kept[2][2] or {})
  redis.call('DEL', handed)
end
redis.call('HSET', ledger, 'acked', number)
redis.call('HDEL', ledger, 'claim', 'mark')
return {0, done, 0, 0, claim and not ours and 1 or 0}

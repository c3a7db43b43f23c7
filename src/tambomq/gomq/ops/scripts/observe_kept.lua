#!lua flags=allow-oom
-- observe_kept: like observe, but the batch is kept until it is acknowledged.
--
-- KEYS  subscriptions  set     SUBSCRIPTIONS_<consumer>
--       peers          set     PEERS_<consumer>
--       last_action    string  LASTACTION_<peer>
--       handed         string  HANDED_<consumer>_<peer>
--       held           zset    HELD
-- ARGV  consumer
--       peer
--       limit          messages of one key
--       free_bytes     maximum total size, in bytes
--       turn           index of the key to start with
--       keep_s         TTL of LASTACTION_<peer>, in seconds
--       lists_prefix   prefix of every MESSAGES_<key>_<consumer>_<peer>
--       tally_prefix   prefix of TALLY_<key>
--       max_peers      of a consumer
--       max_receivers  peers of a key
--       acked          id of the last acknowledged batch, or ''
--       batch          the name of this one
-- REPLY as observe, and the name of the batch, which may be an older one
-- NEEDS join, unacked_batch, release, take, journal_on_deliver

local subscriptions, peers, last_action, handed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local held = KEYS[5]
local consumer, peer, limit, free_bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local turn, keep_s, lists_prefix, tally_prefix = tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8]
local max_peers, max_receivers = tonumber(ARGV[9]), tonumber(ARGV[10])
local acked, batch = ARGV[11], ARGV[12]

local keys = redis.call('SMEMBERS', subscriptions)
local is_new = #keys > 0 and 1 - redis.call('SISMEMBER', peers, peer) or 0
local refused = is_new == 1 and refusal(peers, keys, tally_prefix, max_peers, max_receivers)
if refused then
  return refused
end
local function list_of(key)
  return lists_prefix .. key .. '_' .. consumer .. '_' .. peer
end
local taken, broken = {}, nil
local old = read_unacked(handed)
if old and old[1] ~= acked then
  batch, taken = old[1], old[2]
else
  delivered(old and old[2])
  redis.call('DEL', handed)
  if limit > 0 then
    taken, broken = take(keys, list_of, limit, free_bytes, turn)
  end
  if broken then
    return redis.error_reply(broken)
  end
  if #taken > 0 then
    redis.call('SET', handed, cmsgpack.pack({batch, taken}))
  end
end
if #keys > 0 then
  if is_new == 1 then
    redis.call('SADD', peers, peer)
    for _, key in ipairs(keys) do
      join(tally_prefix .. key, list_of(key))
    end
  end
  redis.call('SET', last_action, redis.call('TIME')[1], 'EX', keep_s)
end
local due = (release(held, keys) or is_new == 1) and 1 or 0
return {#keys, due, taken, batch}

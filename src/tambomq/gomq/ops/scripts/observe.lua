#!lua flags=allow-oom
-- observe: pop the messages that wait for a peer; a new peer receives from now on.
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
-- REPLY how many keys it is subscribed to; 1 if the peer is new or a backlog was held, so that a dispatch
--       is due; and key, messages, …; 'peers' or 'receivers' if there would be too many
-- NEEDS join, release, take, requeue_unacked, journal_on_deliver

local subscriptions, peers, last_action, handed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local held = KEYS[5]
local consumer, peer, limit, free_bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local turn, keep_s, lists_prefix, tally_prefix = tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8]
local max_peers, max_receivers = tonumber(ARGV[9]), tonumber(ARGV[10])
local acked = ARGV[11]

local keys = redis.call('SMEMBERS', subscriptions)
if #keys == 0 then
  return {0, 0, {}}
end
local is_new = 1 - redis.call('SISMEMBER', peers, peer)
local refused = is_new == 1 and refusal(peers, keys, tally_prefix, max_peers, max_receivers)
if refused then
  return refused
end
local function list_of(key)
  return lists_prefix .. key .. '_' .. consumer .. '_' .. peer
end
-- A peer that switches from observe_kept still gets the oldest messages first.
if limit > 0 and redis.call('EXISTS', handed) == 1 then
  for _, key in ipairs(keys) do
    redis.call('LLEN', list_of(key))
  end
  requeue_unacked(handed, acked, list_of)
end
local taken, broken = {}
if limit > 0 then
  taken, broken = take(keys, list_of, limit, free_bytes, turn)
end
if broken then
  return redis.error_reply(broken)
end
delivered(taken)
if is_new == 1 then
  redis.call('SADD', peers, peer)
  for _, key in ipairs(keys) do
    join(tally_prefix .. key, list_of(key))
  end
end
redis.call('SET', last_action, redis.call('TIME')[1], 'EX', keep_s)
local due = (release(held, keys) or is_new == 1) and 1 or 0
return {#keys, due, taken}

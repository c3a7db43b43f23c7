#!lua flags=allow-oom
-- subscribe: subscribe a consumer to a key, and add the calling peer.
--
-- KEYS  consumers       set     CONSUMERS_<key>
--       subscriptions   set     SUBSCRIPTIONS_<consumer>
--       peers           set     PEERS_<consumer>
--       subscribed      set     SUBSCRIBED_KEYS
--       tally           hash    TALLY_<key>
--       last_action     string  LASTACTION_<peer>
--       unsubscribed    hash    UNSUBSCRIBED_<key>
--       queue           list    QUEUE_<key>, whose name SUBSCRIBED_KEYS holds
--       held            zset    HELD
-- ARGV  key
--       consumer
--       peer
--       lists_prefix    prefix of every MESSAGES_<key>_<consumer>_<peer>
--       tally_prefix    prefix of TALLY_<key>
--       keep_s          TTL of LASTACTION_<peer>, in seconds
--       channel         channel that wakes the consumer's watchers
--       max_peers       of a consumer
--       max_keys        of a consumer
--       max_receivers   of a key: consumers, and peers
--       peers_prefix    prefix of PEERS_<consumer>
--       hold_ms         how long to hold a backlog that no peer receives, in ms
-- REPLY 1 if the consumer was not subscribed, 0 if it was; -1: settle the key first; 'peers', 'keys'
--       or 'receivers' if there would be too many
-- NEEDS hold, join

local consumers, subscriptions, peers = KEYS[1], KEYS[2], KEYS[3]
local subscribed, tally, last_action, unsubscribed = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local queue, held = KEYS[8], KEYS[9]
local key, consumer, peer = ARGV[1], ARGV[2], ARGV[3]
local lists_prefix, tally_prefix = ARGV[4], ARGV[5]
local keep_s, channel = ARGV[6], ARGV[7]
local max_peers, max_keys = tonumber(ARGV[8]), tonumber(ARGV[9])
local max_receivers = tonumber(ARGV[10])
local peers_prefix, hold_ms = ARGV[11], tonumber(ARGV[12])

-- Read the keys first: one of another type then fails before anything is written.
local keys = redis.call('SMEMBERS', subscriptions)
local comes = redis.call('SISMEMBER', peers, peer) == 0
redis.call('HLEN', tally)
local new = 1 - redis.call('SISMEMBER', consumers, consumer)
if redis.call('HEXISTS', unsubscribed, consumer) == 1 then
  return -1
end
if comes then
  local refused = refusal(peers, keys, tally_prefix, max_peers, max_receivers)
  if refused then
    return refused
  end
end
if new == 1 then
  local more = redis.call('SCARD', peers) + (comes and 1 or 0)
  if redis.call('SISMEMBER', subscriptions, key) == 0 and #keys >= max_keys then
    return 'keys'
  elseif redis.call('SCARD', consumers) >= max_receivers
    or not has_free_receivers(tally, more, max_receivers) then
    return 'receivers'
  end
end

-- Whether there is a backlog and no current peer receives the key.
local function is_first()
  local waiting = redis.pcall('LLEN', queue)
  if waiting == 0 and redis.call('HEXISTS', tally, 'leaving') == 0 then
    return false
  end
  for _, each in ipairs(redis.call('SMEMBERS', consumers)) do
    if redis.call('EXISTS', peers_prefix .. each) == 1 then
      return false
    end
  end
  return true
end
if hold_ms > 0 and is_first() then
  hold(held, key, hold_ms)
end
redis.call('SADD', subscribed, queue)
redis.call('SADD', consumers, consumer)
redis.call('SADD', subscriptions, key)
local function list_of(name, receiver)
  return lists_prefix .. name .. '_' .. consumer .. '_' .. receiver
end
if comes then
  redis.call('SADD', peers, peer)
  -- A new peer receives all keys that its consumer is subscribed to.
  for _, other in ipairs(keys) do
    join(tally_prefix .. other, list_of(other, peer))
  end
end
join(tally, list_of(key, peer))
if new == 1 then
  join_all(tally, redis.call('SMEMBERS', peers), function(each) return list_of(key, each) end)
end
redis.call('SET', last_action, redis.call('TIME')[1], 'EX', keep_s)
redis.call('PUBLISH', channel, '')
return new

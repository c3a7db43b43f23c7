-- subscribe: let a consumer, and the peer that asks, receive a key.
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
--       lists_prefix    how every dedicated queue begins
--       tally_prefix    how TALLY_<key> begins
--       keep_s          for how long the time of the last action is kept
--       channel         of the consumer's watchers
--       most_peers      of a consumer
--       most_keys       of a consumer
--       most_receivers  of a key: consumers, and peers
--       peers_prefix    how every PEERS_<consumer> begins
--       hold_ms         for how long a backlog is held that nobody has received so far
-- REPLY 1 if the consumer was not subscribed, 0 if it was; -1: settle the key first; 'peers', 'keys'
--       or 'receivers' if there would be too many

local consumers, subscriptions, peers = KEYS[1], KEYS[2], KEYS[3]
local subscribed, tally, last_action, unsubscribed = KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local queue, held = KEYS[8], KEYS[9]
local key, consumer, peer = ARGV[1], ARGV[2], ARGV[3]
local lists_prefix, tally_prefix = ARGV[4], ARGV[5]
local keep_s, channel = ARGV[6], ARGV[7]
local most_peers, most_keys = tonumber(ARGV[8]), tonumber(ARGV[9])
local most_receivers = tonumber(ARGV[10])
local peers_prefix, hold_ms = ARGV[11], tonumber(ARGV[12])

-- What is of another type is found before anything is written.
local keys = redis.call('SMEMBERS', subscriptions)
local comes = redis.call('SISMEMBER', peers, peer) == 0
redis.call('HLEN', tally)
local new = 1 - redis.call('SISMEMBER', consumers, consumer)
if redis.call('HEXISTS', unsubscribed, consumer) == 1 then
  return -1
end
if comes then
  local refused = refusal(peers, keys, tally_prefix, most_peers, most_receivers)
  if refused then
    return refused
  end
end
if new == 1 then
  local more = redis.call('SCARD', peers) + (comes and 1 or 0)
  if redis.call('SISMEMBER', subscriptions, key) == 0 and #keys >= most_keys then
    return 'keys'
  elseif redis.call('SCARD', consumers) >= most_receivers
    or not has_room(tally, more, most_receivers) then
    return 'receivers'
  end
end

-- Whether there is a backlog of which nobody has received anything.
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
local function list_of(name, who)
  return lists_prefix .. name .. '_' .. consumer .. '_' .. who
end
if comes then
  redis.call('SADD', peers, peer)
  -- A peer that comes receives all that its consumer is subscribed to.
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

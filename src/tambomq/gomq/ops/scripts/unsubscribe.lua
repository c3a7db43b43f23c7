#!lua flags=allow-oom
-- unsubscribe: unsubscribe a consumer, with all its peers, from a key.
--
-- Its peers' dedicated queues get no more messages. Their contents are handled by `settle`.
--
-- KEYS  queue          list    QUEUE_<key>
--       consumers      set     CONSUMERS_<key>
--       tally          hash    TALLY_<key>
--       subscriptions  set     SUBSCRIPTIONS_<consumer>
--       peers          set     PEERS_<consumer>
--       subscribed     set     SUBSCRIBED_KEYS
--       unsubscribed   hash    UNSUBSCRIBED_<key>
--       unsettled      set     UNSETTLED
--       aside          string  ASIDE
--       handed         string  HANDED_<consumer>_<peer>, of the peer that calls
-- ARGV  key
--       consumer
--       acked          id of the batch that the caller acknowledges, or ''
--       leavers        prefix of the set of its departing peers
--       channel        channel that wakes the consumer's watchers
-- REPLY 1; -1: it was not subscribed
-- NEEDS unacked_batch, number, journal_on_deliver

local queue, consumers, tally, subscriptions = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local peers, subscribed, unsubscribed, unsettled = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local aside, handed = KEYS[9], KEYS[10]
local key, consumer, acked, leavers, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- Read the keys first: one of another type then fails before anything is written.
redis.call('LLEN', queue)
local total = tonumber(redis.call('HGET', tally, 'dispatched')) or 0
redis.call('SCARD', consumers)
redis.call('SCARD', subscriptions)
redis.call('SCARD', subscribed)
redis.call('SCARD', peers)
if redis.call('SREM', consumers, consumer) + redis.call('SREM', subscriptions, key) == 0 then
  -- An earlier call may have unsubscribed it already, with its settling still going on.
  return redis.call('HEXISTS', unsubscribed, consumer) == 1 and 1 or -1
end

local batch = acked ~= '' and read_unacked(handed)
if batch and batch[1] == acked then
  delivered(batch[2])
  redis.call('DEL', handed)
end
if redis.call('EXISTS', peers) == 1 then
  local number = next_number(aside)
  redis.call('SUNIONSTORE', leavers .. number .. '_' .. key, peers)
  redis.call('HSET', unsubscribed, consumer, string.format('%s:%.0f', number, total))
  redis.call('HSET', tally, 'leaving', 1)
  redis.call('SADD', unsettled, key)
end
if redis.call('SCARD', consumers) == 0 then
  redis.call('SREM', subscribed, queue)
  if redis.call('HEXISTS', tally, 'leaving') == 0 then
    redis.call('DEL', tally)
  end
end
if redis.call('SCARD', subscriptions) == 0 then
  redis.call('UNLINK', peers)
end
redis.call('PUBLISH', channel, '')
return 1

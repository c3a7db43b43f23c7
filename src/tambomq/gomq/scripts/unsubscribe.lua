#!lua flags=allow-oom
-- unsubscribe: let a consumer, with all its peers, receive a key no more.
--
-- KEYS  queue          list  QUEUE_<key>
--       consumers      set   CONSUMERS_<key>
--       tally          hash  TALLY_<key>
--       subscriptions  set   SUBSCRIPTIONS_<consumer>
--       peers          set   PEERS_<consumer>
--       subscribed     set   SUBSCRIBED_KEYS
-- ARGV  key
--       consumer
--       acked          the batch that arrived at the caller, or ''
--       peers_prefix   how PEERS_<consumer> begins
--       lists_prefix   how every dedicated queue begins
--       handed_prefix  how HANDED_<consumer>_<peer> begins
--       channel        of the consumer's watchers
-- REPLY how many messages went back to the main queue; -1: it was not subscribed

local queue, consumers, tally = KEYS[1], KEYS[2], KEYS[3]
local subscriptions, peers, subscribed = KEYS[4], KEYS[5], KEYS[6]
local key, consumer, acked = ARGV[1], ARGV[2], ARGV[3]
local peers_prefix, lists_prefix, handed_prefix, channel = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

-- What is of another type is found before anything is written.
redis.call('LLEN', queue)
redis.call('HLEN', tally)
redis.call('SCARD', consumers)
redis.call('SCARD', subscriptions)
redis.call('SCARD', subscribed)
local mine = redis.call('SMEMBERS', peers)
if redis.call('SREM', consumers, consumer) + redis.call('SREM', subscriptions, key) == 0 then
  return -1
end

local lists = {}
for place, peer in ipairs(mine) do
  local list = lists_prefix .. key .. '_' .. consumer .. '_' .. peer
  drop_unsound(list)
  unhand(handed_prefix .. consumer .. '_' .. peer, acked, function() return list end, key)
  lists[place] = list
end
local others = lists_of(consumers, peers_prefix, lists_prefix .. key .. '_')
local returned = leave_together(queue, tally, lists, others)
if redis.call('SCARD', consumers) == 0 then
  redis.call('SREM', subscribed, queue)
  redis.call('DEL', tally)
end
if redis.call('SCARD', subscriptions) == 0 then
  redis.call('DEL', peers)
end
redis.call('PUBLISH', channel, '')
return returned

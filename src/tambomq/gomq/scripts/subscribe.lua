-- subscribe: let a consumer, and the peer that asks, receive a key.
--
-- KEYS  consumers      set     CONSUMERS_<key>
--       subscriptions  set     SUBSCRIPTIONS_<consumer>
--       peers          set     PEERS_<consumer>
--       subscribed     set     SUBSCRIBED_KEYS
--       tally          hash    TALLY_<key>
--       last_action    string  LASTACTION_<peer>
-- ARGV  key
--       consumer
--       peer
--       queue          the main queue's name, which SUBSCRIBED_KEYS holds
--       lists_prefix   how every dedicated queue begins
--       tally_prefix   how TALLY_<key> begins
--       keep_s         for how long the time of the last action is kept
--       channel        of the consumer's watchers
-- REPLY 1 if the consumer was not subscribed, 0 if it was

local consumers, subscriptions, peers = KEYS[1], KEYS[2], KEYS[3]
local subscribed, tally, last_action = KEYS[4], KEYS[5], KEYS[6]
local key, consumer, peer, queue = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local lists_prefix, tally_prefix = ARGV[5], ARGV[6]
local keep_s, channel = ARGV[7], ARGV[8]

-- What is of another type is found before anything is written.
redis.call('SCARD', consumers)
redis.call('SCARD', subscriptions)
redis.call('SCARD', peers)
redis.call('HLEN', tally)
redis.call('SADD', subscribed, queue)
local new = redis.call('SADD', consumers, consumer)
redis.call('SADD', subscriptions, key)
if redis.call('SADD', peers, peer) == 1 then
  -- A peer that comes receives all that its consumer is subscribed to.
  for _, other in ipairs(redis.call('SMEMBERS', subscriptions)) do
    join(tally_prefix .. other, lists_prefix .. other .. '_' .. consumer .. '_' .. peer)
  end
end
for _, each in ipairs(redis.call('SMEMBERS', peers)) do
  join(tally, lists_prefix .. key .. '_' .. consumer .. '_' .. each)
end
redis.call('SET', last_action, redis.call('TIME')[1], 'EX', keep_s)
redis.call('PUBLISH', channel, '')
return new

#!lua flags=allow-oom
-- give_back: requeue messages that were popped for a peer whose call has ended.
--
-- KEYS  peers          set  PEERS_<consumer>
--       subscriptions  set  SUBSCRIPTIONS_<consumer>
-- ARGV  consumer
--       peer
--       lists_prefix   prefix of every MESSAGES_<key>_<consumer>_<peer>
--       word           …    a key, how many messages, and these; and so on
-- REPLY how many were requeued; messages of unsubscribed keys are dropped

local peers, subscriptions = KEYS[1], KEYS[2]
local consumer, peer, lists_prefix = ARGV[1], ARGV[2], ARGV[3]

if redis.call('SISMEMBER', peers, peer) == 0 then
  return 0
end
local place, returned = 4, 0
while place < #ARGV do
  local key, count = ARGV[place], tonumber(ARGV[place + 1])
  if redis.call('SISMEMBER', subscriptions, key) == 1 then
    local list = lists_prefix .. key .. '_' .. consumer .. '_' .. peer
    for word = place + 1 + count, place + 2, -1 do
      redis.call('LPUSH', list, ARGV[word])
    end
    returned = returned + count
  end
  place = place + 2 + count
end
return returned

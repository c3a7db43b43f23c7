#!lua flags=allow-oom
-- reap: disconnect the peers of a consumer that have been silent for too long.
--
-- KEYS  subscriptions       set  SUBSCRIPTIONS_<consumer>
--       peers               set  PEERS_<consumer>
-- ARGV  consumer
--       timeout_s           how long is too long
--       keep_s              for how long the time of the last action is kept
--       queue_prefix        how QUEUE_<key> begins, and so on
--       consumers_prefix
--       peers_prefix
--       lists_prefix
--       tally_prefix
--       last_action_prefix
--       handed_prefix
-- REPLY how many peers are gone, and how many messages went back to main queues

local subscriptions, peers = KEYS[1], KEYS[2]
local consumer, timeout_s, keep_s = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local queue_prefix, consumers_prefix, peers_prefix = ARGV[4], ARGV[5], ARGV[6]
local lists_prefix, tally_prefix = ARGV[7], ARGV[8]
local last_action_prefix, handed_prefix = ARGV[9], ARGV[10]

local now = redis.call('TIME')
now = now[1] + now[2] / 1000000
local keys = redis.call('SMEMBERS', subscriptions)
-- What is of another type is found before anything is written.
for _, key in ipairs(keys) do
  redis.call('LLEN', queue_prefix .. key)
  redis.call('HLEN', tally_prefix .. key)
end

local function list_of(key, peer)
  return lists_prefix .. key .. '_' .. consumer .. '_' .. peer
end

local function is_silent(peer)
  local last = tonumber(redis.pcall('GET', last_action_prefix .. peer))
  if not last then
    -- Nobody has ever looked: its time begins now.
    redis.call('SET', last_action_prefix .. peer, math.floor(now), 'EX', keep_s)
    return false
  end
  -- It was noted in whole seconds, and nobody is to go before its time.
  return now - last - 1 >= timeout_s
end

local silent, returned = {}, 0
for _, peer in ipairs(redis.call('SMEMBERS', peers)) do
  if is_silent(peer) then
    silent[#silent + 1] = peer
    redis.call('SREM', peers, peer)
    for _, key in ipairs(keys) do
      drop_unsound(list_of(key, peer))
    end
    unhand(handed_prefix .. consumer .. '_' .. peer, nil, function(key) return list_of(key, peer) end)
  end
end
for _, key in ipairs(#silent > 0 and keys or {}) do
  local others = lists_of(consumers_prefix .. key, peers_prefix, lists_prefix .. key .. '_')
  local lists = {}
  for place, peer in ipairs(silent) do
    lists[place] = list_of(key, peer)
  end
  returned = returned + leave_together(queue_prefix .. key, tally_prefix .. key, lists, others)
end
return {#silent, returned}

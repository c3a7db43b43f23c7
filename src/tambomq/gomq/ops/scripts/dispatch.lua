-- dispatch: move the first messages of a main queue to the dedicated queue of every peer.
--
-- KEYS  queue         list  QUEUE_<key>
--       consumers     set   CONSUMERS_<key>
--       tally         hash  TALLY_<key>
--       held          zset  HELD
-- ARGV  peers_prefix  prefix of PEERS_<consumer>
--       list_prefix   prefix of the key's dedicated queues
--       channel       prefix of the channels that wake a consumer's watchers
--       copies        approximate budget of copies
--       bytes         approximate budget of bytes to read from the main queue
--       key
--       hold_ms       longest time a backlog may be held, in ms; 0: do not hold
--       max_backlog   dispatch nothing while a peer has this many waiting messages
-- REPLY how many were moved, how many are left, how many peers there are, or 0 while the backlog is held
--       or a peer has too many, and 1 if nothing is moved before the key is settled

local queue, consumers, tally, held = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local peers_prefix, list_prefix, channel = ARGV[1], ARGV[2], ARGV[3]
local copies, bytes = tonumber(ARGV[4]), tonumber(ARGV[5])
local key, hold_ms, max_backlog = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
-- Messages read per LRANGE, so that large messages cannot exceed the byte budget by much.
local SLICE = 64

local lists, awake = {}, {}
for _, consumer in ipairs(redis.call('SMEMBERS', consumers)) do
  local peers = redis.call('SMEMBERS', peers_prefix .. consumer)
  for _, peer in ipairs(peers) do
    lists[#lists + 1] = list_prefix .. consumer .. '_' .. peer
  end
  if #peers > 0 then
    awake[#awake + 1] = channel .. consumer
  end
end
local waiting = redis.call('LLEN', queue)
if #lists == 0 or waiting == 0 then
  return {0, waiting, #lists, 0}
end

-- A key of another type, or a time too far in the future, counts as not held.
local until_ms = tonumber(redis.pcall('ZSCORE', held, key))
if until_ms then
  local time = redis.call('TIME')
  local left_ms = until_ms - time[1] * 1000 - math.floor(time[2] / 1000)
  if left_ms > 0 and left_ms <= hold_ms then
    return {0, waiting, 0, 0}
  end
  redis.call('ZREM', held, key)
end

-- Read the keys first: one of another type then fails before anything is written.
local leaving, full = unpack(redis.call('HMGET', tally, 'leaving', 'full'))
if leaving then
  return {0, waiting, #lists, 1}
end
if full then
  local length = redis.pcall('LLEN', full)
  if type(length) == 'number' and length >= max_backlog then
    return {0, waiting, 0, 0}
  end
  redis.call('HDEL', tally, 'full')
end
local run = {}
local max_run = math.max(1, math.min(waiting, 1000, math.floor(copies / #lists)))
while #run < max_run and bytes > 0 do
  for _, item in ipairs(redis.call('LRANGE', queue, #run, math.min(#run + SLICE, max_run) - 1)) do
    run[#run + 1] = item
    bytes = bytes - #item
  end
end

for place, list in ipairs(lists) do
  local reply = redis.pcall('RPUSH', list, unpack(run))
  if type(reply) == 'table' and reply.err then
    -- Undo the copies made so far, so that no peer gets them twice. The peer that cannot receive stops
    -- its key until it is disconnected.
    for done = 1, place - 1 do
      redis.call('LTRIM', lists[done], 0, -#run - 1)
    end
    return redis.error_reply(reply.err)
  end
  if reply >= max_backlog then
    -- The next dispatch checks this list first.
    redis.call('HSET', tally, 'full', list)
  end
end
redis.call('LTRIM', queue, #run, -1)
redis.call('HINCRBY', tally, 'dispatched', #run)
for _, name in ipairs(awake) do
  redis.call('PUBLISH', name, '')
end
return {#run, waiting - #run, #lists, 0}

#!lua flags=allow-oom
-- settle: go on with what leavers of a key were owed, for a bounded number of steps.
--
-- A message goes back to the main queue if nobody else has had it, or will. Everybody who is there
-- has had, or will have, all that was dispatched since it came.
--
-- KEYS  queue           list    QUEUE_<key>
--       consumers       set     CONSUMERS_<key>
--       tally           hash    TALLY_<key>
--       leaving         zset    LEAVING_<key>
--       unsubscribed    hash    UNSUBSCRIBED_<key>
--       unsettled       set     UNSETTLED
--       aside           string  ASIDE
-- ARGV  key
--       left            how a queue that was set aside begins, and so on
--       leavers
--       lists_prefix
--       handed_prefix
--       upto            of the queues that were set aside, look through those up to this number
--       eldest          since this number somebody is there who was when they were; '' for nobody
--       least           up to this number all who are there have observed, or were handed, everything
--       steps           about so many
-- REPLY 0 all is settled, 1 there is more, 2 there is more, of higher numbers; and how many messages
--       went back

local queue, consumers, tally, leaving, unsubscribed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local unsettled, aside = KEYS[6], KEYS[7]
local key, left, leavers, lists_prefix, handed_prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local upto, eldest, least = ARGV[6], tonumber(ARGV[7]) or math.huge, tonumber(ARGV[8])
local steps = tonumber(ARGV[9])
-- What one step may be instead of a message: so many that are dropped, or bytes that are moved.
local DROPPED, BYTES = 100, 4096
-- What it takes to begin with another queue.
local OPENED = 10

-- What is of another type is found before anything is written.
redis.call('LLEN', queue)
local place = {key = key, tally = tally, leaving = leaving, left = left, aside = aside}
place.seen, place.unsettled = read_seen(tally), unsettled

-- Set aside the dedicated queues of consumers that have unsubscribed.
local consumer = redis.call('HRANDFIELD', unsubscribed)
while consumer and steps > 0 do
  local number, total = redis.call('HGET', unsubscribed, consumer):match('^(%d+):(%d+)$')
  local peer = redis.call('SPOP', leavers .. number .. '_' .. key)
  if peer then
    local owner = consumer .. '_' .. peer
    local list = lists_prefix .. key .. '_' .. owner
    drop_unsound(list)
    local read = unhand(handed_prefix .. owner, nil, function() return list end, key)
    set_aside(place, list, tonumber(total))
    steps = steps - OPENED - read / BYTES
  else
    redis.call('HDEL', unsubscribed, consumer)
    consumer = redis.call('HRANDFIELD', unsubscribed)
  end
end

-- Look through the queues that were set aside, from their ends: the last that left is the first.
local returned = 0
place.seen = merged(place.seen)
while steps > 0 do
  local found = redis.call('ZREVRANGEBYSCORE', leaving, upto, '-inf', 'LIMIT', 0, 1)[1]
  if not found then
    break
  end
  local number, from = found:match('^(%d+):(-?%d+)$')
  local list, from = left .. number .. '_' .. key, tonumber(from)
  local to = from + redis.call('LLEN', list)
  local low, high = last_run(place.seen, from, math.min(to, eldest))
  steps = steps - OPENED
  if high <= low then
    redis.call('UNLINK', list)
    redis.call('ZREM', leaving, found)
  elseif high < to then
    local some = math.min(to - high, math.ceil(DROPPED * (steps + OPENED)))
    redis.call('LTRIM', list, 0, -some - 1)
    steps = steps - some / DROPPED
  else
    local first = high
    while first > low and steps > 0 do
      local item = redis.call('LMOVE', list, queue, 'RIGHT', 'LEFT')
      first, steps = first - 1, steps - 1 - #item / BYTES
    end
    returned = returned + high - first
    place.seen[#place.seen + 1] = {first, high}
    place.seen = merged(place.seen)
  end
end

local more = redis.call('EXISTS', unsubscribed) == 1
  or redis.call('ZCOUNT', leaving, '-inf', upto) > 0
if more or redis.call('EXISTS', leaving) == 1 then
  write_seen(tally, place.seen)
  return {more and 1 or 2, returned}
end
end_numbers(aside, unsettled, key)
if redis.call('SCARD', consumers) == 0 then
  redis.call('DEL', tally)
else
  write_seen(tally, place.seen, least)
  redis.call('HDEL', tally, 'leaving')
end
return {0, returned}

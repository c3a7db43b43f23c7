#!lua flags=allow-oom
-- settle: process the set-aside queues of departed peers of a key, in a bounded number of steps.
--
-- A message is requeued if no other peer has observed it or will. A current peer has observed, or will
-- observe, everything that was dispatched since it joined.
--
-- KEYS  queue            list    QUEUE_<key>
--       consumers        set     CONSUMERS_<key>
--       tally            hash    TALLY_<key>
--       leaving          zset    LEAVING_<key>
--       unsubscribed     hash    UNSUBSCRIBED_<key>
--       unsettled        set     UNSETTLED
--       aside            string  ASIDE
-- ARGV  key
--       left             prefix of set-aside queues; likewise the next ones
--       leavers
--       lists_prefix
--       handed_prefix
--       upto             process set-aside queues up to this number
--       earliest_join    dispatch count when the earliest current peer joined; '' if there is none
--       observed_by_all  number up to which all current peers have received everything
--       steps            approximate budget of steps
-- REPLY 0 all is settled, 1 there is more, 2 there is more, of higher numbers; and how many messages
--       were requeued
-- NEEDS set_aside, number, observed, requeue_unacked

local queue, consumers, tally, leaving, unsubscribed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local unsettled, aside = KEYS[6], KEYS[7]
local key, left, leavers, lists_prefix, handed_prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local upto, earliest_join, observed_by_all = ARGV[6], tonumber(ARGV[7]) or math.huge, tonumber(ARGV[8])
local steps = tonumber(ARGV[9])
-- Dropped messages, or moved bytes, that cost one step. A moved message costs one step, too.
local DROPPED, BYTES = 100, 4096
-- Cost in steps of starting with another queue.
local OPENED = 10

-- Read the keys first: one of another type then fails before anything is written.
redis.call('LLEN', queue)
local place = {key = key, tally = tally, leaving = leaving, left = left, aside = aside}
place.observed, place.unsettled = read_observed(tally), unsettled

-- Set aside the dedicated queues of consumers that have unsubscribed.
local consumer = redis.call('HRANDFIELD', unsubscribed)
while consumer and steps > 0 do
  local number, total = redis.call('HGET', unsubscribed, consumer):match('^(%d+):(%d+)$')
  local peer = redis.call('SPOP', leavers .. number .. '_' .. key)
  if peer then
    local owner = consumer .. '_' .. peer
    local list = lists_prefix .. key .. '_' .. owner
    drop_unsound(list)
    local read = requeue_unacked(handed_prefix .. owner, nil, function() return list end, key)
    set_aside(place, list, tonumber(total))
    steps = steps - OPENED - read / BYTES
  else
    redis.call('HDEL', unsubscribed, consumer)
    consumer = redis.call('HRANDFIELD', unsubscribed)
  end
end

-- Process the set-aside queues from their ends, the last departed peer first.
local returned = 0
place.observed = merged(place.observed)
while steps > 0 do
  local found = redis.call('ZREVRANGEBYSCORE', leaving, upto, '-inf', 'LIMIT', 0, 1)[1]
  if not found then
    break
  end
  local number, from = found:match('^(%d+):(-?%d+)$')
  local list, from = left .. number .. '_' .. key, tonumber(from)
  local to = from + redis.call('LLEN', list)
  local low, high = last_run(place.observed, from, math.min(to, earliest_join))
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
    place.observed[#place.observed + 1] = {first, high}
    place.observed = merged(place.observed)
  end
end

local more = redis.call('EXISTS', unsubscribed) == 1
  or redis.call('ZCOUNT', leaving, '-inf', upto) > 0
if more or redis.call('EXISTS', leaving) == 1 then
  write_observed(tally, place.observed)
  return {more and 1 or 2, returned}
end
end_numbers(aside, unsettled, key)
if redis.call('SCARD', consumers) == 0 then
  redis.call('DEL', tally)
else
  write_observed(tally, place.observed, observed_by_all)
  redis.call('HDEL', tally, 'leaving')
end
return {0, returned}

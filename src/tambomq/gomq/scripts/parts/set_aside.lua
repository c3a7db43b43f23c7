-- aside: a peer receives a key no more; its dedicated queue is set aside, to be looked through later.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- A list that is no list is nobody's queue: it holds no messages.
local function drop_unsound(list)
  if type(redis.pcall('LLEN', list)) ~= 'number' then
    redis.call('DEL', list)
  end
end

-- The list holds the last messages up to the number `total`. What is before them, back to the peer's
-- arrival, it has observed. `place` names what belongs to the key, and collects what was observed.
local function set_aside(place, list, total)
  drop_unsound(list)
  local waiting = redis.call('LLEN', list)
  local upto = total - waiting
  local from = tonumber(redis.call('HGET', place.tally, list)) or upto
  if from < upto then
    place.seen[#place.seen + 1] = {from, upto}
  end
  if waiting > 0 then
    local number = next_number(place.aside)
    redis.call('RENAME', list, place.left .. number .. '_' .. place.key)
    redis.call('ZADD', place.leaving, number, string.format('%s:%.0f', number, upto))
    place.is_unsettled = true
  end
  redis.call('HDEL', place.tally, list)
end

-- From now on nothing of the key is dispatched until all is settled: what goes back is the oldest.
local function unsettle(place)
  redis.call('HSET', place.tally, 'leaving', 1)
  redis.call('SADD', place.unsettled, place.key)
end

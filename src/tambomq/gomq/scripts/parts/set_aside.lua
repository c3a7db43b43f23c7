-- set_aside: stop delivering a key to a peer, and set its dedicated queue aside for `settle`.
--
-- NEEDS number

-- Delete a key of another type: it is no queue and holds no messages.
local function drop_unsound(list)
  if type(redis.pcall('LLEN', list)) ~= 'number' then
    redis.call('DEL', list)
  end
end

-- *list* holds the last messages up to the number *total*. The peer has observed those before them,
-- back to the time it joined. *place* has the names of the key's Redis keys, and collects the ranges
-- that were observed.
local function set_aside(place, list, total)
  drop_unsound(list)
  local waiting = redis.call('LLEN', list)
  local upto = total - waiting
  local from = tonumber(redis.call('HGET', place.tally, list)) or upto
  if from < upto then
    place.observed[#place.observed + 1] = {from, upto}
  end
  if waiting > 0 then
    local number = next_number(place.aside)
    redis.call('RENAME', list, place.left .. number .. '_' .. place.key)
    redis.call('ZADD', place.leaving, number, string.format('%s:%.0f', number, upto))
    place.is_unsettled = true
  end
  redis.call('HDEL', place.tally, list)
end

-- Stop dispatching the key until it is settled: requeued messages are older than the waiting ones.
local function unsettle(place)
  redis.call('HSET', place.tally, 'leaving', 1)
  redis.call('SADD', place.unsettled, place.key)
end

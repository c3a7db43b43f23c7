-- witness: who else has had a message, or waits for it.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- A list that is no list is nobody's queue: it holds no messages.
local function length(list)
  local count = redis.pcall('LLEN', list)
  return type(count) == 'number' and count or 0
end

local function drop_unsound(list)
  if type(redis.pcall('LLEN', list)) ~= 'number' then
    redis.call('DEL', list)
  end
end

local function fields_of(hash)
  local flat, fields = redis.call('HGETALL', hash), {}
  for place = 1, #flat, 2 do
    fields[flat[place]] = flat[place + 1]
  end
  return fields
end

-- What the others have observed, and how many of the last messages wait for one of them.
local function witnesses(known, others, total)
  local ranges, longest, least = read_ranges(known['seen']), 0, total
  for _, other in ipairs(others) do
    local waiting = length(other)
    local upto = total - waiting
    local from = tonumber(known[other]) or upto
    if from < upto then
      ranges[#ranges + 1] = {from, upto}
    end
    longest, least = math.max(longest, waiting), math.min(least, upto)
  end
  return merged(ranges), longest, least
end

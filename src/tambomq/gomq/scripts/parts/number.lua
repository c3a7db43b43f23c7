-- number: assign increasing, unique numbers to queues that are set aside.

-- The counter is deleted when nothing is set aside any more, and restarts at the time in microseconds,
-- which is greater than every earlier number. Returned as text, since Lua rounds large numbers.
local function next_number(aside)
  local number = redis.call('INCR', aside)
  if number == 1 then
    local time = redis.call('TIME')
    number = time[1] * 1000000 + time[2]
    redis.call('SET', aside, string.format('%.0f', number))
  end
  return string.format('%.0f', number)
end

-- Note that nothing of this key is set aside any more.
local function end_numbers(aside, unsettled, key)
  redis.call('SREM', unsettled, key)
  if redis.call('EXISTS', unsettled) == 0 then
    redis.call('DEL', aside)
  end
end

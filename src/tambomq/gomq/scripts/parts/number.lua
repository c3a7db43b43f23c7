-- number: for other scripts: numbers what is set aside. A number is given once, and they only grow.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- The counter is deleted when nothing is set aside any more, and begins anew with the time in
-- microseconds: that is beyond every number there was. As text, since Lua rounds what it writes.
local function next_number(aside)
  local number = redis.call('INCR', aside)
  if number == 1 then
    local time = redis.call('TIME')
    number = time[1] * 1000000 + time[2]
    redis.call('SET', aside, string.format('%.0f', number))
  end
  return string.format('%.0f', number)
end

-- Nothing of this key is set aside any more.
local function end_numbers(aside, unsettled, key)
  redis.call('SREM', unsettled, key)
  if redis.call('EXISTS', unsettled) == 0 then
    redis.call('DEL', aside)
  end
end

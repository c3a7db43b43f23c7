-- leave: a silent peer leaves its keys, as many of them as there are steps for.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- Steps that it takes to leave a key, and one that has nothing for the peer.
local DUE, IDLE = 8, 0.5

-- Returns how many steps it took, and whether the peer has left all. As long as it has not, it
-- counts as one that came again to the others in the same moment: it may, and is owed nothing there.
local function leave(keys, place_of, tally_prefix, list_of, steps)
  local due, idle, is_all = {}, {}, true
  local most = math.max(1, math.floor(steps / DUE))
  for _, key in ipairs(keys) do
    local tally, list = tally_prefix .. key, list_of(key)
    -- What is of another type is found before anything is written.
    local known = redis.call('HMGET', tally, 'dispatched', list)
    local total, from = known[1] or '0', known[2]
    if redis.pcall('LLEN', list) == 0 and (from == total or not from) then
      if from then
        idle[#idle + 1] = {tally, list}
      end
    elseif #due < most then
      local place = place_of(key)
      redis.call('LLEN', place.queue)
      due[#due + 1] = {place, list, tonumber(total) or 0}
    else
      is_all = false
      break
    end
  end
  for _, each in ipairs(due) do
    set_aside(unpack(each))
    if not is_all then
      redis.call('HSET', each[1].tally, each[2], string.format('%.0f', each[3]))
    end
  end
  for _, each in ipairs(is_all and idle or {}) do
    redis.call('HDEL', unpack(each))
  end
  return DUE * #due + IDLE * #idle, is_all
end

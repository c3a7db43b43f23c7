-- leave: remove a silent peer from its keys, within a budget of steps.
--
-- NEEDS set_aside

-- Cost in steps of a key with waiting or observed messages, and of an idle one.
local DUE, IDLE = 8, 0.5

-- Returns the steps used, and whether the peer has left all keys. Until then it counts as having just
-- joined the keys it has left, since it is still listed as a peer: nothing waits for it there.
local function leave(keys, place_of, tally_prefix, list_of, steps)
  local due, idle, is_all = {}, {}, true
  local max_due = math.max(1, math.floor(steps / DUE))
  for _, key in ipairs(keys) do
    local tally, list = tally_prefix .. key, list_of(key)
    -- Read the keys first: one of another type then fails before anything is written.
    local known = redis.call('HMGET', tally, 'dispatched', list)
    local total, from = known[1] or '0', known[2]
    if redis.pcall('LLEN', list) == 0 and (from == total or not from) then
      if from then
        idle[#idle + 1] = {tally, list}
      end
    elseif #due < max_due then
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

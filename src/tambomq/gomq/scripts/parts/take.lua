-- take: pop what waits for a peer, or leave all as it is.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- In all no more than these, and what the last key has beyond.
local MOST = 1000

-- Returns pairs of a key and its messages; the second result is an error instead.
-- `turn` lets each key be the first at times, since the reply may be full before the last.
local function take(keys, list_of, limit, room, turn)
  local taken, count = {}, 0
  for step = 1, #keys do
    local key = keys[(step + turn) % #keys + 1]
    local list = list_of(key)
    local items = redis.pcall('LPOP', list, limit)
    if type(items) == 'table' and items.err then
      for place = 1, #taken, 2 do
        put_back(list_of(taken[place]), taken[place + 1])
      end
      return {}, items.err
    end
    if items then
      local fit, left = {}, {}
      for _, item in ipairs(items) do
        -- One always fits, or it would wait for ever.
        if #left == 0 and (room >= #item + #key or (#fit == 0 and #taken == 0)) then
          fit[#fit + 1] = item
          room = room - #item - #key
        else
          left[#left + 1] = item
        end
      end
      put_back(list, left)
      if #fit > 0 then
        taken[#taken + 1] = key
        taken[#taken + 1] = fit
        count = count + #fit
      end
      if #left > 0 or count >= MOST then
        return taken
      end
    end
  end
  return taken
end

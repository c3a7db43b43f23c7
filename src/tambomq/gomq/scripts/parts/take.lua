-- take: pop the messages that wait for a peer; on an error, restore them.
--
-- NEEDS put_back

-- Stop after the key with which this many messages are reached.
local MAX_TAKEN = 1000

-- Returns keys and their lists of messages in turn; on failure an empty table and the error. *turn*
-- rotates the keys, since the reply may be full before the last one.
local function take(keys, list_of, limit, free_bytes, turn)
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
        -- The first message is always taken, or a large one would wait for ever.
        if #left == 0 and (free_bytes >= #item + #key or (#fit == 0 and #taken == 0)) then
          fit[#fit + 1] = item
          free_bytes = free_bytes - #item - #key
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
      if #left > 0 or count >= MAX_TAKEN then
        return taken
      end
    end
  end
  return taken
end

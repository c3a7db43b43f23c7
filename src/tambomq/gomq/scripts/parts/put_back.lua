-- put_back: what was taken from a list goes back to its head, in its old order.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function put_back(list, items)
  for place = #items, 1, -1 do
    redis.call('LPUSH', list, items[place])
  end
end

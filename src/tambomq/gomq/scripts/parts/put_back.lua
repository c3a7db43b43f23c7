-- put_back: what was taken from a list goes back to its head, in its old order.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function put_back(list, items)
  for last = #items, 1, -500 do
    local run = {}
    for place = last, math.max(1, last - 499), -1 do
      run[#run + 1] = items[place]
    end
    redis.call('LPUSH', list, unpack(run))
  end
end

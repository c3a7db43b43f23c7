-- put_back: push items back to the head of a list, in their old order.

local function put_back(list, items)
  for last = #items, 1, -500 do
    local run = {}
    for place = last, math.max(1, last - 499), -1 do
      run[#run + 1] = items[place]
    end
    redis.call('LPUSH', list, unpack(run))
  end
end

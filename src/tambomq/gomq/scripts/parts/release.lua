-- release: stop holding the backlogs of a consumer's keys, since it observes.

-- Return whether one of them was held. A key of another type counts as no held backlog.
local function release(held, keys)
  local released = false
  if redis.call('EXISTS', held) == 1 then
    for _, key in ipairs(keys) do
      released = redis.pcall('ZREM', held, key) == 1 or released
    end
  end
  return released
end

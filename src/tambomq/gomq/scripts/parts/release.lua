-- release: a consumer observes, so the backlogs of its keys are held no longer.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- Whether one of them was. A set that is none holds nothing.
local function release(held, keys)
  local released = false
  if redis.call('EXISTS', held) == 1 then
    for _, key in ipairs(keys) do
      released = redis.pcall('ZREM', held, key) == 1 or released
    end
  end
  return released
end

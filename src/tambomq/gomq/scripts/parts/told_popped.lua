-- told_popped: for the journalled twin of observe: what is popped counts as arrived.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local take_untold = take
local function take(...)
  local taken, broken = take_untold(...)
  tell_of(taken)
  return taken, broken
end

-- extra: for journalled twins: words that the script itself has no use for.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- They stand behind the script's own arguments, and how many they are behind them.
local extra = {}
for place = tonumber(table.remove(ARGV)), 1, -1 do
  extra[place] = table.remove(ARGV)
end

-- journal_dead: for the twin of bury: tell who is dead, and why.
--
-- KEYS  none
-- ARGV  rest  …  those of bury
-- REPLY none

after = function(reply)
  if reply == 1 then
    local id, _, _, why = unpack(ARGV)
    tell(#why, 'dead', id, 'r', why)
  end
end

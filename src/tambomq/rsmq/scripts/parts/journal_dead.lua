-- journal_dead: for the twin of bury: tell who is dead, and why.
--
-- KEYS  none
-- ARGV  rest  …  those of bury
-- REPLY none

after = function(reply)
  if reply == 1 then
    local id, _, _, why = unpack(ARGV)
    -- The traceback, which may follow, stays with the letter.
    local reason = why:sub(1, (why:find('\n--- traceback ---\n', 1, true) or 0) - 1)
    tell(#reason, 'dead', id, 'r', reason)
  end
end

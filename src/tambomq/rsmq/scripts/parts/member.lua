-- member: for other scripts: the rc, the digest and the id of a line in a ledger.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function member(line)
  return line:match('^(%d+) (%S+) (.*)$')
end

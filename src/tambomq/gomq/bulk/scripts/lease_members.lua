#!lua flags=no-writes
-- lease_members: read messages of the open claim by index.
--
-- KEYS  handed       string  HANDED_<consumer>_<peer>
-- ARGV  claim_token  the claim's name
--       first        the place of the first, from 0
--       count        how many
-- REPLY the messages; none if it is another claim
-- NEEDS unacked_batch

local handed = KEYS[1]
local claim_token, first, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local unacked, found = read_unacked(handed), {}
if unacked and unacked[1] == claim_token then
  for place = first + 1, first + count do
    found[#found + 1] = (unacked[2][2] or {})[place]
  end
end
return found

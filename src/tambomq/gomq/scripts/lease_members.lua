#!lua flags=no-writes
-- lease_members: messages of the open claim by their places in it.
--
-- KEYS  handed  string  HANDED_<consumer>_<peer>
-- ARGV  mark    the claim's name
--       first   the place of the first, from 0
--       count   how many
-- REPLY the messages; none if the claim is another by now

local handed = KEYS[1]
local mark, first, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local kept, found = read_kept(handed), {}
if kept and kept[1] == mark then
  for place = first + 1, first + count do
    found[#found + 1] = (kept[2][2] or {})[place]
  end
end
return found

-- member: parse a member of a claim into receive count, digest and id.

local function member(line)
  return line:match('^(%d+) (%S+) (.*)$')
end

-- journal_popped: for the twin of pop: a message that is received and deleted at once.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

after = function(reply)
  if type(reply) == 'table' and reply[2] then
    tell(0, 'received', reply[2], 'a', reply[4])
    tell(0, 'deleted', reply[2])
  end
end

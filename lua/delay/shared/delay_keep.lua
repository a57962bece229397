-- Lets all keys of a slot live for 30 days after the moment last, or as long as they do already: they expire
-- at one moment, since one without the others is of no use. All keys exist that are to exist. PEXPIREAT goes
-- first, since a full Redis accepts it.
-- needs: head, last

local ends = tonumber(redis.call('HGET', head, 'until') or 0)
local longer = ends < last + 2592000000
if longer then
  ends = last + 2592000000 + 86400000 -- a day more, so that this happens once per day
end
for i = 1, 7 do
  redis.call('PEXPIREAT', KEYS[i], ends)
end
if longer then
  redis.call('HSET', head, 'until', ends)
  redis.call('PEXPIREAT', head, ends)
end

-- Marks an attempt as settled, or ends the script. refunds is the key of the names.
-- needs: refunds, now, name, again
-- returns: yes

-- Names of 7 characters, the last at the end, and before the first one of each tenth of a second an @ and the
-- last 6 digits of its number. When there are as many as are kept, earlier ones may be forgotten. So a call
-- that is certainly the first goes on, and one that may be a repetition only where none is forgotten since.
-- tonumber: in arithmetic the Lua of miniredis takes a number that begins with 0 for octal.
local REMEMBER, MOST = 120000, 120
local names, tenth = redis.call('GET', refunds) or '', math.floor(now / 100000) % 1000000
if string.find(names, name .. ' ', 1, true) then
  return 0
end
if again > 0 and #names >= MOST * 8 then
  local oldest = string.match(names, '@(%d+) ')
  local age = oldest and (tenth - tonumber(oldest)) % 1000000
  if not age or age > 500000 or (age - 1) * 100 < again then -- very old: the clock was set back
    return -1
  end
end
local newest = string.match(names, '.*@(%d+) ')
if not newest or tonumber(newest) ~= tenth then
  names = names .. '@' .. string.sub('00000' .. tenth, -6) .. ' '
end
redis.call('SET', refunds, string.sub(names .. name .. ' ', -MOST * 8), 'PX', REMEMBER)

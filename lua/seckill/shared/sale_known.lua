-- Decides an attempt whose operation ID has a record; record is nil or false without one. marks are those of
-- calls that were taken back; over says whether the record is of a hold whose time is over.
-- needs: record, call, buyer, units, left, stock, now, reservations, id
-- gives: marks, over
-- returns: yes

local marks, over = '', false -- marks: of calls that were taken back
if record then
  local state, who, had, finish, words = string.match(record, '^(%a+) (%S+) (%d+) (%d+) %S+(.*)$')
  marks = string.gsub(words, ' [^-]%S*', '')
  local callers = string.gsub(words, ' %-%S+', '')
  local _, undecided = string.gsub(callers, ' ', ' ')
  local replayed = string.find(callers .. ' ', ' +' .. call .. ' ', 1, true) and 0 or 1
  local known = replayed == 0 or string.find(callers .. ' ', ' ' .. call .. ' ', 1, true)
  if who ~= buyer or (had ~= units and state ~= 'cancelled') then
    return {'conflict', 0, '', left, stock, 0, 0}
  elseif string.find(marks .. ' ', ' -' .. call .. ' ', 1, true) then
    return {'gone', 0, '', left, stock, 0, 0}
  elseif state == 'sold' then
    return {'ok', replayed, 'sold', left, stock, 0, 0}
  elseif state == 'held' and tonumber(finish) > now then
    if not known and undecided >= 16 then
      -- Each call that gets a hold is stored, or one that fails would give back what another call got. So
      -- that a record stays short, no more calls than these get it.
      return {'in_progress', 0, '', left, stock, finish - now, 0}
    elseif not known then
      redis.call('HSET', reservations, id, record .. ' ' .. call)
    end
    return {'ok', replayed, 'held', left, stock, finish - now, 0}
  end
  over = state == 'held'
end

-- Finds the task that a call by name is about, and answers where there is nothing to change. want is the
-- state in which the task has to be.
-- needs: op, parse, tasks, id, done, dead, now, want
-- gives: state, try, fence, group, reason
-- returns: yes

local answered = redis.call('GET', op)
if answered then
  return {answered} -- the reply to the first sending was lost
end
local state, _, try, fence, group, reason = parse(redis.call('HGET', tasks, id))
local over = state == 'd' and done or state == 'x' and dead
if not state or over and tonumber(redis.call('ZSCORE', over, id) or 0) <= now then
  return {'not_found'}
elseif state ~= want and not (state == 's' and want == 'p') then
  return {'not_now'}
end

-- Finds the task that a call by name is about, and answers where there is nothing to change. Needs op, id,
-- want, the state in which the task has to be, tasks, done, dead, now, and parse. Gives at, try, fence, call
-- and reason.

local answered = redis.call('GET', op)
if answered then
  return {answered} -- the reply to the first sending was lost
end
local state, at, try, fence, call, reason = parse(redis.call('HGET', tasks, id))
local over = state == 'd' and done or state == 'x' and dead
if not state or state == 'c' or over and tonumber(redis.call('ZSCORE', over, id) or 0) <= now then
  return {'not_found'}
elseif state ~= want and not (state == 's' and want == 'p') then
  return {'not_now'}
end

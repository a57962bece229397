-- Forgets finished tasks whose time is over: most of each kind. forgotten is their number.
-- needs: done, dead, now, most, tasks, store
-- gives: forgotten

local forgotten = 0
for _, ended in ipairs({done, dead}) do
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', ended, '-inf', now, 'LIMIT', 0, most)) do
    redis.call('ZREM', ended, id)
    redis.call('HDEL', tasks, id)
    store(id, '')
    forgotten = forgotten + 1
  end
end

-- store stores the body of a task, or removes it if it is empty, and counts the bytes.
-- needs: head, bodies
-- gives: store

local function store(id, body)
  redis.call('HINCRBY', head, 'bytes', #body - redis.call('HSTRLEN', bodies, id))
  if body == '' then
    redis.call('HDEL', bodies, id)
  else
    redis.call('HSET', bodies, id, body)
  end
end

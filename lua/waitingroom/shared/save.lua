-- Writes the room, and has all that belongs to it live on.
-- needs: now, room, base, ahead, last, late, front, high, turn, limit, state
-- needs: lobby, quiet, entered, text, seed, keep

local function whole(n)
  return string.format('%.0f', n)
end
redis.call('HSET', room, 'base', base, 'at', whole(now), 'ahead', whole(ahead), 'last', whole(last),
  'late', whole(late), 'front', whole(front), 'high', whole(high), 'turn', whole(turn), 'limit', limit,
  'state', state, 'lobby', lobby, 'quiet', whole(quiet), 'entered', whole(entered), 'text', text,
  'seed', seed)
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, keep)
end

-- present notes that the holder of a place is here. It returns true if the place has been used, when
-- nothing is noted, and nothing is if it is called. first returns the lowest place whose holder is here.
-- needs: here, seen, taken, front
-- gives: present, first, front

local function present(place)
  local mark = redis.call('GETRANGE', taken, place, place)
  if mark ~= '' and mark ~= '\0' then
    return mark ~= '\255'
  end
  if redis.call('SETBIT', seen, place, '1') == 0 then
    redis.call('SETBIT', here, place, '1')
  end
  front = math.min(front, place)
end
local function first()
  local place = redis.call('BITPOS', here, '1', math.floor(front / 8))
  return place >= 0 and place or nil
end

-- Limits: announces the windows that a process counts by for a guard, and returns the others that processes
-- have announced, as before a deployment changed them. Units may still count in these.
--
-- KEYS  1 windows     string: window:moment for each window, in milliseconds, separated by spaces; the moment
--                     at which it was announced last
-- ARGV  1 valid       milliseconds for which units may be taken in a window after it was announced
--       2 now         milliseconds since 1970; absent or empty: the server's clock
--       3... windows  milliseconds; without any, nothing is announced and nothing is written
-- Returns {window, left, ...} for each window of others
--       left          milliseconds until no unit counts in it any more

local windows, valid, now = KEYS[1], ARGV[1] + 0, tonumber(ARGV[2])
-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local own, text, others, longest = {}, {}, {}, 0
local function keep(window, moment)
  text[#text + 1] = string.format('%.0f:%.0f', window, moment)
  longest = math.max(longest, moment + valid + window - now)
end

for i = 3, #ARGV do
  own[ARGV[i]] = true
  keep(tonumber(ARGV[i]), now)
end
for window, moment in string.gmatch(redis.call('GET', windows) or '', '(%d+):(%d+)') do
  local last = math.min(moment + 0, now) -- the clock may have been set back
  local left = last + valid + window - now
  if not own[window] and left > 0 then
    keep(tonumber(window), last)
    others[#others + 1] = tonumber(window)
    others[#others + 1] = left
  end
end
if ARGV[3] then
  redis.call('SET', windows, table.concat(text, ' '), 'PX', longest + 1000)
end
return others

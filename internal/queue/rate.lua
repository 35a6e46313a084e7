-- rate.lua: keep to a rate. It stands before claim.lua.
--
-- rate in the meta key is the time, µs, at which as many claims are allowed again as the rate has in a period.
--
-- Returns  nothing. It defines allowed, which returns how many may be claimed now, at a rate of count in a period of µs, and spend,
--          which returns what rate is after n claims.
local function allowed(rate, now, count, period)
  return math.max(0, math.floor((now + period - math.max(tonumber(rate or 0), now)) * count / period))
end

local function spend(rate, now, n, count, period)
  return math.max(tonumber(rate or 0), now) + math.ceil(n * period / count) -- their sum would lose what is below 1/8 µs
end


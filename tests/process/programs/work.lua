-- Tables, strings, closures, coroutines: Lua allocates every object by realloc.
local text, count = {}, {}
for i = 1, 100000 do
    local key = "k" .. (i * 7919 % 30011)
    count[key] = (count[key] or 0) + 1
    text[#text + 1] = string.rep(string.char(97 + i % 26), i % 5)
end
local keys = {}
for key in pairs(count) do keys[#keys + 1] = key end
table.sort(keys)
print(#keys, keys[1], keys[#keys])
local joined = table.concat(text)
local replaced, times = joined:gsub("([a-f]+)", function(s) return "<" .. #s .. ">" end)
print(#joined, #replaced, times)

local function tree(depth)
    if depth == 0 then return {} end
    return { tree(depth - 1), tree(depth - 1) }
end
local function size(node) return node[1] and 1 + size(node[1]) + size(node[2]) or 1 end
for _ = 1, 5 do print(size(tree(14))) end

local sum = 0
for i = 1, 2000 do
    local routine = coroutine.wrap(function(n) for j = 1, n do coroutine.yield(j) end return 0 end)
    for _ = 1, i % 20 do sum = sum + routine(20) end
end
print(sum, string.format("%.3f", math.sqrt(sum)))
local big = {}
for i = 1, 500000 do big[i] = i end
for i = 500000, 1, -3 do big[i] = nil end
collectgarbage()
print(#tostring(big) > 0, next({}) == nil, collectgarbage("count") > 0)

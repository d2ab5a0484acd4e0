-- words.lua FOLDER ROUNDS: counts, sorts and turns the words of text.txt, ROUNDS times.
-- Ends with status 1 when its answers are not those of expected.txt.

local folder, rounds = arg[1], tonumber(arg[2])
local MODULUS = 1000003

local function read_expected()
    local expected = {}
    for line in io.lines(folder .. "/expected.txt") do
        local name, value = line:match("^(%a+) (%d+)$")
        expected[name] = tonumber(value)
    end
    return expected
end

-- An iterator over the words of a line, as a closure.
local function words_of(line)
    local at = 1
    return function()
        local first, last = line:find("%S+", at)
        if first then
            at = last + 1
            return line:sub(first, last)
        end
    end
end

local function capitalize(word)
    return word:sub(1, 1):upper() .. word:sub(2)
end

-- Hands the lines out one by one, each with its number.
local function line_source()
    return coroutine.wrap(function()
        local number = 0
        for line in io.lines(folder .. "/text.txt") do
            number = number + 1
            coroutine.yield(number, line)
        end
    end)
end

local function one_round()
    local found = { lines = 0, words = 0, distinct = 0, order = 0, places = 0, turned = 0 }
    local entries = {}
    local turned_lines = {}
    for number, line in line_source() do
        local turned = {}
        found.lines = number
        for word in words_of(line) do
            local entry = entries[word]
            if not entry then
                entry = { word = word, count = 0, lines = {} }
                entries[word] = entry
                found.distinct = found.distinct + 1
            end
            entry.count = entry.count + 1
            if entry.lines[#entry.lines] ~= number then
                table.insert(entry.lines, number)
            end
            found.words = found.words + 1
            turned[#turned + 1] = capitalize(word:reverse())
        end
        turned_lines[number] = table.concat(turned, " ")
    end
    local ranked = {}
    for _, entry in pairs(entries) do
        ranked[#ranked + 1] = entry
        found.places = found.places + entry.lines[#entry.lines] * #entry.lines
    end
    table.sort(ranked, function(a, b)
        if a.count ~= b.count then
            return a.count > b.count
        end
        return a.word < b.word
    end)
    for rank, entry in ipairs(ranked) do
        found.order = found.order + rank * entry.count
    end
    for _, line in ipairs(turned_lines) do
        for at = 1, #line do
            found.turned = found.turned + at * line:byte(at)
        end
    end
    for _, name in ipairs({ "order", "places", "turned" }) do
        found[name] = found[name] % MODULUS
    end
    return found
end

local expected = read_expected()
for _ = 1, rounds do
    local found = one_round()
    for _, name in ipairs({ "lines", "words", "distinct", "order", "places", "turned" }) do
        if found[name] ~= expected[name] then
            local text = "words.lua: wrong answer: %s is %s, expected %s\n"
            io.stderr:write(text:format(name, found[name], expected[name]))
            os.exit(1)
        end
    end
end
print("right")

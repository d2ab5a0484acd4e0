// What cc1plus compiles for the row gxx: a user of Debian's nlohmann-json3-dev. LESS: of the standard library only.
#include <map>
#include <string>
#include <vector>

struct Item
{
    std::string name;
    std::vector<double> values;
    std::map<std::string, int> counts;
};

#ifdef LESS
std::size_t count(const std::vector<Item> &items)
{
    std::size_t sum = 0;
    for (const Item &item : items)
        sum += item.name.size() + item.values.size() + item.counts.size();
    return sum;
}
#else
#include <nlohmann/json.hpp>

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Item, name, values, counts)

std::string convert(const std::string &text)
{
    const auto parsed = nlohmann::json::parse(text);
    nlohmann::json made = parsed["items"].get<std::vector<Item>>();
    made["patch"] = nlohmann::json::diff(parsed, made);
    return made.dump(2);
}
#endif

// An index of documents, in the standard library's containers, as a program of the everyday kind uses them: documents
// of generated words are added, changed and removed; an ordered and a hashed index, postings in lists, shared documents
// and sorted tables follow. What the program knows is held in two forms, and both are compared at the end, so that a
// block that lost its contents is noticed. Prints a checksum of the final state, which no allocator changes, and fails
// when it is not the one that is expected.
#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace
{

class Random
{
  public:
    explicit Random(std::uint64_t seed) : state(seed * 0x9E3779B97F4A7C15u | 1) {}

    std::uint32_t below(std::uint32_t limit)
    {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return static_cast<std::uint32_t>((state * 0x2545F4914F6CDD1Du >> 32) * limit >> 32);
    }

  private:
    std::uint64_t state;
};

[[noreturn]] void fail(const std::string &what)
{
    std::fprintf(stderr, "bench_cxx_containers: %s\n", what.c_str());
    std::exit(1);
}

std::uint64_t hash_of(const std::string &text, std::uint64_t hash)
{
    for (unsigned char letter : text)
        hash = (hash ^ letter) * 0x100000001B3u;
    return hash;
}

struct Document {
    std::uint32_t number;
    std::string title;
    std::vector<std::string> words;
};

using Shared = std::shared_ptr<const Document>;

// A posting: the document, and how often the word stands in it.
struct Posting {
    Shared document;
    std::uint32_t count;
};

class Index
{
  public:
    void add(const Shared &document)
    {
        std::map<std::string, std::uint32_t> counts;
        for (const std::string &word : document->words)
            ++counts[word];
        for (const auto &[word, count] : counts) {
            postings[word].push_back({ document, count });
            totals[word] += count;
        }
        by_number.emplace(document->number, document);
    }

    void remove(std::uint32_t number)
    {
        auto found = by_number.find(number);
        if (found == by_number.end())
            return;
        const Shared document = found->second;
        by_number.erase(found);
        for (const std::string &word : document->words) {
            auto place = postings.find(word);
            // A word that stands twice in the document was removed with the first.
            if (place == postings.end())
                continue;
            std::list<Posting> &list = place->second;
            for (auto posting = list.begin(); posting != list.end(); ++posting) {
                if (posting->document != document)
                    continue;
                auto total = totals.find(word);
                if (total == totals.end() || total->second < posting->count)
                    fail("the totals of '" + word + "' lost their contents");
                total->second -= posting->count;
                if (total->second == 0)
                    totals.erase(total);
                list.erase(posting);
                break;
            }
            if (list.empty())
                postings.erase(place);
        }
    }

    // The most frequent words, as text.
    std::string summary(std::size_t most) const
    {
        std::vector<std::pair<std::string, std::uint32_t>> table(totals.begin(), totals.end());
        std::sort(table.begin(), table.end(), [](const auto &left, const auto &right) {
            return left.second != right.second ? left.second > right.second : left.first < right.first;
        });
        std::string text;
        for (std::size_t i = 0; i < table.size() && i < most; i++)
            text += table[i].first + '=' + std::to_string(table[i].second) + ';';
        return text;
    }

    // The ordered postings and the hashed totals tell of the same words; the documents too.
    std::uint64_t checked() const
    {
        std::uint64_t hash = 0xCBF29CE484222325u;
        std::size_t words_listed = 0, words_held = 0;
        for (const auto &[word, list] : postings) {
            std::uint64_t sum = 0;
            for (const Posting &posting : list)
                sum += posting.count;
            auto total = totals.find(word);
            if (total == totals.end() || total->second != sum)
                fail("the postings of '" + word + "' lost their contents");
            words_listed += sum;
            hash = hash_of(word, hash ^ sum);
        }
        for (const auto &[number, document] : by_number) {
            if (document->number != number)
                fail("document " + std::to_string(number) + " lost its contents");
            words_held += document->words.size();
            hash ^= hash_of(document->title, number);
        }
        if (postings.size() != totals.size() || words_listed != words_held)
            fail("the index lost its contents");
        return hash;
    }

    std::size_t words() const { return totals.size(); }
    std::size_t documents() const { return by_number.size(); }

  private:
    std::map<std::string, std::list<Posting>> postings;
    std::unordered_map<std::string, std::uint32_t> totals;
    std::unordered_map<std::uint32_t, Shared> by_number;
};

// The words that documents are made of: common ones short, rare ones beyond what a string holds within itself.
std::vector<std::string> make_words(Random &random, std::uint32_t count)
{
    std::vector<std::string> words;
    for (std::uint32_t i = 0; i < count; i++) {
        std::string word = std::to_string(i);
        for (std::uint32_t letters = 2 + random.below(i < count / 4 ? 8 : 24); letters > 0; letters--)
            word += static_cast<char>('a' + random.below(26));
        words.push_back(std::move(word));
    }
    return words;
}

Shared make_document(Random &random, const std::vector<std::string> &words, std::uint32_t number)
{
    auto document = std::make_shared<Document>();
    document->number = number;
    for (std::uint32_t length = 10 + random.below(60); length > 0; length--) {
        // The smaller of two numbers: words at the beginning are the common ones.
        auto count = static_cast<std::uint32_t>(words.size());
        document->words.push_back(words[std::min(random.below(count), random.below(count))]);
    }
    for (std::size_t i = 0; i < document->words.size(); i += 8)
        document->title += (i == 0 ? "" : " ") + document->words[i];
    return document;
}

unsigned long number_argument(int argc, char **argv, int index, const char *name, unsigned long fallback)
{
    if (index >= argc)
        return fallback;
    char *end = nullptr;
    errno = 0;
    unsigned long value = std::strtoul(argv[index], &end, 10);
    if (errno != 0 || end == argv[index] || *end != '\0' || argv[index][0] == '-' || value > 100000000) {
        std::fprintf(stderr, "bench_cxx_containers: %s must be a number from 0 to 100000000, not '%s'\n", name,
                     argv[index]);
        std::exit(2);
    }
    return value;
}

} // namespace

int main(int argc, char **argv)
{
    const std::string first = argc > 1 ? argv[1] : "";
    const bool help = first == "--help" || first == "-h";
    if (help || argc > 5) {
        std::fprintf(
            help ? stdout : stderr,
            "usage: bench_cxx_containers [DOCUMENTS] [LIVE] [SEED] [CHECKSUM]\n"
            "  adds DOCUMENTS to an index, of which LIVE are kept (default 4000 1000 42); fails when CHECKSUM\n"
            "  is given and not what comes out\n");
        return help ? 0 : 2;
    }
    const auto documents = static_cast<std::uint32_t>(number_argument(argc, argv, 1, "DOCUMENTS", 4000));
    const auto live = static_cast<std::uint32_t>(number_argument(argc, argv, 2, "LIVE", 1000));
    Random random(number_argument(argc, argv, 3, "SEED", 42));
    const std::vector<std::string> words = make_words(random, 20000);
    Index index;
    std::vector<std::uint32_t> numbers;
    std::uint64_t hash = 0;

    for (std::uint32_t number = 0; number < documents; number++) {
        index.add(make_document(random, words, number));
        numbers.push_back(number);
        if (numbers.size() > live) {
            std::uint32_t place = random.below(static_cast<std::uint32_t>(numbers.size()));
            index.remove(numbers[place]);
            numbers[place] = numbers.back();
            numbers.pop_back();
        }
        if (number % 1000 == 999)
            hash = hash_of(index.summary(200), hash);
    }
    hash ^= index.checked();
    char checksum[17];
    std::snprintf(checksum, sizeof checksum, "%016" PRIx64, hash);
    std::printf("documents=%zu words=%zu checksum=%s\n", index.documents(), index.words(), checksum);
    if (argc > 4 && std::string(argv[4]) != checksum)
        fail("CHECKSUM is " + std::string(checksum) + ", not '" + argv[4] + "'");
    return 0;
}

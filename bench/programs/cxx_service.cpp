// A service with threads, as people write them in C++: an acceptor makes requests as text, workers parse them into
// trees, change the carts of sessions and answer with text, and a collector reads the answers. Requests and answers are
// allocated by one thread and freed by another; sessions live long, trees only for a request.
//
// A session's requests all go to one worker, in order, so that the sum of the answers' checksums is the same however
// the threads run. The program prints the sum, and fails when it is not the expected one.
#include <cinttypes>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace
{

constexpr std::size_t queue_most = 512, batch_most = 32, carts_most = 40, kept_sessions = 1500;
constexpr std::uint32_t sessions = 3000, goods = 800;

[[noreturn]] void fail(const std::string &what)
{
    std::fprintf(stderr, "bench_cxx_service: %s\n", what.c_str());
    std::exit(1);
}

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

std::uint64_t hash_of(std::string_view text)
{
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (unsigned char letter : text)
        hash = (hash ^ letter) * 0x100000001B3u;
    return hash;
}

// A queue between two threads. Texts move in batches, as in a service that reads what a socket has.
class Queue
{
  public:
    void put(std::vector<std::string> &&batch)
    {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return texts.size() < queue_most; });
        for (auto &text : batch)
            texts.push_back(std::move(text));
        changed.notify_all();
    }

    void close()
    {
        std::lock_guard lock(mutex);
        closed = true;
        changed.notify_all();
    }

    // Returns nothing when the queue is closed and empty.
    std::vector<std::string> take()
    {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return closed || !texts.empty(); });
        std::vector<std::string> batch;
        while (!texts.empty() && batch.size() < batch_most) {
            batch.push_back(std::move(texts.front()));
            texts.pop_front();
        }
        changed.notify_all();
        return batch;
    }

  private:
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::string> texts;
    bool closed = false;
};

// A request's tree: a name, a value, and fields.
struct Node {
    std::string value;
    std::map<std::string, std::unique_ptr<Node>> fields;

    const Node &operator[](const std::string &name) const
    {
        const auto found = fields.find(name);
        if (found == fields.end())
            fail("a request lost its field " + name);
        return *found->second;
    }
};

// Parses {name:value,name:{...}}.
std::unique_ptr<Node> parse(std::string_view text, std::size_t &at)
{
    auto node = std::make_unique<Node>();
    if (text[at] != '{') {
        const std::size_t end = text.find_first_of(",}", at);
        node->value = text.substr(at, end - at);
        at = end;
        return node;
    }
    do {
        const std::size_t colon = text.find(':', ++at);
        if (colon == std::string_view::npos)
            fail("a request lost its contents");
        std::string name(text.substr(at, colon - at));
        at = colon + 1;
        node->fields.emplace(std::move(name), parse(text, at));
    } while (text[at] == ',');
    at++;
    return node;
}

struct Item {
    std::string name, note;
    std::uint32_t count = 0;
};

struct Session {
    std::uint32_t number = 0;
    std::string user;
    std::list<std::shared_ptr<Item>> cart;
    std::unordered_map<std::string, std::shared_ptr<Item>> by_name;
    std::uint64_t answered = 0;
};

class Worker
{
  public:
    std::string answer(const std::string &request)
    {
        std::size_t at = 0;
        const auto tree = parse(request, at);
        Session &session = find((*tree)["session"].value);
        const std::string &kind = (*tree)["do"].value;
        if (kind == "add")
            add(session, (*tree)["item"]);
        else if (kind == "drop")
            drop(session, (*tree)["item"]["name"].value);
        std::string text = "{user:" + session.user + ",answered:" + std::to_string(++session.answered) + ",cart:{";
        for (const auto &item : session.cart)
            if (kind == "list" || item == session.cart.back())
                text += item->name + ':' + std::to_string(item->count) + ',' + item->note + ',';
        return text + "}}";
    }

  private:
    // The session that was not used for longest makes place for a new one.
    Session &find(const std::string &number)
    {
        auto found = by_number.find(number);
        if (found == by_number.end()) {
            if (used.size() >= kept_sessions) {
                by_number.erase(std::to_string(used.back()->number));
                used.pop_back();
            }
            auto session = std::make_shared<Session>();
            session->number = static_cast<std::uint32_t>(std::strtoul(number.c_str(), nullptr, 10));
            session->user = "user " + number + " of the service";
            used.push_front(session);
            found = by_number.emplace(number, used.begin()).first;
        } else {
            used.splice(used.begin(), used, found->second);
        }
        return **found->second;
    }

    static void add(Session &session, const Node &item)
    {
        auto &place = session.by_name[item["name"].value];
        if (!place) {
            place = std::make_shared<Item>();
            place->name = item["name"].value;
            session.cart.push_back(place);
        }
        place->count += static_cast<std::uint32_t>(std::strtoul(item["count"].value.c_str(), nullptr, 10));
        place->note = item["note"].value;
        if (session.cart.size() > carts_most)
            drop(session, std::string(session.cart.front()->name));
    }

    static void drop(Session &session, const std::string &name)
    {
        const auto found = session.by_name.find(name);
        if (found == session.by_name.end())
            return;
        session.cart.remove(found->second);
        session.by_name.erase(found);
    }

    std::list<std::shared_ptr<Session>> used;
    std::unordered_map<std::string, std::list<std::shared_ptr<Session>>::iterator> by_number;
};

void work(Queue &requests, Queue &answers)
{
    Worker worker;
    for (;;) {
        std::vector<std::string> made;
        for (const auto &request : requests.take())
            made.push_back(worker.answer(request));
        if (made.empty())
            return;
        answers.put(std::move(made));
    }
}

std::string make_request(Random &random, std::uint32_t session)
{
    const std::uint32_t kind = random.below(10);
    std::string text = "{session:" + std::to_string(session) + ",do:";
    text += kind < 6 ? "add" : kind < 8 ? "drop" : kind < 9 ? "list" : "look";
    text += ",item:{name:goods-" + std::to_string(random.below(goods));
    text += ",count:" + std::to_string(random.below(9) + 1);
    return text + ",note:" + std::string(random.below(120), static_cast<char>('a' + random.below(26))) + "}}";
}

unsigned long number_argument(int argc, char **argv, int index, const char *name, unsigned long fallback)
{
    if (argc <= index)
        return fallback;
    char *end = nullptr;
    const unsigned long number = std::strtoul(argv[index], &end, 10);
    if (argv[index][0] == '-' || *end != '\0' || number == 0) {
        std::fprintf(stderr, "bench_cxx_service: %s must be a number from 1, not '%s'\n", name, argv[index]);
        std::exit(2);
    }
    return number;
}

} // namespace

int main(int argc, char **argv)
{
    const bool help = argc > 1 && (std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h");
    if (argc > 5 || help) {
        std::fputs("usage: bench_cxx_service [REQUESTS [WORKERS [SEED [CHECKSUM]]]]\n", help ? stdout : stderr);
        return help ? 0 : 2;
    }
    const unsigned long requests = number_argument(argc, argv, 1, "REQUESTS", 100000);
    const unsigned long workers = number_argument(argc, argv, 2, "WORKERS", 2);
    Random random(number_argument(argc, argv, 3, "SEED", 42));
    std::vector<Queue> incoming(workers);
    Queue outgoing;
    std::uint64_t sum = 0, answers = 0;

    std::thread collector([&] {
        for (auto batch = outgoing.take(); !batch.empty(); batch = outgoing.take())
            for (const auto &answer : batch) {
                sum += hash_of(answer);
                answers++;
            }
    });
    std::vector<std::thread> threads;
    for (auto &queue : incoming)
        threads.emplace_back(work, std::ref(queue), std::ref(outgoing));
    std::vector<std::vector<std::string>> batches(workers);
    for (unsigned long number = 0; number < requests; number++) {
        const std::uint32_t session = random.below(sessions);
        auto &batch = batches[session % workers];
        batch.push_back(make_request(random, session));
        if (batch.size() == batch_most)
            incoming[session % workers].put(std::exchange(batch, {}));
    }
    for (unsigned long worker = 0; worker < workers; worker++) {
        incoming[worker].put(std::move(batches[worker]));
        incoming[worker].close();
    }
    for (auto &thread : threads)
        thread.join();
    outgoing.close();
    collector.join();
    char checksum[17];
    std::snprintf(checksum, sizeof checksum, "%016" PRIx64, sum);
    std::printf("requests=%" PRIu64 " checksum=%s\n", answers, checksum);
    if (argc > 4 && std::string(argv[4]) != checksum)
        fail("CHECKSUM is " + std::string(checksum) + ", not '" + argv[4] + "'");
    return 0;
}

// Pipeline: a reader fills frames, workers filter them, a writer folds them; frames go through queues.
//
// Truth: `frames` (one mapping of 8 MiB, made by main): 64 frames of 128 KiB; worker w filters frames w, w + W, ...
//        `table` (2 MiB, made by main): read by all workers at random, by nobody else.
// The main thread initialises both.
//
// pipeline [rounds] [workers]   says `object NAME ADDRESS BYTES` on stderr
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace {
constexpr int FRAMES = 64, WORDS = 16384, TABLE = 1 << 18;
using word = std::uint64_t;

class queue {
  public:
    void put(int frame) {
        std::lock_guard<std::mutex> lock(mutex_);
        frames_.push_back(frame);
        ready_.notify_one();
    }
    int get() {
        std::unique_lock<std::mutex> lock(mutex_);
        ready_.wait(lock, [this] { return !frames_.empty(); });
        int frame = frames_.front();
        frames_.pop_front();
        return frame;
    }

  private:
    std::mutex mutex_;
    std::condition_variable ready_;
    std::deque<int> frames_;
};

word *frames, *table;
} // namespace

extern "C" __attribute__((noinline)) void filter(int frame) {
    word *f = frames + static_cast<std::size_t>(frame) * WORDS, seed = frame;
    for (int i = 0; i < WORDS; i += 8) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        f[i] = f[i] * 3 + table[seed >> 46];
        f[i + 4] ^= f[i];
    }
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 300, workers = argc > 2 ? std::atoi(argv[2]) : 6;
    if (rounds < 1 || workers < 1) return 2;
    frames = static_cast<word *>(std::calloc(FRAMES * WORDS, sizeof(word)));
    table = static_cast<word *>(std::malloc(TABLE * sizeof(word)));
    for (int i = 0; i < FRAMES * WORDS; i++) frames[i] = i % 11;
    for (int i = 0; i < TABLE; i++) table[i] = i % 17;
    auto say = [](const char *name, void *at, std::size_t bytes) {
        std::fprintf(stderr, "object %s %zu %zu\n", name, reinterpret_cast<std::size_t>(at), bytes);
    };
    say("frames", frames, FRAMES * WORDS * sizeof(word));
    say("table", table, TABLE * sizeof(word));
    std::vector<queue> full(workers);
    queue done;
    std::vector<std::thread> threads;
    for (int w = 0; w < workers; w++)
        threads.emplace_back([&, w] {
            for (int frame; (frame = full[w].get()) >= 0; done.put(frame)) filter(frame);
        });
    word sum = 0;
    std::thread writer([&] {
        for (int i = 0; i < rounds * FRAMES; i++) sum += frames[static_cast<std::size_t>(done.get()) * WORDS + 8];
    });
    for (int r = 0; r < rounds; r++)
        for (int f = 0; f < FRAMES; f++) full[f % workers].put(f);
    for (int w = 0; w < workers; w++) full[w].put(-1);
    for (auto &t : threads) t.join();
    writer.join();
    word check = 0;
    for (int i = 0; i < FRAMES * WORDS; i += 64) check = check * 31 + frames[i];
    std::printf("rounds %d  checksum %016lx\n", rounds, static_cast<unsigned long>(check));
    std::free(frames);
    std::free(table);
    return sum == 42;
}

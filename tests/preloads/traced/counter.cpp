// Truth: four threads add 100000 times one to each counter, which is right in the end: each has 400000 stores.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

std::atomic<uint8_t> narrow;
std::atomic<uint16_t> half;
std::atomic<uint32_t> word;
std::atomic<uint64_t> wide;
std::atomic<uint64_t> exchanged;
alignas(16) __int128 widest;

int main() {
    std::vector<std::thread> threads;
    for (int n = 0; n < 4; n++)
        threads.emplace_back([] {
            for (int i = 0; i < 100000; i++) {
                narrow.fetch_add(1, std::memory_order_relaxed);
                half.fetch_sub(1);
                word.fetch_add(1, std::memory_order_acq_rel);
                wide += 0x100000001;
                uint64_t now = exchanged.load();
                while (!exchanged.compare_exchange_weak(now, now + 3)) {}
            }
        });
    for (auto &thread : threads)
        thread.join();
    widest = 5;
    __int128 before = __atomic_exchange_n(&widest, ((__int128)7 << 64) | 9, __ATOMIC_SEQ_CST);
    bool right = narrow == uint8_t(400000) && half == uint16_t(-400000) && word == 400000 &&
                 wide == 400000 * 0x100000001 && exchanged == 1200000 && before == 5 &&
                 __atomic_load_n(&widest, __ATOMIC_SEQ_CST) == (((__int128)7 << 64) | 9);
    puts(right ? "right" : "wrong");
    return !right;
}

// Two threads take turns with counters that are one allocation.
#include <semaphore.h>
#include <memory>
#include <thread>

constexpr int turns = 1000, counters = 1024;

int main() {
    sem_t turn[2];
    for (int n = 0; n < 2; n++) sem_init(&turn[n], 0, n == 0);
    std::unique_ptr<long[]> hits(new long[counters]());
    auto work = [&](int me) {
        for (int n = 0; n < turns; n++) {
            sem_wait(&turn[me]);
            hits[512 + me] += 1;
            sem_post(&turn[!me]);
        }
    };
    std::thread first(work, 0), second(work, 1);
    first.join();
    second.join();
}

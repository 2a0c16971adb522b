// A linked structure of small nodes, walked by all threads.
//
// Truth: node allocations (one call site, `Tree::insert`, 64-byte nodes, about 25 MiB together): shared by all threads
// without structure, read-shared after the main thread built it; small objects, so placement needs an arena.
//
// linked [iterations] [threads]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

struct Node {
    uint64_t key, value, pad[4];
    Node *left, *right;
};
static_assert(sizeof(Node) == 64);

class Tree {
    Node *root = nullptr;

  public:
    __attribute__((noinline)) void insert(uint64_t key) {
        Node **at = &root;
        while (*at) at = key < (*at)->key ? &(*at)->left : &(*at)->right;
        *at = new Node{key, key * 3, {}, nullptr, nullptr};
    }
    uint64_t find(uint64_t key) const {
        const Node *n = root;
        uint64_t depth = 0;
        while (n && n->key != key) {
            n = key < n->key ? n->left : n->right;
            depth++;
        }
        return n ? n->value + depth : depth;
    }
    ~Tree() {
        std::vector<Node *> open;
        if (root) open.push_back(root);
        while (!open.empty()) {
            Node *n = open.back();
            open.pop_back();
            if (n->left) open.push_back(n->left);
            if (n->right) open.push_back(n->right);
            delete n;
        }
    }
};

static uint64_t next(uint64_t &s) {
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    return s;
}

int main(int argc, char **argv) {
    int iterations = argc > 1 ? atoi(argv[1]) : 8, threads = argc > 2 ? atoi(argv[2]) : 2;
    if (iterations < 1 || threads < 1) return 2;
    constexpr int nodes = 400000;
    Tree tree;
    uint64_t s = 88172645463325252ull;
    for (int i = 0; i < nodes; i++) tree.insert(next(s) >> 20);
    std::vector<uint64_t> sums(threads * 16);
    std::vector<std::thread> team;
    for (int t = 0; t < threads; t++)
        team.emplace_back([&, t] {
            uint64_t q = 1234567 + t, sum = 0;
            for (long i = 0; i < 200000L * iterations; i++) sum += tree.find(next(q) >> 20);
            sums[t * 16] = sum;
        });
    for (auto &t : team) t.join();
    uint64_t sum = 0;
    for (uint64_t p : sums) sum = sum * 31 + p;
    std::printf("threads %d  checksum %016llx\n", threads, (unsigned long long)sum);
}

// operator new and the standard library stand between the line and malloc.
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

struct Grid { char cells[100 << 10]; };

int main() {
    Grid *grid = new Grid;                          // line 10
    double *array = new double[200 << 7];           // line 11
    auto shared = std::make_shared<Grid>();         // line 12
    std::vector<char> bytes(300 << 10);             // line 13
    std::memset(grid, 1, sizeof *grid), std::memset(array, 1, 200 << 10), std::memset(shared.get(), 1, sizeof(Grid));
    std::puts(bytes[7] ? "odd" : "ok");
    return grid->cells[5] != 1;
}

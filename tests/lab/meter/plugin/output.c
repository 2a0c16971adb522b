/* What was counted: one JSON object a line in the file, one for each run, and a table for people beside it (.txt). */
#include "meter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *json, *text;

bool output_open(void) {
    char name[4096];
    snprintf(name, sizeof name, "%s.txt", config.file);
    json = fopen(config.file, "a"), text = fopen(name, "a");
    return json && text;
}

void output_error(const char *what) {
    fprintf(json, "{\"error\":\"%s\"}\n", what);
    fprintf(text, "meter: %s\n", what);
    fflush(json), fflush(text);
}

static void put_matrix(const char *name, matrix m) {
    fprintf(json, ",\"%s\":[", name);
    for (unsigned i = 0; i < config.nodes; i++) {
        fprintf(json, "%s[", i ? "," : "");
        for (unsigned j = 0; j < config.nodes; j++) fprintf(json, "%s%lu", j ? "," : "", m[i][j]);
        fputs("]", json);
    }
    fputs("]", json);
}

static void put_string(const char *s) {
    fputc('"', json);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fputc('\\', json);
        if ((unsigned char)*s >= ' ') fputc(*s, json);
    }
    fputc('"', json);
}

static void put_row(const uint32_t *of) {
    for (unsigned n = 0; n < config.nodes; n++) fprintf(json, "%s%u", n ? "," : "[", of[n]);
    fputs("]", json);
}

/* [address, loads, stores, local lines, [lines by node of CPU], [lines by node of memory]] of each page accessed. */
static void put_pages(void) {
    uint64_t count;
    struct page **list = pages_sorted(&count);
    bool first = true;
    fprintf(json, ",\"grain\":%lu,\"pages\":[", config.grain);
    for (uint64_t i = 0; i < count; i++) {
        struct page *p = list[i];
        if (!p->loads && !p->stores) continue;
        fprintf(json, "%s[%lu,%lu,%lu,%lu,", first ? "" : ",", p->number * config.grain, p->loads, p->stores, p->local);
        put_row(p->lines_by);
        fputc(',', json);
        put_row(p->lines_at);
        fputs("]", json);
        first = false;
    }
    fputs("]", json);
    free(list);
}

static void put_text(const char *name, const char *note) {
    uint64_t all = 0, local = 0, at[NODES] = { 0 };
    unsigned busiest = 0, n = config.nodes;
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = 0; j < n; j++) {
            uint64_t lines = counts.by_loads[i][j] + counts.by_stores[i][j];
            all += lines, at[j] += lines, local += i == j ? lines : 0;
        }
    for (unsigned j = 0; j < n; j++)
        if (at[j] > at[busiest]) busiest = j;
    double percent = all ? 100.0 / all : 0;
    uint64_t accesses = counts.loads + counts.stores;
    fprintf(text, "meter: %s: %lu loads and stores, %lu lines from memory%s\n", name, accesses, all, note);
    fprintf(text, "meter:   percent of the lines     ");
    for (unsigned j = 0; j < n; j++) fprintf(text, "  node %-2u", j);
    fputc('\n', text);
    for (unsigned i = 0; i < n; i++) {
        fprintf(text, "meter:   CPUs of node %-2u from memory", i);
        for (unsigned j = 0; j < n; j++)
            fprintf(text, "  %7.1f", percent * (counts.by_loads[i][j] + counts.by_stores[i][j]));
        fputc('\n', text);
    }
    fprintf(text, "meter:   local %.1f %%, busiest controller: node %u with %.1f %%, modelled time %.3f ms\n",
            percent * local, busiest, percent * at[busiest], clock_elapsed() / 1e6);
}

void output_run(const char *name, uint64_t load_bias, bool complete) {
    fputs("{\"name\":", json);
    put_string(name);
    fprintf(json, ",\"complete\":%s,\"nodes\":%u,\"cpus_per_node\":%u,\"load_bias\":%lu", complete ? "true" : "false",
            config.nodes, config.cpus_per_node, load_bias);
    fprintf(json, ",\"loads\":%lu,\"stores\":%lu,\"instructions\":%lu,\"time_ns\":%.0f", counts.loads, counts.stores,
            counts.instructions, clock_elapsed());
    put_matrix("by_loads", counts.by_loads);
    put_matrix("by_stores", counts.by_stores);
    put_matrix("written_back", counts.written_back);
    put_matrix("forwarded", counts.forwarded);
    if (config.grain) put_pages();
    fputs("}\n", json);
    put_text(name, complete ? "" : " (the run did not end, or its first function was not reached)");
    fflush(json), fflush(text);
}

// A library of the program's own, with a large array.
char library_state[8 << 20];
char *plugin_state(void) { return library_state; }

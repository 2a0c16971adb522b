// A library of the program place.c.
int answer(void) { return 42; }

/* The marker: an instruction that does nothing on any machine, `nopl 0x6e756d61(%rax,%rax,1)`, and means something to
 * the meter. rdi holds the operation, rsi an address or a number. It must be the first instruction after a jump, a call
 * or a return: only there are the registers that the meter reads up to date.
 */
#ifndef MARKER_H
#define MARKER_H
#include <stdint.h>

#define MARKER_BYTES { 0x0f, 0x1f, 0x84, 0x00, 0x61, 0x6d, 0x75, 0x6e }
enum { MARKER_LENGTH = 8 };

/* MARK_PAGE: rsi is a page that lies on node rdx; the next access to it must be found there.
 * MARK_RUN: rsi points to a struct marked_run; the next MARK_ENTER begins it.
 * MARK_ENTER: the process that executes this is metered from here on.
 * MARK_LEAVE: the metered run has ended. */
enum { MARK_PAGE = 0x4e4d0001, MARK_RUN, MARK_ENTER, MARK_LEAVE };

struct marked_run {
    char name[64];
    /* Counted from the first execution of `from` to the first of `until` after it; 0: from the start, to the end.
     * Or, if any of `during` is not 0, while a thread is in one of these functions. */
    uint64_t from, until, during[4];
    /* What is added to an address of the program's file to have that of the process. */
    uint64_t load_bias;
};
#endif

# What the hooks of this file of the program keep of a thread: the address of its lines. A new thread has those of
# nobody, in which nothing is ever found, so that no hook has to ask whether the thread is known.
	.pushsection .tdata.numamma_trace_thread, "awT", @progbits
	.balign 16
	.globl numamma_trace_thread
	.hidden numamma_trace_thread
	.type numamma_trace_thread, @object
	.size numamma_trace_thread, 16
numamma_trace_thread:
	.quad numamma_trace_nobody
	.quad numamma_trace_nobody
	.popsection
	.pushsection .bss.numamma_trace_nobody, "aw", @nobits
	.balign 64
	.hidden numamma_trace_nobody
	.type numamma_trace_nobody, @object
	.size numamma_trace_nobody, 32768
numamma_trace_nobody:
	.zero 32768
	.popsection

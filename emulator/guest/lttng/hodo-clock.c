// perf's clock for LTTng's kernel tracer: the time-stamp counter, scaled as in the recording of Intel PT.
//
// `cargo xtask setup --machine` builds it with LTTng's modules.

#include <linux/module.h>
#include <linux/sched/clock.h>
#include <linux/time64.h>

#include <lttng/clock.h>

static u64 read(void)
{
	return local_clock();
}

static u64 frequency(void)
{
	return NSEC_PER_SEC;
}

static const char *name(void)
{
	return "perf";
}

static const char *description(void)
{
	return "perf's clock";
}

// Without a UUID of its own it has that of the boot.
static struct lttng_trace_clock perf_clock = {
	.read64 = read,
	.freq = frequency,
	.name = name,
	.description = description,
};

static int __init start(void)
{
	return lttng_clock_register_plugin(&perf_clock, THIS_MODULE);
}
module_init(start);

static void __exit stop(void)
{
	lttng_clock_unregister_plugin(&perf_clock, THIS_MODULE);
}
module_exit(stop);

MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("perf's clock for LTTng");

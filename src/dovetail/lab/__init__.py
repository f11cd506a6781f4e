"""How we know: scenarios, workloads, drivers of ours and of peers, traces, measures, reports. Only the command line imports it."""

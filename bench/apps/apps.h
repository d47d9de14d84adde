// apps: whole applications, in core and out of core, over the share of their data that memory has room for.
#pragma once

namespace ramspan::bench {

// `ramspan bench apps ...`, with its own options. argv[1] is "apps". The exit status: 1 when a result was wrong, or a run failed.
int RunApps(int argc, char** argv);

}  // namespace ramspan::bench

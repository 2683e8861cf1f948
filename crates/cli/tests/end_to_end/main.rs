//! The program as people start it: arguments in, output and exit codes out.

mod babeltrace;
mod containers;
mod damage;
mod descendants;
mod events;
mod export;
mod files;
mod guests;
mod jitted;
mod latency;
mod live;
mod marks;
mod output;
mod parts;
mod periods;
mod poor_traces;
mod profiles;
mod program;
mod raw;
mod recorded;
mod relay;
mod run;
mod tables;
mod tracers;
mod wrong_use;

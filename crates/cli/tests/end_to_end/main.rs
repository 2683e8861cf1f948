//! End-to-end tests of the program: arguments in, output and exit codes out.

mod babeltrace;
mod containers;
mod damage;
mod descendants;
mod events;
mod explain;
mod export;
mod files;
mod guests;
mod jitted;
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

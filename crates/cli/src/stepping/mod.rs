//! Positions in the execution of a recording: `hodo script --at`, debuggers, and the page's execution view.

pub mod at;
pub mod debug;
pub mod page;

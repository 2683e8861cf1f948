//! The root of call paths: the executions of a function, or of a system call.

use crate::function_name::is_name;

/// The functions at whose executions call paths begin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Root {
    /// The functions with a name; `NAME@MODULE` only in this module.
    Function(String),
    /// The kernel's functions that implement a system call, such as `__x64_sys_mmap` for `mmap`; an empty name matches
    /// any system call.
    SystemCall(String),
}

/// Prefixes of the kernel's functions that implement system calls: `SYSCALL_DEFINE` on x86, arm64 and RISC-V, and in kernels
/// without wrappers.
const PREFIXES: [&str; 9] = [
    "__x64_sys_",
    "__ia32_sys_",
    "__ia32_compat_sys_",
    "__arm64_sys_",
    "__arm64_compat_sys_",
    "__riscv_sys_",
    "__riscv_compat_sys_",
    "__se_sys_",
    "sys_",
];

impl Root {
    /// Returns whether a function of a module is a root.
    pub fn is(&self, function: &str, module: &str) -> bool {
        match self {
            Root::Function(name) => {
                // Demangled names may have parameters, which users omit.
                is_name(name, function)
                    || name
                        .rsplit_once('@')
                        .is_some_and(|(name, in_module)| in_module == module && is_name(name, function))
            }
            Root::SystemCall(name) => {
                // Functions that are not system calls begin with `sys_` too.
                let is_call = |prefix: &str| prefix.starts_with("__") && function.starts_with(prefix);
                match name.as_str() {
                    "" => PREFIXES.iter().any(|prefix| is_call(prefix)),
                    name => PREFIXES.iter().any(|prefix| function.strip_prefix(prefix) == Some(name)),
                }
            }
        }
    }

    /// Returns the system call that a function of the kernel implements.
    pub fn system_call(function: &str) -> Option<&str> {
        PREFIXES.iter().find_map(|prefix| function.strip_prefix(prefix))
    }

    /// Returns the name as given by the user.
    pub fn name(&self) -> &str {
        match self {
            Root::Function(name) | Root::SystemCall(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_known_by_its_name_and_module() {
        let root = |name: &str| Root::Function(name.to_owned());
        assert!(root("f").is("f", "a.so") && root("f@a.so").is("f", "a.so"));
        assert!(
            !root("f@b.so").is("f", "a.so") && !root("f").is("g", "a.so") && !root("fa.so").is("f", "a.so")
        );
        assert!(root("operator@").is("operator@", "m"));
        assert!(
            root("f").is("f(int)", "m")
                && root("f(int)@m").is("f(int)", "m")
                && !root("f(").is("f(int)", "m")
        );
    }

    #[test]
    fn a_system_call_is_known_by_the_function_of_the_kernel() {
        let mmap = Root::SystemCall("mmap".to_owned());
        assert!(mmap.is("__x64_sys_mmap", "[kernel]") && mmap.is("sys_mmap", "[kernel]"));
        assert!(mmap.is("__arm64_sys_mmap", "[kernel]") && mmap.is("__riscv_sys_mmap", "[kernel]"));
        assert!(!mmap.is("mmap", "libc.so.6") && !mmap.is("__x64_sys_munmap", "[kernel]"));
        assert_eq!(Root::system_call("__riscv_sys_mmap"), Some("mmap"));
    }
}

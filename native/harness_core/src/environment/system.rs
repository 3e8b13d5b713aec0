//! The operating system's name and its kernel's release (POSIX `uname`).

/// What `uname -s` and `uname -r` print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// `Linux`, `Darwin`, ….
    pub name: String,
    /// `6.1.0-18-amd64`, ….
    pub kernel: String,
}

/// The system that this process runs on.
///
/// ```
/// use harness_core::environment::system::system;
///
/// let system = system();
/// # #[cfg(target_os = "linux")]
/// assert_eq!(system.name, "Linux");
/// assert!(!system.kernel.is_empty());
/// ```
pub fn system() -> System {
    let uname = rustix::system::uname();
    System {
        name: uname.sysname().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
    }
}

/// The user whose rights this process has (POSIX `geteuid`).
///
/// ```
/// # #[cfg(target_os = "linux")] {
/// use harness_core::environment::system::user;
/// use std::os::unix::fs::MetadataExt;
///
/// assert_eq!(user(), std::fs::metadata("/proc/self").unwrap().uid());
/// # }
/// ```
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

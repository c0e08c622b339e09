//! One engine per state directory.

use std::path::Path;

use super::LogError;
use crate::disk::{Disk, Lock};

/// The lock of a state directory; let go when dropped, and by the system when the process ends in whatever way.
pub struct StateLock {
    _guard: Box<dyn Send + Sync>,
}

impl StateLock {
    /// Takes the lock of a state directory, which is created where it is missing.
    ///
    /// # Errors
    /// [`LogError::Locked`] names the process that has it; else the directory cannot be written to.
    pub fn acquire(disk: &dyn Disk, state_dir: &Path) -> Result<StateLock, LogError> {
        disk.create_dir_all(state_dir).map_err(LogError::io("create", state_dir))?;
        let path = state_dir.join("LOCK");
        match disk.try_lock(&path, std::process::id().to_string().as_bytes()) {
            Ok(Lock::Held(guard)) => Ok(StateLock { _guard: guard }),
            Ok(Lock::Taken(by)) => {
                let pid = String::from_utf8_lossy(&by).trim().to_owned();
                let pid = if pid.is_empty() { "unknown".to_owned() } else { pid };
                Err(LogError::Locked { path: state_dir.to_owned(), pid })
            }
            Err(error) => Err(LogError::io("lock", &path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    #[test]
    fn a_second_instance_is_refused_with_the_process_of_the_first() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("plant");
        let first = StateLock::acquire(&RealDisk, &state).unwrap();
        let error = StateLock::acquire(&RealDisk, &state).err().unwrap();
        assert_eq!(error.exit_code(), 75);
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        StateLock::acquire(&RealDisk, &state).unwrap();
    }
}

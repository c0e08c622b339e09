//! Why the system refused a path: whose it is and with which mode, and as whom this process runs.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The error of an operation on `path`; a refusal for want of permission says whose the path is and what to do.
pub fn explained(path: &Path, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    // What cannot be seen or does not exist yet is refused by a directory above it.
    let seen = path.ancestors().find_map(|above| {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        above.metadata().ok().map(|metadata| (above, metadata))
    });
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let whose = seen.map_or_else(String::new, |(above, metadata)| {
        let mode = metadata.mode() & 0o7777;
        format!("{} belongs to uid {}, gid {}, mode {mode:04o}; ", above.display(), metadata.uid(), metadata.gid())
    });
    io::Error::new(
        error.kind(),
        format!(
            "permission denied: {whose}this process runs as uid {uid}, gid {gid}. Run it as the owner (in a systemd unit: \
             User=), or change owner or mode (chown, chmod)"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_path_that_can_be_seen_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("state/log/1.segment");
        let message = explained(&missing, io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(message.contains(&format!("{} belongs to uid ", dir.path().display())), "{message}");
        assert!(message.contains("User="), "{message}");
        let other = explained(&missing, io::ErrorKind::NotFound.into());
        assert_eq!(other.kind(), io::ErrorKind::NotFound);
        assert!(!other.to_string().contains("uid"), "{other}");
    }
}

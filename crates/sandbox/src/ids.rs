//! The user and group ids of the server's user namespace, and hints when there can be none.
//!
//! root maps every id to itself, so that files keep their owners and a server may become another user. An ordinary user may
//! map itself only, without a setuid helper.

use std::fs;

use nix::errno::Errno;

use super::error::LaunchError;
use super::owner::Owner;

/// The file of a new user namespace that could not be written, and the errno.
pub(super) type MapError = (&'static str, Errno);

pub(super) fn namespaces(step: &'static str, errno: Errno) -> LaunchError {
    LaunchError::Namespaces { step, error: errno.into(), hint: namespace_hint(errno) }
}

/// Settings that the user can look at, with this host's values.
fn namespace_hint(errno: Errno) -> String {
    let value = |name: &str| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    };
    if matches!(errno, Errno::ENOSPC | Errno::EUSERS) {
        let now = value("user.max_user_namespaces").unwrap_or_else(|| "unknown".to_owned());
        return format!(
            "raise the sysctl user.max_user_namespaces (now {now}) or the other user.max_*_namespaces"
        );
    }
    for (name, bad, good) in [
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ] {
        if value(name).as_deref() == Some(bad) {
            return format!("set the sysctl {name} to {good} (now {bad}), or run the node as root");
        }
    }
    "see the sysctls kernel.unprivileged_userns_clone and user.max_user_namespaces; in a container, its seccomp profile; \
     a chroot does not work"
        .to_owned()
}

/// Gives a process in a new user namespace its ids. Called by the process that made it.
pub(super) fn write_id_maps(pid: libc::pid_t, owner: Owner) -> Result<(), MapError> {
    let write = |file: &'static str, text: &str| {
        fs::write(format!("/proc/{pid}/{file}"), text)
            .map_err(|error| (file, Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))))
    };
    match owner {
        Owner::Kept => {
            for file in ["uid_map", "gid_map"] {
                let own = fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
                write(file, &identity(&own))?;
            }
        }
        Owner::Single { uid, gid } => {
            write("setgroups", "deny")?;
            write("uid_map", &format!("{uid} {uid} 1\n"))?;
            write("gid_map", &format!("{gid} {gid} 1\n"))?;
        }
    }
    Ok(())
}

/// Maps to itself every id that `map` (as in /proc/self/uid_map) has inside.
fn identity(map: &str) -> String {
    let line = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (inside, count) = (fields.next()?, fields.nth(1)?);
        Some(format!("{inside} {inside} {count}\n"))
    };
    map.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_map_has_what_is_inside() {
        assert_eq!(identity("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(identity(" 0 1000 1\n 1 100000 65536\n"), "0 0 1\n1 1 65536\n");
    }
}

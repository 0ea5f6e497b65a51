//! The cores on which a thread may run; see [`skein_replica::replica::shared_core`].
//!
//! A thread begins where the one that made it may run: those that work beside one that is bound [leave](run_anywhere) its core.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::OnceLock;

/// Where threads of this node could run before one was bound.
static BEFORE: OnceLock<CpuSet> = OnceLock::new();

/// Of the thread that made it, and none other.
#[derive(Debug, Default)]
pub struct Cores {
    /// Where the thread may run; nothing where there is no choice, or none is to be made.
    allowed: Option<CpuSet>,
}

impl Cores {
    /// Looks where this thread may run.
    #[must_use]
    pub fn of_this_thread() -> Self {
        let cores = |set: &CpuSet| {
            (0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).count()
        };
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok();
        Self { allowed: allowed.filter(|set| cores(set) > 1) }
    }

    /// Whether there is more than one.
    #[must_use]
    pub const fn are_several(&self) -> bool {
        self.allowed.is_some()
    }

    /// Binds the thread to the core that it is on; answers which, from 1. `None`: it may not.
    pub fn bind(&mut self) -> Option<u32> {
        let mut one = CpuSet::new();
        let bound = sched_getcpu().and_then(|core| {
            one.set(core)?;
            if let Some(allowed) = self.allowed {
                BEFORE.get_or_init(|| allowed);
            }
            sched_setaffinity(Pid::from_raw(0), &one)?;
            Ok(core as u32 + 1)
        });
        bound.ok()
    }

    /// Lets it run anywhere again.
    pub fn unbind(&self) {
        if let Some(allowed) = &self.allowed {
            // What is not possible stays as it is: slower, nothing else.
            let _ = sched_setaffinity(Pid::from_raw(0), allowed);
        }
    }
}

/// The thread may run anywhere, whoever made it.
pub fn run_anywhere() {
    if let Some(allowed) = BEFORE.get() {
        // What is not possible stays as it is.
        let _ = sched_setaffinity(Pid::from_raw(0), allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_bound_and_let_go() {
        let of_this = || sched_getaffinity(Pid::from_raw(0)).unwrap();
        let all = of_this();
        let mut cores = Cores::of_this_thread();
        if !cores.are_several() {
            return;
        }
        let bound = cores.bind().unwrap();
        let mut one = CpuSet::new();
        one.set(bound as usize - 1).unwrap();
        assert!(of_this() == one);
        let beside = std::thread::spawn(move || {
            assert!(of_this() == one, "as the thread that made it");
            run_anywhere();
            of_this()
        });
        assert!(beside.join().unwrap() == all && of_this() == one);
        cores.unbind();
        assert!(of_this() == all);
    }
}
